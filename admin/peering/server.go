package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// setUpServer makes this end wait for its peer.
//
//	GatewayServer                            done
//	none                                     created
//	as the flags say, or none were given     left as it is
//	another MTU, template or other tunnels   changed
//	exposed in another way                   deleted, and created when all of it is gone
func (e *end) setUpServer() *step {
	s := &step{in: e.Cluster, waiting: "Setting up gateway server", done: "Gateway server correctly set up", clues: e.gatewayClues}
	name := e.named(e.gateway())
	what := "GatewayServer " + name.String()
	var old *networkingv1beta1.GatewayServer    // its remains are waited for
	var wanted *networkingv1beta1.GatewayServer // what takes its place
	s.try = func(ctx context.Context) (missing string, err error) {
		ref, err := e.templateRef()
		if err != nil {
			return "", err
		}
		var live networkingv1beta1.GatewayServer
		err = e.Client.Get(ctx, name, &live)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return "", e.Explain("read "+what, err)
		case err == nil && live.DeletionTimestamp != nil:
			old = &live
			return what + " is being deleted", nil
		case err == nil && e.options.Server.movedFrom(live.Spec.Endpoint):
			if err := e.write.Delete(ctx, &live, client.Preconditions{UID: &live.UID}); client.IgnoreNotFound(err) != nil {
				return "", e.Explain("delete "+what, err)
			}
			s.note(progress.Done, "Deleted existing gateway server")
			old, wanted = &live, e.options.successor(&live, ref)
			return what + " is being deleted", nil
		case err == nil:
			return "", e.changeServer(ctx, &live, ref)
		}
		if old != nil { // its keys would be taken for those of the new one
			if left, err := e.remains(ctx, serverGateway(old)); left != "" || err != nil {
				return left, err
			}
		}
		if wanted == nil {
			wanted = e.newServer(name.Name, ref)
		}
		e.mtu, e.fresh = wanted.Spec.MTU, true
		return "", e.Explain("create "+what, e.write.Create(ctx, wanted))
	}
	return s
}

// newServer is a server as the flags say, or else the administrator of its
// cluster.
func (e *end) newServer(name string, ref corev1.ObjectReference) *networkingv1beta1.GatewayServer {
	f, d := e.options.Server, e.defaults
	ports := f.Ports
	if len(ports) == 0 {
		ports = []int32{d.ServerServicePort}
	}
	return NewGatewayServer(e.metadata(name), ServerOptions{
		Template: ref, MTU: cmp.Or(e.options.MTU, d.MTU),
		ServiceType: cmp.Or(f.ServiceType, d.ServerServiceType), Ports: ports,
		NodePorts: f.NodePorts, LoadBalancerIP: f.LoadBalancerIP,
	})
}

// successor is what takes the place of a GatewayServer: the same but for what the
// flags say.
func (o *Options) successor(old *networkingv1beta1.GatewayServer, ref corev1.ObjectReference) *networkingv1beta1.GatewayServer {
	s := &networkingv1beta1.GatewayServer{
		TypeMeta:   typeMeta("GatewayServer"),
		ObjectMeta: metav1.ObjectMeta{Name: old.Name, Namespace: old.Namespace, Labels: old.Labels, Annotations: old.Annotations},
		Spec:       *old.Spec.DeepCopy(),
	}
	s.Spec.ServerTemplateRef = ref
	s.Spec.MTU = cmp.Or(o.MTU, s.Spec.MTU)
	o.Server.change(&s.Spec.Endpoint)
	return s
}

// change makes an endpoint what the flags say of it.
func (f ServerFlags) change(e *networkingv1beta1.ServerEndpoint) {
	if f.ServiceType != "" && f.ServiceType != e.ServiceType { // what goes with the other type
		e.ServiceType, e.NodePort, e.NodePorts, e.LoadBalancerIP = f.ServiceType, 0, nil, ""
	}
	if have := e.AllPorts(); len(f.Ports) > 0 && !slices.Equal(f.Ports, have) {
		e.SetNodePorts(keptNodePorts(f.Ports, have, e.AllNodePorts()))
		e.SetPorts(f.Ports)
	}
	if len(f.NodePorts) > 0 && !slices.Equal(f.NodePorts, e.AllNodePorts()) {
		e.SetNodePorts(f.NodePorts)
	}
	e.LoadBalancerIP = cmp.Or(f.LoadBalancerIP, e.LoadBalancerIP)
}

