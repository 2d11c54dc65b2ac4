package importer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/peeraddress"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// retry is when what was in the way is looked at again: nobody tells when it goes.
const retry = time.Minute

// Reconciler keeps what is made of one imported Service.
type Reconciler struct {
	client.Client
	// Users sees Services, EndpointSlices and Namespaces, but not those that the controllers make.
	Users client.Reader
	// Reader reads past every cache.
	Reader client.Reader
	// ID is that of this cluster.
	ID            func(context.Context) (string, error)
	LiqoNamespace string
	// Alias gives imported Services their own name as well, where the label of a namespace does not say otherwise.
	Alias bool
	Clock clock.PassiveClock

	// creating is held while namespaces are counted and one is created, or several workers would create the last one.
	creating sync.Mutex
}

// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports,verbs=get;list;watch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports/status,verbs=patch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceimports,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceimports/status,verbs=patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=importedservices,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=importedservices/status,verbs=patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=create
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=liqo-clusterid-configmap,verbs=get,namespace=liqo

// Reconcile looks at all that is known of one Service, whose name is that of the request.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, again, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	if f.TakenOver {
		if _, err := r.release(ctx, req.NamespacedName); err != nil {
			return ctrl.Result{}, err
		}
	}
	p := Build(f)
	if p.Namespace != nil {
		p, err = r.create(ctx, f)
		again = retry // if its event does not come back here before
	} else {
		err = r.apply(ctx, f, p)
	}
	if theirs := new(apply.ForeignError); errors.As(err, &theirs) {
		for i := range p.Accepted {
			if p.Accepted[i].Status == metav1.ConditionTrue {
				p.Accepted[i] = accepted(false, networkingv1beta1.ReasonNameTaken, theirs.Error())
			}
		}
		again, err = retry, nil
	} else if why, refused := apply.Refusal(err); refused {
		for i := range p.Accepted {
			if p.Accepted[i].Status == metav1.ConditionTrue {
				p.Accepted[i] = accepted(false, networkingv1beta1.ReasonInvalidService, "The API server refuses what it would lead to: "+why)
			}
		}
		again, err = retry, nil
	}
	if apply.NamespaceEnds(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, r.tell(ctx, req.NamespacedName, f, p)
}

// create creates the namespace of a plan, if the peer for which it is has not as many as it can have, and returns the plan
// that it was. The event of the namespace comes back here, and the caches know it then.
func (r *Reconciler) create(ctx context.Context, f Facts) (Plan, error) {
	r.creating.Lock()
	defer r.creating.Unlock()
	p := Build(f)
	for ; p.Namespace != nil; p = Build(f) {
		peer := p.Namespace.Labels[networkingv1beta1.LabelImportedFrom]
		// Past the cache, which may not yet know the last ones: a peer that names new namespaces all the time would get more.
		full, err := full(ctx, r.Reader, peer)
		if err != nil {
			return p, err
		}
		if !full {
			return p, client.IgnoreAlreadyExists(r.Create(ctx, p.Namespace))
		}
		for i := range f.Imports {
			f.Imports[i].Full = f.Imports[i].Full || f.Imports[i].Peer == peer
		}
	}
	return p, nil
}

