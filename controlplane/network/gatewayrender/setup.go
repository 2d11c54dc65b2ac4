package gatewayrender

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// Options is what the program decides.
type Options struct {
	// LiqoNamespace is where the installation lives. Templates without a namespace
	// are looked for there.
	LiqoNamespace string
	// BesideLiqo says that these controllers have taken over the network of Liqo, which runs there, too.
	BesideLiqo bool
}

// SetupWithManager adds the controllers of both kinds.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	rs, err := newReconcilers(mgr, o)
	if err != nil {
		return err
	}
	for _, r := range rs {
		if err := r.setup(mgr); err != nil {
			return fmt.Errorf("set up %s: %w", r.kind.name, err)
		}
	}
	return nil
}

func newReconcilers(mgr ctrl.Manager, o Options) (rs []*reconciler, err error) {
	f, err := newForeign(mgr)
	if err != nil {
		return nil, err
	}
	for _, k := range []*kind{&serverKind, &clientKind} {
		rs = append(rs, &reconciler{
			Client: objects{mgr.GetClient()}, kind: k, foreign: f,
			events: mgr.GetEventRecorder("liqo-controller"), liqoNamespace: o.LiqoNamespace, besideLiqo: o.BesideLiqo,
		})
	}
	return rs, nil
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	templates := handler.EnqueueRequestsFromMapFunc(r.byTemplate)
	c, err := controllers.New(mgr, strings.ToLower(r.kind.name), controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		// Its status, too: peers go by what stands there.
		For(r.kind.new()).
		// Its status is copied, and what was edited or deleted comes back.
		Owns(r.kind.newObject()).
		// Gateways follow their template.
		Watches(r.kind.newTemplate(), templates, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Kinds of templates come and go.
		Watches(new(apiextensionsv1.CustomResourceDefinition), handler.EnqueueRequestsFromMapFunc(r.byTemplateKind)).
		Build(apply.RequeueOnConflict(r))
	if err != nil {
		return err
	}
	r.foreign.handlers[r.kind] = handlers{
		controller: c, templates: templates,
		children: handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), r.kind.new(), handler.OnlyControllerOwner()),
	}
	return nil
}

// byTemplate finds the gateways that refer to a template.
func (r *reconciler) byTemplate(ctx context.Context, o client.Object) []reconcile.Request {
	group, err := groupKind(o, r.Scheme())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "a template of no kind")
		return nil
	}
	return r.which(ctx, func(g *gateway) bool {
		ref := g.templateRef(r.liqoNamespace)
		return ref.GroupVersionKind().GroupKind() == group && ref.Name == o.GetName() && (ref.Namespace == o.GetNamespace() || o.GetNamespace() == "")
	})
}

// byTemplateKind finds the gateways that refer to a template of a kind.
func (r *reconciler) byTemplateKind(ctx context.Context, o client.Object) []reconcile.Request {
	crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil
	}
	return r.which(ctx, func(g *gateway) bool {
		gvk := g.templateRef(r.liqoNamespace)
		return gvk.GroupVersionKind().GroupKind() == schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	})
}

// which returns the gateways of the kind for which a test holds.
func (r *reconciler) which(ctx context.Context, test func(*gateway) bool) []reconcile.Request {
	list := r.kind.newList()
	if err := r.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list gateways")
		return nil
	}
	var requests []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error { // fails for what is no list
		if g := r.kind.gatewayOf(o.(client.Object)); test(g) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(g)})
		}
		return nil
	})
	return requests
}

// groupKind is the kind of an object, which typed objects do not carry.
func groupKind(o client.Object, scheme *runtime.Scheme) (schema.GroupKind, error) {
	if k := o.GetObjectKind().GroupVersionKind(); !k.Empty() {
		return k.GroupKind(), nil
	}
	kinds, _, err := scheme.ObjectKinds(o)
	if err != nil || len(kinds) == 0 {
		return schema.GroupKind{}, fmt.Errorf("%T: %w", o, err)
	}
	return kinds[0].GroupKind(), nil
}