// keptNodePorts are the node ports of a spec after a change of its ports: each stays with
// its port, and that of the first with another first one. A spec can only name those of
// the first tunnels; what it does not name the controllers keep.
func keptNodePorts(ports, before, nodePorts []int32) (kept []int32) {
	for n, p := range ports {
		i := slices.Index(before, p)
		if i < 0 && n == 0 && len(before) > 0 && !slices.Contains(ports, before[0]) {
			i = 0
		}
		if i < 0 || i >= len(nodePorts) {
			break
		}
		kept = append(kept, nodePorts[i])
	}
	return kept
}

// movedFrom tells whether the flags ask for another way to be reached than a
// GatewayServer has. What was not asked for may be anything. Tunnels besides the first
// come and go in place.
func (f ServerFlags) movedFrom(have networkingv1beta1.ServerEndpoint) bool {
	another := func(asked, have []int32) bool {
		return len(asked) > 0 && (len(have) == 0 || have[0] != asked[0])
	}
	return f.ServiceType != "" && f.ServiceType != have.ServiceType ||
		another(f.Ports, have.AllPorts()) || another(f.NodePorts, have.AllNodePorts()) ||
		f.LoadBalancerIP != "" && f.LoadBalancerIP != have.LoadBalancerIP
}

// changeServer changes what can be changed in place.
func (e *end) changeServer(ctx context.Context, live *networkingv1beta1.GatewayServer, ref corev1.ObjectReference) error {
	before := live.DeepCopy()
	live.Spec.MTU = cmp.Or(e.options.MTU, live.Spec.MTU)
	e.mtu = live.Spec.MTU
	if e.options.Server.Template != (TemplateFlags{}) && !sameTemplate(live.Spec.ServerTemplateRef, ref) {
		live.Spec.ServerTemplateRef = ref
	}
	e.options.Server.change(&live.Spec.Endpoint)
	if equality.Semantic.DeepEqual(live.Spec, before.Spec) {
		return nil
	}
	name := serverGateway(live).String()
	return e.Explain("change "+name, e.write.Patch(ctx, live, client.MergeFrom(before)))
}

// sameTemplate compares what references name, not how they were written.
func sameTemplate(a, b corev1.ObjectReference) bool {
	return a.GroupVersionKind() == b.GroupVersionKind() && a.Namespace == b.Namespace && a.Name == b.Name
}

// gatewayRuns waits for a ready pod of this end's gateway.
func (e *end) gatewayRuns() *step {
	pod := "gw-" + e.gateway()
	return &step{
		in: e.Cluster, waiting: "Waiting for gateway pod " + pod + " to be ready", done: "Gateway pod " + pod + " is ready", detailed: true,
		try: func(ctx context.Context) (missing string, err error) {
			g, err := e.readGateway(ctx)
			if err != nil {
				return "", err
			}
			missing, err = conditionMissing(g, networkingv1beta1.ConditionTemplateRendered, networkingv1beta1.ConditionDeployed)
			if missing == "" && err == nil && g.status().pod == nil {
				missing = g.String() + " has no leader pod: status.internalEndpoint is empty"
			}
			return missing, err
		},
		clues: e.gatewayClues,
	}
}

