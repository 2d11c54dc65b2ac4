package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/network/gatewaydeploy"
)

// identify finds out who the clusters are, and that they are two.
func (p pair) identify(ctx context.Context, tell progress.Func) error {
	for _, e := range p {
		tell.Waiting(e.Name, "Retrieving cluster identity")
	}
	err := p.both(func(e *end) error {
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { e.id, errs[0] = e.ID(ctx) })
		wg.Go(func() { e.uid, errs[1] = e.UID(ctx) })
		wg.Wait()
		if apierrors.IsForbidden(errs[1]) { // the ID has to do
			errs[1] = nil
		}
		return cmp.Or(errs[0], errs[1])
	})
	if err != nil {
		return err
	}
	return p.different()
}

// different fails unless the clusters are two, with two names.
func (p pair) different() error {
	local, other := p[0], p[0].peer
	if local.id != other.id && (local.uid == "" || local.uid != other.uid) {
		return nil
	}
	if len(p) == 1 {
		return local.Errorf("%q is the ID of this cluster itself: name the cluster that it was connected to", other.id)
	}
	if local.uid == other.uid && local.uid != "" {
		return fmt.Errorf("%s and %s lead to the same cluster, %s (in both, namespace %s has the UID %s): nothing was changed; name the other one with %s or %s",
			local.Origin, other.Origin, local.id, metav1.NamespaceSystem, local.uid, other.Flag("kubeconfig"), other.Flag("context"))
	}
	return fmt.Errorf("both clusters have the ID %q (ConfigMap liqo-clusterid-configmap), so neither could tell the other from itself: nothing was changed; "+
		"if they are different clusters, reinstall one of them with 'liqoctl install --cluster-id' and another ID", local.id)
}

// prepare finds out all that stands in the way of connecting, before anything is
// changed.
func (p pair) prepare(ctx context.Context, tell progress.Func, withGateways bool) error {
	if err := p[0].options.Validate(); err != nil {
		return err
	}
	if err := p.identify(ctx, tell); err != nil {
		return err
	}
	for _, e := range p {
		tell.Waiting(e.Name, "Checking cluster "+e.id)
	}
	tell = tell.Serial()
	err := p.both(func(e *end) error {
		if err := e.checkKinds(ctx); err != nil {
			return err
		}
		if looked := e.readPeering(ctx); looked != nil {
			_ = e.chooseNamespace() // it does not matter where the rights are missing
			return e.lacking(ctx, looked, e.rights(withGateways))
		}
		if err := e.awaitNamespace(ctx, tell); err != nil {
			return err
		}
		if err := e.Require(ctx, e.rights(withGateways)...); err != nil {
			return err
		}
		if !withGateways {
			return nil
		}
		if err := e.checkKeys(ctx); err != nil {
			return err
		}
		return e.checkGateway(ctx)
	})
	if err != nil || !withGateways || p.opposite() != nil {
		return err
	}
	return p.with(networkingv1beta1.ConnectionServer).checkNodeAddresses(ctx)
}

// checkKeys fails if there are keys for the peer that no gateway refers to, such as those
// created by hand for a connection that has since been removed: with the ones that the
// controller generates there would be two pairs, and the controller cannot guess which one
// to use.
func (e *end) checkKeys(ctx context.Context) error {
	if e.namespaceFound() == nil || e.options.DisableSharingKeys {
		return nil
	}
	stray, err := e.strayKeys(ctx, e.namespace, e.found.secretRefs(e.namespace))
	if err != nil || len(stray) == 0 {
		return err
	}
	return e.Errorf("Secret %s is labelled as keys for cluster %s, but no gateway refers to it: with the keys that the controller generates there would be two pairs, and it would be "+
		"unclear which one to use; nothing was changed; delete it with 'kubectl -n %s delete secret %s', or name it in spec.secretRef of a %s that you create, and connect again",
		strings.Join(stray, ", "), e.peer.id, e.namespace, strings.Join(stray, " "), newGateway(e.role).kind())
}