// apply makes what is planned, and removes what was made before and is not planned any more.
func (r *Reconciler) apply(ctx context.Context, f Facts, p Plan) error {
	key := types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
	live := new(mcsv1beta1.ServiceImport)
	err := r.Get(ctx, key, live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get the ServiceImport: %w", err)
	}
	missing := err != nil
	if p.Import != nil {
		if _, err := apply.Object(ctx, r.Client, nil, p.Import); err != nil || missing {
			return err // its event comes back here: the others need its UID
		}
	} else if missing || !apply.Ours(r.Scheme(), live, nil) {
		return nil // what it owned goes with it, or is somebody else's
	}
	owner := metav1.OwnerReference{
		APIVersion: mcsv1beta1.SchemeGroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName, Name: live.Name, UID: live.UID, Controller: new(true),
	}
	of := []client.ListOption{client.InNamespace(f.Namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: f.Name}}
	var services corev1.ServiceList
	if err := r.List(ctx, &services, of...); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	// One that changes between headless and not gets another address, which a Service never does.
	wanted := map[string]bool{}
	for _, s := range p.Services {
		wanted[s.Name] = true
		for i := range services.Items {
			if have := &services.Items[i]; have.Name == s.Name && (have.Spec.ClusterIP == corev1.ClusterIPNone) != (s.Spec.ClusterIP == corev1.ClusterIPNone) {
				wanted[s.Name] = false
			}
		}
	}
	for i := range services.Items {
		s := &services.Items[i]
		if wanted[s.Name] || !s.DeletionTimestamp.IsZero() || takenOver(s) {
			continue
		}
		if s.Name == f.Name { // which a user may have made theirs just now
			if released, err := r.release(ctx, key); err != nil {
				return err
			} else if released {
				continue
			}
		}
		if err := apply.DeleteOurs(ctx, r.Client, s, &owner); err != nil {
			return err
		}
	}
	for _, s := range p.Services {
		if !wanted[s.Name] {
			continue // the end of the old one comes back here
		}
		s.OwnerReferences = []metav1.OwnerReference{owner}
		if s.Name == f.Name {
			s.ResourceVersion = f.AliasVersion // a user may have made it theirs since
		}
		_, err := apply.Object(ctx, r.Client, r.Reader, s)
		if apierrors.IsInvalid(err) && len(s.Spec.IPFamilies) > 0 { // this cluster has not the family of the endpoints
			s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = new(corev1.IPFamilyPolicyPreferDualStack), nil
			_, err = apply.Object(ctx, r.Client, r.Reader, s)
		}
		if theirs := new(apply.ForeignError); errors.As(err, &theirs) && s.Name == f.Name {
			continue // a user was faster: there is no alias
		}
		if err != nil {
			return err
		}
	}
	kept := map[string]bool{}
	for _, s := range p.Slices {
		kept[s.Name] = true
		s.OwnerReferences = []metav1.OwnerReference{owner}
		if _, err := apply.Object(ctx, r.Client, r.Reader, s); err != nil {
			return err
		}
	}
	var there discoveryv1.EndpointSliceList
	if err := r.List(ctx, &there, append(of, client.UnsafeDisableDeepCopy)...); err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	for i := range there.Items {
		if s := &there.Items[i]; !kept[s.Name] && s.DeletionTimestamp.IsZero() {
			if err := apply.DeleteOurs(ctx, r.Client, s, &owner); err != nil {
				return err
			}
		}
	}
	if p.Import == nil && live.DeletionTimestamp.IsZero() {
		// It is the last to go, so that what is left after an error is found again. The garbage collector would do without the
		// above, but learns late of kinds that were installed just now.
		return apply.Delete(ctx, r.Client, live)
	}
	return nil
}

// takenOver tells whether a user has applied a Service of their own over one that was made here. Such a one has no selector,
// leads to no name, and is applied by nobody who leaves a record of it.
func takenOver(s *corev1.Service) bool {
	return len(s.Spec.Selector) > 0 || s.Spec.Type == corev1.ServiceTypeExternalName || s.Annotations[corev1.LastAppliedConfigAnnotation] != ""
}

// release leaves an alias to the user who has applied a Service of their own over it. Nothing is left in it by which it would be
// changed or deleted with the ServiceImport. The spec is what the user has made of it.
func (r *Reconciler) release(ctx context.Context, name types.NamespacedName) (released bool, err error) {
	s := new(corev1.Service)
	if err := r.Reader.Get(ctx, name, s); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if s.Labels[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue || s.Labels[mcsv1beta1.LabelServiceName] != name.Name || !takenOver(s) {
		return false, nil
	}
	before := s.DeepCopy()
	delete(s.Labels, networkingv1beta1.LabelManaged)
	delete(s.Labels, mcsv1beta1.LabelServiceName)
	delete(s.Annotations, apply.AnnotationHash)
	s.OwnerReferences = slices.DeleteFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == mcsv1beta1.ServiceImportKindName })
	s.ManagedFields = slices.DeleteFunc(s.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == apply.FieldOwner })
	if err := r.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("release the alias: %w", err)
	}
	return true, nil
}