// exposed waits until the server tells where it is reached.
func (e *end) exposed() *step {
	s := &step{in: e.Cluster, waiting: "Waiting for gateway server Service to have an address", done: "Gateway server Service created successfully", detailed: true, clues: e.gatewayClues}
	var since time.Time // when it was seen first that it has none from a load balancer
	told := false
	s.try = func(ctx context.Context) (missing string, err error) {
		g, err := e.readGateway(ctx)
		if err != nil {
			return "", err
		}
		missing, err = conditionMissing(g, networkingv1beta1.ConditionEndpointReady)
		if unassigned := new(unassigned); errors.As(err, &unassigned) {
			if since.IsZero() {
				since = time.Now()
			}
			if !told && time.Since(since) >= unassignedTold {
				told = true
				s.warn("The Service of " + g.String() + " waits for an external address: if this cluster has nothing that assigns one to Services of type LoadBalancer, " +
					"interrupt this command, and run it again with --gw-server-service-type NodePort")
			}
			if e.options.UntilTimeout {
				return unassigned.text, nil
			}
		}
		if missing != "" || err != nil {
			return missing, err
		}
		e.endpoint = g.server.Status.Endpoint
		if e.endpoint == nil || len(e.endpoint.Addresses) == 0 {
			return g.String() + " has no address in its status.endpoint", nil
		}
		if c := meta.FindStatusCondition(g.status().conditions, string(networkingv1beta1.ConditionAllPortsServed)); c != nil && c.Status == metav1.ConditionFalse {
			s.note(progress.Warning, fmt.Sprintf("%s: %s", g, c.Message))
		} else if have, want := len(e.endpoint.AllPorts()), len(g.server.Spec.Endpoint.AllPorts()); want > 0 && have != want && !g.foreign() {
			return fmt.Sprintf("%s has %d ports in its status.endpoint, and %d in its spec", g, have, want), nil
		}
		return "", nil
	}
	return s
}

// readGateway reads the gateway of this end.
func (e *end) readGateway(ctx context.Context) (*gateway, error) {
	g := newGateway(e.role)
	g.noConditions = e.noConditions.Load()
	name := e.named(e.gateway())
	err := e.Client.Get(ctx, name, g.Object)
	if apierrors.IsNotFound(err) {
		return nil, e.Errorf("%s %s has been deleted by somebody else: run the command again", g.kind(), name)
	}
	return g, e.Explain(fmt.Sprintf("read %s %s", g.kind(), name), err)
}

// complaints are the reasons of conditions that only a person can resolve.
var complaints = map[networkingv1beta1.ConditionReason]bool{
	networkingv1beta1.ReasonRemoteClusterIDMissing: true, networkingv1beta1.ReasonTemplateNotFound: true,
	networkingv1beta1.ReasonTemplateKindUnknown: true, networkingv1beta1.ReasonTemplateForbidden: true,
	networkingv1beta1.ReasonTemplateInvalid: true, networkingv1beta1.ReasonTemplateOfLiqo: true, networkingv1beta1.ReasonObjectRefused: true,
	networkingv1beta1.ReasonSecretNotFound: true, networkingv1beta1.ReasonSecretInvalid: true,
	networkingv1beta1.ReasonSecretAmbiguous: true, networkingv1beta1.ReasonPeerKeyInvalid: true,
	networkingv1beta1.ReasonPeerKeyAmbiguous: true, networkingv1beta1.ReasonDuplicateGateway: true,
	networkingv1beta1.ReasonServiceTypeUnsupported: true,
}

// unassigned is that a Service has no address from a load balancer. The cluster may have none, or it takes its time.
type unassigned struct{ text string }

func (u *unassigned) Error() string { return u.text }

// conditionMissing is what a gateway waits for, by conditions of these types that
// must all be True.
func conditionMissing(g *gateway, types ...networkingv1beta1.ConditionType) (missing string, err error) {
	for _, t := range types {
		c := meta.FindStatusCondition(g.status().conditions, string(t))
		switch {
		case c == nil && g.foreign():
			continue // what it is about shows in the rest of the status
		case c == nil:
			return fmt.Sprintf("%s has no condition %s: no controller has processed it yet", g, t), nil
		case c.ObservedGeneration < g.GetGeneration():
			return fmt.Sprintf("%s: the controllers have not processed its latest version yet", g), nil
		case c.Status == metav1.ConditionTrue:
			continue
		case complaints[networkingv1beta1.ConditionReason(c.Reason)]:
			return "", &complaint{fmt.Sprintf("%s: %s", g, c.Message)}
		case networkingv1beta1.ConditionReason(c.Reason) == networkingv1beta1.ReasonWaitingForLoadBalancer:
			return "", &unassigned{fmt.Sprintf("%s: %s", g, strings.TrimSuffix(c.Message, "."))}
		}
		return fmt.Sprintf("%s: %s", g, strings.TrimSuffix(c.Message, ".")), nil
	}
	return "", nil
}
