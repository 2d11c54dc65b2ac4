package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// PeerOptions say what a peering is made of.
type PeerOptions struct {
	Options
	// NetworkingDisabled leaves the network as it is.
	NetworkingDisabled bool
	// IdentityRequired has Peer fail, before anything is changed, where it could make no identity. Else it connects the
	// network and tells that that is all.
	IdentityRequired bool
	// Enable enables authentication in a cluster where it is not; nil: it stays as it is.
	Enable func(context.Context, *access.Cluster) error
	// Slice is what the consumer asks for; nil: nothing.
	Slice *Slice
	// NodeRequired has Peer fail, before anything is changed, where the virtual node that Slice asks for could not be. Else
	// it asks for the resources alone and tells that that is all.
	NodeRequired bool
}

// Peer connects the network of the consumer, the local cluster, with that of the provider, gives it an identity there,
// asks for resources, and waits for the virtual node that has them.
func Peer(ctx context.Context, consumer, provider *access.Cluster, o PeerOptions, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o.Options)
	defer cancel()
	o.Timeout = 0
	if err := o.Validate(); err != nil {
		return err
	}
	ends := newPair(consumer, provider, &o.Options)
	if err := ends.identify(ctx, tell); err != nil {
		return err
	}
	without, err := ends.without(ctx, (*end).authenticates)
	if err != nil {
		return err
	}
	if o.Enable != nil {
		for _, e := range without {
			tell.Waiting(e.Name, "Enabling authentication")
			if err := o.Enable(ctx, e.Cluster); err != nil {
				return e.Errorf("enable authentication: %w", err)
			}
			tell.Done(e.Name, "Authentication is enabled")
		}
		without = nil
	}
	if o.NodeRequired {
		if err := ends.both(func(e *end) error { return e.checkOffloading(ctx) }); err != nil {
			return err
		}
	}
	identities := len(without) == 0 || o.IdentityRequired || o.NetworkingDisabled
	if identities { // what stands in its way is told before the network is changed
		if err := ends.prepareIdentities(ctx, tell, ends.rightsToAuthenticate); err != nil {
			return err
		}
	}
	if !o.NetworkingDisabled {
		if err := Connect(ctx, consumer, provider, o.Options, tell); err != nil {
			//lint:ignore ST1005 Liqo's words
			return fmt.Errorf("Unable to ensure networking: %w", err)
		}
	}
	node := o.Slice != nil && o.Slice.VirtualNode
	if !identities {
		what, enable := "authentication", (*end).enable
		if node {
			what, enable = "authentication, and offloading so that pods of one can run in the other,", (*end).enableOffloading
		}
		tell.Warning("", fmt.Sprintf("Only the networks are connected: %s has no identity in %s and cannot ask it for resources. This requires %s in both clusters; enable it with the following commands, then run this command again:", ends[0].id, ends[1].id, what))
		for _, e := range without {
			tell.Warning(e.Name, enable(e))
		}
		return nil
	}
	if err := Authenticate(ctx, consumer, provider, o.Options, tell); err != nil {
		//lint:ignore ST1005 Liqo's words
		return fmt.Errorf("Unable to ensure authentication: %w", err)
	}
	if o.Slice == nil {
		return nil
	}
	var lacking, unseen []*end
	if node {
		if lacking, err = ends.without(ctx, (*end).offloads); err != nil {
			return err
		}
		if unseen, err = ends.without(ctx, (*end).seesOffloading); err != nil {
			return err
		}
	}
	m := Metadata{Name: ends[1].id, RemoteClusterID: ends[1].id, Labels: o.Labels, Annotations: o.Annotations}
	slice := *o.Slice
	slice.VirtualNode = node && len(lacking) == 0
	err = request(ctx, consumer, provider, m, slice, slice.VirtualNode && len(unseen) == 0, o.Options, tell)
	if refused := new(denied); errors.As(err, &refused) && refused.about == authv1beta1.SliceResources {
		tell.Warning(consumer.Name, "ResourceSlice resources: "+refused.Error())
		return nil
	}
	if err != nil {
		//lint:ignore ST1005 as above
		return fmt.Errorf("Unable to ask for resources: %w", err)
	}
	if len(lacking) == 0 && len(unseen) > 0 {
		tell.Warning(unseen[0].Name, fmt.Sprintf("The resources are granted. This kubeconfig does not show whether offloading is enabled in %s, so this command does not wait for the virtual node: the administrator of that cluster can check with 'liqoctl info peer'", unseen[0].id))
	}
	if len(lacking) > 0 {
		tell.Warning("", fmt.Sprintf("Only the resources are granted: there is no virtual node, and no pod of %s runs in %s. This requires offloading in both clusters; enable it with the following commands, then run this command again:", ends[0].id, ends[1].id))
		for _, e := range lacking {
			tell.Warning(e.Name, e.enableOffloading())
		}
	}
	return nil
}

