package peering

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Disconnect removes the gateways of both clusters for each other. What they know
// of each other's network stays, for the next Connect.
//
// Where the remote cluster is gone for good it is nil, and o.RemoteClusterID tells
// what it was called.
func Disconnect(ctx context.Context, local, remote *access.Cluster, o Options, tell progress.Func) error {
	ends := endsToRemove(local, remote, &o)
	if err := ends.prepareToRemove(ctx, tell, (*end).rightsToDisconnect, (*end).gatewaysToRemove); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	var p plan
	p.removeGateways(ends, nil)
	return p.run(ctx, tell)
}

// Reset does what Disconnect does, and has both clusters forget each other's
// network and keys. The remote cluster may be nil, too.
func Reset(ctx context.Context, local, remote *access.Cluster, o Options, tell progress.Func) error {
	ends := endsToRemove(local, remote, &o)
	if err := ends.prepareToRemove(ctx, tell, (*end).rightsToReset, (*end).toRemove); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	hints := ends.exposed(ctx)
	var p plan
	p.reset(ends, nil)
	if err := p.run(ctx, tell); err != nil {
		return err
	}
	for _, h := range hints {
		tell.Warning(h.of.Name, h.text)
	}
	return nil
}

// reset has the clusters forget each other's network once done is.
func (p *plan) reset(ends pair, done stage) {
	gone := p.removeGateways(ends, done)
	forgotten := p.add(after(gone), ends.steps((*end).forget)...)
	p.add(after(forgotten), ends.steps((*end).removeNamespace)...)
}

func endsToRemove(local, remote *access.Cluster, o *Options) pair {
	if remote == nil {
		return alone(local, o.RemoteClusterID, o)
	}
	return newPair(local, remote, o)
}

// prepareToRemove finds out what there is to remove and what prevents it, and asks the user,
// before anything is changed. The time that the user takes to answer does not count.
func (p pair) prepareToRemove(ctx context.Context, tell progress.Func, rights func(*end) []access.Permission, named func(*end) []string) error {
	if err := p.readToRemove(ctx, tell, rights); err != nil {
		return err
	}
	o := p[0].options
	if o.Confirm == nil {
		return nil
	}
	var what []string
	for _, e := range p {
		lines := named(e)
		if len(lines) == 0 {
			lines = []string{"nothing: it is already gone"}
		}
		what = append(what, e.tagged(fmt.Sprintf("In cluster %s (%s), from its peering with %s:", e.id, e.Where(), e.peer.id)))
		for _, l := range lines {
			what = append(what, "  "+l)
		}
	}
	return o.Confirm(ctx, what)
}

// gatewaysToRemove names what Disconnect removes.
func (e *end) gatewaysToRemove() (names []string) {
	for _, g := range e.found.gateways() {
		names = append(names, g.String())
	}
	return names
}

// toRemove names what Reset removes.
func (e *end) toRemove() []string {
	names := e.gatewaysToRemove()
	for _, c := range e.found.configurations {
		names = append(names, fmt.Sprintf("Configuration %s/%s", c.Namespace, c.Name))
	}
	for _, n := range e.tenantNamespaces() {
		names = append(names, "public keys of the peer in namespace "+n)
	}
	for i := range e.found.namespaces {
		if n := &e.found.namespaces[i]; e.mayDelete(n) {
			names = append(names, fmt.Sprintf("namespace %s, unless it contains objects that do not belong to the peering", n.Name))
		}
	}
	return names
}

// readToRemove reads all that prepareToRemove judges.
func (p pair) readToRemove(ctx context.Context, tell progress.Func, rights func(*end) []access.Permission) error {
	ctx, cancel := withTimeout(ctx, *p[0].options)
	defer cancel()
	if err := p.identify(ctx, tell); err != nil {
		return err
	}
	err := p.both(func(e *end) error {
		if err := e.readPeering(ctx); err != nil {
			return e.lacking(ctx, err, rights(e))
		}
		return e.Require(ctx, rights(e)...)
	})
	p.detectRoles()
	return err
}

// detectRoles says which end of the tunnel each cluster was: by its own gateway,
// or else by that of the other. Where neither has any, the remote one is the
// server, as Connect has it.
func (p pair) detectRoles() {
	local, remote := p[0], p[0].peer
	isServer := func(e *end) bool { return len(e.found.servers) > 0 && len(e.found.clients) == 0 }
	isClient := func(e *end) bool { return len(e.found.clients) > 0 && len(e.found.servers) == 0 }
	local.role, remote.role = networkingv1beta1.ConnectionClient, networkingv1beta1.ConnectionServer
	if isServer(local) || isClient(remote) && !isClient(local) {
		local.role, remote.role = remote.role, local.role
	}
}

