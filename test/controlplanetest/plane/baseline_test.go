package plane

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/source"
)

// TestReset does to a control plane what tests do, and more, and judges what the next
// one would find.
func TestReset(t *testing.T) {
	source.NeedKubernetes(t)
	p, err := Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	p.checkClean(t, Installed)
	for i, b := range []Baseline{Installed, Bare, Bare, Installed, Installed} {
		if i == 2 {
			p.manager.running.Load().Kill() // another one makes the pods
		}
		p.soil(t)
		same, apiserver := b == p.at, p.apiserver
		if i == 1 {
			p.StopAPIServer()
		}
		if err := p.reset(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if same && p.apiserver != apiserver {
			t.Error("the API server was started again, which costs the most")
		}
		p.checkClean(t, b)
	}
}

// soil changes and removes what is there, and leaves what controllers work on.
func (p *Plane) soil(t *testing.T) {
	t.Helper()
	stuck := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stuck"}}
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "default"}}}
	finalized := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "stuck", Name: "held", Finalizers: []string{"example.com/nobody"}}}
	for _, o := range []client.Object{stuck, finalized, deployment, binding, nodePort("kept")} {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T: %v", o, err)
		}
	}
	eventually(t, "pods of the deployment", func() error {
		var pods corev1.PodList
		if err := p.client.List(t.Context(), &pods, client.MatchingLabels(labels)); err != nil || len(pods.Items) < 3 {
			return fmt.Errorf("%d, %v", len(pods.Items), err)
		}
		return nil
	})
	if !p.mayListSecrets(t) {
		eventually(t, "the binding is in force", func() error {
			if !p.mayListSecrets(t) {
				return fmt.Errorf("it is not")
			}
			return nil
		})
	}
	if err := (Installer{p.client, p.clientset}).Apply(t.Context(), strings.ReplaceAll(followed, "NAME", "policed")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policies are in force", func() error {
		if err := p.client.Create(t.Context(), configMap("policed"), client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("create a ConfigMap: %w", err)
		}
		return nil
	})
	removed := []client.Object{stuck, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}}
	if p.at == Installed {
		if err := p.client.Create(t.Context(), network("held", "example.com/nobody")); err != nil {
			t.Fatal(err)
		}
		removed = append(removed, network("held"), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ips.ipam.liqo.io"}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}})
	}
	for _, o := range removed {
		if err := p.client.Delete(t.Context(), o); err != nil {
			t.Fatalf("delete %T: %v", o, err)
		}
	}
}

// checkClean fails unless everything is as in the baseline, and can be used.
func (p *Plane) checkClean(t *testing.T, b Baseline) {
	t.Helper()
	have, err := p.store.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.baselines[b], have); diff != "" {
		t.Errorf("not as it was (-want +got):\n%.4000s", diff)
	}
	if p.mayListSecrets(t) {
		t.Error("a right is left")
	}
	marked, plain := configMap("policed"), configMap("policed")
	marked.Data = map[string]string{"marked": ""}
	if err := p.client.Create(t.Context(), marked, client.DryRunAll); err != nil {
		t.Errorf("a policy is left: %v", err)
	}
	if err := p.client.Create(t.Context(), plain, client.DryRunAll); err != nil || len(plain.Data) > 0 {
		t.Errorf("a policy is left: %v, %v", plain.Data, err)
	}
	s := nodePort("another")
	if err := p.client.Create(t.Context(), s); err != nil {
		t.Errorf("the node port is taken: %v", err)
	} else if err := p.client.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
	if b == Installed {
		p.checkPolicy(t)
	}
	n := network("new")
	switch err := p.client.Create(t.Context(), n); {
	case b == Bare && err == nil:
		t.Error("the API server serves our kinds")
	case b == Installed && err != nil:
		t.Errorf("the API server does not serve our kinds: %v", err)
	case b == Installed:
		w, err := p.clientset.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		if err := p.client.Delete(t.Context(), n); err != nil {
			t.Error(err)
		}
	case !meta.IsNoMatchError(err) && client.IgnoreNotFound(err) != nil:
		t.Errorf("refused for another reason: %v", err)
	}
}

// checkPolicy fails unless an admission policy judges by a ConfigMap that was just made.
func (p *Plane) checkPolicy(t *testing.T) {
	t.Helper()
	id := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": strings.ToLower(rand.Text())}}
	if err := p.client.Create(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy is in force", func() error {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own", Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: id.Data["CLUSTER_ID"]}}}
		c.Spec.Remote.CIDR.Pod.List = []networkingv1beta1.CIDR{"10.243.0.0/16"}
		if err := p.client.Create(t.Context(), c, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the ID of this cluster itself") {
			return fmt.Errorf("a Configuration for the cluster itself: %w", err)
		}
		return nil
	})
	if err := p.client.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func (p *Plane) mayListSecrets(t *testing.T) bool {
	t.Helper()
	r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:default:default", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"},
	}}
	if err := p.client.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Allowed
}

func nodePort(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.1.1", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30123}},
	}}
}

func network(name string, finalizers ...string) *ipamv1alpha1.Network {
	return &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: finalizers}, Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.1.0.0/16"}}
}

// eventually is that of controlplanetest, which this package is below of.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(pause)
	}
}