// tell writes what became of it: into the ServiceImport, the ImportedServices and the ServiceExport of this cluster.
func (r *Reconciler) tell(ctx context.Context, key types.NamespacedName, f Facts, p Plan) error {
	var errs []error
	for i, c := range p.Accepted {
		if p.Namespace != nil && c.Status == metav1.ConditionTrue {
			continue // it is part of nothing before the namespace is there
		}
		o := f.Imports[i].Object.DeepCopy()
		c.ObservedGeneration = o.Generation
		_, err := apply.Status(ctx, r.Client, o, func() { meta.SetStatusCondition(&o.Status.Conditions, c) })
		errs = append(errs, client.IgnoreNotFound(err))
	}
	if p.Conflict != nil {
		e := new(mcsv1beta1.ServiceExport)
		err := r.Get(ctx, key, e)
		if err == nil {
			_, err = apply.Status(ctx, r.Client, e, func() {
				c := *p.Conflict
				c.ObservedGeneration = e.Generation
				meta.SetStatusCondition(&e.Status.Conditions, c)
			})
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	if p.Import != nil && p.Namespace == nil {
		errs = append(errs, r.status(ctx, key, p))
	}
	return errors.Join(errs...)
}

// status writes that of the ServiceImport, if it is ours.
func (r *Reconciler) status(ctx context.Context, key types.NamespacedName, p Plan) error {
	s := new(mcsv1beta1.ServiceImport)
	if err := r.Get(ctx, key, s); err != nil || !apply.Ours(r.Scheme(), s, nil) {
		return client.IgnoreNotFound(err)
	}
	pending := p.Import.Spec.Type == mcsv1beta1.ClusterSetIP && len(p.Import.Spec.IPs) == 0
	if pending && len(s.Status.Conditions) == 0 {
		return nil // its event comes a moment later, and this is not worth a write
	}
	_, err := apply.Status(ctx, r.Client, s, func() {
		s.Status.Clusters, s.Status.EndpointSliceObjects = p.Clusters, mcsv1beta1.EndpointSliceObjectsPresent
		c := mcsv1beta1.NewServiceImportCondition(mcsv1beta1.ServiceImportConditionReady, metav1.ConditionTrue, mcsv1beta1.ServiceImportReasonReady, "The Service can be used")
		if pending {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(mcsv1beta1.ServiceImportReasonPending), "The Service has no address yet"
		}
		c.ObservedGeneration = s.Generation
		meta.SetStatusCondition(&s.Status.Conditions, c)
		if p.Alias == nil {
			meta.RemoveStatusCondition(&s.Status.Conditions, string(networkingv1beta1.ConditionAlias))
			return
		}
		alias := *p.Alias
		alias.ObservedGeneration = s.Generation
		meta.SetStatusCondition(&s.Status.Conditions, alias)
	})
	return client.IgnoreNotFound(err)
}

// gather reads what the import of a Service depends on. Again is when to look once more although nothing changed.
func (r *Reconciler) gather(ctx context.Context, name types.NamespacedName) (f Facts, again time.Duration, err error) {
	f = Facts{Namespace: name.Namespace, Name: name.Name}
	if f.Cluster, err = r.ID(ctx); err != nil {
		return f, 0, err
	}
	var imports networkingv1beta1.ImportedServiceList
	if err := r.List(ctx, &imports, client.UnsafeDisableDeepCopy, client.MatchingFields{byName: objectName(name)}); err != nil {
		return f, 0, fmt.Errorf("list ImportedServices: %w", err)
	}
	namespace := new(corev1.Namespace)
	if err := r.Users.Get(ctx, client.ObjectKey{Name: name.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return f, 0, fmt.Errorf("get the Namespace: %w", err)
	} else {
		f.NamespaceMissing, f.NamespaceEnds = err != nil, !namespace.DeletionTimestamp.IsZero()
	}
	f.Reserved = description.Reserved(name.Namespace, name.Name, r.LiqoNamespace, namespace.Labels)
	service := new(corev1.Service)
	if err := r.Users.Get(ctx, name, service); client.IgnoreNotFound(err) != nil {
		return f, 0, fmt.Errorf("get the Service: %w", err)
	} else if err != nil {
		service = nil
	}
	alias := new(corev1.Service)
	if err := r.Get(ctx, name, alias); client.IgnoreNotFound(err) != nil {
		return f, 0, fmt.Errorf("get the alias: %w", err)
	} else if err == nil {
		f.TakenOver, f.AliasVersion = takenOver(alias), alias.ResourceVersion
	}
	wanted, taken := wantsAlias(namespace.Labels[networkingv1beta1.LabelServiceAlias], r.Alias), service != nil || f.TakenOver
	f.Alias, f.AliasTaken = wanted && !taken, wanted && taken
	if err = r.local(ctx, name, service, &f); err != nil {
		return f, 0, err
	}
	derived := new(corev1.Service)
	switch err := r.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: DerivedName(name.Name)}, derived); {
	case client.IgnoreNotFound(err) != nil:
		return f, 0, fmt.Errorf("get the derived Service: %w", err)
	case err == nil && derived.Spec.ClusterIP != corev1.ClusterIPNone && derived.Labels[mcsv1beta1.LabelServiceName] == name.Name:
		f.IPs = derived.Spec.ClusterIPs
	}
	for i := range imports.Items {
		in, next, err := r.importOf(ctx, &imports.Items[i])
		if err == nil && f.NamespaceMissing && in.Creates {
			in.Full, err = full(ctx, r.Users, in.Peer)
		}
		if err != nil {
			return f, 0, err
		}
		if in.Full {
			next = retry
		}
		f.Imports = append(f.Imports, in)
		if next > 0 && (again == 0 || next < again) {
			again = next
		}
	}
	return f, again, nil
}

// full tells whether as many namespaces as there can be were created for a peer.
func full(ctx context.Context, c client.Reader, peer string) (bool, error) {
	var created corev1.NamespaceList
	if err := c.List(ctx, &created, client.UnsafeDisableDeepCopy, client.MatchingLabels{networkingv1beta1.LabelImportedFrom: peer}); err != nil {
		return false, fmt.Errorf("list Namespaces: %w", err)
	}
	return len(created.Items) >= networkingv1beta1.MaxCreatedNamespaces, nil
}

// wantsAlias tells whether a namespace wants aliases: as its label says, else as the installation does.
func wantsAlias(label string, installation bool) bool {
	return label == networkingv1beta1.LabelTrue || label == "" && installation
}

// local reads what this cluster exports under a name, if anything, and whether it is to be preferred.
func (r *Reconciler) local(ctx context.Context, name types.NamespacedName, s *corev1.Service, f *Facts) error {
	export := new(mcsv1beta1.ServiceExport)
	if err := r.Get(ctx, name, export); err != nil || !export.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err)
	}
	if s == nil || !s.DeletionTimestamp.IsZero() || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var made discoveryv1.EndpointSliceList
	if err := r.Users.List(ctx, &made, client.UnsafeDisableDeepCopy, client.InNamespace(name.Namespace), client.MatchingFields{description.ByService: name.Name}); err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	d, _ := description.Of(s, made.Items, export.CreationTimestamp, nil)
	if d.Check() != nil {
		return nil // the exporter says why
	}
	f.Local, f.PreferLocal = &d, export.Annotations[networkingv1beta1.AnnotationPreferLocal] == networkingv1beta1.LabelTrue
	f.Nodes = map[string]string{}
	for i := range made.Items {
		for _, e := range made.Items[i].Endpoints {
			if addr, err := netip.ParseAddr(first(e.Addresses)); err == nil && e.NodeName != nil {
				f.Nodes[addr.String()] = *e.NodeName
			}
		}
	}
	return nil
}

