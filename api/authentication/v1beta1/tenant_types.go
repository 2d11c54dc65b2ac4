package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AuthzPolicy says how a consumer proves who it is.
//
// +kubebuilder:validation:Enum=KeysExchange;TolerateNoHandshake
type AuthzPolicy string

// The policies.
const (
	// KeysExchange means that the consumer has signed a nonce of the provider with its key, and gets a certificate for
	// that key.
	KeysExchange AuthzPolicy = "KeysExchange"
	// TolerateNoHandshake means that the provider's user has given credentials to the consumer's by other means.
	TolerateNoHandshake AuthzPolicy = "TolerateNoHandshake"
)

// TenantCondition says what a consumer may do.
//
// +kubebuilder:validation:Enum=Active;Cordoned;Drained
type TenantCondition string

// The values of TenantCondition.
const (
	// TenantActive means that the consumer gets what it asks for.
	TenantActive TenantCondition = "Active"
	// TenantCordoned means that the consumer keeps what it has and gets no more.
	TenantCordoned TenantCondition = "Cordoned"
	// TenantDrained means that the consumer loses what it has.
	TenantDrained TenantCondition = "Drained"
)

// Tenant authorizes one consumer. It is an object of the provider and stands in the tenant namespace of that consumer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=tn
// +kubebuilder:printcolumn:name="Condition",type=string,JSONPath=`.spec.tenantCondition`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || !has(oldSelf.spec.clusterID) || has(self.spec) && has(self.spec.clusterID)",message="clusterID cannot be changed: make another Tenant"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantSpec   `json:"spec,omitzero"`
	Status TenantStatus `json:"status,omitzero"`
}

// JudgedByLiqo tells whether controllers that write no conditions, as Liqo's, have looked at the Tenant.
func (t *Tenant) JudgedByLiqo() bool {
	return len(t.Status.Conditions) == 0 && t.Status.TenantNamespace != ""
}

// TenantSpec says who the consumer is, and what it may do.
type TenantSpec struct {
	// ClusterID is the ID of the consumer. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID cannot be changed: make another Tenant"
	ClusterID ClusterID `json:"clusterID,omitempty"`
	// AuthzPolicy says whether the consumer gets its credentials by a handshake (KeysExchange) or from the user
	// (TolerateNoHandshake).
	//
	// +kubebuilder:default=KeysExchange
	AuthzPolicy AuthzPolicy `json:"authzPolicy,omitempty"`
	// PublicKey is the public key of the consumer, PEM (PKIX), or 32 bytes of an Ed25519 key.
	//
	// +kubebuilder:validation:MaxLength=16384
	PublicKey []byte `json:"publicKey,omitempty"`
	// CSR is the certificate signing request of the consumer, PEM.
	//
	// +kubebuilder:validation:MaxLength=16384
	CSR []byte `json:"csr,omitempty"`
	// Signature is that of the nonce, by the key of publicKey.
	//
	// +kubebuilder:validation:MaxLength=16384
	Signature []byte `json:"signature,omitempty"`
	// ProxyURL is the URL of the proxy by which the consumer wants to reach the API server.
	//
	// +kubebuilder:validation:MaxLength=2048
	ProxyURL *string `json:"proxyURL,omitempty"`
	// TenantCondition is Active, Cordoned (nothing more is granted) or Drained (what was granted is taken back).
	//
	// +kubebuilder:default=Active
	TenantCondition TenantCondition `json:"tenantCondition,omitempty"`
}

// TenantStatus is what the consumer was given.
type TenantStatus struct {
	// AuthParams are the credentials of the consumer, after a handshake.
	AuthParams *AuthParams `json:"authParams,omitempty"`
	// TenantNamespace is the namespace in which the consumer may create objects.
	TenantNamespace string `json:"tenantNamespace,omitempty"`
	// Conditions holds the condition Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantList is a list of Tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Tenant `json:"items"`
}
