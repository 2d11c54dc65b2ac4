package gatewaydeploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// comesBack deletes an object and waits until there is another.
func comesBack[T any, P object[T]](t *testing.T, w *world, namespace, name string) {
	t.Helper()
	ctx := context.Background()
	o := P(new(T))
	if err := w.Get(ctx, namespace, name, o); err != nil {
		t.Errorf("%T %s: %v", o, name, err)
		return
	}
	old := o.GetUID()
	if err := w.Client.Delete(ctx, o); err != nil {
		t.Errorf("delete %T: %v", o, err)
		return
	}
	controlplanetest.Eventually(t, fmt.Sprintf("%T %s comes back", o, name), func(ctx context.Context) error {
		n := P(new(T))
		if err := w.Get(ctx, namespace, name, n); err != nil {
			return err
		}
		if n.GetUID() == old {
			return errors.New("the old one")
		}
		return nil
	})
}

func (w *world) testRestored(t *testing.T) {
	s, _ := w.settled(t)
	outside := bindingName(gatewayRole, s.ns, "server")
	comesBack[corev1.ServiceAccount](t, w, s.ns, "server")
	account, err := read[corev1.ServiceAccount](context.Background(), s, "server")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, s, "pods with a token of the new account", "gw-server", func(d *appsv1.Deployment) error {
		if uid := d.Spec.Template.Annotations[AnnotationAccount]; uid != string(account.UID) {
			return fmt.Errorf("they are of %s, want %s", uid, account.UID)
		}
		return nil
	})
	comesBack[rbacv1.Role](t, w, s.ns, "gw-server")
	comesBack[rbacv1.RoleBinding](t, w, s.ns, "gw-server")
	comesBack[rbacv1.RoleBinding](t, w, "liqo", outside)
	comesBack[rbacv1.ClusterRoleBinding](t, w, "", outside)
	comesBack[corev1.Service](t, w, s.ns, "gw-server")
	comesBack[appsv1.Deployment](t, w, s.ns, "gw-server")
	comesBack[networkingv1beta1.Connection](t, w, s.ns, "gw-server")
	eventually(t, s, "the Connection begins again", "gw-server", func(c *networkingv1beta1.Connection) error {
		if c.Status.Value != networkingv1beta1.Connecting {
			return fmt.Errorf("status %q", c.Status.Value)
		}
		return nil
	})

	// Edits of what is the controllers' are undone, others stay.
	s.kubectl(t, "patch", "deployment", "gw-server", "--type=strategic", "-p",
		`{"metadata":{"labels":{"mine":"x","team":"another"}},"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"gateway","image":"evil"}]}}}}`)
	eventually(t, s, "the Deployment is as the spec says", "gw-server", func(d *appsv1.Deployment) error {
		if *d.Spec.Replicas != 1 || d.Spec.Template.Spec.Containers[0].Image != "sluice.local/gateway:unknown" || d.Labels["team"] != "network" {
			return fmt.Errorf("replicas %d, image %s, labels %v", *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image, d.Labels)
		}
		if d.Labels["mine"] != "x" {
			t.Errorf("a label of the user is gone: %v", d.Labels)
		}
		return nil
	})
	s.kubectl(t, "patch", "role", "gw-server", "--type=merge", "-p", `{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]}`)
	s.kubectl(t, "patch", "rolebinding", "gw-server", "--type=merge", "-p", `{"subjects":[{"kind":"User","name":"mallory","apiGroup":"rbac.authorization.k8s.io"}]}`)
	controlplanetest.Eventually(t, "the rights are the gateway's", func(ctx context.Context) error {
		role, err := read[rbacv1.Role](ctx, s, "gw-server")
		if err != nil {
			return err
		}
		binding, err := read[rbacv1.RoleBinding](ctx, s, "gw-server")
		if err != nil {
			return err
		}
		if role.Rules[0].APIGroups[0] != "networking.liqo.io" || len(binding.Subjects) != 1 || binding.Subjects[0].Name != "server" {
			return fmt.Errorf("rules %v, subjects %v", role.Rules, binding.Subjects)
		}
		return nil
	})
	s.kubectl(t, "label", "serviceaccount", "server", "liqo.io/managed-") // it is not watched without
	eventually(t, s, "the label comes back", "server", func(a *corev1.ServiceAccount) error {
		if a.Labels["liqo.io/managed"] != "true" {
			return fmt.Errorf("labels %v", a.Labels)
		}
		return nil
	})

	// A binding whose role somebody changed, which takes to make it anew.
	ctx := context.Background()
	bad := &rbacv1.ClusterRoleBinding{}
	w.Read(t, "", outside, bad)
	w.Delete(t, bad)
	bad.ResourceVersion, bad.UID, bad.RoleRef.Name = "", "", "view"
	if err := w.Client.Create(ctx, bad); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the role is the gateway's", func(ctx context.Context) error {
		var b rbacv1.ClusterRoleBinding
		if err := w.Get(ctx, "", outside, &b); err != nil {
			return err
		}
		if b.RoleRef.Name != "liqo-gateway" {
			return fmt.Errorf("role %s", b.RoleRef.Name)
		}
		return nil
	})
}

