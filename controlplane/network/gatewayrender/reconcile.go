package gatewayrender

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// recheckRefused is how soon it is tried again what a role or an admission policy
// stands in the way of: no watch shows when those change.
const recheckRefused = time.Minute

// recheckOrphan is how soon it is looked again whether garbage collection took away
// an object of an earlier gateway of the same name.
const recheckOrphan = 5 * time.Second

// reconciler keeps the objects of the gateways of one kind as their templates say. It
// is level-based: it looks at the world, never at the event that woke it.
type reconciler struct {
	// Client reads what the scheme knows, as unstructured objects too, from the cache.
	client.Client
	kind          *kind
	foreign       *foreign
	events        events.EventRecorder
	liqoNamespace string
	besideLiqo    bool
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers;gatewayclients,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers/status;gatewayclients/status,verbs=get;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers;wggatewayclients,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservertemplates;wggatewayclienttemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile makes the object of one gateway.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := r.kind.new()
	if err := r.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !o.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, nil // its object goes with it, by its owner reference
	}
	g := r.kind.gatewayOf(o)
	facts, err := r.gather(ctx, g)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read template: %w", err)
	}
	outcome, err := r.apply(ctx, g, Build(facts))
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case errors.Is(err, errOrphan):
		return ctrl.Result{RequeueAfter: recheckOrphan}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	if err := r.setStatus(ctx, g, outcome); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: outcome.recheck()}, nil
}

// recheck is when to look again at what no watch shows; 0: never.
func (o Outcome) recheck() time.Duration {
	if o.Refused != nil || o.Plan.Problem != nil && o.Plan.Problem.Reason == networkingv1beta1.ReasonTemplateForbidden {
		return recheckRefused
	}
	return 0
}

// errOrphan says that an object of this name is about to be collected.
var errOrphan = errors.New("the object of an earlier gateway of this name is still there")

// apply does what the plan says.
func (r *reconciler) apply(ctx context.Context, g *gateway, p Plan) (o Outcome, err error) {
	o.Plan = p
	if p.Object == nil {
		if made := *g.made; made != nil {
			o.Object, o.Refused, err = r.live(ctx, g, made)
		}
		return o, err
	}
	if p.Superseded != nil {
		if o.Refused, err = r.remove(ctx, g, p.Superseded); o.Refused != nil || err != nil {
			return o, err
		}
	}
	if o.Object, o.Refused, err = r.live(ctx, g, reference(p.Object)); o.Refused != nil || err != nil {
		return o, err
	}
	if o.Refused, err = taken(g, o.Object); o.Refused != nil || err != nil {
		o.Object = nil // it says nothing about this gateway
		return o, err
	}
	o.Wrote, err = apply.Object(ctx, r, nil, r.stored(p.Object))
	if o.Refused = r.refusal(p.Object, err); o.Refused != nil {
		err = nil
	}
	return o, err
}

// stored is an object without what its type does not store, if the scheme has one. A template may render fields that are
// empty, as Liqo's do: the live object, read in that type, lacks them, and so would seem to need writing each time.
func (r *reconciler) stored(u *unstructured.Unstructured) *unstructured.Unstructured {
	typed, err := r.Scheme().New(u.GroupVersionKind())
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed) != nil {
		return u // the API server says what is wrong with it
	}
	kept, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return u
	}
	u = u.DeepCopy()
	dropMissing(u.Object, kept)
	return u
}

// dropMissing removes from a value the empty fields that another one lacks. What that one has beside them is not added, and
// what is not empty stays: it is a field of a version of the type that is newer than this program.
func dropMissing(from, kept any) {
	switch from := from.(type) {
	case map[string]any:
		kept, ok := kept.(map[string]any)
		if !ok {
			return
		}
		for key, v := range from {
			if k, there := kept[key]; there {
				dropMissing(v, k)
			} else if isEmpty(v) {
				delete(from, key)
			}
		}
	case []any:
		kept, _ := kept.([]any)
		for i := range min(len(from), len(kept)) {
			dropMissing(from[i], kept[i])
		}
	}
}

// isEmpty tells whether there is nothing in a value of JSON, at any depth.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(v any) bool { return !isEmpty(v) })
	case []any:
		return len(v) == 0
	}
	return v == nil || reflect.ValueOf(v).IsZero()
}

// live reads an object that was made of the gateway, or will be; nil if there is
// none. It makes sure that the gateway wakes when the object changes.
func (r *reconciler) live(ctx context.Context, g *gateway, ref *corev1.ObjectReference) (*unstructured.Unstructured, *Problem, error) {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(ref.GroupVersionKind())
	if !r.Scheme().Recognizes(ref.GroupVersionKind()) {
		err := r.foreign.watch(ctx, watch{kind: r.kind, gvk: ref.GroupVersionKind()})
		if problem := r.refusal(u, err); problem != nil || err != nil {
			return nil, problem, ignoreIf(problem, err)
		}
	}
	err := r.Get(ctx, client.ObjectKey{Namespace: g.GetNamespace(), Name: ref.Name}, u)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	problem := r.refusal(u, err)
	if problem != nil || err != nil {
		return nil, problem, ignoreIf(problem, err)
	}
	return u, nil, nil
}

