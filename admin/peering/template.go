package peering

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// TemplateRef returns the reference that flags describe, for a gateway of a role.
// Where a flag is empty it is the default: this project's kinds and names, the
// namespace of the installation. The cluster is only asked for kinds that are not
// this project's. In an adopted one the usual names are those of Liqo's templates.
func TemplateRef(c *access.Cluster, role networkingv1beta1.ConnectionType, f TemplateFlags, adopted bool) (corev1.ObjectReference, error) {
	ref, typ := ServerTemplate(f.Name, c.LiqoNamespace), DefaultServerTemplateType
	if role == networkingv1beta1.ConnectionClient {
		ref, typ = ClientTemplate(f.Name, c.LiqoNamespace), DefaultClientTemplateType
	}
	if adopted && f.Name == "" {
		ref.Name = adoptedPrefix + ref.Name
	}
	ref.Namespace = cmp.Or(f.Namespace, ref.Namespace)
	if f.Type == "" || f.Type == typ {
		return ref, nil
	}
	gvr, err := parseTemplateType(f.Type)
	if err != nil {
		return ref, err
	}
	gvk, err := c.Client.RESTMapper().KindFor(gvr)
	if meta.IsNoMatchError(err) {
		return ref, c.Errorf("the cluster does not know the template type %s: install its CRD, or name another type", f.Type)
	}
	if err != nil {
		return ref, c.Explain("look up the template type "+f.Type, err)
	}
	ref.APIVersion, ref.Kind = gvk.GroupVersion().String(), gvk.Kind
	return ref, nil
}

// adoptedPrefix begins the names of our templates beside Liqo's: the chart makes them.
const adoptedPrefix = "sluice-"

// parseTemplateType reads group/version/resource.
func parseTemplateType(s string) (gvr schema.GroupVersionResource, err error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return gvr, fmt.Errorf("%q is not a template type: write group/version/resource, such as %s", s, DefaultServerTemplateType)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: strings.ToLower(parts[2])}, nil
}

// templateRef is the template of this end's gateway: the user's choice, or that of
// the gateway there is, or the default.
func (e *end) templateRef() (corev1.ObjectReference, error) {
	flags := e.options.Server.Template
	if e.role == networkingv1beta1.ConnectionClient {
		flags = e.options.Client.Template
	}
	if flags == (TemplateFlags{}) {
		for _, g := range e.gateways(e.role) {
			if ref := g.template(); g.GetNamespace() == e.namespace && ref.Name != "" {
				ref.Namespace = cmp.Or(ref.Namespace, e.LiqoNamespace)
				return ref, nil
			}
		}
	}
	return TemplateRef(e.Cluster, e.role, flags, e.adopted)
}

// checkTemplate fails unless the template exists.
func (e *end) checkTemplate(ctx context.Context, ref corev1.ObjectReference) error {
	var u unstructured.Unstructured
	u.SetGroupVersionKind(ref.GroupVersionKind())
	err := e.Client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &u)
	if apierrors.IsNotFound(err) {
		which := strings.ToLower(string(e.role))
		return e.Errorf("there is no %s %s/%s: 'kubectl get %s -A' lists the existing ones; name one with --gw-%s-template-name and --gw-%[5]s-template-namespace, or skip this check with --skip-validation",
			ref.Kind, ref.Namespace, ref.Name, strings.ToLower(ref.Kind)+"s", which)
	}
	return e.Explain(fmt.Sprintf("read %s %s/%s", ref.Kind, ref.Namespace, ref.Name), err)
}