// poke has the gateway looked at again, as a minute would.
func poke(t *testing.T, s *space) {
	t.Helper()
	s.kubectl(t, "annotate", "wggatewayserver", "server", "poked=true", "--overwrite")
}

func (w *world) testForeignAccount(t *testing.T) {
	s := w.space(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: server, namespace: NS}\n")
	s.apply(serverManifest)
	// Nobody said that gateways may run as it.
	s.serverSays(t, "KeysReady=True KeysGenerated", "Deployed=False ObjectRefused")
	if _, err := read[rbacv1.RoleBinding](context.Background(), s, "gw-server"); gone(err) != nil {
		t.Error("the account is bound to a role")
	}
	if _, err := read[appsv1.Deployment](context.Background(), s, "gw-server"); gone(err) != nil {
		t.Error("pods run as the account")
	}
	s.kubectl(t, "label", "serviceaccount", "server", "networking.liqo.io/gateway-resource=true")
	poke(t, s)
	b := eventually(t, s, "the binding", "gw-server", func(*rbacv1.RoleBinding) error { return nil })
	if b.Subjects[0].Name != "server" {
		t.Errorf("subjects %v", b.Subjects)
	}
	a, err := read[corev1.ServiceAccount](context.Background(), s, "server")
	if err != nil || len(a.OwnerReferences) > 0 || len(a.Labels) != 1 {
		t.Errorf("owners %v, labels %v (%v)", a.OwnerReferences, a.Labels, err)
	}
}

