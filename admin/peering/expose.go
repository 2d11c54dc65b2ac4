package peering

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/api/text"
)

// ExposeOptions say which Service peers are to reach, and how.
type ExposeOptions struct {
	Options
	// Service is the Service at home.
	Service types.NamespacedName
	// PeerNamespace is the namespace at the peer; empty: that of the Service.
	PeerNamespace string
	// ExternalCIDR is what stands at the peer for the external CIDR of the home cluster,
	// where the peer cannot be asked.
	ExternalCIDR netip.Prefix
	// PrintOnly leaves it to the user to apply the objects for the peer.
	PrintOnly bool
}

// exposing is one call of ExposeService.
type exposing struct {
	home, peer *end // peer's Cluster is nil where it cannot be asked
	o          ExposeOptions
	service    *corev1.Service
	remaps     []Remap // home's external CIDRs at the peer
	objects    []client.Object
}

// ExposeService lets the pods of another cluster, peer, reach a Service of home. It creates
// an IP for the address of the Service, and in the peer a Service without a selector whose
// EndpointSlice has the address that stands for it there. Pods behind the Service may come
// and go, as its address stays. With a nil peer, or PrintOnly, nothing is created in the
// peer. ExposeService returns the objects for the peer.
func ExposeService(ctx context.Context, home, peer *access.Cluster, o ExposeOptions, tell progress.Func) ([]client.Object, error) {
	ctx, cancel := withTimeout(ctx, o.Options)
	defer cancel()
	x := &exposing{o: o}
	if peer == nil {
		x.home = newEnd(home, &x.o.Options)
	} else {
		ends := newPair(home, peer, &x.o.Options)
		if err := ends.identify(ctx, tell); err != nil {
			return nil, err
		}
		x.home, x.peer = ends[0], ends[1]
	}
	if err := x.prepare(ctx); err != nil {
		return nil, err
	}
	var p plan
	addressed := p.add(nil, x.address())
	if x.applies() {
		p.add(after(addressed), x.known())
	}
	err := p.run(ctx, tell)
	return x.objects, err
}

// applies tells whether the objects for the peer are applied there.
func (x *exposing) applies() bool { return x.peer != nil && !x.o.PrintOnly }

// prepare finds out what stands in the way, before anything is changed.
func (x *exposing) prepare(ctx context.Context) error {
	name := x.o.Service
	x.o.PeerNamespace = cmp.Or(x.o.PeerNamespace, name.Namespace)
	if err := x.home.Require(ctx, append(access.Permissions(ipamv1alpha1.GroupVersion.Group, "ips", name.Namespace, "get", "create"), access.Permissions("", "services", name.Namespace, "get")...)...); err != nil {
		return err
	}
	x.service = new(corev1.Service)
	err := x.home.Client.Get(ctx, name, x.service)
	if apierrors.IsNotFound(err) {
		return x.home.Errorf("there is no Service %s: nothing was changed; choose another namespace with -n", name)
	}
	if err != nil {
		return x.home.Explain("read Service "+name.String(), err)
	}
	if _, err := netip.ParseAddr(x.service.Spec.ClusterIP); err != nil {
		return x.home.Errorf("Service %s has no address (clusterIP %q, type %s), so there is nothing to expose: nothing was changed", name, x.service.Spec.ClusterIP, x.service.Spec.Type)
	}
	if x.peer == nil {
		return x.remapsByHand(ctx)
	}
	if x.applies() {
		namespace := x.o.PeerNamespace
		if err := x.peer.Require(ctx, append(access.Permissions("", "services", namespace, "get", "create", "patch"), access.Permissions("discovery.k8s.io", "endpointslices", namespace, "get", "create", "patch")...)...); err != nil {
			return err
		}
		for _, o := range []client.Object{new(corev1.Service), new(discoveryv1.EndpointSlice)} {
			if _, err := x.ours(ctx, o); err != nil {
				return err
			}
		}
	}
	return x.remapsOfPeer(ctx)
}

// remapsOfPeer asks the peer what stands there for the external CIDRs of home.
func (x *exposing) remapsOfPeer(ctx context.Context) (err error) {
	if x.remaps, err = x.peer.remaps(ctx); err == nil && x.remaps == nil {
		err = x.peer.Errorf("it has no CIDRs for cluster %s yet, so it cannot reach it: nothing was changed; connect the clusters with 'liqoctl network connect' first", x.home.id)
	}
	return err
}

