package v1beta1

// LabelTrue is the value of every label that is a mark: it is set to this or absent.
const LabelTrue = "true"

// Labels that say which cluster, gateway or node an object belongs to.
const (
	// LabelRemoteClusterID holds the ID of the remote cluster. It is on nearly everything that belongs to one peer.
	LabelRemoteClusterID = "liqo.io/remote-cluster-id"
	// LabelTenantNamespace marks the Namespace that holds the objects of one peer.
	LabelTenantNamespace = "liqo.io/tenant-namespace"
	// LabelManaged marks every object that the controllers made.
	LabelManaged = "liqo.io/managed"
	// LabelUninstalling marks that the installation is being removed.
	LabelUninstalling = "liqo.io/uninstalling"

	// LabelGatewayResource marks the Secrets and PublicKeys that hold keys of gateways.
	LabelGatewayResource = "networking.liqo.io/gateway-resource"
	// LabelGatewayName holds the name of the gateway that a Pod, Deployment or ClusterRoleBinding belongs to.
	LabelGatewayName = "networking.liqo.io/gateway-name"
	// LabelGatewayNamespace holds the namespace of that gateway.
	LabelGatewayNamespace = "networking.liqo.io/gateway-namespace"
	// LabelComponent says what a Pod is; of a gateway it is ComponentGateway.
	LabelComponent = "networking.liqo.io/component"
	// ComponentGateway is the value of LabelComponent on gateway pods.
	ComponentGateway = "gateway"
	// LabelActive marks the gateway pod that leads; the gateway's Service selects by it.
	LabelActive = "networking.liqo.io/active"
	// LabelStandBy is on the Lease of a gateway with several pods. Its value changes every two minutes while one of them
	// stands by.
	LabelStandBy = "networking.liqo.io/stands-by"
	// LabelGatewayTemplate marks the CRDs of kinds that are gateway templates.
	LabelGatewayTemplate = "networking.liqo.io/gatewaytemplate"

	// LabelInternalFabricName holds the name of the InternalFabric that a GeneveTunnel belongs to.
	LabelInternalFabricName = "networking.liqo.io/internal-fabric-name"
	// LabelInternalNodeName holds the name of the InternalNode that a GeneveTunnel belongs to.
	LabelInternalNodeName = "networking.liqo.io/internal-node-name"

	// LabelCIDRType says which CIDR of a Configuration a Network stands for.
	LabelCIDRType = "configuration.liqo.io/cidr-type"
	// CIDRTypePod is the value of LabelCIDRType for a pod CIDR.
	CIDRTypePod = "pod"
	// CIDRTypeExternal is the value of LabelCIDRType for an external CIDR.
	CIDRTypeExternal = "external"
)

// Labels of a RouteConfiguration that say who applies it.
const (
	// LabelRouteCategory says whether gateways or nodes apply it.
	LabelRouteCategory = "networking.liqo.io/route-category"
	// LabelRouteSubcategory narrows the category.
	LabelRouteSubcategory = "networking.liqo.io/route-subcategory"
	// LabelRouteUnique names the one remote cluster, or the one node, for which it is.
	LabelRouteUnique = "networking.liqo.io/route-unique"
)

// Labels of a FirewallConfiguration that say who applies it.
const (
	// LabelFirewallCategory says whether gateways or nodes apply it.
	LabelFirewallCategory = "networking.liqo.io/firewall-category"
	// LabelFirewallSubcategory narrows the category.
	LabelFirewallSubcategory = "networking.liqo.io/firewall-subcategory"
	// LabelFirewallUnique names the one remote cluster, or the one node, for which it is.
	LabelFirewallUnique = "networking.liqo.io/firewall-unique"
	// LabelGatewayMasqueradeBypass marks the FirewallConfigurations that keep nodes from masquerading a gateway's
	// own packets.
	LabelGatewayMasqueradeBypass = "networking.liqo.io/gateway-masquerade-bypass"
)

// Values of the category and subcategory labels of RouteConfigurations and FirewallConfigurations.
const (
	// CategoryGateway means that gateways apply it.
	CategoryGateway = "gateway"
	// CategoryFabric means that nodes apply it.
	CategoryFabric = "fabric"

	// SubcategoryFabric means that every gateway applies it.
	SubcategoryFabric = "fabric"
	// SubcategoryFabricNode means that the gateways that run on the node of the unique label apply it.
	SubcategoryFabricNode = "fabric-node"
	// SubcategoryAllGateways means that every gateway applies it.
	SubcategoryAllGateways = "all-gateways"
	// SubcategoryAllNodes means that every node applies it.
	SubcategoryAllNodes = "all-nodes"
	// SubcategorySingleNode means that the node of the unique label applies it.
	SubcategorySingleNode = "single-node"
	// SubcategoryIPMapping means that it serves one IP object.
	SubcategoryIPMapping = "ip-mapping"
)