// remove deletes the object that was made of the gateway before.
func (r *reconciler) remove(ctx context.Context, g *gateway, ref *corev1.ObjectReference) (*Problem, error) {
	u, problem, err := r.live(ctx, g, ref)
	if u == nil || !metav1.IsControlledBy(u, g) {
		return problem, err
	}
	err = apply.Delete(ctx, r, u)
	problem = r.refusal(u, err)
	return problem, ignoreIf(problem, err)
}

// taken tells whether the object belongs to somebody else.
func taken(g *gateway, u *unstructured.Unstructured) (*Problem, error) {
	if u == nil {
		return nil, nil
	}
	o := metav1.GetControllerOf(u)
	if o == nil && u.GetLabels()[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue {
		return &Problem{networkingv1beta1.ReasonObjectRefused, fmt.Sprintf(
			"%s %s exists already and was not rendered: delete it, or let the template render another metadata.name", u.GetKind(), u.GetName())}, nil
	}
	if o == nil || o.UID == g.GetUID() {
		return nil, nil
	}
	if mine := g.owner(); o.APIVersion == mine.APIVersion && o.Kind == mine.Kind && o.Name == mine.Name {
		return nil, errOrphan
	}
	return &Problem{networkingv1beta1.ReasonObjectRefused, fmt.Sprintf(
		"%s %s exists already and belongs to %s %s: delete it, or let the template render another metadata.name", u.GetKind(), u.GetName(), o.Kind, o.Name)}, nil
}

// refusal is the problem behind an error, if it is one that a retry does not cure.
func (r *reconciler) refusal(u *unstructured.Unstructured, err error) *Problem {
	message, refused := apply.Refusal(err)
	var status apierrors.APIStatus
	switch {
	case err == nil || apply.NamespaceEnds(err):
		return nil
	case meta.IsNoMatchError(err):
		return &Problem{networkingv1beta1.ReasonObjectRefused, fmt.Sprintf("the cluster has no kind %s of %s: install its CRD, or correct spec.objectKind of the template",
			u.GetKind(), u.GetAPIVersion())}
	case refused && !errors.As(err, &status):
		return &Problem{networkingv1beta1.ReasonObjectRefused, u.GetKind() + " " + u.GetName() + ": " + message}
	case !errors.As(err, &status):
		return nil
	case apierrors.IsForbidden(err) && !r.Scheme().Recognizes(u.GroupVersionKind()):
		return &Problem{networkingv1beta1.ReasonObjectRefused, fmt.Sprintf("%s. Unless an admission policy said so, %s",
			status.Status().Message, needsRights(u.GetKind(), u.GroupVersionKind().Group, "get, list, watch, create, patch and delete"))}
	case refused, apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return &Problem{networkingv1beta1.ReasonObjectRefused, u.GetKind() + " " + u.GetName() + ": " + status.Status().Message}
	}
	return nil
}

// needsRights says what to do about rights that the controllers lack.
func needsRights(kind, group, verbs string) string {
	return fmt.Sprintf("the controllers need the right to %s objects of kind %s in group %s: "+
		"bind a ClusterRole with it to the service account liqo-controller", verbs, kind, group)
}

// ignoreIf is nil where a problem stands for the error.
func ignoreIf(p *Problem, err error) error {
	if p != nil {
		return nil
	}
	return err
}

// setStatus writes the status, and tells by events what is new.
func (r *reconciler) setStatus(ctx context.Context, g *gateway, o Outcome) error {
	before := slices.Clone(*g.conditions)
	unchanged, ok := g.DeepCopyObject().(client.Object)
	wrote, err := apply.Status(ctx, r, g.Object, func() { g.observe(o) })
	if apierrors.IsInvalid(err) && ok && o.Object != nil {
		// Somebody else's kind has a status that is none of a gateway.
		unstructured.RemoveNestedField(o.Object.Object, "status")
		o.Refused = r.refusal(o.Object, err)
		g = r.kind.gatewayOf(unchanged)
		wrote, err = apply.Status(ctx, r, unchanged, func() { g.observe(o) })
	}
	if err != nil || !wrote {
		return client.IgnoreNotFound(err)
	}
	for _, c := range news(before, *g.conditions) {
		kind := corev1.EventTypeNormal
		if c.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		apply.Event(r.events, g.Object, kind, c.Reason, "Reconcile", c.Message)
	}
	return nil
}
