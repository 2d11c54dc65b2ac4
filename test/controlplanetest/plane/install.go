package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
)

// pause is how long to wait before asking again.
const pause = 20 * time.Millisecond

// Installer writes objects.
type Installer struct {
	Client    client.Client
	Clientset *kubernetes.Clientset
}

// Install applies the manifests of a folder, in the order of their names, but not those of the
// folders in it. Then it waits until the API server knows the kinds of all CRDs.
func (i Installer) Install(ctx context.Context, folder fs.FS) error {
	files, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := fs.ReadFile(folder, f)
		if err != nil {
			return err
		}
		if err := i.Apply(ctx, string(b)); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return i.discovered(ctx)
}

// Apply applies manifests, as kubectl apply --server-side --force-conflicts does. In a
// namespace that is new, pods are admitted at once.
func (i Installer) Apply(ctx context.Context, manifests string) error {
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		var o unstructured.Unstructured
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue // nothing but comments
		}
		what := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
		namespaced, err := i.Client.IsObjectNamespaced(&o)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if namespaced && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		err = i.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(&o), client.FieldOwner("kubectl"), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s: %w", what, err)
		}
		if o.GetKind() == "Namespace" {
			if err := i.Account(ctx, o.GetName()); err != nil {
				return err
			}
		}
	}
}

// discovered waits until the API server serves the kinds of all CRDs, and says so.
func (i Installer) discovered(ctx context.Context) error {
	for {
		missing, err := i.undiscovered(ctx)
		switch {
		case err != nil:
			return err
		case len(missing) == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the API server does not tell of %s", strings.Join(missing, ", "))
		}
		time.Sleep(pause)
	}
}

// undiscovered lists the kinds of CRDs that the API server does not tell of yet.
func (i Installer) undiscovered(ctx context.Context) ([]string, error) {
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := i.Client.List(ctx, &crds); err != nil {
		return nil, err
	}
	return access.Undiscovered(i.Clientset.Discovery(), crds.Items)
}

// Account makes the default service account of a namespace, without which no pod is admitted, unless the
// kube-controller-manager was faster: one that has just started takes seconds.
func (i Installer) Account(ctx context.Context, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := i.Client.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("default service account of %s: %w", namespace, err)
	}
	return nil
}

// systemNamespaces are those that an API server makes.
var systemNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// complete waits for what an API server makes after it is ready.
func (p *Plane) complete(ctx context.Context) error {
	for {
		_, err := p.clientset.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		for _, n := range systemNamespaces {
			if err == nil {
				_, err = p.clientset.CoreV1().Namespaces().Get(ctx, n, metav1.GetOptions{})
			}
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		time.Sleep(pause)
	}
}

// accounts makes the default service accounts of all namespaces.
func (p *Plane) accounts(ctx context.Context) error {
	namespaces, err := p.clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range namespaces.Items {
		if err := (Installer{p.client, p.clientset}).Account(ctx, n.Name); err != nil {
			return err
		}
	}
	return nil
}
