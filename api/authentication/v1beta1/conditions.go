package v1beta1

// ConditionReady is the condition of a [Tenant] and of an [Identity]. It has observedGeneration set. Its message says
// what to do.
//
// Possible reasons of a Tenant for it to be True:
//   - TenantReady
//   - TenantCordoned
//
// Possible reasons of a Tenant for it to be False:
//   - ClusterIDInvalid
//   - NamespaceInvalid
//   - DuplicateTenant
//   - RoleBindingMissing
//   - RoleBindingInTheWay
//   - NonceMissing
//   - NonceReplayed
//   - SignatureInvalid
//   - RequestInvalid
//   - KeyMismatch
//   - UserForbidden
//   - GroupForbidden
//   - CertificatePending
//   - CertificateRefused
//   - EarlierRemains
//   - QuotaNotCounted
//   - SecretInTheWay
//   - APIServerUnknown
//   - TenantDrained
//
// Possible reasons of an Identity for it to be True:
//   - IdentityReady
//
// Possible reasons of an Identity for it to be False:
//   - ClusterIDInvalid
//   - CredentialsMissing
//   - CertificateInvalid
//   - CertificateExpired
//   - KubeconfigInvalid
//   - SecretInTheWay
const ConditionReady = "Ready"

// Reasons of the condition Ready.
const (
	// ReasonTenantReady means that the consumer may ask for resources.
	ReasonTenantReady = "TenantReady"
	// ReasonTenantCordoned means that the consumer keeps what it has and gets no more.
	ReasonTenantCordoned = "TenantCordoned"
	// ReasonTenantDrained means that what the consumer had was taken back.
	ReasonTenantDrained = "TenantDrained"
	// ReasonClusterIDInvalid means that the ID of the other cluster is missing, differs from the label, or is this
	// cluster's own.
	ReasonClusterIDInvalid = "ClusterIDInvalid"
	// ReasonNamespaceInvalid means that the namespace is not the tenant namespace of that cluster.
	ReasonNamespaceInvalid = "NamespaceInvalid"
	// ReasonDuplicateTenant means that there is an older Tenant for the same cluster, or in the same namespace.
	ReasonDuplicateTenant = "DuplicateTenant"
	// ReasonRoleBindingMissing means that no user is bound to the ClusterRole liqo-remote-controlplane.
	ReasonRoleBindingMissing = "RoleBindingMissing"
	// ReasonRoleBindingInTheWay means that there is a RoleBinding of the name of the consumer's that is somebody else's.
	ReasonRoleBindingInTheWay = "RoleBindingInTheWay"
	// ReasonNonceMissing means that there is no nonce that the consumer could have signed.
	ReasonNonceMissing = "NonceMissing"
	// ReasonSignatureInvalid means that the signature is not that of the nonce by the public key.
	ReasonSignatureInvalid = "SignatureInvalid"
	// ReasonNonceReplayed means that the signature is that of a nonce that has served.
	ReasonNonceReplayed = "NonceReplayed"
	// ReasonRequestInvalid means that the certificate signing request does not parse, is not signed by its key, or asks
	// for more than a user and a group.
	ReasonRequestInvalid = "RequestInvalid"
	// ReasonKeyMismatch means that the certificate signing request is for another key than that of the cluster.
	ReasonKeyMismatch = "KeyMismatch"
	// ReasonUserForbidden means that the certificate signing request asks for the user of another cluster, or any other.
	ReasonUserForbidden = "UserForbidden"
	// ReasonGroupForbidden means that the certificate signing request asks for another group than that of consumers.
	ReasonGroupForbidden = "GroupForbidden"
	// ReasonCertificatePending means that the certificate is not signed yet.
	ReasonCertificatePending = "CertificatePending"
	// ReasonCertificateRefused means that the signer of this cluster refuses to sign the certificate.
	ReasonCertificateRefused = "CertificateRefused"
	// ReasonEarlierRemains means that what was made for an earlier object of the name has not been deleted yet.
	ReasonEarlierRemains = "EarlierRemains"
	// ReasonQuotaNotCounted means that the cluster does not count yet the objects that the consumer may write, so that its
	// API server would refuse them.
	ReasonQuotaNotCounted = "QuotaNotCounted"
	// ReasonAPIServerUnknown means that the address of the API server of this cluster is not known.
	ReasonAPIServerUnknown = "APIServerUnknown"

	// ReasonIdentityReady means that the Secret with the kubeconfig is there.
	ReasonIdentityReady = "IdentityReady"
	// ReasonCredentialsMissing means that authParams holds no certificate.
	ReasonCredentialsMissing = "CredentialsMissing"
	// ReasonCertificateInvalid means that the certificate does not parse, or is not for the key of this cluster.
	ReasonCertificateInvalid = "CertificateInvalid"
	// ReasonCertificateExpired means that the certificate has expired.
	ReasonCertificateExpired = "CertificateExpired"
	// ReasonKubeconfigInvalid means that no kubeconfig can be made of authParams.
	ReasonKubeconfigInvalid = "KubeconfigInvalid"
	// ReasonSecretInTheWay means that there is a Secret of the same name that is somebody else's.
	ReasonSecretInTheWay = "SecretInTheWay"
)