// remapsByHand takes what the user says of the peer.
func (x *exposing) remapsByHand(ctx context.Context) error {
	own, err := LocalNetwork(ctx, x.home.Cluster)
	if err != nil {
		return err
	}
	prefixes, err := own.CIDR.External.Prefixes()
	if err != nil {
		return x.home.Errorf("external CIDR: %w", err)
	}
	for _, p := range prefixes {
		if p.Bits() == x.o.ExternalCIDR.Bits() && p.Addr().BitLen() == x.o.ExternalCIDR.Addr().BitLen() {
			x.remaps = []Remap{{There: p, Here: x.o.ExternalCIDR}}
			return nil
		}
	}
	return x.home.Errorf("this cluster's external CIDR, %[2]s, cannot be remapped to %[1]s: nothing was changed; 'liqoctl info peer' in the other cluster shows what it is remapped to", x.o.ExternalCIDR, text.Join(prefixes, ", "))
}

// address is the step that gives the Service an address for peers.
func (x *exposing) address() *step {
	name := x.o.Service
	s := &step{in: x.home.Cluster, waiting: "Waiting for an address for Service " + name.String(), clues: x.home.controllerClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		var ip ipamv1alpha1.IP
		err = x.home.Client.Get(ctx, name, &ip)
		if apierrors.IsNotFound(err) {
			ip = *newIP(Metadata{Name: name.Name, Namespace: name.Namespace, Labels: x.o.Labels, Annotations: x.o.Annotations}, x.service.Spec.ClusterIP)
			return "IP " + name.String() + " was just created", x.home.Explain("create IP "+name.String(), x.home.write.Create(ctx, &ip))
		}
		if err != nil {
			return "", x.home.Explain("read IP "+name.String(), err)
		}
		if string(ip.Spec.IP) != x.service.Spec.ClusterIP {
			return "", x.home.Errorf("IP %s is for %s, but the Service has the address %s: if nobody needs that IP, delete it with 'kubectl -n %s delete ip %s'", name, ip.Spec.IP, x.service.Spec.ClusterIP, name.Namespace, name.Name)
		}
		if ip.Status.IP == "" {
			missing = "IP " + name.String() + " has no address"
			if c := meta.FindStatusCondition(ip.Status.Conditions, string(ipamv1alpha1.ConditionAllocated)); c != nil && c.Status != metav1.ConditionTrue {
				missing += ": " + c.Message
			}
			return missing, nil
		}
		given, err := ip.Status.IP.Addr()
		if err != nil {
			return "", x.home.Errorf("IP %s: status.ip: %w", name, err)
		}
		there := Translate(x.remaps, given)
		if !there.IsValid() {
			return "", x.home.Errorf("IP %s has the address %s, which is not in an external CIDR that the peer knows", name, given)
		}
		m := Metadata{Name: name.Name, Namespace: x.o.PeerNamespace, Labels: x.o.Labels, Annotations: x.o.Annotations}
		x.objects = newExposedService(m, x.service.Spec.Ports, there)
		s.done = fmt.Sprintf("Service %s is exposed as %s, in the peer as %s", name, given, there)
		return "", nil
	}
	return s
}

// known is the step that sets up the Service in the peer.
func (x *exposing) known() *step {
	what := types.NamespacedName{Namespace: x.o.PeerNamespace, Name: x.o.Service.Name}
	return &step{
		in: x.peer.Cluster, waiting: "Setting up Service " + what.String(), done: "Service " + what.String() + " correctly set up",
		try: func(ctx context.Context) (missing string, err error) {
			var owner []metav1.OwnerReference
			for _, o := range x.objects {
				o = o.DeepCopyObject().(client.Object)
				o.SetOwnerReferences(owner)
				live, err := x.put(ctx, o)
				if err != nil {
					return "", err
				}
				// The EndpointSlice ends with the Service.
				owner = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: live.GetName(), UID: live.GetUID()}}
			}
			return "", nil
		},
	}
}

// ours reads an object of the Service's name at the peer. It fails where somebody else has
// made it.
func (x *exposing) ours(ctx context.Context, o client.Object) (there bool, err error) {
	key := types.NamespacedName{Namespace: x.o.PeerNamespace, Name: x.o.Service.Name}
	kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
	err = x.peer.Client.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, x.peer.Explain(fmt.Sprintf("read %s %s", kind, key), err)
	}
	if o.GetLabels()[labelOfMaker(o)] != FieldOwner {
		return true, x.peer.Errorf("%s %s already exists and was not created by this command: nothing was changed; choose another namespace with %s", kind, key, x.peer.Flag("namespace"))
	}
	return true, nil
}

// labelOfMaker is the label that tells who has made an object.
func labelOfMaker(o client.Object) string {
	if _, is := o.(*discoveryv1.EndpointSlice); is {
		return discoveryv1.LabelManagedBy
	}
	return LabelManagedBy
}

