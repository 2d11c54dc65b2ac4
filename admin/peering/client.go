package peering

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

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
		addresses, port := e.options.Client.dials(e.peer.endpoint)
		wanted := NewGatewayClient(e.metadata(name.Name), ClientOptions{
			Template: ref, MTU: cmp.Or(e.options.MTU, e.peer.mtu), Addresses: addresses, Port: port, Protocol: e.peer.endpoint.Protocol,
		})
		e.options.Client.remember(wanted)
		return "", e.Explain("create "+what, e.write.Create(ctx, wanted))
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
	addresses, port := o.Client.dials(server)
	if slices.Equal(have.Addresses, addresses) && firstPort(have) == port {
		return false
	}
	if keep {
		return true
	}
	have.Addresses, have.Port, have.Ports = addresses, port, nil
	return false
}

// dials is where a client reaches the server: where the user says, or else where
// the server itself does.
func (f ClientFlags) dials(server *networkingv1beta1.Endpoint) (addresses []string, port int32) {
	addresses = server.Addresses
	if f.Address != "" {
		addresses = []string{f.Address}
	}
	return addresses, cmp.Or(f.Port, firstPort(server))
}

// orChosen are the flags, or what was chosen by them before. What is chosen is
// kept also of a client that is not connected: a NAT does not go away with the
// connection.
func (f ClientFlags) orChosen(live *networkingv1beta1.GatewayClient) ClientFlags {
	if f.given() {
		return f
	}
	address, port, err := net.SplitHostPort(live.Annotations[networkingv1beta1.AnnotationChosenEndpoint])
	if err != nil {
		return f // nothing was chosen
	}
	f.Address = address
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		f.Port = int32(n)
	}
	return f
}

// given tells whether the user says where the server is reached.
func (f ClientFlags) given() bool { return f.Address != "" || f.Port != 0 }

// remember writes down what was chosen.
func (f ClientFlags) remember(o *networkingv1beta1.GatewayClient) {
	if !f.given() {
		return
	}
	port := ""
	if f.Port != 0 {
		port = strconv.Itoa(int(f.Port))
	}
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, networkingv1beta1.AnnotationChosenEndpoint, net.JoinHostPort(f.Address, port))
}

// firstPort is the port of the only tunnel.
func firstPort(e *networkingv1beta1.Endpoint) int32 {
	if len(e.Ports) > 0 {
		return e.Ports[0]
	}
	return e.Port
}

// hostPort is an endpoint as text.
func hostPort(e *networkingv1beta1.Endpoint) string {
	if e == nil || len(e.Addresses) == 0 {
		return "no address"
	}
	return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(firstPort(e)))) + " (UDP)"
}
