package release

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/deploy"
)

// AnnotationVersion says, on a CRD, which version of liqoctl applied it last.
const AnnotationVersion = "networking.liqo.io/crd-version"

// fieldOwner is who writes what is not the release's: namespaces and CRDs.
const fieldOwner = client.FieldOwner("liqoctl")

// pause is the time between two looks at something that others do.
const pause = 250 * time.Millisecond

// crds are the project's CRDs, as they are applied.
func crds(newVersion string) ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(deploy.CRDs(), "*.yaml")
	if err != nil {
		return nil, err
	}
	var us []*unstructured.Unstructured
	for _, name := range files {
		b, err := fs.ReadFile(deploy.CRDs(), name)
		if err != nil {
			return nil, err
		}
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal(b, &u.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		annotations := u.GetAnnotations()
		annotations[AnnotationVersion] = newVersion
		u.SetAnnotations(annotations)
		us = append(us, u)
	}
	return us, nil
}

// typed returns CRDs by name.
func typed(us []*unstructured.Unstructured) (map[string]apiextensionsv1.CustomResourceDefinition, error) {
	ds := make(map[string]apiextensionsv1.CustomResourceDefinition, len(us))
	for _, u := range us {
		var d apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d); err != nil {
			return nil, fmt.Errorf("CRD %s: %w", u.GetName(), err)
		}
		ds[d.Name] = d
	}
	return ds, nil
}

// applyCRDs makes the cluster's CRDs those of this program, and waits until their
// kinds are served, and known to who asks for them. It returns how many had to be
// changed.
func applyCRDs(ctx context.Context, c *access.Cluster, us []*unstructured.Unstructured) (changed int, err error) {
	for _, u := range us {
		u = u.DeepCopy()
		key := client.ObjectKeyFromObject(u)
		var before apiextensionsv1.CustomResourceDefinition
		if err := c.Client.Get(ctx, key, &before); client.IgnoreNotFound(err) != nil {
			return changed, c.Explain("read CRD "+key.Name, err)
		}
		if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
			return changed, c.Explain("apply CRD "+key.Name, err)
		}
		if u.GetResourceVersion() != before.ResourceVersion {
			changed++
		}
	}
	served := make([]apiextensionsv1.CustomResourceDefinition, len(us))
	for i, u := range us {
		if served[i], err = established(ctx, c, u.GetName()); err != nil {
			return changed, err
		}
	}
	return changed, discovered(ctx, c, served)
}

// discovered waits until Helm finds the kinds.
func discovered(ctx context.Context, c *access.Cluster, crds []apiextensionsv1.CustomResourceDefinition) error {
	var missing []string
	err := wait.PollUntilContextCancel(ctx, pause, true, func(context.Context) (_ bool, err error) {
		missing, err = access.Undiscovered(c.Clientset.Discovery(), crds)
		return len(missing) == 0, err
	})
	what := "wait until the API server tells which kinds there are"
	if len(missing) > 0 {
		what += ", " + strings.Join(missing, " and ") + " among them"
	}
	return c.Explain(what, err)
}

// established waits until a CRD's kind is served.
func established(ctx context.Context, c *access.Cluster, name string) (d apiextensionsv1.CustomResourceDefinition, err error) {
	err = wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		d = apiextensionsv1.CustomResourceDefinition{}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &d); err != nil {
			return false, err
		}
		for _, cond := range d.Status.Conditions {
			if cond.Type == apiextensionsv1.NamesAccepted && cond.Status == apiextensionsv1.ConditionFalse {
				return false, fmt.Errorf("its names are taken: %s", cond.Message)
			}
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	return d, c.Explain("wait for CRD "+name, err)
}
