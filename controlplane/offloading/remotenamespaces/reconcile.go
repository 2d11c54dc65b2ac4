package remotenamespaces

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// reasonNotMade is the reason of events about namespaces that are not made.
const reasonNotMade = "NamespaceNotMade"

// retry is when what was refused is tried again: most of what refuses it, such as another namespace of the name, is watched by
// nobody here.
const retry = 10 * time.Second

// Reconciler makes the namespaces of one NamespaceMap equal to what it asks for.
type Reconciler struct {
	client.Client
	// Reader reads past the cache: namespaces, all of which would be much.
	Reader   client.Reader
	Recorder events.EventRecorder
	Options  Options

	uncounted uncounted
}

// The consumer's role is bound by us, so we must hold what it grants, or be allowed to bind it. A
// ValidatingAdmissionPolicy of the chart says which namespaces may be written.
//
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=resourcequotas,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-remote,verbs=bind
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one NamespaceMap, and at what was made for it if it is gone.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.gather(ctx, req)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	p := Build(f)
	if err := r.remove(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	if f.Map == nil {
		return ctrl.Result{}, nil
	}
	if f.Tenant != nil {
		if err := apply.TieTo(ctx, r.Client, f.Tenant, f.Map); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	failed := r.ensure(ctx, f, &p)
	before := f.Map.Status.DeepCopy().CurrentMapping
	if _, err := apply.Status(ctx, r.Client, f.Map, func() {
		if f.Map.Status.CurrentMapping = p.Mapping; p.Mapping == nil {
			f.Map.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{} // nothing is left, which is an answer
		}
	}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	r.tell(ctx, f.Map, p, before)
	switch {
	case len(p.Refused) > 0:
		return ctrl.Result{RequeueAfter: retry}, failed
	case len(f.Uncounted) > 0:
		return ctrl.Result{RequeueAfter: recount}, failed
	}
	return ctrl.Result{}, failed
}

func (r *Reconciler) gather(ctx context.Context, req ctrl.Request) (Facts, error) {
	f := Facts{Options: r.Options, Name: req.NamespacedName}
	m := new(offloadingv1beta1.NamespaceMap)
	switch err := r.Get(ctx, req.NamespacedName, m); {
	case err == nil && isCopy(m):
		f.Map = m
	case client.IgnoreNotFound(err) != nil:
		return f, err
	}
	var made corev1.NamespaceList
	if err := r.Reader.List(ctx, &made, client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}); err != nil {
		return f, fmt.Errorf("list namespaces: %w", err)
	}
	f.Namespaces = made.Items
	if f.Map == nil {
		return f, nil
	}
	var tenants authv1beta1.TenantList
	if err := r.List(ctx, &tenants, client.InNamespace(req.Namespace)); err != nil {
		return f, fmt.Errorf("list Tenants: %w", err)
	}
	for i := range tenants.Items {
		if t := &tenants.Items[i]; t.Status.TenantNamespace == req.Namespace {
			f.Tenant = t
		}
	}
	var quotas corev1.ResourceQuotaList
	if err := r.List(ctx, &quotas, client.UnsafeDisableDeepCopy, client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}); err != nil {
		return f, fmt.Errorf("list ResourceQuotas: %w", err)
	}
	f.Uncounted = r.uncounted.update(r.Options.Quota, quotas.Items, time.Now())
	return f, r.lookUp(ctx, &f)
}

// lookUp reads the namespaces that were not made here and whose names are asked for. A consumer can ask for many, and
// has no more of them read than it may have.
func (r *Reconciler) lookUp(ctx context.Context, f *Facts) error {
	known := map[string]bool{}
	for i := range f.Namespaces {
		known[f.Namespaces[i].Name] = true
	}
	asked := 0
	for _, name := range slices.Sorted(maps.Values(f.wanted())) {
		if known[name] || f.refuse(name, name, nil, 0) != "" {
			continue
		}
		known[name] = true
		if asked++; asked > f.MaxNamespaces {
			break
		}
		n := new(corev1.Namespace)
		switch err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, n); {
		case err == nil:
			f.Namespaces = append(f.Namespaces, *n)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get namespace %s: %w", name, err)
		}
	}
	return nil
}

