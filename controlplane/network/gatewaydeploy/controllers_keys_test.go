package gatewaydeploy

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testKeysOnce reconciles one gateway by many at once, as two controllers would that
// both believe to lead.
func (w *world) testKeysOnce(t *testing.T) {
	s := w.space(t, serverManifest)
	req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.ns, Name: "server"}}
	first := eventually(t, s, "the Secret", "gw-server", func(*corev1.Secret) error { return nil })
	for range 5 {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _, _ = w.probe.Reconcile(context.Background(), req) }) // losers of a race return errors
		}
		wg.Wait()
	}
	again, err := read[corev1.Secret](context.Background(), s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	if again.UID != first.UID || !bytes.Equal(again.Data["privateKey"], first.Data["privateKey"]) {
		t.Error("the keys were made twice")
	}

	s.serverSays(t, "KeysReady=True KeysGenerated")
	s.kubectl(t, "delete", "secret", "gw-server")
	controlplanetest.Eventually(t, "an event that there are new keys", func(context.Context) error {
		if out := s.kubectl(t, "get", "events.events.k8s.io", "-o=jsonpath={.items[*].reason}"); !strings.Contains(out, eventKeysReplaced) {
			return fmt.Errorf("events %q", out)
		}
		return nil
	})

	// A Secret with this name that is not labelled is not seen in the cache. It is no less there.
	s = w.space(t, "")
	s.apply(strings.ReplaceAll(secretManifest, "mine", "gw-server"))
	s.apply(serverManifest)
	s.serverSays(t, "KeysReady=True KeysGenerated")
	restored, err := read[corev1.Secret](context.Background(), s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	if got := base64.StdEncoding.EncodeToString(restored.Data["privateKey"]); got != alicePrivate {
		t.Error("a key that was there was overwritten")
	}
	if len(restored.OwnerReferences) > 0 || restored.Labels["networking.liqo.io/gateway-resource"] != "true" {
		t.Errorf("owners %v, labels %v", restored.OwnerReferences, restored.Labels)
	}
}

func (s *space) refer(t *testing.T, secret string) {
	t.Helper()
	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", `{"spec":{"secretRef":{"name":"`+secret+`"}}}`)
}

func (w *world) testUserSecret(t *testing.T) {
	s := w.space(t, "")
	s.apply(strings.Replace(serverManifest, "spec:\n", "spec:\n  secretRef: {name: mine}\n", 1))
	g := s.serverSays(t, "KeysReady=False SecretNotFound")
	if g.Status.SecretRef != nil {
		t.Errorf("status names Secret %v", g.Status.SecretRef)
	}
	d := eventually(t, s, "pods wait for the Secret", "gw-server", func(d *appsv1.Deployment) error {
		if n := volumeSecret(&d.Spec.Template.Spec); n != "mine" {
			return fmt.Errorf("mount %q", n)
		}
		return nil
	})
	ctx := context.Background()
	if _, err := read[corev1.Secret](ctx, s, "gw-server"); gone(err) != nil {
		t.Error("keys were generated besides")
	}

	s.apply(secretManifest) // without labels: no watch shows it
	g = s.serverSays(t, "KeysReady=True KeysProvided")
	if r := g.Status.SecretRef; r == nil || r.Name != "mine" {
		t.Errorf("status names Secret %v", r)
	}
	mine, err := read[corev1.Secret](ctx, s, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if mine.Labels["networking.liqo.io/gateway-resource"] != "true" || mine.Labels["liqo.io/remote-cluster-id"] != "peer" {
		t.Errorf("labels %v", mine.Labels)
	}
	if len(mine.Data) != 1 || len(mine.OwnerReferences) > 0 || len(mine.Labels) != 2 {
		t.Errorf("changed more than labels: %d entries, owners %v, labels %v", len(mine.Data), mine.OwnerReferences, mine.Labels)
	}

	for name, data := range map[string]string{
		"encoded twice": `{"privateKey":"` + base64.StdEncoding.EncodeToString([]byte(alicePrivate)) + `"}`,
		"too short":     `{"privateKey":"` + alicePrivate[:8] + `"}`,
		"no key":        `{"privateKey":null}`,
		"not a pair":    `{"privateKey":"` + alicePrivate + `","publicKey":"` + bobPublic + `"}`,
	} {
		s.kubectl(t, "patch", "secret", "mine", "--type=merge", "-p", `{"data":`+data+`}`)
		g := s.serverSays(t, "KeysReady=False SecretInvalid")
		if g.Status.SecretRef != nil {
			t.Errorf("%s: status names Secret %v", name, g.Status.SecretRef)
		}
		said := meta.FindStatusCondition(g.Status.Conditions, "KeysReady").Message
		tellsNoKey(t, said)
		t.Logf("%s: %s", name, said)
		s.kubectl(t, "patch", "secret", "mine", "--type=merge", "-p", `{"data":{"privateKey":"`+alicePrivate+`","publicKey":null}}`)
		s.serverSays(t, "KeysReady=True KeysProvided")
	}
	events := s.kubectl(t, "get", "events.events.k8s.io", "-o=yaml")
	tellsNoKey(t, events)

	// Labels that were taken away come back, and all of this restarted no pod.
	s.kubectl(t, "label", "secret", "mine", "networking.liqo.io/gateway-resource-")
	eventually(t, s, "the label comes back", "mine", func(m *corev1.Secret) error {
		if m.Labels["networking.liqo.io/gateway-resource"] != "true" {
			return fmt.Errorf("labels %v", m.Labels)
		}
		return nil
	})
	after, err := read[appsv1.Deployment](ctx, s, "gw-server")
	if err != nil || after.Generation != d.Generation {
		t.Errorf("generation of the Deployment %d, before %d (%v)", after.Generation, d.Generation, err)
	}
	w.stranger(t, s)
}

// testRotation replaces both keys, and sees that no pod has to start for it.
func (w *world) testRotation(t *testing.T) {
	s, pod := w.settled(t)
	ctx := context.Background()
	before, err := read[appsv1.Deployment](ctx, s, "gw-server")
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "patch", "secret", "gw-server", "--type=merge", "-p", `{"data":{"privateKey":"`+alicePrivate+`","publicKey":"`+alicePublic+`"}}`)
	s.kubectl(t, "patch", "publickey", "peer", "--type=merge", "-p", `{"spec":{"publicKey":"`+alicePublic+`"}}`)
	s.serverSays(t, "KeysReady=True KeysGenerated", "PeerKeyReady=False PeerKeyInvalid") // its own
	s.kubectl(t, "patch", "publickey", "peer", "--type=merge", "-p", `{"spec":{"publicKey":"`+bobPublic+`"}}`)
	s.serverSays(t, "PeerKeyReady=True PeerKeyAccepted")
	s.apply(strings.Replace(publicKeyManifest, "name: peer", "name: second", 1))
	s.serverSays(t, "PeerKeyReady=False PeerKeyAmbiguous")
	s.kubectl(t, "delete", "publickey", "second")
	s.serverSays(t, "PeerKeyReady=True PeerKeyAccepted", "KeysReady=True KeysGenerated", "Deployed=True DeploymentReady")

	// The whole Secret goes: the pod goes on, and nobody makes keys that the peer does
	// not know.
	s.kubectl(t, "delete", "secret", "gw-server")
	g := s.serverSays(t, "KeysReady=False SecretDeleted", "Deployed=True DeploymentReady", "EndpointReady=True EndpointReady")
	if r := g.Status.SecretRef; r == nil || r.Name != "gw-server" {
		t.Errorf("status names Secret %v", r)
	}
	if said := meta.FindStatusCondition(g.Status.Conditions, "KeysReady").Message; !strings.Contains(said, pod) {
		t.Errorf("KeysReady: %s", said)
	}
	if _, err := read[corev1.Secret](ctx, s, "gw-server"); gone(err) != nil {
		t.Errorf("keys were made (%v)", err)
	}
	// Somebody asks for new ones: there is still the same pod.
	s.apply(`{apiVersion: v1, kind: Secret, metadata: {name: gw-server, namespace: NS, labels: {liqo.io/managed: "true", networking.liqo.io/gateway-resource: "true"}}}`)
	s.serverSays(t, "KeysReady=True KeysGenerated")
	eventually(t, s, "new keys", "gw-server", func(n *corev1.Secret) error {
		if base64.StdEncoding.EncodeToString(n.Data["privateKey"]) == alicePrivate {
			return fmt.Errorf("the old ones")
		}
		return nil
	})
	after, err := read[appsv1.Deployment](ctx, s, "gw-server")
	if err != nil || after.Generation != before.Generation {
		t.Errorf("generation of the Deployment %d, before %d (%v)", after.Generation, before.Generation, err)
	}
	if p, err := read[corev1.Pod](ctx, s, pod); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the pod restarts (%v)", err)
	}
}