// without returns the ends in which something is not enabled.
func (p pair) without(ctx context.Context, enabled func(*end, context.Context) (bool, error)) (ends []*end, err error) {
	for _, e := range p {
		is, err := enabled(e, ctx)
		if err != nil {
			return nil, err
		}
		if !is {
			ends = append(ends, e)
		}
	}
	return ends, nil
}

// Unpeer takes back what Peer has made, in the opposite order: pods end at the provider, virtual nodes, ResourceSlices,
// identity, network. Where the provider has an identity at the consumer, too, the network stays. Where the remote cluster
// is gone for good it is nil, and o.RemoteClusterID tells what it was called: then everything for it is removed, in
// whichever role it was.
func Unpeer(ctx context.Context, consumer, provider *access.Cluster, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	o.Timeout = 0
	ends := endsToRemove(consumer, provider, &o)
	rights := func(e *end) []access.Permission {
		return append(ends.rightsToForgetIdentities(e), e.rightsToReset()...)
	}
	if err := ends.readToRemove(ctx, tell, rights); err != nil {
		return err
	}
	unknown := ""
	if provider == nil {
		unknown = ends[0].noPeering(ctx)
	}
	for _, e := range ends {
		if err := e.awaitNamespace(ctx, tell); err != nil {
			return err
		}
	}
	var p plan
	e := ends[0]
	h := &handshake{consumer: e, provider: e.peer}
	drained := p.add(nil, e.virtualNodesGone(provider != nil))
	asked := p.add(after(drained), e.slicesGone())
	identity := p.add(after(asked), h.removeIdentity(provider == nil))
	h.provider = ends[len(ends)-1] // in a cluster that is alone, its Tenant for the other one
	tenant := p.add(after(identity), h.removeTenant())
	copies := p.add(after(tenant), h.provider.copiesGone())
	gone := p.add(after(copies), h.provider.namespacesGone())
	opposite := false // the remote cluster has an identity in the local one, too
	if provider != nil {
		t, err := e.tenantOf(ctx)
		if err != nil {
			return err
		}
		opposite = t != nil
	}
	if opposite && o.DeleteNamespaces {
		return fmt.Errorf("cluster %s also has an identity in cluster %s, which needs the tenant namespaces; nothing was changed: leave out --delete-namespaces, or first run the command with the two clusters swapped",
			ends[1].id, ends[0].id)
	}
	var hints []hint
	if !opposite {
		hints = ends.exposed(ctx)
		p.reset(ends, gone)
	}
	if err := p.run(ctx, tell); err != nil {
		return err
	}
	for _, h := range hints {
		tell.Warning(h.of.Name, h.text)
	}
	if unknown != "" {
		tell.Warning(ends[0].Name, unknown)
	}
	if opposite {
		tell.Done("", fmt.Sprintf("The networks stay connected: cluster %s also has an identity in cluster %s", ends[1].id, ends[0].id))
		return nil
	}
	for _, e := range ends {
		for i := range e.found.namespaces {
			if n := &e.found.namespaces[i]; e.isTenantNamespace(n) && !e.mayDelete(n) {
				tell.Done(e.Name, fmt.Sprintf("Namespace %s stays for a later peering; the same command with --delete-namespaces deletes it", n.Name))
			}
		}
	}
	return nil
}