// first is the first of the addresses of an endpoint, all of which lead to the same.
func first(addresses []string) string {
	if len(addresses) == 0 {
		return ""
	}
	return addresses[0]
}

// importOf is what a peer says, and how its addresses are judged. Again is when to look once more.
func (r *Reconciler) importOf(ctx context.Context, o *networkingv1beta1.ImportedService) (in Import, again time.Duration, err error) {
	in.Object = o
	id := o.Labels[networkingv1beta1.LabelRemoteClusterID]
	if id == "" {
		return in, 0, nil
	}
	var configurations networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &configurations, client.UnsafeDisableDeepCopy, client.InNamespace(o.Namespace),
		client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: id}); err != nil {
		return in, 0, fmt.Errorf("list Configurations: %w", err)
	}
	if len(configurations.Items) == 0 {
		return in, 0, nil
	}
	in.Peer = id
	for i := range configurations.Items {
		namespace, name := description.Key(o.Name)
		in.Creates = (i == 0 || in.Creates) && description.CreatesNamespace(&configurations.Items[i], namespace, r.LiqoNamespace)
		in.Unwanted = in.Unwanted || !description.Allows(&configurations.Items[i], networkingv1beta1.AnnotationImportServices, namespace, name, nil)
	}
	judge, unknown, err := peeraddress.Gather(ctx, r.Client, r.Users, r.LiqoNamespace, o.Namespace, id)
	if err != nil {
		return in, 0, err
	}
	pods, passedOn := judge, judge
	pods.Addresses, passedOn.Addresses = judge.Addresses.Pods(), judge.Addresses.External()
	in.Unknown, in.Address, in.PassedOn = unknown, pods.Here, passedOn.Here
	hub := slices.ContainsFunc(o.Spec.Slices, func(s networkingv1beta1.ServiceSlice) bool { return s.Cluster != "" })
	if hub {
		if in.Connected, err = r.direct(ctx); err != nil {
			return in, 0, err
		}
	}
	peer := new(corev1beta1.ForeignCluster)
	switch err := r.Get(ctx, client.ObjectKey{Name: id}, peer); {
	case client.IgnoreNotFound(err) != nil:
		return in, 0, fmt.Errorf("get the ForeignCluster: %w", err)
	case apierrors.IsNotFound(err):
		peer = nil
	}
	if in.Away, again = description.Away(peer, r.Clock.Now()); hub && again == 0 {
		again = retry // one of the clusters behind it may be connected to this one by then
	}
	return in, again, nil
}

// direct are the clusters that this one has a peering with.
func (r *Reconciler) direct(ctx context.Context) (map[string]bool, error) {
	var all networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Configurations: %w", err)
	}
	direct := map[string]bool{}
	for i := range all.Items {
		direct[all.Items[i].Labels[networkingv1beta1.LabelRemoteClusterID]] = true
	}
	return direct, nil
}