// stranger lets the gateway name the Secret of somebody else by mistake, and its own
// again: only what holds keys is labelled, and only as long as it is referred to.
func (w *world) stranger(t *testing.T, s *space) {
	t.Helper()
	ctx := context.Background()
	theirs := func(name string, data map[string][]byte) *corev1.Secret {
		t.Helper()
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}, Data: data}
		w.Create(t, o)
		return o
	}
	password := theirs("password", map[string][]byte{"password": []byte("of somebody else")})
	s.refer(t, "password")
	s.serverSays(t, "KeysReady=False SecretInvalid")
	now, err := read[corev1.Secret](ctx, s, "password")
	if err != nil || now.ResourceVersion != password.ResourceVersion {
		t.Errorf("a Secret without keys was written to: %v, %v", now.ObjectMeta, err)
	}
	// A correction is seen although no watch shows it.
	s.kubectl(t, "patch", "secret", "password", "--type=merge", "-p", `{"data":{"privateKey":"`+alicePrivate+`"}}`)
	s.serverSays(t, "KeysReady=True KeysProvided")
	s.refer(t, "mine")
	s.serverSays(t, "KeysReady=True KeysProvided")
	eventually(t, s, "the labels go", "password", func(o *corev1.Secret) error {
		if len(o.Labels)+len(o.Annotations) > 0 {
			return fmt.Errorf("labels %v, annotations %v", o.Labels, o.Annotations)
		}
		return nil
	})
}