// put creates an object in the peer, or updates it, and returns it.
func (x *exposing) put(ctx context.Context, wanted client.Object) (client.Object, error) {
	live := wanted.DeepCopyObject().(client.Object)
	there, err := x.ours(ctx, live)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%s %s/%s", wanted.GetObjectKind().GroupVersionKind().Kind, wanted.GetNamespace(), wanted.GetName())
	if !there {
		err := x.peer.write.Create(ctx, wanted)
		if apierrors.IsNotFound(err) {
			return nil, x.peer.Errorf("there is no namespace %s: create it, or choose another with %s, and run the command again", wanted.GetNamespace(), x.peer.Flag("namespace"))
		}
		return wanted, x.peer.Explain("create "+what, err)
	}
	before := live.DeepCopyObject().(client.Object)
	switch live := live.(type) {
	case *corev1.Service:
		live.Spec.Ports = wanted.(*corev1.Service).Spec.Ports
	case *discoveryv1.EndpointSlice:
		slice := wanted.(*discoveryv1.EndpointSlice)
		live.Ports, live.Endpoints, live.OwnerReferences = slice.Ports, slice.Endpoints, slice.OwnerReferences
	}
	return live, x.peer.Explain("change "+what, x.peer.write.Patch(ctx, live, client.MergeFrom(before)))
}

// exposed are the objects of ExposeService that lead from one of the clusters to the other, with what to say of them once
// the clusters have forgotten each other. It is a hint: what may not be read is left out.
func (p pair) exposed(ctx context.Context) (hints []hint) {
	for _, e := range p {
		remaps, err := e.remaps(ctx)
		var list discoveryv1.EndpointSliceList
		if err != nil || remaps == nil || e.Client.List(ctx, &list, client.MatchingLabels{discoveryv1.LabelManagedBy: FieldOwner}) != nil {
			continue
		}
		var ips ipamv1alpha1.IPList
		if e.peer.Cluster != nil && e.peer.Client.List(ctx, &ips, client.MatchingLabels{LabelManagedBy: FieldOwner}) != nil {
			ips.Items = nil
		}
		for i := range list.Items {
			s := &list.Items[i]
			var at netip.Addr
			if len(s.Endpoints) == 1 && len(s.Endpoints[0].Addresses) == 1 {
				at, _ = netip.ParseAddr(s.Endpoints[0].Addresses[0]) // else it leads nowhere
			}
			if !leads(remaps, at) {
				continue
			}
			hints = append(hints, hint{e, fmt.Sprintf("Service %[1]s/%[2]s stays, but leads nowhere now: 'kubectl -n %[1]s delete service %[2]s' deletes it", s.Namespace, s.Name)})
			for k := range ips.Items {
				ip := &ips.Items[k]
				if given, err := ip.Status.IP.Addr(); err == nil && Translate(remaps, given) == at {
					hints = append(hints, hint{e.peer, fmt.Sprintf("IP %[1]s/%[2]s stays for other clusters: if none uses it, 'kubectl -n %[1]s delete ip %[2]s' deletes it", ip.Namespace, ip.Name)})
				}
			}
		}
	}
	return hints
}

// leads tells whether an address stands for one of the other cluster.
func leads(remaps []Remap, at netip.Addr) bool {
	return slices.ContainsFunc(remaps, func(r Remap) bool { return r.Here.Contains(at) })
}

// hint is something that the user should know about a cluster.
type hint struct {
	of   *end
	text string
}

// newIP returns what gives an address of a cluster another one for its peers.
func newIP(m Metadata, address string) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		TypeMeta:   metav1.TypeMeta{APIVersion: ipamv1alpha1.GroupVersion.String(), Kind: "IP"},
		ObjectMeta: m.of("", map[string]string{LabelManagedBy: FieldOwner}),
		Spec:       ipamv1alpha1.IPSpec{IP: ipamv1alpha1.Address(address)},
	}
}

// newExposedService returns the Service by which a cluster reaches one of another, at an
// address, and the EndpointSlice behind it.
func newExposedService(m Metadata, ports []corev1.ServicePort, at netip.Addr) []client.Object {
	family, addressType := corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6
	if at.Is4() {
		family, addressType = corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4
	}
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: m.of("", map[string]string{LabelManagedBy: FieldOwner}),
		Spec:       corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{family}},
	}
	e := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta:  m.of("", map[string]string{discoveryv1.LabelServiceName: m.Name, discoveryv1.LabelManagedBy: FieldOwner}),
		AddressType: addressType,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
	for _, p := range ports {
		// The address is that of a Service, too, so its port is that of the Service.
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Port: p.Port, Protocol: p.Protocol, AppProtocol: p.AppProtocol, TargetPort: intstr.FromInt32(p.Port),
		})
		e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(p.Port), Protocol: new(p.Protocol), AppProtocol: p.AppProtocol})
	}
	return []client.Object{s, e}
}
