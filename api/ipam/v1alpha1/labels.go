package v1alpha1

// Labels of a Network.
const (
	// LabelNetworkType says which Network of the installation it is.
	LabelNetworkType = "ipam.liqo.io/network-type"
	// NetworkTypePodCIDR is the pod CIDR of this cluster.
	NetworkTypePodCIDR = "pod-cidr"
	// NetworkTypeServiceCIDR is the Service CIDR of this cluster.
	NetworkTypeServiceCIDR = "service-cidr"
	// NetworkTypeExternalCIDR is the external CIDR of this cluster.
	NetworkTypeExternalCIDR = "external-cidr"
	// NetworkTypeInternalCIDR is the prefix of the internal network of this cluster.
	NetworkTypeInternalCIDR = "internal-cidr"
	// NetworkTypeReserved is a prefix that must never be handed out.
	NetworkTypeReserved = "reserved"

	// LabelNetworkNotRemapped, "true", asks for exactly this prefix or none.
	LabelNetworkNotRemapped = "ipam.liqo.io/network-not-remapped"
	// LabelNetworkShared, "true", allows the prefix to overlap one that is already given.
	LabelNetworkShared = "ipam.liqo.io/network-shared"
)

// Labels of an IP.
const (
	// LabelNetworkNamespace holds the namespace of the Network that status.ip was taken from.
	LabelNetworkNamespace = "ipam.liqo.io/network-namespace"
	// LabelNetworkName holds the name of that Network.
	LabelNetworkName = "ipam.liqo.io/network-name"

	// LabelIPType says which IP of the installation it is.
	LabelIPType = "ipam.liqo.io/ip-type"
	// IPTypeAPIServer is the cluster address of the Kubernetes API server.
	IPTypeAPIServer = "api-server"
	// IPTypeAPIServerProxy is the proxy before the Kubernetes API server.
	IPTypeAPIServerProxy = "api-server-proxy"

	// LabelEndpointSlice marks the IPs and EndpointSlices by which a remote cluster reaches the API server when that
	// goes by an EndpointSlice.
	LabelEndpointSlice = "ipam.liqo.io/endpointslice"
	// LabelHostUnreachable, "true", asks not to translate for this IP.
	LabelHostUnreachable = "networking.liqo.io/host-unreachable"
)

// Finalizers.
const (
	// FinalizerNetwork, on a Network, waits for its prefix to be given back.
	FinalizerNetwork = "network.ipam.liqo.io/finalizer"
	// FinalizerIP, on an IP, waits for its address to be given back.
	FinalizerIP = "ip.ipam.liqo.io/finalizer"
	// FinalizerIPMapping, on an IP, waits for its translation to be removed.
	FinalizerIPMapping = "ipmapping-nat-controller.liqo.io/finalizer"
)