func (w *world) testSwitchOfKeys(t *testing.T) {
	s, old := w.settled(t)
	s.apply(strings.Replace(secretManifest, "{name: mine", `{labels: {liqo.io/remote-cluster-id: peer, networking.liqo.io/gateway-resource: "true"}, name: mine`, 1))
	s.serverSays(t, "KeysReady=False SecretAmbiguous", "Deployed=True DeploymentReady")
	s.refer(t, "mine")
	s.serverSays(t, "KeysReady=True KeysProvided")
	eventually(t, s, "the volume changes", "gw-server", func(d *appsv1.Deployment) error {
		if n := volumeSecret(&d.Spec.Template.Spec); n != "mine" {
			return fmt.Errorf("mount %q", n)
		}
		return nil
	})
	if _, err := read[corev1.Secret](context.Background(), s, "gw-server"); err != nil {
		t.Errorf("the generated Secret is gone while a pod has it: %v", err)
	}
	controlplanetest.Eventually(t, "the old pod ends", func(ctx context.Context) error {
		p, err := read[corev1.Pod](ctx, s, old)
		if err == nil && p.DeletionTimestamp != nil {
			s.killPod(t, old)
		}
		return gone(err)
	})
	s.startPods(t, "node-1", 1)
	controlplanetest.Eventually(t, "the generated Secret goes", func(ctx context.Context) error {
		_, err := read[corev1.Secret](ctx, s, "gw-server")
		return gone(err)
	})
	g := s.serverSays(t, "KeysReady=True KeysProvided", "EndpointReady=True EndpointReady")
	if r := g.Status.SecretRef; r == nil || r.Name != "mine" {
		t.Errorf("status names Secret %v", r)
	}
}