// strayKeys names the Secrets of a namespace that are labelled as a gateway's keys for
// the peer, that nothing owns, and that no gateway names. Secrets that the user may not see
// count as missing. Of the Secrets nothing but the metadata is read.
func (e *end) strayKeys(ctx context.Context, namespace string, named []string) (names []string, err error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err = e.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{
		networkingv1beta1.LabelGatewayResource: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: e.peer.id,
	})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, e.Explain("list Secrets in namespace "+namespace, err)
	}
	for i := range list.Items {
		if s := &list.Items[i]; len(s.OwnerReferences) == 0 && !slices.Contains(named, s.Name) { // Liqo's are owned, and not controlled
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// secretRefs are the Secrets that gateways of a namespace name.
func (f *found) secretRefs(namespace string) (names []string) {
	for _, g := range f.gateways() {
		if g.GetNamespace() != namespace {
			continue
		}
		if g.server != nil {
			names = append(names, g.server.Spec.SecretRef.Name)
		} else {
			names = append(names, g.client.Spec.SecretRef.Name)
		}
	}
	return names
}

// lacking is the error for a cluster that could not be read. If the user lacks the rights
// to read it, the error names all rights that the command needs, not only the first.
func (e *end) lacking(ctx context.Context, err error, rights []access.Permission) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return cmp.Or(e.Require(ctx, append(e.rightsToLook(), rights...)...), err)
}

// chooseNamespace decides about the tenant namespace.
func (e *end) chooseNamespace() error {
	given := ""
	if e.NamespaceGiven {
		given = e.Namespace
	}
	var err error
	if e.namespace, err = tenantNamespace(e.peer.id, given, e.Flag("namespace"), &e.found); err != nil {
		return e.Errorf("%w", err)
	}
	n := e.namespaceFound()
	problem := namespaceProblem(n, e.peer.id, e.Flag("namespace"))
	switch {
	case problem == "":
		return nil
	case n.DeletionTimestamp != nil:
		return &endingNamespace{e.Errorf("%s", problem), "Waiting for namespace " + n.Name + ", which is being deleted" + conditionsOf(n)}
	}
	return e.Errorf("%s", problem)
}

// endingNamespace is the error that the tenant namespace is being deleted.
type endingNamespace struct {
	error
	waiting string // what the user reads while it lasts
}

// awaitNamespace decides about the tenant namespace, and waits while an earlier one of that name is being deleted. If nobody
// can be told what it waits for, it does not wait.
func (e *end) awaitNamespace(ctx context.Context, tell progress.Func) error {
	told := ""
	for {
		err := e.chooseNamespace()
		ending := new(endingNamespace)
		if tell == nil || !errors.As(err, &ending) {
			return err
		}
		if told != ending.waiting {
			told = ending.waiting
			tell.Waiting(e.Name, told)
		}
		if !access.Pause(ctx, longPause) {
			return err
		}
		if looked := e.readPeering(ctx); ctx.Err() != nil {
			return err
		} else if looked != nil {
			return looked
		}
	}
}

// rightsToLook are those that look takes.
func (e *end) rightsToLook() (all []access.Permission) {
	namespace := ""
	if e.NamespaceGiven {
		namespace = e.Namespace
	} else {
		all = append(all, access.Permission{Verb: "list", Resource: "namespaces"})
	}
	for _, resource := range []string{"configurations", "gatewayclients", "gatewayservers"} {
		all = append(all, access.Permission{Verb: "list", Group: networkingv1beta1.GroupVersion.Group, Resource: resource, Namespace: namespace})
	}
	return all
}

// rights are those that it takes to connect.
func (e *end) rights(withGateways bool) []access.Permission {
	var all []access.Permission
	may := func(group, resource, namespace string, verbs ...string) {
		all = append(all, access.Permissions(group, resource, namespace, verbs...)...)
	}
	ours := networkingv1beta1.GroupVersion.Group
	if e.namespaceFound() == nil {
		may("", "namespaces", "", "create")
	}
	may(ours, "configurations", e.namespace, "list", "create", "patch")
	if !withGateways {
		return all
	}
	resource := "gatewayclients"
	if e.role == networkingv1beta1.ConnectionServer {
		resource = "gatewayservers"
		may(ours, resource, e.namespace, "delete")
	}
	may(ours, resource, e.namespace, "get", "create", "patch")
	if !e.options.DisableSharingKeys {
		if e.noConditions.Load() { // nor does Liqo tell the public key
			all = append(all, access.Permission{Verb: "get", Resource: "secrets", Namespace: e.namespace, Name: e.keysSecret()})
		}
		may(ours, "publickeies", e.namespace, "list", "create", "patch")
	}
	may(ours, "connections", e.namespace, "list")
	return all
}

// checkGateway finds out whether the gateway can be made as it is wanted.
func (e *end) checkGateway(ctx context.Context) error {
	server := e.role == networkingv1beta1.ConnectionServer
	installed, err := e.Installation(ctx)
	if err != nil && (server || !apierrors.IsForbidden(err)) { // under Liqo not everybody may read it
		return err
	}
	e.defaults, e.adopted = installed.Gateway, installed.Adopted
	ref, err := e.templateRef()
	if err != nil {
		return err
	}
	if !e.options.SkipValidation {
		if err := e.checkTemplate(ctx, ref); err != nil {
			return err
		}
	}
	if !server {
		return nil
	}
	return e.checkNodePorts(ctx)
}

// checkNodeAddresses fails where the client would dial a node of its own cluster: networks
// that were made alike, such as two VPCs of one template, give their nodes the same
// addresses. It is not known yet on which node the gateway server will run.
func (e *end) checkNodeAddresses(ctx context.Context) error {
	if e.options.SkipValidation || e.serviceType() != corev1.ServiceTypeNodePort || e.dialsChosenAddress() {
		return nil
	}
	theirs, err := e.nodes(ctx)
	if err != nil {
		return err
	}
	own, err := e.peer.nodes(ctx)
	if err != nil {
		return err
	}
	address, node, ownNode := sharedAddress(theirs, own)
	if address == "" {
		return nil
	}
	if e.peer.dialsAwayFrom(own) {
		e.peer.keepsEndpoint = true
		return nil
	}
	return e.Errorf("the gateway server's node port is reached at the address of a node, and %s, the address of node %s, is also that of node %s in cluster %s, whose gateway would dial its own cluster; "+
		"nothing was changed; name an address that leads to this cluster with --gw-client-address, or use --gw-server-service-type LoadBalancer; if this cannot happen in your networks, add --skip-validation",
		address, node, ownNode, e.peer.id)
}

// dialsAwayFrom tells whether this end has a GatewayClient that dials none of some nodes: somebody has chosen its address.
func (e *end) dialsAwayFrom(nodes []corev1.Node) bool {
	if len(e.found.clients) == 0 {
		return false
	}
	dialled := e.found.clients[0].client.Spec.Endpoint.Addresses // the oldest counts
	return len(dialled) > 0 && !slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return slices.Contains(dialled, a.Address) })
	})
}

