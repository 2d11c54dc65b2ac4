package v1beta1

// NamespaceOffloadingRequired is the condition of a namespace at a provider, in the status of a [NamespaceOffloading],
// that says whether the cluster selector selects the provider.
//
// Possible reasons for it to be True:
//   - ClusterSelected
//
// Possible reasons for it to be False:
//   - ClusterNotSelected
//   - NamespaceReserved
const NamespaceOffloadingRequired RemoteNamespaceConditionType = "OffloadingRequired"

// NamespaceReady is the condition that says whether that namespace can be used.
//
// Possible reasons for it to be True:
//   - NamespaceCreated
//
// Possible reasons for it to be False:
//   - CreationLoopBackOff
//   - Terminating
//   - Creating
//   - PodAdmissionMissing
const NamespaceReady RemoteNamespaceConditionType = "Ready"

// Reasons of these conditions.
const (
	// ReasonClusterSelected means that the selector matches a virtual node of the provider.
	ReasonClusterSelected = "ClusterSelected"
	// ReasonClusterNotSelected means that it matches none.
	ReasonClusterNotSelected = "ClusterNotSelected"
	// ReasonNamespaceReserved means that the namespace is never offloaded, whatever the selector says: it belongs to
	// Kubernetes, to its distribution, to the installation or to a peering. Other implementations do not have it.
	ReasonNamespaceReserved = "NamespaceReserved"
	// ReasonNamespaceCreated means that the namespace is there.
	ReasonNamespaceCreated = "NamespaceCreated"
	// ReasonCreationLoopBackOff means that the provider cannot make it, or will not.
	ReasonCreationLoopBackOff = "CreationLoopBackOff"
	// ReasonTerminating means that it is being removed.
	ReasonTerminating = "Terminating"
	// ReasonCreating means that the provider has not answered yet.
	ReasonCreating = "Creating"
	// ReasonPodAdmissionMissing means that the namespace is there, and new pods are not made fit for virtual nodes: the API
	// server of this cluster does not serve what that takes. Other implementations do not have it.
	ReasonPodAdmissionMissing = "PodAdmissionMissing"
)
