package peering

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// setUpClient makes this end dial its peer.
func (e *end) setUpClient() *step {
	s := &step{in: e.Cluster, waiting: "Setting up gateway client", done: "Gateway client correctly set up", clues: e.gatewayClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		ref, err := e.templateRef()
		if err != nil {
			return "", err
		}
		name := e.named(e.gateway())
		what := "GatewayClient " + name.String()
		var live networkingv1beta1.GatewayClient
		err = e.Client.Get(ctx, name, &live)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return "", e.Explain("read "+what, err)
		case err == nil && live.DeletionTimestamp != nil:
			return what + " is being deleted", nil
		case err == nil:
			return "", e.changeClient(ctx, s, &live, ref)
		}
		addresses, ports := e.options.Client.dials(e.peer.endpoint)
		wanted := NewGatewayClient(e.metadata(name.Name), ClientOptions{
			Template: ref, MTU: cmp.Or(e.options.MTU, e.peer.mtu), Addresses: addresses, Ports: ports, Protocol: e.peer.endpoint.Protocol,
		})
		e.options.Client.remember(wanted)
		if err := e.write.Create(ctx, wanted); err != nil {
			return "", e.Explain("create "+what, err)
		}
		e.countTunnels(s, wanted)
		return "", nil
	}
	return s
}

// changeClient changes an existing client to what the flags and the server say.
func (e *end) changeClient(ctx context.Context, s *step, live *networkingv1beta1.GatewayClient, ref corev1.ObjectReference) error {
	works, err := e.works(ctx)
	if err != nil {
		return err
	}
	before, what := live.DeepCopy(), clientGateway(live).String()
	o := *e.options
	o.Client = o.Client.orChosen(live)
	// A client that is connected keeps where it dials unless the flags say
	// otherwise: somebody chose it, for a reason that the server does not know. So
	// does one whose server would have it dial its own cluster.
	why := ""
	switch {
	case e.options.Client.given():
	case works:
		why = "it is connected"
	case e.keepsEndpoint:
		why = "that server reports the address of a node that cluster " + e.id + " has too"
	}
	if kept := o.changedClient(&live.Spec, ref, e.peer.endpoint, why != ""); kept {
		s.note(progress.Warning, fmt.Sprintf("%s dials %s, which the gateway server does not report, but %s, so it is left unchanged; change it with --gw-client-address and --gw-client-port",
			what, hostPort(&live.Spec.Endpoint), why))
	}
	o.Client.remember(live)
	e.countTunnels(s, live)
	if equality.Semantic.DeepEqual(before, live) {
		return nil
	}
	return e.Explain("change "+what, e.write.Patch(ctx, live, client.MergeFrom(before)))
}

// works tells whether the gateways of both ends answer each other. A gateway that
// lost its peer a moment ago does not know it yet, but one that was just made
// knows that it has none.
func (e *end) works(ctx context.Context) (bool, error) {
	for _, e := range []*end{e, e.peer} {
		c, err := e.connection(ctx)
		if c == nil || err != nil || c.Status.Value != networkingv1beta1.Connected {
			return false, err
		}
	}
	return !e.peer.fresh, nil
}

// changedClient changes what a client is to be to what the flags and the server
// say, or leaves where it dials, which it tells.
func (o *Options) changedClient(spec *networkingv1beta1.GatewayClientSpec, ref corev1.ObjectReference, server *networkingv1beta1.Endpoint, keep bool) (kept bool) {
	spec.MTU = cmp.Or(o.MTU, spec.MTU)
	if o.Client.Template != (TemplateFlags{}) && !sameTemplate(spec.ClientTemplateRef, ref) {
		spec.ClientTemplateRef = ref
	}
	have := &spec.Endpoint
	addresses, ports := o.Client.dials(server)
	there := slices.Equal(have.Addresses, addresses)
	if there && slices.Equal(have.AllPorts(), ports) {
		return false
	}
	// Tunnels come and go with the server's: who dials its first port dials no other server.
	if keep && !(len(ports) > 0 && slices.Index(have.AllPorts(), ports[0]) == 0) {
		return true
	}
	have.SetPorts(ports)
	if keep {
		return !there
	}
	have.Addresses = addresses
	return false
}

// countTunnels warns of a client that dials another number of ports than the server has.
func (e *end) countTunnels(s *step, c *networkingv1beta1.GatewayClient) {
	if dials, has := len(c.Spec.Endpoint.AllPorts()), len(e.peer.endpoint.AllPorts()); dials != has {
		s.note(progress.Warning, fmt.Sprintf("%s dials %d ports, and the gateway server has %d: each port is a tunnel, and those that only one side has carry nothing; name as many with --gw-client-port",
			clientGateway(c), dials, has))
	}
}

// dials is where a client reaches the server: where the user says, or else where
// the server itself does.
func (f ClientFlags) dials(server *networkingv1beta1.Endpoint) (addresses []string, ports []int32) {
	addresses, ports = server.Addresses, server.AllPorts()
	if f.Address != "" {
		addresses = []string{f.Address}
	}
	if len(f.Ports) > 0 {
		ports = f.Ports
	}
	return addresses, ports
}

// orChosen are the flags, or what was chosen by them before. What is chosen is
// kept also of a client that is not connected: a NAT does not go away with the
// connection.
func (f ClientFlags) orChosen(live *networkingv1beta1.GatewayClient) ClientFlags {
	if f.given() {
		return f
	}
	address, texts, err := net.SplitHostPort(live.Annotations[networkingv1beta1.AnnotationChosenEndpoint])
	if err != nil {
		return f // nothing was chosen
	}
	f.Address = address
	for text := range strings.SplitSeq(texts, ",") {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			f.Ports = nil
			break
		}
		f.Ports = append(f.Ports, int32(n))
	}
	return f
}

// given tells whether the user says where the server is reached.
func (f ClientFlags) given() bool { return f.Address != "" || len(f.Ports) > 0 }

// remember writes down what was chosen.
func (f ClientFlags) remember(o *networkingv1beta1.GatewayClient) {
	if f.given() {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, networkingv1beta1.AnnotationChosenEndpoint, net.JoinHostPort(f.Address, networkingv1beta1.PortsText(f.Ports)))
	}
}

// hostPort is an endpoint as text.
func hostPort(e *networkingv1beta1.Endpoint) string {
	if e == nil || len(e.Addresses) == 0 {
		return "no address"
	}
	return net.JoinHostPort(e.Addresses[0], networkingv1beta1.PortsText(e.AllPorts())) + " (UDP)"
}
