package nettest

import (
	"net/netip"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/probe"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// The namespaces of the test's pods, the same in every cluster. Pods on the host network
// need a privilege, so they have their own namespace.
const (
	Namespace     = "liqo-test-network"
	HostNamespace = "liqo-test-network-host"
)

const (
	workloadName   = "prober"
	containerName  = "prober"
	externalIPName = "internet"
	labelName      = "app.kubernetes.io/name"
	webPort        = "web"
	datagramPort   = "datagram"
)

// labels are those of everything that is made here.
func labels() map[string]string {
	return map[string]string{labelName: workloadName, peering.LabelManagedBy: peering.FieldOwner}
}

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels()}
}

// newNamespace returns a namespace with the Pod Security level of its pods.
func newNamespace(name string) *corev1.Namespace {
	level := "restricted"
	if name == HostNamespace {
		level = "privileged"
	}
	ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metaOf("", name)}
	ns.Labels[networkingv1beta1.LabelPodSecurity] = level
	return ns
}

// workload describes the pods in one namespace.
type workload struct {
	namespace string
	cluster   string // its ID
	image     string
	pull      []corev1.LocalObjectReference
	replicas  int32 // 0: one on each node
}

// object is a DaemonSet, or a Deployment that spreads its pods over the nodes.
func (w workload) object() client.Object {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{labelName: workloadName}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels()}, Spec: w.pod()}
	if w.replicas == 0 {
		return &appsv1.DaemonSet{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: metaOf(w.namespace, workloadName),
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
		}
	}
	template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector,
	}}
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metaOf(w.namespace, workloadName),
		Spec: appsv1.DeploymentSpec{Replicas: &w.replicas, Selector: selector, Template: template},
	}
}

// other is the object that an earlier run may have left for the same pods: of the other kind.
func (w workload) other() client.Object {
	if w.replicas == 0 {
		return &appsv1.Deployment{ObjectMeta: metaOf(w.namespace, workloadName)}
	}
	return &appsv1.DaemonSet{ObjectMeta: metaOf(w.namespace, workloadName)}
}

// pod is a prober without any privilege except, in HostNamespace, the host network.
func (w workload) pod() corev1.PodSpec {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	c := corev1.Container{
		// The policy is set explicitly: its default depends on the image, and would stay if the
		// image changed.
		Name: containerName, Image: w.image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"serve"},
		Env: []corev1.EnvVar{{Name: probe.EnvCluster, Value: w.cluster}, field(probe.EnvPod, "metadata.name"), field(probe.EnvNode, "spec.nodeName")},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: new(int64(1)), ImagePullSecrets: w.pull,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	if w.namespace == HostNamespace {
		spec.HostNetwork = true
		c.Args = []string{"idle"} // its ports would be the node's
	} else {
		c.Ports = []corev1.ContainerPort{
			{Name: webPort, ContainerPort: probe.Port, Protocol: corev1.ProtocolTCP},
			{Name: datagramPort, ContainerPort: probe.Port, Protocol: corev1.ProtocolUDP},
		}
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString(webPort)}},
			PeriodSeconds: 2, TimeoutSeconds: 2,
		}
	}
	spec.Containers = []corev1.Container{c}
	return spec
}

// serviceName is the name of the Service that stands for a peer.
func serviceName(peer string) string { return "to-" + peering.GatewayName(peer) }

// newService returns a Service without a selector: newEndpoints returns its endpoints.
func newService(peer string, t corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metaOf(Namespace, serviceName(peer)),
		Spec: corev1.ServiceSpec{Type: t, Ports: servicePorts()},
	}
}

// servicePorts are those of Services that lead to probers.
func servicePorts() []corev1.ServicePort {
	return []corev1.ServicePort{{Name: webPort, Port: 80, TargetPort: intstr.FromInt32(probe.Port), Protocol: corev1.ProtocolTCP}}
}

// newEndpoints returns the probers of a peer as endpoints, with their addresses in this
// cluster.
func newEndpoints(peer string, addresses []netip.Addr) *discoveryv1.EndpointSlice {
	e := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: metaOf(Namespace, serviceName(peer)),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(webPort), Port: new(int32(probe.Port)), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	e.Labels[discoveryv1.LabelServiceName], e.Labels[discoveryv1.LabelManagedBy] = serviceName(peer), peering.FieldOwner
	for _, a := range addresses {
		if a.Is6() {
			e.AddressType = discoveryv1.AddressTypeIPv6
		}
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return e
}

// newExternalIP returns the IP object that gives an outside host an address of the external
// CIDR.
func newExternalIP(host netip.Addr) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		TypeMeta: metav1.TypeMeta{APIVersion: ipamv1alpha1.GroupVersion.String(), Kind: "IP"}, ObjectMeta: metaOf(Namespace, externalIPName),
		Spec: ipamv1alpha1.IPSpec{IP: ipamv1alpha1.Address(host.String()), Masquerade: new(true)},
	}
}