func (p *plan) removeGateways(ends pair, done stage) stage {
	known := p.add(after(done), ends.steps((*end).identity)...)
	var gone stage
	for _, e := range ends {
		gone = append(gone, p.add(after(known), e.removeGateway(e.role))...)
		if other := otherRole(e.role); len(e.gateways(other)) > 0 {
			gone = append(gone, p.add(after(known), e.removeGateway(other))...)
		}
	}
	return gone
}

// otherRole is that at the other end.
func otherRole(role networkingv1beta1.ConnectionType) networkingv1beta1.ConnectionType {
	if role == networkingv1beta1.ConnectionServer {
		return networkingv1beta1.ConnectionClient
	}
	return networkingv1beta1.ConnectionServer
}

// removeGateway deletes the gateways of a role, and waits until nothing of them
// is left if that is wanted.
func (e *end) removeGateway(role networkingv1beta1.ConnectionType) *step {
	which := "ateway " + strings.ToLower(string(role))
	s := &step{in: e.Cluster, waiting: "Deleting g" + which, done: "G" + which + " correctly deleted"}
	gateways := e.gateways(role)
	if len(gateways) == 0 {
		s.done = "G" + which + " already deleted"
	}
	s.try = func(ctx context.Context) (missing string, err error) {
		for _, g := range gateways {
			left, err := e.remove(ctx, g.Object, g.String())
			if err != nil || left != "" && e.options.Wait {
				return left, err
			}
			if !e.options.Wait {
				continue
			}
			if left, err := e.remains(ctx, g); left != "" || err != nil {
				return left, err
			}
		}
		return "", nil
	}
	s.clues = e.controllerClues
	return s
}

// remove deletes an object, if it is still the one that was found. It returns what
// is to be waited for until it is gone.
func (e *end) remove(ctx context.Context, found client.Object, what string) (left string, err error) {
	live, ok := found.DeepCopyObject().(client.Object)
	if !ok {
		return "", fmt.Errorf("%T is not a client.Object", found)
	}
	err = e.Client.Get(ctx, client.ObjectKeyFromObject(found), live)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return "", e.Explain("read "+what, err)
	case err != nil, live.GetUID() != found.GetUID():
		return "", nil
	case live.GetDeletionTimestamp() != nil:
		return what + " is being deleted" + finalizers(live), nil
	}
	uid := live.GetUID()
	if err := e.write.Delete(ctx, live, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background")); client.IgnoreNotFound(err) != nil {
		return "", e.Explain("delete "+what, err)
	}
	return what + " is being deleted", nil
}

// removeAll deletes objects that were found. It returns what is to be waited for until the first of those that are left
// is gone.
func (e *end) removeAll(ctx context.Context, found ...client.Object) (left string, err error) {
	for _, o := range found {
		kind, err := e.Client.GroupVersionKindFor(o)
		if err != nil {
			return "", err
		}
		one, err := e.remove(ctx, o, fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(o)))
		if err != nil {
			return "", err
		}
		left = cmp.Or(left, one)
	}
	return left, nil
}

// objects are the items of a list.
func objects[T any, P interface {
	*T
	client.Object
}](items []T) (all []client.Object) {
	for i := range items {
		all = append(all, P(&items[i]))
	}
	return all
}

// finalizers names those whose work an object waits for.
func finalizers(o client.Object) string {
	if f := o.GetFinalizers(); len(f) > 0 {
		return ", waiting for its finalizers " + strings.Join(f, ", ")
	}
	return ""
}

// rightsToDisconnect are those that it takes to remove what was found.
func (e *end) rightsToDisconnect() (all []access.Permission) {
	for role, resource := range map[networkingv1beta1.ConnectionType]string{
		networkingv1beta1.ConnectionServer: "gatewayservers", networkingv1beta1.ConnectionClient: "gatewayclients",
	} {
		for _, g := range e.gateways(role) {
			all = append(all, access.Permission{Verb: "delete", Group: networkingv1beta1.GroupVersion.Group, Resource: resource, Namespace: g.GetNamespace()})
		}
	}
	return all
}
