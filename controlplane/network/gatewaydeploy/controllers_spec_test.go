package gatewaydeploy

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// settled is a server with everything there is, until nothing changes any more.
func (w *world) settled(t *testing.T) (s *space, pod string) {
	t.Helper()
	s = w.space(t, serverManifest+"---\n"+publicKeyManifest)
	pod = s.startPods(t, "node-1", 1)[0]
	s.serverSays(t, "KeysReady=True KeysGenerated", "PeerKeyReady=True PeerKeyAccepted", "Deployed=True DeploymentReady", "EndpointReady=True EndpointReady")
	eventually(t, s, "the Connection begins", "gw-server", func(c *networkingv1beta1.Connection) error {
		if c.Status.Value != networkingv1beta1.Connecting {
			return fmt.Errorf("status %q", c.Status.Value)
		}
		return nil
	})
	return s, pod
}

func (w *world) testServer(t *testing.T) {
	s := w.space(t, serverManifest)
	s.serverSays(t, "KeysReady=True KeysGenerated", "PeerKeyReady=False PeerKeyMissing", "Deployed=False DeploymentNotReady", "EndpointReady=False WaitingForGatewayPod")
	s.apply(publicKeyManifest)
	s.startPods(t, "node-1", 1)
	g := s.serverSays(t, "KeysReady=True KeysGenerated", "PeerKeyReady=True PeerKeyAccepted", "Deployed=True DeploymentReady", "EndpointReady=True EndpointReady")

	ctx := context.Background()
	svc, err := read[corev1.Service](ctx, s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := read[corev1.Secret](ctx, s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	want := networkingv1beta1.WgGatewayServerStatus{
		Endpoint:         &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}, Port: svc.Spec.Ports[0].NodePort, Protocol: "UDP"},
		InternalEndpoint: &networkingv1beta1.InternalEndpoint{IP: networkingv1beta1.Address(fmt.Sprintf("10.200.%d.1", s.spaces)), Node: "node-1"},
		SecretRef:        &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.ns, Name: "gw-server"},
		PublicKey:        keys.Data["publicKey"],
		PublicKeyTime:    keys.CreationTimestamp,
		Conditions:       g.Status.Conditions,
	}
	if diff := cmp.Diff(want, g.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if svc.Spec.Ports[0].NodePort == 0 || svc.Annotations["cloud.example/kind"] != "internal" || svc.Spec.Selector["networking.liqo.io/active"] != "true" {
		t.Errorf("Service %v %v", svc.Annotations, svc.Spec)
	}
	secret, err := read[corev1.Secret](ctx, s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	if public, why := judge(secret.Data); why != "" || !bytes.Equal(public, secret.Data["publicKey"]) || secret.Type != corev1.SecretTypeOpaque {
		t.Errorf("Secret of type %s: %s", secret.Type, why)
	}
	if l := secret.Labels; l["liqo.io/remote-cluster-id"] != "peer" || l["networking.liqo.io/gateway-resource"] != "true" || l["liqo.io/managed"] != "true" {
		t.Errorf("labels of the Secret: %v", l)
	}
	if !metav1.IsControlledBy(secret, g) {
		t.Errorf("owner of the Secret: %v", secret.OwnerReferences)
	}
	conn, err := read[networkingv1beta1.Connection](ctx, s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	if conn.Spec.Type != "Server" || conn.Spec.GatewayRef.UID != g.UID || conn.Labels["liqo.io/remote-cluster-id"] != "peer" || conn.Status.Value != "Connecting" {
		t.Errorf("Connection %v %v %q", conn.Labels, conn.Spec, conn.Status.Value)
	}
	d, err := read[appsv1.Deployment](ctx, s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	if d.Labels["team"] != "network" || volumeSecret(&d.Spec.Template.Spec) != "gw-server" || d.Spec.Template.Spec.ServiceAccountName != "server" {
		t.Errorf("Deployment %v %v", d.Labels, d.Spec.Template.Spec)
	}
}

func (w *world) testClient(t *testing.T) {
	s := w.space(t, clientManifest+"---\n"+publicKeyManifest)
	s.startPods(t, "node-2", 1)
	eventually(t, s, "the client is ready", "client", func(g *networkingv1beta1.WgGatewayClient) error {
		if err := says(g, g.Status.Conditions, "KeysReady=True KeysGenerated", "PeerKeyReady=True PeerKeyAccepted", "Deployed=True DeploymentReady", "EndpointReady=True EndpointReady"); err != nil {
			return err
		}
		if e := g.Status.InternalEndpoint; e == nil || e.Node != "node-2" {
			return fmt.Errorf("internalEndpoint %v", e)
		}
		return nil
	})
	ctx := context.Background()
	if _, err := read[corev1.Service](ctx, s, "gw-client"); gone(err) != nil {
		t.Errorf("Service: %v", gone(err))
	}
	if c, err := read[networkingv1beta1.Connection](ctx, s, "gw-client"); err != nil || c.Spec.Type != "Client" || c.Spec.GatewayRef.Kind != "WgGatewayClient" {
		t.Errorf("Connection: %v (%v)", c.Spec, err)
	}
}

func (w *world) testSettled(t *testing.T) {
	s, _ := w.settled(t)
	req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.ns, Name: "server"}}
	controlplanetest.Eventually(t, "nothing to write", func(ctx context.Context) error {
		before := w.client.Writes.Load()
		if _, err := w.probe.Reconcile(ctx, req); err != nil {
			return err
		}
		if n := w.client.Writes.Load() - before; n > 0 {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
	for range 3 { // and it stays so
		before := w.client.Writes.Load()
		if _, err := w.probe.Reconcile(context.Background(), req); err != nil || w.client.Writes.Load() != before {
			t.Errorf("%d writes (%v)", w.client.Writes.Load()-before, err)
		}
	}
}

// testRights asks the API server what the service account of a gateway may do, and
// does a part of it.
func (w *world) testRights(t *testing.T) {
	s, _ := w.settled(t)
	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", `{"spec":{"deployment":{"spec":{"replicas":2}}}}`)
	lease := "server." + s.ns + ".server.connections.liqo.io"
	controlplanetest.Eventually(t, "the Lease is allowed", func(ctx context.Context) error {
		r, err := read[rbacv1.Role](ctx, s, "gw-server")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(r.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.ResourceNames, lease) }) {
			return fmt.Errorf("rules %v", r.Rules)
		}
		return nil
	})
	cfg := s.ServiceAccount(s.ns, "server")
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	const group = "networking.liqo.io"
	for _, row := range []struct {
		allowed                                       bool
		verbs                                         []string
		namespace, group, resource, subresource, name string
	}{
		{true, []string{"get", "list", "watch"}, s.ns, group, "gatewayservers", "", ""},
		{true, []string{"get", "list", "watch"}, s.ns, group, "gatewayclients", "", ""},
		{true, []string{"get", "list", "watch"}, s.ns, group, "configurations", "", ""},
		{true, []string{"get", "list", "watch"}, s.ns, group, "publickeies", "", ""},
		{true, []string{"get", "list", "watch"}, s.ns, group, "internalfabrics", "", ""},
		{true, []string{"get", "list", "watch"}, s.ns, group, "genevetunnels", "", ""},
		{true, []string{"get", "list", "watch"}, s.ns, group, "firewallconfigurations", "", ""},
		{true, []string{"get", "patch"}, s.ns, group, "firewallconfigurations", "status", ""},
		{true, []string{"get", "list", "watch"}, s.ns, group, "connections", "", ""},
		{true, []string{"get", "patch", "update"}, s.ns, group, "connections", "status", "gw-server"},
		{true, []string{"get", "list", "watch"}, s.ns, group, "exportedservices", "", ""},
		{true, []string{"get", "list", "watch", "create", "patch", "update", "delete"}, s.ns, group, "importedservices", "", ""},
		{true, []string{"get", "list", "watch", "update", "patch"}, s.ns, "coordination.k8s.io", "leases", "", lease},
		{true, []string{"create", "patch"}, s.ns, "", "events", "", ""},
		{true, []string{"create", "patch"}, s.ns, "events.k8s.io", "events", "", ""},
		{true, []string{"get", "list", "watch"}, "", group, "internalnodes", "", ""},
		{true, []string{"get", "list", "watch"}, "", "ipam.liqo.io", "ips", "", ""},
		{true, []string{"get", "list", "watch"}, "liqo", group, "routeconfigurations", "", ""},
		{true, []string{"get", "list", "watch"}, "liqo", group, "firewallconfigurations", "", ""},
		{true, []string{"get", "patch"}, "liqo", group, "firewallconfigurations", "status", ""},

		{false, []string{"get", "list", "watch", "create", "patch"}, s.ns, "", "secrets", "", "gw-server"},
		{false, []string{"get", "list", "watch", "patch", "delete"}, s.ns, "", "pods", "", ""},
		{false, []string{"get", "list", "watch"}, s.ns, "", "configmaps", "", ""},
		{false, []string{"get", "list", "watch"}, "", "", "nodes", "", ""},
		{false, []string{"update", "patch", "delete", "create"}, s.ns, group, "connections", "", "gw-server"},
		{false, []string{"patch", "update"}, s.ns, group, "connections", "status", "gw-other"},
		{false, []string{"create", "delete"}, s.ns, "coordination.k8s.io", "leases", "", lease},
		{false, []string{"get", "list", "update"}, s.ns, "coordination.k8s.io", "leases", "", "another"},
		{false, []string{"get", "list", "watch"}, "liqo", "", "secrets", "", ""},
		{false, []string{"get", "list", "watch"}, "liqo", "", "pods", "", ""},
		{false, []string{"get", "list", "watch"}, "liqo", group, "configurations", "", ""},
		{false, []string{"get", "list", "watch"}, "liqo", group, "publickeies", "", ""},
		{false, []string{"create", "patch", "update", "delete"}, s.ns, group, "exportedservices", "", ""},
		{false, []string{"patch", "update"}, s.ns, group, "importedservices", "status", ""},
		{false, []string{"get", "list", "create", "delete"}, "default", group, "importedservices", "", ""},
		{false, []string{"get", "list", "watch"}, "default", group, "firewallconfigurations", "", ""},
		{false, []string{"get", "list", "watch"}, "default", "", "secrets", "", ""},
		{false, []string{"create", "patch", "update", "delete"}, s.ns, "rbac.authorization.k8s.io", "roles", "", ""},
		{false, []string{"create"}, s.ns, "", "serviceaccounts", "token", "server"},
	} {
		for _, verb := range row.verbs {
			controlplanetest.Eventually(t, fmt.Sprintf("%s %s %s/%s %s in %q: %v", verb, row.group, row.resource, row.subresource, row.name, row.namespace, row.allowed),
				func(ctx context.Context) error {
					r, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
						Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: row.namespace, Verb: verb, Group: row.group, Resource: row.resource, Subresource: row.subresource, Name: row.name,
						}}}, metav1.CreateOptions{})
					if err != nil {
						return err
					}
					if r.Status.Allowed != row.allowed {
						return fmt.Errorf("allowed: %v", r.Status.Allowed)
					}
					return nil
				})
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	conn := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Name: "gw-server", Namespace: s.ns}}
	if err := c.Status().Patch(ctx, conn, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"value":"Connected"}}`))); err != nil {
		t.Errorf("status of its Connection: %v", err)
	}
	if err := c.List(ctx, new(corev1.SecretList), client.InNamespace(s.ns)); err == nil {
		t.Error("reads Secrets")
	}
	// The controller leaves a status that is not its own.
	s.kubectl(t, "annotate", "wggatewayserver", "server", "again=1")
	if _, err := w.probe.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.ns, Name: "server"}}); err != nil {
		t.Error(err)
	}
	if got, err := read[networkingv1beta1.Connection](ctx, s, "gw-server"); err != nil || got.Status.Value != "Connected" {
		t.Errorf("status %q (%v)", got.Status.Value, err)
	}
}
