package gatewayrender

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// objects is a client that reads unstructured objects of kinds that the scheme knows
// from the cache, which watches them anyway.
type objects struct{ client.Client }

// Get implements client.Client.
func (c objects) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	u, ok := into.(*unstructured.Unstructured)
	if !ok || !c.Scheme().Recognizes(u.GroupVersionKind()) {
		return c.Client.Get(ctx, key, into, opts...)
	}
	gvk := u.GroupVersionKind()
	empty, err := c.Scheme().New(gvk)
	if err != nil {
		return err
	}
	typed, ok := empty.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", empty)
	}
	if err := c.Client.Get(ctx, key, typed, opts...); err != nil {
		return err
	}
	if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
		return fmt.Errorf("convert %s: %w", gvk.Kind, err)
	}
	u.SetGroupVersionKind(gvk)
	return nil
}

// gather reads the template of a gateway.
func (r *reconciler) gather(ctx context.Context, g *gateway) (f Facts, err error) {
	f.Gateway, f.BesideLiqo = g, r.besideLiqo
	ref := g.templateRef(r.liqoNamespace)
	if ref.Name == "" {
		f.NoTemplate = &Problem{networkingv1beta1.ReasonTemplateNotFound, g.kind.refField + ".name is empty: name a template"}
		return f, nil
	}
	gvk := ref.GroupVersionKind()
	crd, err := r.templateKind(ctx, gvk)
	if err != nil {
		return f, err
	}
	if crd == nil {
		r.foreign.forget(ctx, r.kind, gvk)
		f.NoTemplate = &Problem{networkingv1beta1.ReasonTemplateKindUnknown, fmt.Sprintf(
			"%s: the cluster serves no %s of %s that is a gateway template: correct the reference, install its CRD, or give its CRD the label %s=%s",
			g.kind.refField, gvk.Kind, ref.APIVersion, networkingv1beta1.LabelGatewayTemplate, networkingv1beta1.LabelTrue)}
		return f, nil
	}
	if crd.Spec.Scope == apiextensionsv1.ClusterScoped {
		ref.Namespace = ""
	}
	f.Template, f.NoTemplate, err = r.template(ctx, gvk, &ref)
	return f, err
}

// templateKind returns the CRD of a kind of templates; nil if it is none.
func (r *reconciler) templateKind(ctx context.Context, gvk schema.GroupVersionKind) (*apiextensionsv1.CustomResourceDefinition, error) {
	var crds apiextensionsv1.CustomResourceDefinitionList // only those of templates are seen
	if err := r.List(ctx, &crds); err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	i := slices.IndexFunc(crds.Items, func(c apiextensionsv1.CustomResourceDefinition) bool { return serves(&c, gvk) })
	if i < 0 {
		return nil, nil
	}
	return &crds.Items[i], nil
}

// serves tells whether objects of a kind can be read because of a CRD.
func serves(c *apiextensionsv1.CustomResourceDefinition, gvk schema.GroupVersionKind) bool {
	return c.DeletionTimestamp.IsZero() && c.Spec.Group == gvk.Group && c.Spec.Names.Kind == gvk.Kind &&
		slices.ContainsFunc(c.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version && v.Served }) &&
		slices.ContainsFunc(c.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
}

// template reads a template, and makes sure that its gateways wake when it changes.
func (r *reconciler) template(ctx context.Context, gvk schema.GroupVersionKind, ref *corev1.ObjectReference) (*unstructured.Unstructured, *Problem, error) {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(gvk)
	var err error
	if !r.Scheme().Recognizes(gvk) {
		err = r.foreign.watch(ctx, watch{kind: r.kind, gvk: gvk, templates: true})
	}
	if err == nil {
		err = r.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, u)
	}
	name := gvk.Kind + " " + objectName(ref.Namespace, ref.Name)
	switch {
	case apierrors.IsForbidden(err):
		return nil, &Problem{networkingv1beta1.ReasonTemplateForbidden, name + " cannot be read: " + needsRights(gvk.Kind, gvk.Group, "get, list and watch")}, nil
	case meta.IsNoMatchError(err):
		return nil, nil, fmt.Errorf("the API server does not serve %s yet: %w", gvk.Kind, err)
	case apierrors.IsNotFound(err):
		return nil, &Problem{networkingv1beta1.ReasonTemplateNotFound, fmt.Sprintf("%s does not exist: create it, or correct %s", name, r.kind.refField)}, nil
	case err != nil:
		return nil, nil, err
	}
	return u, nil, nil
}