// serviceType is how a gateway server is exposed, or will be.
func (e *end) serviceType() corev1.ServiceType {
	have := e.defaults.ServerServiceType
	if len(e.found.servers) > 0 { // the oldest counts
		have = e.found.servers[0].server.Spec.Endpoint.ServiceType
	}
	return cmp.Or(e.options.Server.ServiceType, have)
}

// dialsChosenAddress tells whether somebody said where this server is dialled, now or before.
func (e *end) dialsChosenAddress() bool {
	f := e.options.Client
	for _, g := range e.peer.found.clients {
		f = f.orChosen(g.client)
	}
	return f.Address != ""
}

// nodes are those of the cluster, none if the user may not list them.
func (e *end) nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := e.Client.List(ctx, &list)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return list.Items, e.Explain("list Nodes", err)
}

// sharedAddress is the first address at which a node of some is dialled and which a node of
// others has, too; "": there is none.
func sharedAddress(dialled, others []corev1.Node) (address, node, other string) {
	for i := range dialled {
		address := gatewaydeploy.NodeAddress(&dialled[i])
		for _, o := range others {
			if address != "" && slices.ContainsFunc(o.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == address }) {
				return address, dialled[i].Name, o.Name
			}
		}
	}
	return "", "", ""
}

// The node ports of a cluster, unless its administrator chose others, which no API
// tells.
const minNodePort, maxNodePort = 30000, 32767

// checkNodePorts finds out whether node ports can be had, by Services that are never
// made.
func (e *end) checkNodePorts(ctx context.Context) error {
	for _, port := range e.options.Server.NodePorts {
		if e.hasNodePort(port) {
			continue
		}
		if !e.options.SkipValidation && (port < minNodePort || port > maxNodePort) {
			return e.Errorf("--gw-server-service-nodeport %d: node ports are normally from %d to %d; nothing was changed; if this cluster has another range, add --skip-validation",
				port, minNodePort, maxNodePort)
		}
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "liqoctl-check-", Namespace: e.LiqoNamespace},
			Spec: corev1.ServiceSpec{
				Type:  corev1.ServiceTypeNodePort,
				Ports: []corev1.ServicePort{{Port: DefaultServicePort, NodePort: port, Protocol: corev1.ProtocolUDP}},
			},
		}
		err := e.write.Create(ctx, service, client.DryRunAll)
		if apierrors.IsInvalid(err) {
			return e.Errorf("--gw-server-service-nodeport %d: %w; nothing was changed; choose another port, or 0 for any free port", port, why(err))
		}
	}
	return nil // if Services may not be created there, the condition of the gateway says so
}

// hasNodePort tells whether the gateway server has the port already.
func (e *end) hasNodePort(port int32) bool {
	return slices.ContainsFunc(e.found.servers, func(g *gateway) bool {
		s := g.server
		return slices.Contains(s.Spec.Endpoint.AllNodePorts(), port) || s.Status.Endpoint != nil && slices.Contains(s.Status.Endpoint.AllPorts(), port)
	})
}

// why is what an API server rejects in an object, without the name of the object, which was
// generated and means nothing to the user.
func why(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if d := status.Status().Details; d != nil && len(d.Causes) > 0 {
			return errors.New(d.Causes[0].Message)
		}
	}
	return err
}