// PassesByItself tells whether a reason of the condition Ready goes away without anybody doing something.
func PassesByItself(reason string) bool {
	return reason == ReasonCertificatePending || reason == ReasonEarlierRemains || reason == ReasonQuotaNotCounted
}

// Reasons of events of the Secret of a control plane identity, beside those above.
const (
	// ReasonReplicating means that what is asked for is copied to the provider.
	ReasonReplicating = "Replicating"
	// ReasonAnnotationMissing means that the Secret does not name the tenant namespace at the provider.
	ReasonAnnotationMissing = "AnnotationMissing"
	// ReasonDuplicateIdentity means that there is an older one for the same provider.
	ReasonDuplicateIdentity = "DuplicateIdentity"
	// ReasonNameTaken means that the provider has an object of its own with the name of a copy.
	ReasonNameTaken = "NameTaken"
	// ReasonAPIServerUnreachable means that the API server of the provider does not answer.
	ReasonAPIServerUnreachable = "APIServerUnreachable"
	// ReasonAnswerInvalid means that the provider answers with a status that is none, or too long.
	ReasonAnswerInvalid = "AnswerInvalid"
	// ReasonCopyRefused means that the provider takes a copy for invalid, or that one of its policies, webhooks or quotas
	// denies it.
	ReasonCopyRefused = "CopyRefused"
	// ReasonCredentialsRefused means that it does not know the user of the kubeconfig.
	ReasonCredentialsRefused = "CredentialsRefused"
)

// Reasons of the conditions of a [ResourceSlice].
const (
	// ReasonSliceAuthenticationAccepted means that the credentials are in the status.
	ReasonSliceAuthenticationAccepted = "ResourceSliceAuthenticationAccepted"
	// ReasonCredentialsByUser means that the consumer made no handshake, and that the provider has no credentials for the
	// slice: the consumer uses those that it is given by other means.
	ReasonCredentialsByUser = "CredentialsByUser"
	// ReasonSliceResourcesAccepted means that the resources are granted.
	ReasonSliceResourcesAccepted = "ResourceSliceResourcesAccepted"
	// ReasonTenantMissing means that the namespace has no Tenant for the consumer.
	ReasonTenantMissing = "TenantMissing"
	// ReasonIdentityInTheWay means that there is an Identity of the name of the slice's that is somebody else's. It is
	// the reason of an event.
	ReasonIdentityInTheWay = "IdentityInTheWay"
	// ReasonNotReplicated means that a slice is not copied to the provider: its label or the identity is missing. It is the
	// reason of an event.
	ReasonNotReplicated = "NotReplicated"
	// ReasonSliceCordoned means that the provider has cordoned the slice.
	ReasonSliceCordoned = "ResourceSliceCordoned"
	// ReasonConsumerInvalid means that the slice names another consumer or provider.
	ReasonConsumerInvalid = "ConsumerInvalid"
	// ReasonResourcesInvalid means that resources are asked for that cannot be granted.
	ReasonResourcesInvalid = "ResourcesInvalid"
	// ReasonDefaultClassDisabled means that the provider grants nothing by the class default.
	ReasonDefaultClassDisabled = "DefaultResourceSliceClassDisabled"
	// ReasonQuotaExceeded means that the consumer would get more than the provider lets it have altogether.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonQuotaInvalid means that the annotation with the quota does not parse.
	ReasonQuotaInvalid = "QuotaInvalid"
	// ReasonResourcesUnavailable means that the nodes of the provider do not have it left.
	ReasonResourcesUnavailable = "ResourcesUnavailable"
)