func (w *world) testMetrics(t *testing.T) {
	s, _ := w.settled(t)
	metrics := func(enabled bool) {
		t.Helper()
		s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", fmt.Sprintf(
			`{"spec":{"metrics":{"enabled":%v,"service":{"metadata":{"labels":{"a":"b"}},"spec":{"selector":{"a":"b"},"ports":[{"name":"m","port":8082}]}},
			"serviceMonitor":{"spec":{"selector":{"matchLabels":{"a":"b"}},"endpoints":[{"port":"m"}]}}}}}`, enabled))
	}
	metrics(true)
	eventually(t, s, "the metrics Service", "gw-server-metrics", func(svc *corev1.Service) error {
		if svc.Labels["a"] != "b" || svc.Spec.Ports[0].Port != 8082 {
			return fmt.Errorf("%v %v", svc.Labels, svc.Spec)
		}
		return nil
	})
	eventually(t, s, "a word about the missing kind", "server", func(g *networkingv1beta1.WgGatewayServer) error {
		for _, c := range g.Status.Conditions {
			if c.Type == "Deployed" && c.Message == "Deployment gw-server has a ready pod; there is no ServiceMonitor because the cluster does not know the kind: "+
				"install the Prometheus operator, or drop spec.metrics.serviceMonitor" {
				return nil
			}
		}
		return fmt.Errorf("%v", g.Status.Conditions)
	})
	s.Apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: ServiceMonitor, plural: servicemonitors}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`)
	monitor := func(ctx context.Context) (*unstructured.Unstructured, error) {
		m := new(unstructured.Unstructured)
		m.SetGroupVersionKind(monitorKind)
		return m, s.Client.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "gw-server-metrics"}, m)
	}
	tries := 0
	controlplanetest.Eventually(t, "the ServiceMonitor", func(ctx context.Context) error {
		tries++ // instead of ten minutes
		s.kubectl(t, "annotate", "--overwrite", "wggatewayserver", "server", fmt.Sprintf("again=%d", tries))
		_, err := monitor(ctx)
		return err
	})
	w.tooMuch(t, s, monitor)
	metrics(true)
	s.serverSays(t, "Deployed=True DeploymentReady")
	metrics(false)
	controlplanetest.Eventually(t, "both go", func(ctx context.Context) error {
		_, err := read[corev1.Service](ctx, s, "gw-server-metrics")
		_, err2 := monitor(ctx)
		return errors.Join(gone(err), gone(err2))
	})
	s.serverSays(t, "Deployed=True DeploymentReady")
}

// tooMuch asks for what would lend the gateway's author the rights of Prometheus, or the
// traffic of others: it is refused, and what was there goes.
func (w *world) tooMuch(t *testing.T, s *space, monitor func(context.Context) (*unstructured.Unstructured, error)) {
	t.Helper()
	ctx := context.Background()
	for field, patch := range map[string]string{
		"spec.metrics.serviceMonitor.spec.endpoints[0].bearerTokenFile": `{"metrics":{"serviceMonitor":{"spec":{"endpoints":[{"port":"m","bearerTokenFile":"/token"}]}}}}`,
		"spec.metrics.serviceMonitor.spec.namespaceSelector.any":        `{"metrics":{"serviceMonitor":{"spec":{"endpoints":null,"namespaceSelector":{"any":true}}}}}`,
		"spec.service.spec.externalIPs":                                 `{"service":{"spec":{"externalIPs":["10.96.0.10"]}}}`,
	} {
		s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", `{"spec":`+patch+`}`)
		eventually(t, s, "a word about "+field, "server", func(g *networkingv1beta1.WgGatewayServer) error {
			c := meta.FindStatusCondition(g.Status.Conditions, "Deployed")
			if c.Reason != "ObjectRefused" || !strings.Contains(c.Message, field+" is not allowed") {
				return fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
			return nil
		})
	}
	if _, err := monitor(ctx); gone(err) != nil {
		t.Errorf("ServiceMonitor: %v", gone(err))
	}
	if _, err := read[corev1.Service](ctx, s, "gw-server"); gone(err) != nil {
		t.Errorf("Service: %v", gone(err))
	}
	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p",
		`{"spec":{"service":{"spec":{"externalIPs":null}},"metrics":{"serviceMonitor":{"spec":{"namespaceSelector":null,"endpoints":[{"port":"m"}]}}}}}`)
}

func (w *world) testRivals(t *testing.T) {
	s, _ := w.settled(t)
	ctx := context.Background()
	before, err := read[appsv1.Deployment](ctx, s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(strings.ReplaceAll(strings.ReplaceAll(clientYAML, "NAME", "server"), "name: client", "name: server"))
	eventually(t, s, "the younger one is told", "server", func(g *networkingv1beta1.WgGatewayClient) error {
		return says(g, g.Status.Conditions, "Deployed=False DuplicateGateway")
	})
	if after, err := read[appsv1.Deployment](ctx, s, "gw-server"); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("it touched the Deployment (%v)", err)
	}
	s.serverSays(t, "Deployed=True DeploymentReady")
	s.kubectl(t, "delete", "wggatewayserver", "server")
	controlplanetest.Eventually(t, "the other takes its place", func(ctx context.Context) error {
		g, err := read[networkingv1beta1.WgGatewayClient](ctx, s, "server")
		if err != nil {
			return err
		}
		for _, o := range []client.Object{new(appsv1.Deployment), new(corev1.Secret), new(networkingv1beta1.Connection)} {
			if err := s.Get(ctx, s.ns, "gw-server", o); err != nil {
				return err
			}
			if !metav1.IsControlledBy(o, g) {
				return fmt.Errorf("%T belongs to %v", o, o.GetOwnerReferences())
			}
		}
		return says(g, g.Status.Conditions, "KeysReady=True KeysGenerated")
	})
	var b rbacv1.ClusterRoleBinding
	if err := w.Get(ctx, "", bindingName(gatewayRole, s.ns, "server"), &b); err != nil {
		t.Errorf("its binding: %v", err)
	}
}

// outsideGone waits until nothing of a gateway is left outside its namespace.
func (s *space) outsideGone(t *testing.T, gateway string) {
	t.Helper()
	controlplanetest.Eventually(t, "no binding is left", func(ctx context.Context) error {
		err := s.Get(ctx, "", bindingName(gatewayRole, s.ns, gateway), new(rbacv1.ClusterRoleBinding))
		err2 := s.Get(ctx, "liqo", bindingName(gatewayRole, s.ns, gateway), new(rbacv1.RoleBinding))
		return errors.Join(gone(err), gone(err2))
	})
}

func (w *world) testDeleted(t *testing.T) {
	s, _ := w.settled(t)
	ctx := context.Background()
	// As another implementation leaves it.
	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", `{"metadata":{"finalizers":["networking.liqo.io/clusterrolebinding"]}}`)
	s.kubectl(t, "delete", "wggatewayserver", "server", "--wait=false")
	s.outsideGone(t, "server")
	controlplanetest.Eventually(t, "everything goes", func(ctx context.Context) error {
		errs := []error{gone(s.Get(ctx, s.ns, "server", new(networkingv1beta1.WgGatewayServer)))}
		for _, o := range []client.Object{
			new(appsv1.Deployment), new(corev1.Service), new(corev1.Secret), new(networkingv1beta1.Connection), new(rbacv1.Role), new(rbacv1.RoleBinding),
		} {
			if err := gone(s.Get(ctx, s.ns, "gw-server", o)); err != nil {
				errs = append(errs, fmt.Errorf("%T: %w", o, err))
			}
		}
		return errors.Join(errs...)
	})
	if err := s.Get(ctx, s.ns, "peer", new(networkingv1beta1.PublicKey)); err != nil {
		t.Errorf("the user's PublicKey: %v", err)
	}
}

// testRerendered deletes the gateway under its GatewayServer: the keys are the same
// afterwards, and the Connection.
func (w *world) testRerendered(t *testing.T) {
	s := w.space(t, `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: server, namespace: NS, labels: {liqo.io/remote-cluster-id: peer}}