// Labels of objects of other groups that the network has to know.
const (
	// LabelNodeType says what a Node is.
	LabelNodeType = "liqo.io/type"
	// NodeTypeVirtual is the value of LabelNodeType on nodes that stand for a remote cluster. They have no end of the
	// internal network.
	NodeTypeVirtual = "virtual-node"
	// LabelShadowPod marks the pods that run here on behalf of a remote cluster.
	LabelShadowPod = "liqo.io/shadowPod"
	// LabelOffloadedPodName holds, on an IP, the name of the offloaded pod whose address it is.
	LabelOffloadedPodName = "offloading.liqo.io/pod-name"
	// LabelOffloadedPodNamespace holds the namespace of that pod.
	LabelOffloadedPodNamespace = "offloading.liqo.io/pod-namespace"
	// LabelServiceAlias, on a Namespace, says whether Services that other clusters export are there under their own name as
	// well: "true" or "false". Without it the chart's value services.alias counts.
	LabelServiceAlias = "liqo.io/service-alias"
	// LabelImportedFrom, on a Namespace, holds the ID of the cluster for a Service of which it was created.
	LabelImportedFrom = "liqo.io/imported-from"
	// LabelPassedOnFrom holds the ID of the cluster of which an endpoint is that a hub passes on: on the IP by which the hub makes
	// it reachable, and on the EndpointSlices of who imports it from the hub.
	LabelPassedOnFrom = "liqo.io/passed-on-from"
	// LabelPodSecurity, of Kubernetes, on a Namespace, holds the level of PodSecurity below which no pod is admitted there.
	LabelPodSecurity = "pod-security.kubernetes.io/enforce"
	// LabelWebhookSkip keeps admission webhooks from judging a RouteConfiguration or FirewallConfiguration.
	LabelWebhookSkip = "liqo.io/webhook-skip"
)

// Annotations.
const (
	// AnnotationPreinstalled marks what came with the installation. Such objects get no finalizer, so that removing
	// the installation does not hang on them.
	AnnotationPreinstalled = "liqo.io/preinstalled"
	// AnnotationChosenEndpoint remembers, on a GatewayClient, by which address or port or both the user said that the
	// server is reached, as of a NAT in between: "203.0.113.7:", ":51840" or "203.0.113.7:51840", with several ports
	// "203.0.113.7:51840,51841".
	AnnotationChosenEndpoint = "networking.liqo.io/chosen-endpoint"
	// AnnotationTunnelPorts says, on a WgGatewayServer, which UDP ports of its Service are tunnels, in their order,
	// separated by commas. Without it the first one is.
	AnnotationTunnelPorts = "networking.liqo.io/tunnel-ports"
	// AnnotationTemplateLabels remembers the label keys that were last applied from a template, so that a key which
	// the template lost can be told from one that somebody else set.
	AnnotationTemplateLabels = "liqo.io/template-labels"
	// AnnotationExportTo, on a ServiceExport, holds the IDs of the clusters that may see the Service, separated by commas.
	// Without it all peers may.
	AnnotationExportTo = "liqo.io/export-to"
	// AnnotationPreferLocal, on a ServiceExport, keeps connections in its cluster: if "true", endpoints of other clusters are
	// ready there only while none of its own is.
	AnnotationPreferLocal = "liqo.io/prefer-local"
	// AnnotationExportServices and AnnotationImportServices, on a Configuration, say which Services its peer may be told of, and
	// which ones of the peer are used here: NAMESPACE or NAMESPACE/NAME, separated by commas, in which * stands for any text.
	// For exports also LABEL=VALUE, of the Service. Without them all are.
	AnnotationExportServices = "liqo.io/export-services"
	AnnotationImportServices = "liqo.io/import-services"
	// AnnotationPassOnServices, on a Configuration, names Services of its peer which this cluster, a hub, may offer to its other
	// peers, in the form of AnnotationImportServices. Without it there are none.
	AnnotationPassOnServices = "liqo.io/pass-on-services"
	// AnnotationCreateNamespaces, on a Configuration, names the namespaces that are created for Services of its peer, separated
	// by commas; * stands for any text. Without it none is.
	AnnotationCreateNamespaces = "liqo.io/create-namespaces"
	// AnnotationTemplateAnnotations remembers the annotation keys that were last applied from a template.
	AnnotationTemplateAnnotations = "liqo.io/template-annotations"
)

// Entries of the Secret that holds a WireGuard key pair.
const (
	PrivateKeyEntry = "privateKey"
	PublicKeyEntry  = "publicKey"
)

// Finalizers.
const (
	// FinalizerClusterRoleBinding, on a WgGatewayServer or WgGatewayClient, waits for its ClusterRoleBinding, which
	// no owner reference can reach.
	FinalizerClusterRoleBinding = "networking.liqo.io/clusterrolebinding"
	// FinalizerInternalFabricGeneve, on an InternalFabric, waits for its GeneveTunnels.
	FinalizerInternalFabricGeneve = "networking.liqo.io/internal-fabric-geneve-tunnel-finalizer"
	// FinalizerInternalFabricLegacy is what earlier versions used instead. It is removed wherever it is seen.
	FinalizerInternalFabricLegacy = "internalfabric-controller.liqo.io/finalizer"
	// FinalizerInternalNodeRoute, on an InternalNode, waits for its RouteConfigurations.
	FinalizerInternalNodeRoute = "internalnodes-route.liqo.io/finalizer"
	// FinalizerRouteConfiguration, on a RouteConfiguration of nodes, waits for the nodes to remove it.
	FinalizerRouteConfiguration = "routeconfiguration-controller.liqo.io/finalizer"
	// FinalizerFirewallConfiguration, on a FirewallConfiguration of nodes, waits for the nodes to remove it.
	FinalizerFirewallConfiguration = "firewallconfigurations-controller.liqo.io/finalizer"
)
