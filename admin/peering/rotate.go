package peering

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// RotateOptions say which keys are replaced.
type RotateOptions struct {
	// Timeout ends the work; 0: it may take as long as it takes.
	Timeout time.Duration
	// Peer is the ID that the remote cluster must have; empty: any.
	Peer string
	// Only is the name of the one cluster whose gateway gets new keys, access.Local
	// or access.Remote; empty: both.
	Only string
}

// Validate finds what makes no sense.
func (o RotateOptions) Validate() error {
	switch o.Only {
	case "", access.Local, access.Remote:
		return nil
	}
	return fmt.Errorf("--only %q: must be local or remote", o.Only)
}

// RotateKeys gives the gateways of two connected clusters new keys. No connection
// through the tunnel is lost by it.
//
// One side after the other:
//
//	its Secret is deleted, and its controller makes another with new keys
//	its new public key is told to the peer, which goes on knowing it by the former
//	its pods are touched, so that the kubelet does not take a minute to show them the new key
//	its gateway takes the new key, and a handshake proves it to the peer
//
// Between the first and the second step, a gateway could for a moment take a key that its
// peer does not know. An interruption waits until that moment is over. If the command crashes
// in it, the peer has a key other than that of the gateway: the next run finds and repairs
// that at its beginning.
//
// The private keys are made in the cluster where they are used.
func RotateKeys(ctx context.Context, local, remote *access.Cluster, o RotateOptions, tell progress.Func) error {
	if err := o.Validate(); err != nil {
		return err
	}
	options := &Options{Timeout: o.Timeout, Wait: true}
	ctx, cancel := withTimeout(ctx, *options)
	defer cancel()
	ends := newPair(local, remote, options)
	if err := ends.prepareRotation(ctx, o, tell); err != nil {
		return err
	}
	ends.warn(tell)

	var p plan
	read := p.add(nil, ends.steps((*end).readOwnKey)...)
	told := p.add(after(read), ends.steps((*end).repairKey)...)
	ready := p.add(after(told), ends.steps((*end).established)...)
	for _, e := range ends {
		if o.rotates(e) {
			r := &rotation{end: e}
			ready = p.add(after(ready), r.renew())
			ready = p.add(after(ready), r.taken())
			ready = p.add(after(ready), r.proven())
		}
	}
	p.add(after(ready), ends.steps((*end).connectedStill)...)
	return p.run(ctx, tell)
}

func (o RotateOptions) rotates(e *end) bool { return o.Only == "" || o.Only == e.Name }

// prepareRotation finds out all that stands in the way, before anything is
// changed.
func (p pair) prepareRotation(ctx context.Context, o RotateOptions, tell progress.Func) error {
	if err := p.identify(ctx, tell); err != nil {
		return err
	}
	if id := p[1].id; o.Peer != "" && o.Peer != id {
		return fmt.Errorf("%s leads to cluster %s, not to %s: nothing was changed; name the kubeconfig of %s with %s",
			p[1].Origin, id, o.Peer, o.Peer, p[1].Flag("kubeconfig"))
	}
	for _, e := range p {
		tell.Waiting(e.Name, "Checking cluster "+e.id)
	}
	err := p.both(func(e *end) error {
		if err := e.checkKinds(ctx); err != nil {
			return err
		}
		return e.readPeering(ctx)
	})
	if err != nil {
		return err
	}
	if err := p.chooseGateways(); err != nil {
		return err
	}
	return p.both(func(e *end) error {
		if err := e.Require(ctx, e.rotationRights(o.rotates(e), o.rotates(e.peer))...); err != nil {
			return err
		}
		if !o.rotates(e) {
			return nil
		}
		return e.ownsKeys(ctx, o)
	})
}

// chooseGateways decides which gateways the two clusters are connected by: the
// oldest of each, as for the controllers.
func (p pair) chooseGateways() error {
	var chosen [2]*gateway
	for i, e := range p {
		all := e.found.gateways()
		if len(all) == 0 {
			return e.Errorf("there is no gateway for cluster %s: nothing was changed; connect the clusters with 'liqoctl network connect', or name another kubeconfig with %s",
				e.peer.id, e.peer.Flag("kubeconfig"))
		}
		chosen[i] = slices.MinFunc(all, func(a, b *gateway) int { return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time) })
		e.namespace, e.role = chosen[i].GetNamespace(), chosen[i].role()
	}
	if p[0].role == p[1].role {
		return fmt.Errorf("(local) %s and (remote) %s do not match: one must be a GatewayServer, the other a GatewayClient; nothing was changed", chosen[0], chosen[1])
	}
	return nil
}

func (g *gateway) role() networkingv1beta1.ConnectionType {
	if g.server != nil {
		return networkingv1beta1.ConnectionServer
	}
	return networkingv1beta1.ConnectionClient
}

// rotationRights are those that it takes: own keys to replace, and the peer's to
// be told.
func (e *end) rotationRights(own, peers bool) []access.Permission {
	ours := networkingv1beta1.GroupVersion.Group
	at := e.namespace
	all := []access.Permission{
		{Verb: "get", Group: ours, Resource: strings.ToLower(newGateway(e.role).kind()) + "s", Namespace: at},
		{Verb: "get", Resource: "secrets", Namespace: at},
		{Verb: "list", Group: ours, Resource: "connections", Namespace: at},
		{Verb: "list", Group: ours, Resource: "publickeies", Namespace: at},
		{Verb: "list", Resource: "pods", Namespace: at},
		{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: at}, // only the gateways know which keys they use
	}
	if own {
		all = append(all, access.Permissions("", "secrets", at, "delete", "create")...) // to ask for another
	}
	if peers {
		all = append(all, access.Permissions(ours, "publickeies", at, "create", "patch")...)
	}
	return all
}

// ownsKeys fails unless the gateway's keys are made by its controller.
func (e *end) ownsKeys(ctx context.Context, o RotateOptions) error {
	g, err := e.readGateway(ctx)
	if err != nil {
		return err
	}
	if g.lostKeys(e.namespace, e.peer.id) != nil {
		return nil // new ones are asked for when the keys are read
	}
	secret, err := e.secret(ctx, g)
	if err != nil {
		return err
	}
	if e.generated(g, secret) {
		return nil
	}
	other := ""
	if o.Only == "" {
		other = fmt.Sprintf("; or replace only those of the other cluster, with --only %s", e.peer.Name)
	}
	return e.Errorf("the keys of %s are your own, in Secret %s/%s, and only generated keys are replaced: nothing was changed; write a new data.%s into it, "+
		"then run 'liqoctl network connect' again, which tells cluster %s the new public key%s", g, secret.Namespace, secret.Name, networkingv1beta1.PrivateKeyEntry, e.peer.id, other)
}

// connectedStill is the last step: it tells that the connection works with the new keys.
func (e *end) connectedStill() *step {
	s := e.established()
	s.done = "Connection is established with the new keys"
	return s
}

// ambiguous is what a gateway with several pairs of keys reports.
func (g *gateway) ambiguous() string {
	c := meta.FindStatusCondition(g.status().conditions, string(networkingv1beta1.ConditionKeysReady))
	if c != nil && c.Reason == string(networkingv1beta1.ReasonSecretAmbiguous) {
		return c.Message
	}
	return ""
}