spec:
  mtu: 1340
  endpoint: {port: 51840, serviceType: NodePort}
  serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: wireguard-server, namespace: liqo}
`)
	ctx := context.Background()
	parent, err := read[networkingv1beta1.GatewayServer](ctx, s, "server")
	if err != nil {
		t.Fatal(err)
	}
	rendered := strings.Replace(serverManifest, "metadata:\n", fmt.Sprintf(
		"metadata:\n  ownerReferences: [{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, name: server, uid: %s, controller: true}]\n", parent.UID), 1)
	s.apply(rendered)
	secret := eventually(t, s, "the Secret", "gw-server", func(*corev1.Secret) error { return nil })
	connection := eventually(t, s, "the Connection", "gw-server", func(*networkingv1beta1.Connection) error { return nil })
	deployment := eventually(t, s, "the Deployment", "gw-server", func(*appsv1.Deployment) error { return nil })
	if !metav1.IsControlledBy(secret, parent) || !metav1.IsControlledBy(connection, parent) {
		t.Errorf("owners: %v, %v", secret.OwnerReferences, connection.OwnerReferences)
	}
	s.kubectl(t, "delete", "wggatewayserver", "server")
	controlplanetest.Eventually(t, "the Deployment goes", func(ctx context.Context) error {
		return gone(s.Get(ctx, s.ns, "gw-server", new(appsv1.Deployment)))
	})
	s.apply(rendered)
	eventually(t, s, "another Deployment", "gw-server", func(d *appsv1.Deployment) error {
		if d.UID == deployment.UID {
			return errors.New("the old one")
		}
		return nil
	})
	g := s.serverSays(t, "KeysReady=True KeysGenerated")
	if again, err := read[corev1.Secret](ctx, s, "gw-server"); err != nil || again.UID != secret.UID || again.ResourceVersion != secret.ResourceVersion {
		t.Errorf("other keys (%v)", err)
	}
	eventually(t, s, "the Connection refers to the new one", "gw-server", func(c *networkingv1beta1.Connection) error {
		if c.UID != connection.UID || c.Spec.GatewayRef.UID != g.UID {
			return fmt.Errorf("UID %s of gateway %s", c.UID, c.Spec.GatewayRef.UID)
		}
		return nil
	})
	s.kubectl(t, "delete", "gatewayserver", "server")
	controlplanetest.Eventually(t, "the keys go with the GatewayServer", func(ctx context.Context) error {
		return errors.Join(gone(s.Get(ctx, s.ns, "gw-server", new(corev1.Secret))), gone(s.Get(ctx, s.ns, "gw-server", new(networkingv1beta1.Connection))))
	})
	s.outsideGone(t, "server")
}

func (w *world) testNamespaceDeleted(t *testing.T) {
	s, pod := w.settled(t)
	s.kubectl(t, "delete", "namespace", s.ns, "--wait=false")
	s.killPod(t, pod)
	s.outsideGone(t, "server")
	controlplanetest.Eventually(t, "the namespace goes", func(ctx context.Context) error {
		return gone(s.Get(ctx, "", s.ns, new(corev1.Namespace)))
	})
}

func (w *world) testOrphans(t *testing.T) {
	s, pod := w.settled(t)
	other, _ := w.settled(t)
	w.stop()
	s.kubectl(t, "delete", "namespace", s.ns, "--wait=false")
	s.killPod(t, pod)
	controlplanetest.Eventually(t, "the namespace goes", func(ctx context.Context) error {
		return gone(s.Get(ctx, "", s.ns, new(corev1.Namespace)))
	})
	var before rbacv1.ClusterRoleBinding
	if err := w.Get(context.Background(), "", bindingName(gatewayRole, s.ns, "server"), &before); err != nil {
		t.Fatalf("nothing to clean up: %v", err)
	}
	w.start(t)
	s.outsideGone(t, "server")
	if err := w.Get(context.Background(), "", bindingName(gatewayRole, other.ns, "server"), new(rbacv1.ClusterRoleBinding)); err != nil {
		t.Errorf("the binding of a gateway that is there: %v", err)
	}
}
