package v1beta1

// Labels of what belongs to the identities of a peering.
const (
	// LabelIdentityType, on an identity's Secret, holds its IdentityType.
	LabelIdentityType = "liqo.io/identity-type"
	// LabelResourceSliceName, on an Identity and its Secret, names the slice that it is for.
	LabelResourceSliceName = "liqo.io/resourceslice-name"
	// LabelNonce marks the Secret of a nonce, on the provider.
	LabelNonce = "liqo.io/nonce"
	// LabelSignedNonce marks the Secret of a signed nonce, on the consumer.
	LabelSignedNonce = "liqo.io/signed-nonce"
	// LabelTenantCSR marks the CertificateSigningRequests of tenants.
	LabelTenantCSR = "liqo.io/remote-tenant-csr"
	// LabelIssuedFor says for which object one is made, by a hash: Sluice's, Liqo knows no such label.
	LabelIssuedFor = "authentication.liqo.io/issued-for"
	// LabelPeeringUser marks what belongs to a user made for the operator of another cluster, and holds its name.
	LabelPeeringUser = "liqo.io/peering-user-name"
)

// Labels of what is copied to another cluster.
const (
	// LabelReplication is "true" on an object that is to be copied, "false" on the copy.
	LabelReplication = "liqo.io/replication"
	// LabelReplicationDestination holds the ID of the cluster to which an object is copied.
	LabelReplicationDestination = "liqo.io/remoteID"
	// LabelReplicationOrigin, on a copy, holds the ID of the cluster that it comes from.
	LabelReplicationOrigin = "liqo.io/originID"
	// LabelReplicated marks a copy.
	LabelReplicated = "liqo.io/replicated"
)

// Finalizers that Liqo's controllers set. Ours set none, and remove these from what is being deleted.
const (
	// FinalizerTenant, on a Tenant, waits for the end of what its consumer has here.
	FinalizerTenant = "tenant.liqo.io/finalizer"
	// FinalizerReplicated, on an object that is copied to another cluster, waits for the end of the copy.
	FinalizerReplicated = "crdreplicator.liqo.io/resource"
	// FinalizerReplicator, on an identity's Secret, waits for the end of what was copied by it.
	FinalizerReplicator = "crdreplicator.liqo.io/operator"
)

// Annotations.
const (
	// AnnotationRemoteTenantNamespace, on an identity's Secret, names the tenant namespace at the provider.
	AnnotationRemoteTenantNamespace = "liqo.io/remote-tenant-namespace"
	// AnnotationCreateVirtualNode, on a ResourceSlice, asks for a virtual node.
	AnnotationCreateVirtualNode = "liqo.io/create-virtual-node"
	// AnnotationCordon, on the copy of a ResourceSlice, says that it is cordoned by itself.
	AnnotationCordon = "liqo.io/cordon"
	// AnnotationCordonTenant, on the copy of a ResourceSlice, says that its Tenant is cordoned.
	AnnotationCordonTenant = "liqo.io/cordon-tenant"
	// AnnotationQuota, on a tenant namespace of the provider, bounds what the slices of the consumer get altogether:
	// cpu=8,memory=32Gi. The consumer cannot write it.
	AnnotationQuota = "authentication.liqo.io/quota"
)

// Names of objects.
const (
	// NonceSecret is the Secret of a nonce, in the tenant namespace of the provider.
	NonceSecret = "liqo-nonce"
	// SignedNonceSecret is the Secret of a signed nonce, in the tenant namespace of the consumer.
	SignedNonceSecret = "liqo-signed-nonce"
	// NonceKey is the key of the nonce in both Secrets.
	NonceKey = "nonce"
	// SignedNonceKey is the key of the signature in SignedNonceSecret.
	SignedNonceKey = "signedNonce"
	// RequestKey is the key of the certificate signing request of the consumer, beside the signature.
	RequestKey = "csr"
	// KeysSecret is the Secret of the key pair of a cluster, in the Liqo namespace.
	KeysSecret = "authentication-keys"
	// CopiesSecret is the Secret of a tenant namespace that says where copies are to be taken back.
	CopiesSecret = "liqo-copies"
	// PrivateKey and PublicKey are the keys of the two keys in KeysSecret.
	PrivateKey, PublicKey = "privateKey", "publicKey"
	// KubeconfigKey is the key of the kubeconfig in an identity's Secret.
	KubeconfigKey = "kubeconfig"
	// RemoteControlPlaneRole is the ClusterRole of a consumer in its tenant namespace.
	RemoteControlPlaneRole = "liqo-remote-controlplane"
	// PeeringUserTenantRole is the ClusterRole of a peering user in the tenant namespace.
	PeeringUserTenantRole = "liqo-peering-user-tenant-ns"
	// PeeringUserLiqoRole is the Role of a peering user in the Liqo namespace.
	PeeringUserLiqoRole = "liqo-peering-user-liqo-ns"
)

// OfHandshake tells whether a Secret, by its name and labels, is one by which a consumer proves who it is.
func OfHandshake(name string, labels map[string]string) bool {
	return name == NonceSecret && labels[LabelNonce] == "true" || name == SignedNonceSecret && labels[LabelSignedNonce] == "true"
}
