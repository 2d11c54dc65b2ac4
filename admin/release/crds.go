package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/deploy"
)

// Annotations of CRDs: which version of liqoctl applied it last, and the sum of its fields then. Who applies another one in its
// place may leave the annotations, as kubectl does.
const (
	AnnotationVersion = "networking.liqo.io/crd-version"
	annotationFields  = "networking.liqo.io/crd-fields"
)

// fieldOwner is who writes what is not the release's: namespaces and CRDs.
const fieldOwner = client.FieldOwner("liqoctl")

// pause is the time between two looks at something that others do.
const pause = 250 * time.Millisecond

// parsedCRDs are the project's CRDs. To read them takes a good part of a second.
var parsedCRDs = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
	us, err := read(deploy.CRDs())
	if err != nil {
		return nil, err
	}
	ours, err := typed(us)
	for _, u := range us {
		d := ours[u.GetName()]
		annotations := u.GetAnnotations()
		annotations[annotationFields] = sumOfFields(&d)
		u.SetAnnotations(annotations)
	}
	return us, err
})

// crds are the project's CRDs, as they are applied.
func crds(newVersion string) ([]*unstructured.Unstructured, error) {
	parsed, err := parsedCRDs()
	us := make([]*unstructured.Unstructured, len(parsed))
	for i, u := range parsed {
		us[i] = u.DeepCopy()
		annotations := us[i].GetAnnotations()
		annotations[AnnotationVersion] = newVersion
		us[i].SetAnnotations(annotations)
	}
	return us, err
}

// sumOfFields is a short form of the fields of a CRD and their types: what no API server changes of it.
func sumOfFields(d *apiextensionsv1.CustomResourceDefinition) string {
	var lines []string
	for version, schema := range schemasOf(d) {
		kinds.Fields(schema, version, func(path, typ string) { lines = append(lines, path+" "+typ+"\n") })
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:8])
}

// read are the objects of the files of a folder.
func read(folder fs.FS) (us []*unstructured.Unstructured, err error) {
	files, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		b, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal(b, &u.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		us = append(us, u)
	}
	return us, nil
}

// multiCluster are the CRDs that an installation with these values needs in addition to the project's. Others may have
// installed them, and only those may change them.
func multiCluster(v Values) ([]*unstructured.Unstructured, error) {
	if at(v, "services.enabled") != true {
		return nil, nil
	}
	return read(deploy.MultiCluster())
}

// createCRDs creates the CRDs that the cluster lacks, and waits until their kinds are served. Those that are there are left
// as they are. It returns how many it created.
func createCRDs(ctx context.Context, c *access.Cluster, us []*unstructured.Unstructured) (created int, err error) {
	var served []apiextensionsv1.CustomResourceDefinition
	for _, u := range us {
		switch err := c.Client.Create(ctx, u.DeepCopy(), fieldOwner); {
		case err == nil:
			created++
		case !apierrors.IsAlreadyExists(err):
			return created, c.Explain("create CRD "+u.GetName(), err)
		}
		d, err := established(ctx, c, u.GetName())
		if err != nil {
			return created, err
		}
		if !slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == mcsv1beta1.SchemeGroupVersion.Version && v.Served
		}) {
			return created, c.Errorf("CRD %s already exists but does not serve %s, which services.enabled requires: update it with the tool that installed it, or with kubectl apply -f deploy/mcs",
				d.Name, mcsv1beta1.SchemeGroupVersion.Version)
		}
		served = append(served, d)
	}
	return created, discovered(ctx, c, served)
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
	what := "wait until the API server lists the new kinds"
	if len(missing) > 0 {
		what += " " + strings.Join(missing, " and ")
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