// noPeering says that the cluster has nothing of the peer; empty: it has. The ID may be mistyped, or else the command is
// repeated, so it is no error.
func (e *end) noPeering(ctx context.Context) string {
	if len(e.tenantNamespaces()) > 0 {
		return ""
	}
	err := e.Client.Get(ctx, client.ObjectKey{Name: e.peer.id}, new(corev1beta1.ForeignCluster))
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) { // it is there, or the user may not look
		return ""
	}
	others := "there is none with another cluster either"
	var list corev1.NamespaceList
	if err := e.Client.List(ctx, &list, client.MatchingLabels{networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue}); err != nil {
		others = "'liqoctl info' lists the peerings"
	} else if ids := peersOf(list.Items); len(ids) > 0 {
		others = "there are peerings with " + strings.Join(ids, ", ")
	}
	return fmt.Sprintf("No peering with cluster %s was found; %s", e.peer.id, others)
}

// peersOf are the IDs of the clusters to which tenant namespaces belong.
func peersOf(namespaces []corev1.Namespace) (ids []string) {
	for _, n := range namespaces {
		if id := n.Labels[networkingv1beta1.LabelRemoteClusterID]; id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// rightsToForgetIdentities are those that it takes to remove the identities of the consumer, and in a cluster that is
// alone those for the other one in both roles.
func (p pair) rightsToForgetIdentities(e *end) (all []access.Permission) {
	isConsumer, isProvider := e == p[0], e != p[0] || len(p) == 1
	authentication, offloading := authv1beta1.GroupVersion.Group, offloadingv1beta1.GroupVersion.Group
	for _, n := range e.tenantNamespaces() {
		may := func(in bool, group, resource string, verbs ...string) {
			if in {
				all = append(all, access.Permissions(group, resource, n, verbs...)...)
			}
		}
		forget := func(in bool, secret string) {
			for _, v := range []string{"get", "delete"} {
				if in {
					all = append(all, access.Permission{Verb: v, Resource: "secrets", Namespace: n, Name: secret})
				}
			}
		}
		may(isConsumer, offloading, "virtualnodes", "list", "delete")
		may(isProvider, offloading, "namespacemaps", "list", "delete")
		may(isConsumer, authentication, "resourceslices", "patch") // to ask for no virtual node
		may(true, authentication, "resourceslices", "list", "delete")
		may(true, authentication, "tenants", "list") // the peer may have an identity here, too
		may(isConsumer, authentication, "identities", "list", "delete")
		may(isProvider, authentication, "tenants", "delete")
		may(isProvider, authentication, "renews", "list", "delete")
		forget(isConsumer, authv1beta1.SignedNonceSecret)
		forget(len(p) == 1, authv1beta1.CopiesSecret)
		forget(isProvider, authv1beta1.NonceSecret)
	}
	return all
}

// slicesGone deletes the ResourceSlices for the peer.
func (e *end) slicesGone() *step {
	s := &step{in: e.Cluster, waiting: "Deleting resourceslices", done: "No resourceslices found", clues: e.controllerClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		var list authv1beta1.ResourceSliceList
		err = e.list(ctx, "ResourceSlices", &list, e.ownSlices()...)
		if err != nil {
			return "", err
		}
		if len(list.Items) > 0 {
			s.done = "All resourceslices deleted"
		}
		return e.removeAll(ctx, objects(list.Items)...)
	}
	return s
}

// copiesGone deletes what the consumer has copied to this end and its controllers have not removed: without a Tenant they
// may not.
func (e *end) copiesGone() *step {
	s := &step{in: e.Cluster, waiting: "Deleting copies of resourceslices", done: "Ensured resourceslices absence", clues: e.controllerClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		var asked authv1beta1.ResourceSliceList
		if err := e.list(ctx, "ResourceSlices", &asked, e.copies()...); err != nil {
			return "", err
		}
		var renews authv1beta1.RenewList
		if err := e.list(ctx, "Renews", &renews, e.copies()...); err != nil {
			return "", err
		}
		return e.removeAll(ctx, append(objects(asked.Items), objects(renews.Items)...)...)
	}
	return s
}
