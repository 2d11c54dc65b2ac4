package release

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// variants are values under which everything that the chart makes is admitted.
func variants(t *testing.T) map[string]Values {
	t.Helper()
	everything, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Values{}
	for name, text := range map[string]string{
		"default": "{}", "everything": string(everything), "openshift": "openshiftConfig: {enabled: true}",
		"replicas": "{controllerManager: {replicas: 3}, networking: {gatewayTemplates: {replicas: 3}}}",
		"metrics":  "metrics: {enabled: true, podMonitor: {enabled: true}, prometheusRule: {enabled: true}, grafanaDashboard: {enabled: true}}",
		"cleanup":  "networking: {fabric: {cleanup: true}}",
		"adoption": adopted,
	} {
		all[name] = merge(parse(t, minimal), parse(t, text))
	}
	return all
}

// objectsOf are those that the chart makes of values.
func objectsOf(t *testing.T, values Values) []*unstructured.Unstructured {
	t.Helper()
	manifests, err := embedded(t).manifests(values, "liqo")
	if err != nil {
		t.Fatal(err)
	}
	us, err := decode(manifests)
	if err != nil {
		t.Fatal(err)
	}
	return us
}

// TestObjects guards that what the chart makes are objects of Kubernetes and of
// this project, without a field too many, and under one name each.
func TestObjects(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, networkingv1beta1.AddToScheme, ipamv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, values := range variants(t) {
		us := objectsOf(t, values)
		seen := map[string]bool{}
		for _, u := range us {
			if seen[describe(u)] {
				t.Errorf("%s: %s twice", name, describe(u))
			}
			seen[describe(u)] = true
			if u.GroupVersionKind().Group == monitoringGroup {
				continue // no type of ours, nor of Kubernetes
			}
			b, err := u.MarshalJSON()
			if err == nil {
				_, _, err = strict.Decode(b, nil, nil)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", name, describe(u), err)
			}
		}
	}
}

// TestAdmission asks a real API server, which has PodSecurity, for everything that
// the chart makes, and for the pods of it: those of the controller and of gateways
// are restricted ones, and the agents' are not privileged.
func TestAdmission(t *testing.T) {
	t.Parallel()
	c := controlplanetest.StartBare(t)
	for name, level := range map[string]string{"liqo": "restricted", "liqo-tenant-milan": "restricted", "liqo-fabric": "privileged", "grafana": "restricted"} {
		c.Namespace(t, name, map[string]string{networkingv1beta1.LabelPodSecurity: level})
	}
	if err := c.Install(deploy.CRDs()); err != nil {
		t.Fatal(err)
	}
	for name, values := range variants(t) {
		for _, u := range objectsOf(t, values) {
			if u.GroupVersionKind().Group == monitoringGroup || u.GetKind() == "Namespace" {
				continue
			}
			admitted(t, c, name, u.DeepCopy())
			for _, pod := range podsLike(t, u) {
				admitted(t, c, name, pod)
				for _, container := range pod.Spec.Containers {
					if s := container.SecurityContext; s == nil || s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
						t.Errorf("%s: container %s of %s may do more than it needs", name, container.Name, pod.Name)
					}
				}
			}
		}
	}
	privileged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "privileged", Namespace: "liqo"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
	if err := c.Client.Create(t.Context(), privileged, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("the API server admits any pod: %v", err)
	}
}

// TestAuthenticationOff: where authentication is off, whoever asks for a nonce is told at once. Other Secrets are none of the
// policy's business.
func TestAuthenticationOff(t *testing.T) {
	t.Parallel()
	c := controlplanetest.StartBare(t)
	c.Namespace(t, "liqo-tenant-milan", nil)
	files, err := embedded(t).render(parse(t, minimal), "liqo")
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(files["authentication-off.yaml"])
	for _, label := range []string{authv1beta1.LabelNonce, authv1beta1.LabelSignedNonce} {
		nonce := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "nonce", Namespace: "liqo-tenant-milan", Labels: map[string]string{label: "true"}}}
		controlplanetest.Eventually(t, label+" is refused", func(ctx context.Context) error {
			err := c.Client.Create(ctx, nonce.DeepCopy(), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "authentication is not enabled in this cluster: to enable it, run liqoctl install --set authentication.enabled=true") {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "liqo-tenant-milan"}}
	if err := c.Client.Create(t.Context(), other, client.DryRunAll); err != nil {
		t.Error(err)
	}
	on := merge(parse(t, minimal), parse(t, "authentication: {enabled: true}"))
	if files, err = embedded(t).render(on, "liqo"); err != nil || files["authentication-off.yaml"] != "" {
		t.Errorf("where it is on: %q, %v", files["authentication-off.yaml"], err)
	}
}

// admitted fails unless the API server takes the object, without a field that it
// does not know.
func admitted(t *testing.T, c *controlplanetest.Cluster, variant string, o client.Object) {
	t.Helper()
	what := describe(o)
	if err := c.Client.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
		t.Errorf("%s: %s: %v", variant, what, err)
	}
}

// podsLike are the pods that an object of the chart leads to.
func podsLike(t *testing.T, u *unstructured.Unstructured) []*corev1.Pod {
	t.Helper()
	var source map[string]any
	namespace := u.GetNamespace()
	switch u.GetKind() {
	case "Deployment", "DaemonSet":
		source, _, _ = unstructured.NestedMap(u.Object, "spec", "template")
	case "WgGatewayServerTemplate", "WgGatewayClientTemplate":
		source, _, _ = unstructured.NestedMap(u.Object, "spec", "template", "spec", "deployment", "spec", "template")
		var err error
		source, err = template.Render(source, template.Vars{
			Spec: networkingv1beta1.GatewayServerSpec{Endpoint: networkingv1beta1.ServerEndpoint{Port: 51840}}, Name: "milan", Namespace: "liqo-tenant-milan",
			GatewayUID: "0c1f7ad7-54d1-4f3f-8bb5-6a1a4a1f4b7e", ClusterID: "milan", SecretName: "gw-milan",
		}, corev1.PodTemplateSpec{})
		if err != nil {
			t.Fatal(err)
		}
		namespace = "liqo-tenant-milan"
	default:
		return nil
	}
	b, err := yaml.Marshal(source)
	if err != nil {
		t.Fatal(err)
	}
	var like corev1.PodTemplateSpec
	if err := yaml.UnmarshalStrict(b, &like); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", describe(u), err))
	}
	pod := &corev1.Pod{ObjectMeta: like.ObjectMeta, Spec: like.Spec}
	pod.Name, pod.Namespace = u.GetName(), namespace
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName = "", "" // which do not exist here
	return []*corev1.Pod{pod}
}
