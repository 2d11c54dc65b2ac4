package peering

import (
	"context"
	"fmt"
	"reflect"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Init tells two clusters each other's network, but does not connect them yet.
func Init(ctx context.Context, local, remote *access.Cluster, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	ends := newPair(local, remote, &o)
	if err := ends.prepare(ctx, tell, false); err != nil {
		return err
	}
	ends.warn(tell)
	var p plan
	known := p.add(nil, ends.steps((*end).identity)...)
	p.exchangeNetworks(ends, known, o.Wait)
	return p.run(ctx, tell)
}

// Connect connects two clusters: it does what Init does, then makes a gateway in
// each and has them know each other's key.
func Connect(ctx context.Context, local, remote *access.Cluster, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	ends := newPair(local, remote, &o)
	if err := ends.prepare(ctx, tell, true); err != nil {
		return err
	}
	ends.warn(tell)
	server, client := ends.with(networkingv1beta1.ConnectionServer), ends.with(networkingv1beta1.ConnectionClient)

	var p plan
	applied := p.exchangeNetworks(ends, nil, true)
	if !o.SkipValidation {
		applied = append(applied, p.add(nil, server.templateChecked(), client.templateChecked())...)
	}
	initialized := p.add(after(applied), ends.steps((*end).initialized)...)
	if texts := ends.opposite(); texts != nil { // whatever it lacks is theirs to complete
		if err := p.run(ctx, tell); err != nil {
			return err
		}
		if tell != nil {
			for _, e := range texts {
				tell(e)
			}
		}
		return ends.awaitOpposite(ctx, o, tell)
	}

	serverMade := p.add(after(initialized), server.setUpServer())
	serverUp := p.add(after(serverMade), server.gatewayRuns(), server.exposed())
	clientMade := p.add(after(serverUp), client.setUpClient())
	p.add(after(clientMade), client.gatewayRuns())
	if o.DisableSharingKeys {
		return p.run(ctx, tell)
	}

	// The keys are exchanged while the client's pod starts. The client, which begins the
	// handshake, gets its peer's key last: if the server did not know the client by then, the
	// next attempt would come five seconds later.
	clientKnows, serverKnows := client.tellKey(), server.tellKey()
	serverKey := p.add(after(serverMade), server.readKey())
	keys := p.add(after(serverKey, clientMade, stage{serverKnows}), clientKnows)
	clientKey := p.add(after(clientMade), client.readKey())
	p.add(after(clientKey), serverKnows)
	if o.Wait {
		p.add(after(serverMade), server.connectionMade())
		p.add(after(clientMade), client.connectionMade())
		p.add(after(keys), ends.steps((*end).established)...)
	}
	return p.run(ctx, tell)
}

// exchangeNetworks tells each cluster the network of the other and, if wait is set, waits
// until they have applied it.
func (p *plan) exchangeNetworks(ends pair, known stage, wait bool) stage {
	read := p.add(after(known), ends.steps((*end).readNetwork)...)
	done := p.add(after(read), ends.steps((*end).configure)...)
	if wait {
		done = p.add(after(done), ends.steps((*end).remapped)...)
	}
	return done
}

// withTimeout bounds the work.
func withTimeout(ctx context.Context, o Options) (context.Context, context.CancelFunc) {
	if o.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, o.Timeout)
}

// warn reports objects without effect, before anything is done.
func (p pair) warn(tell progress.Func) {
	for _, e := range p {
		for _, s := range e.surplus() {
			tell.Warning(e.Name, s+" has no effect, because an older object for the same cluster takes precedence: delete it if you do not need it")
		}
	}
}

// opposite reports gateways that connect the clusters, or begin to, in the other direction;
// nil if there are none.
func (p pair) opposite() (events []progress.Event) {
	server, client := p.with(networkingv1beta1.ConnectionServer), p.with(networkingv1beta1.ConnectionClient)
	servers, clients := client.found.servers, server.found.clients
	if len(servers) == 0 && len(clients) == 0 {
		return nil
	}
	say := func(kind progress.Kind, e *end, format string, args ...any) {
		events = append(events, progress.Event{Kind: kind, Cluster: e.Name, Text: fmt.Sprintf(format, args...)})
	}
	for _, g := range servers {
		say(progress.Done, client, "%s already exists: the clusters are connected in the opposite direction, so it is left unchanged", g)
	}
	for _, g := range clients {
		say(progress.Done, server, "%s already exists: the clusters are connected in the opposite direction, so it is left unchanged", g)
	}
	if o := p[0].options; !reflect.ValueOf(o.Server).IsZero() || !reflect.ValueOf(o.Client).IsZero() || o.MTU != 0 {
		say(progress.Warning, p[0], "The gateway flags (--gw-server-..., --gw-client-..., --mtu) have no effect: to connect in this direction, run 'liqoctl network disconnect' first")
	}
	const cure = "run the command with the two clusters swapped to complete the connection, or 'liqoctl network disconnect' to start over"
	if len(servers) == 0 {
		say(progress.Warning, client, "There is no GatewayServer that the GatewayClient of the other cluster could dial: %s", cure)
	}
	if len(clients) == 0 {
		say(progress.Warning, server, "There is no GatewayClient for the GatewayServer of the other cluster: %s", cure)
	}
	return events
}

// awaitOpposite waits for a connection in the other direction, if it is asked for
// and there is a gateway at both ends.
func (p pair) awaitOpposite(ctx context.Context, o Options, tell progress.Func) error {
	server, client := p.with(networkingv1beta1.ConnectionServer), p.with(networkingv1beta1.ConnectionClient)
	if !o.Wait || o.DisableSharingKeys || len(client.found.servers) == 0 || len(server.found.clients) == 0 {
		return nil
	}
	server.role, client.role = client.role, server.role // as they are
	var wait plan
	wait.add(nil, p.steps((*end).established)...)
	return wait.run(ctx, tell)
}

// templateChecked tells that the preflight found the template.
func (e *end) templateChecked() *step {
	s := &step{in: e.Cluster}
	ref, err := e.templateRef()
	if err == nil { // else the preflight has failed
		which := "server"
		if e.role == networkingv1beta1.ConnectionClient {
			which = "client"
		}
		s.done = fmt.Sprintf("Gateway %s template %q correctly checked", which, ref.Name+"/"+ref.Namespace)
	}
	return s
}
