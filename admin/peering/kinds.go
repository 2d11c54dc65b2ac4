package peering

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// neededKind is a kind that a cluster must know, with the fields that are written
// or read here.
type neededKind struct {
	gv       schema.GroupVersion
	resource string
	fields   []string
	// conditions: our kinds have status.conditions. Liqo's gateways do not, so the rest of
	// their status must be enough.
	conditions bool
}

func (n neededKind) name() string { return n.resource + "." + n.gv.Group }

// neededKinds are those without which two clusters cannot be connected.
var neededKinds = []neededKind{
	{gv: networkingv1beta1.GroupVersion, resource: "configurations", fields: []string{"spec.remote.cidr.pod", "spec.remote.cidr.external", "status.remote.cidr"}},
	{gv: networkingv1beta1.GroupVersion, resource: "gatewayservers", conditions: true, fields: []string{
		"spec.mtu", "spec.serverTemplateRef", "spec.endpoint.port", "spec.endpoint.serviceType", "spec.endpoint.nodePort",
		"spec.endpoint.loadBalancerIP", "status.endpoint.addresses", "status.secretRef",
	}},
	{gv: networkingv1beta1.GroupVersion, resource: "gatewayclients", conditions: true, fields: []string{
		"spec.mtu", "spec.clientTemplateRef", "spec.endpoint.addresses", "spec.endpoint.port", "status.secretRef",
	}},
	{gv: networkingv1beta1.GroupVersion, resource: "publickeies", fields: []string{"spec.publicKey"}},
	{gv: networkingv1beta1.GroupVersion, resource: "connections", fields: []string{"status.value"}},
	{gv: ipamv1alpha1.GroupVersion, resource: "networks", fields: []string{"status.cidr"}},
}

// checkKinds fails unless the cluster knows all kinds well enough.
func (e *end) checkKinds(ctx context.Context) error {
	problems, errs := access.Parallel(neededKinds, len(neededKinds), func(n neededKind) (string, error) { return e.checkKind(ctx, n) })
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	if problems = slices.DeleteFunc(problems, func(p string) bool { return p == "" }); len(problems) > 0 {
		return e.Errorf("%s; nothing was changed: update the cluster with 'liqoctl install' of this version", strings.Join(problems, "; "))
	}
	return nil
}

func (e *end) checkKind(ctx context.Context, n neededKind) (problem string, err error) {
	var crd apiextensionsv1.CustomResourceDefinition
	switch err := e.Client.Get(ctx, types.NamespacedName{Name: n.name()}, &crd); {
	case apierrors.IsForbidden(err): // who may work with the kinds need not be allowed to read their definitions
		return e.checkServed(n)
	case apierrors.IsNotFound(err):
		return "the CRD " + n.name() + " is missing", nil
	case err != nil:
		return "", e.Explain("read CRD "+n.name(), err)
	}
	problem = kindProblem(&crd, n)
	told := neededKind{gv: n.gv, resource: n.resource, fields: []string{"status.conditions"}}
	if problem == "" && n.conditions && kindProblem(&crd, told) != "" {
		e.noConditions.Store(true)
	}
	return problem, nil
}

// checkServed asks only what every user may ask.
func (e *end) checkServed(n neededKind) (problem string, err error) {
	list, err := e.Clientset.Discovery().ServerResourcesForGroupVersion(n.gv.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return "", e.Explain("look up the kinds of "+n.gv.String(), err)
	}
	if list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == n.resource }) {
		return "", nil
	}
	return fmt.Sprintf("the cluster does not serve %s in version %s", n.name(), n.gv.Version), nil
}

// kindProblem says what a CRD lacks; "": nothing.
func kindProblem(crd *apiextensionsv1.CustomResourceDefinition, n neededKind) string {
	var served []string
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Served {
			served = append(served, v.Name)
		}
		if v.Name != n.gv.Version || !v.Served {
			continue
		}
		if v.Schema == nil {
			return ""
		}
		var lacks []string
		for _, f := range n.fields {
			if !hasField(v.Schema.OpenAPIV3Schema, strings.Split(f, ".")) {
				lacks = append(lacks, f)
			}
		}
		if len(lacks) > 0 {
			return fmt.Sprintf("the CRD %s is outdated: it lacks %s", n.name(), strings.Join(lacks, ", "))
		}
		return ""
	}
	return fmt.Sprintf("the CRD %s does not match this version: it serves %s, not %s", n.name(), strings.Join(served, ", "), n.gv.Version)
}

// hasField tells whether objects can have the field, or anything in its place.
func hasField(s *apiextensionsv1.JSONSchemaProps, path []string) bool {
	if s == nil {
		return false
	}
	if len(path) == 0 {
		return true
	}
	p, ok := s.Properties[path[0]]
	if !ok {
		return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
	}
	return hasField(&p, path[1:])
}