func (r *Reconciler) remove(ctx context.Context, p Plan) error {
	for _, n := range p.Remove {
		// As it was read: somebody may take it over by removing our marks.
		err := r.Delete(ctx, n, client.Preconditions{UID: new(n.UID), ResourceVersion: new(n.ResourceVersion)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete namespace %s: %w", n.Name, err)
		}
		log.FromContext(ctx).Info("deleted a namespace", "name", n.Name, "clusterID", n.Labels[networkingv1beta1.LabelRemoteClusterID])
	}
	return nil
}

// ensure makes what is to be. What the API server refuses it notes in the plan; the rest it returns.
func (r *Reconciler) ensure(ctx context.Context, f Facts, p *Plan) error {
	for _, local := range slices.Sorted(maps.Keys(p.Ensure)) {
		n := p.Ensure[local]
		err := r.namespace(ctx, f, n)
		if err == nil { // before the consumer may make anything there
			_, err = apply.Object(ctx, r.Client, r.Reader, f.quota(n.Name))
		}
		if err == nil {
			_, err = apply.Object(ctx, r.Client, r.Reader, f.binding(n.Name))
		}
		if err == nil {
			continue
		}
		status := p.Mapping[local]
		why, refused := apply.Refusal(err) // the rest of an error is none of the consumer's business
		status.Phase, status.Message = offloadingv1beta1.MappingCreationLoopBackOff, text.Cut(why, maxMessage)
		p.Mapping[local], p.Refused[local] = status, err.Error()
		if !refused && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func (r *Reconciler) namespace(ctx context.Context, f Facts, want *corev1.Namespace) error {
	i := slices.IndexFunc(f.Namespaces, func(n corev1.Namespace) bool { return n.Name == want.Name })
	if i < 0 {
		// Never by apply, which would take over what somebody else makes in this moment.
		if err := r.Create(ctx, want.DeepCopy(), client.FieldOwner(apply.FieldOwner)); err != nil {
			return fmt.Errorf("make namespace %s: %w", want.Name, err)
		}
		log.FromContext(ctx).Info("made a namespace", "name", want.Name, "clusterID", want.Labels[networkingv1beta1.LabelRemoteClusterID])
		return nil
	}
	live := f.Namespaces[i].DeepCopy()
	before := live.DeepCopy()
	maps.Copy(live.Labels, want.Labels)
	if maps.Equal(before.Labels, live.Labels) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, live, patch, client.FieldOwner(apply.FieldOwner)); err != nil {
		return fmt.Errorf("label namespace %s: %w", want.Name, err)
	}
	return nil
}

// tell tells the provider's administrator of what is not made, once.
func (r *Reconciler) tell(ctx context.Context, m *offloadingv1beta1.NamespaceMap, p Plan, before map[string]offloadingv1beta1.RemoteNamespaceStatus) {
	told := 0
	for _, local := range slices.Sorted(maps.Keys(p.Refused)) {
		if before[local] == p.Mapping[local] {
			continue
		}
		if told++; told > maxTold {
			return
		}
		log.FromContext(ctx).Info("a namespace is not made", "of", text.Quoted(local), "why", p.Refused[local])
		// Events that differ in their text only are taken for one.
		apply.Event(r.Recorder, m, corev1.EventTypeWarning, reasonNotMade, "Create "+text.Quoted(p.Mapping[local].RemoteNamespace), fmt.Sprintf("for namespace %s of the consumer: %s", text.Quoted(local), p.Refused[local]))
	}
}

// maxTold is of how many namespaces is told at a time.
const maxTold = 20
