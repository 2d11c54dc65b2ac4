package v1beta1

// Labels of what belongs to offloading.
const (
	// LabelSchedulingEnabled marks the namespaces whose pods may be scheduled onto virtual nodes.
	LabelSchedulingEnabled = "liqo.io/scheduling-enabled"
	// LabelCreatorUser, on a Quota, a ShadowPod and its Pod, holds the user of a Quota, in a form that fits a label.
	LabelCreatorUser = "liqo.io/creator-user"
	// LabelVirtualNode, on a pod of a virtual kubelet, names its VirtualNode.
	LabelVirtualNode = "liqo.io/virtual-node"
	// LabelComponent says what a pod is; of a virtual kubelet it is ComponentVirtualKubelet.
	LabelComponent = "offloading.liqo.io/component"
	// ComponentVirtualKubelet is the value of LabelComponent on pods of virtual kubelets.
	ComponentVirtualKubelet = "virtual-kubelet"
	// LabelManagedBy says which controller makes a Pod (ManagedByShadowPod) or an EndpointSlice
	// (ManagedByShadowEndpointSlice) of a provider.
	LabelManagedBy = "liqo.io/managed-by"
	// ManagedByShadowPod is the value of LabelManagedBy on the Pod of a ShadowPod.
	ManagedByShadowPod = "shadowpod"
	// ManagedByShadowEndpointSlice is the value of LabelManagedBy on the EndpointSlice of a ShadowEndpointSlice.
	ManagedByShadowEndpointSlice = "shadowendpointslice"
	// EndpointSliceManager is the value of the label endpointslice.kubernetes.io/managed-by on that EndpointSlice.
	EndpointSliceManager = "endpointslice.reflection.liqo.io"
	// LabelRemoteUnavailable marks a local pod whose virtual node is not ready.
	LabelRemoteUnavailable = "liqo.io/remote-unavailable"
	// LabelStorageAvailable, on a Node, says whether it offers storage.
	LabelStorageAvailable = "storage.liqo.io/available"
)

// Labels of every object that a virtual kubelet reflects.
const (
	// LabelOrigin holds the ID of the cluster that an object comes from.
	LabelOrigin = "offloading.liqo.io/origin"
	// LabelDestination holds the ID of the cluster that it was reflected to.
	LabelDestination = "offloading.liqo.io/destination"
	// LabelNodeName, on a ShadowPod and its Pod, names the virtual node.
	LabelNodeName = "offloading.liqo.io/nodename"
	// LabelServiceAccountName, on the Secret of a token, names the service account.
	LabelServiceAccountName = "offloading.liqo.io/service-account-name"
)

// Annotations.
const (
	// AnnotationManagedByNamespaceMap, on a namespace of a provider, holds namespace and name of the NamespaceMap that it
	// was made for: "liqo-tenant-rome/milan".
	AnnotationManagedByNamespaceMap = "liqo.io/managed-by-namespace-map"
	// AnnotationOriginalName, on such a namespace, holds its name at the consumer.
	AnnotationOriginalName = "liqo.io/original-name"
	// AnnotationOffloadingPatchHash, on the pods of a virtual kubelet, changes with the offloading patch.
	AnnotationOffloadingPatchHash = "liqo.io/offloading-patch-hash"
	// AnnotationServiceAccountPodName, on the Secret of a token, names the pod that the token is bound to.
	AnnotationServiceAccountPodName = "offloading.liqo.io/service-account-for-pod-name"
	// AnnotationServiceAccountPodUID holds the UID of that pod.
	AnnotationServiceAccountPodUID = "offloading.liqo.io/service-account-for-pod-uid"
	// AnnotationServiceAccountExpiration is when the token expires (RFC 3339).
	AnnotationServiceAccountExpiration = "offloading.liqo.io/service-account-expiration"
	// AnnotationSkipReflection keeps an object from being reflected, where all are that do not have it.
	AnnotationSkipReflection = "liqo.io/skip-reflection"
	// AnnotationAllowReflection has an object reflected, where only those are that have it.
	AnnotationAllowReflection = "liqo.io/allow-reflection"
	// AnnotationForceRemoteNodePort has the numbers of node ports of a Service reflected.
	AnnotationForceRemoteNodePort = "liqo.io/force-remote-node-port"
	// AnnotationUseDirectConnections, on a Service, lets providers reach each other past the consumer.
	AnnotationUseDirectConnections = "liqo.io/use-direct-connections"
	// AnnotationDirectConnectionsData, on a ShadowEndpointSlice, holds the addresses for that.
	AnnotationDirectConnectionsData = "liqo.io/direct-connections-data"
	// AnnotationAntiAffinityPreset, on a Pod, is soft, hard or propagate.
	AnnotationAntiAffinityPreset = "liqo.io/anti-affinity-preset"
	// AnnotationAntiAffinityLabels, on a Pod, holds the keys of labels by which soft and hard find the pods to avoid.
	AnnotationAntiAffinityLabels = "liqo.io/anti-affinity-labels"
	// AnnotationRemoteRuntimeClassName, on a Pod, names its runtime class at the provider.
	AnnotationRemoteRuntimeClassName = "liqo.io/remote-runtime-class-name"
	// AnnotationAPIServerSupport, on a Pod, is disabled or remote.
	AnnotationAPIServerSupport = "liqo.io/api-server-support"
	// AnnotationRemoteServiceAccountName, on a Pod, names its service account at the provider.
	AnnotationRemoteServiceAccountName = "liqo.io/remote-service-account-name"
)

// Names of objects.
const (
	// NamespaceOffloadingName is the only name that a NamespaceOffloading may have.
	NamespaceOffloadingName = "offloading"
	// VkOptionsTemplateName is the VkOptionsTemplate of the installation, in the Liqo namespace.
	VkOptionsTemplateName = "virtual-kubelet-default"
	// VirtualKubeletName is the Deployment of the virtual kubelet in a tenant namespace, and its service account.
	VirtualKubeletName = "virtual-kubelet"
	// RuntimeClassName is the RuntimeClass of pods that run on virtual nodes without more ado.
	RuntimeClassName = "liqo"
	// VirtualKubeletRemoteRole is the ClusterRole of a consumer in the namespaces made for it.
	VirtualKubeletRemoteRole = "liqo-virtual-kubelet-remote"
	// VirtualKubeletRemoteClusterRole is the ClusterRole of a consumer that is not bound to namespaces.
	VirtualKubeletRemoteClusterRole = "liqo-virtual-kubelet-remote-clusterwide"
	// TaintNotAllowed is the key of the taint of virtual nodes; its value is "true", its effect NoExecute.
	TaintNotAllowed = "virtual-node.liqo.io/not-allowed"
	// FieldManagerReflection is the field manager of reflected objects.
	FieldManagerReflection = "reflection.liqo.io"
)

// Finalizers that Liqo's controllers set. Ours set none, and remove these from what is being deleted.
const (
	// FinalizerVirtualNode, on a VirtualNode, waits for the end of its Node and its process.
	FinalizerVirtualNode = "virtualnode-controller.liqo.io/finalizer"
	// FinalizerNamespaceMap, on a NamespaceMap, waits for the end of the namespaces that it asks for.
	FinalizerNamespaceMap = "namespacemap-controller.liqo.io/finalizer"
	// FinalizerNamespaceOffloading, on a NamespaceOffloading, waits for the end of what was offloaded.
	FinalizerNamespaceOffloading = "namespaceoffloading-controller.liqo.io/finalizer"
)
