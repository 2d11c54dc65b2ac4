package v1beta1

// ClusterID is the ID of a cluster: a DNS label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type ClusterID string

// AuthParams are the credentials that a provider grants, and where its API server is.
type AuthParams struct {
	// CA is the certificate authority of the API server, PEM.
	CA []byte `json:"ca,omitempty"`
	// SignedCRT is the signed client certificate, PEM.
	SignedCRT []byte `json:"signedCRT,omitempty"`
	// APIServer is the URL of the API server.
	//
	// +kubebuilder:validation:MaxLength=2048
	APIServer string `json:"apiServer,omitempty"`
	// ProxyURL is the URL of an HTTP proxy in front of the API server.
	//
	// +kubebuilder:validation:MaxLength=2048
	ProxyURL *string `json:"proxyURL,omitempty"`
	// AwsConfig is what an EKS cluster gives instead of a certificate.
	AwsConfig *AwsConfig `json:"awsConfig,omitempty"`
}

// AwsConfig are the credentials of an IAM user of an EKS cluster. They are kept as another implementation wrote them.
type AwsConfig struct {
	// AwsUserArn is the ARN of the IAM user.
	AwsUserArn string `json:"awsUserArn"`
	// AwsAccessKeyID is the ID of its access key.
	AwsAccessKeyID string `json:"awsAccessKeyID"`
	// AwsSecretAccessKey is that access key.
	AwsSecretAccessKey string `json:"awsSecretAccessKey"`
	// AwsRegion is the region of the cluster.
	AwsRegion string `json:"awsRegion"`
	// AwsClusterName is the name of the EKS cluster.
	AwsClusterName string `json:"awsClusterName"`
}
