package clusters

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// testRotation replaces the keys of both sides while a connection is in use.
func testRotation(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	pe := newPeering(t, p, "rotation")
	pe.connect(t, d)
	pods := pe.gatewayPods(t)
	at, err := pe.consumer.here(t.Context(), p.provider.pods[1])
	if err != nil {
		t.Fatal(err)
	}
	s, m := p.consumer.pods[0].stream(t, at), p.consumer.pods[0].ping(t, at)

	t.Run("new keys", func(t *testing.T) {
		for round := range 3 {
			_, objects := declarative(t, d, pe, wgNodePort) // with new keys
			objects = slices.DeleteFunc(objects, func(o object) bool {
				return !strings.Contains(o.manifest, "kind: Secret") && !strings.Contains(o.manifest, "kind: PublicKey")
			})
			s.longest()
			m.longest()
			start := time.Now()
			var wg sync.WaitGroup
			for _, o := range objects {
				wg.Go(func() {
					if err := o.apply(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			applied := time.Since(start)
			for _, e := range pe.ends() {
				controlplanetest.Eventually(t, "the gateway of "+e.id+" uses the new keys", e.usesKeys)
			}
			controlplanetest.Eventually(t, "the connection goes on", s.lives)
			gap, err := s.longest()
			if err != nil {
				t.Fatalf("the connection broke: %v", err)
			}
			t.Logf("round %d: four objects applied in %v; silence of the TCP connection %v, of pings %v",
				round+1, applied.Round(time.Millisecond), gap.Round(time.Millisecond), m.longest().Round(time.Millisecond))
		}
		controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
		pe.samePods(t, pods)
	})
	t.Run("keys that are none", func(t *testing.T) {
		s.longest()
		wrong := base64.StdEncoding.EncodeToString(make([]byte, 31))
		_, err := pe.consumer.Kubectl("patch", "publickey", "gw-publickey", "-n", pe.consumer.namespace, "--type=merge", "-p", `{"spec":{"publicKey":"`+wrong+`"}}`)
		if err == nil || !strings.Contains(err.Error(), "32 bytes") {
			t.Errorf("a public key of 31 bytes: %v, want it refused with what is right", err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pe.consumer.namespace, Name: "gw-keys"}}
		var good []byte
		controlplanetest.Edit(t, pe.consumer.Cluster, secret, func(s *corev1.Secret) {
			good = s.Data["privateKey"]
			s.Data["privateKey"] = good[:31]
		})
		controlplanetest.Eventually(t, "a condition tells of it", func(ctx context.Context) error {
			return pe.consumer.condition(ctx, networkingv1beta1.ConditionKeysReady, metav1.ConditionFalse, networkingv1beta1.ReasonSecretInvalid)
		})
		controlplanetest.Eventually(t, "the connection goes on", s.lives)
		controlplanetest.Edit(t, pe.consumer.Cluster, secret, func(s *corev1.Secret) { s.Data["privateKey"] = good })
		controlplanetest.Eventually(t, "the condition is gone", func(ctx context.Context) error {
			return pe.consumer.condition(ctx, networkingv1beta1.ConditionKeysReady, metav1.ConditionTrue, networkingv1beta1.ReasonKeysProvided)
		})
		if gap, err := s.longest(); err != nil || gap > 5*time.Second {
			t.Errorf("silence of %v (%v)", gap, err)
		}
		pe.samePods(t, pods)
	})
}

// connect applies the manifests of the document and waits for the traffic.
func (pe *peering) connect(t *testing.T, d *document.Document) {
	t.Helper()
	namespaces, objects := declarative(t, d, pe, wgNodePort)
	start := time.Now()
	for _, o := range append(namespaces, objects...) {
		if err := o.apply(); err != nil {
			t.Fatal(err)
		}
	}
	pe.established(t, start)
}

// gatewayPods are the gateway pods of both ends: names, starts of containers and
// processes, by namespace and name.
func (pe *peering) gatewayPods(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, e := range pe.ends() {
		pods, err := e.gatewayPods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			found[e.id+"/"+p.Name] = fmt.Sprintf("%s restarts %d processes %v", p.UID, p.Status.ContainerStatuses[0].RestartCount, e.kubelet.PIDs(p.Namespace, p.Name))
		}
	}
	return found
}

func (e *end) gatewayPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := e.Client.List(ctx, &list, client.InNamespace(e.namespace),
		client.MatchingLabels{networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway})
	return list.Items, err
}

// samePods checks that no gateway has been started again.
func (pe *peering) samePods(t *testing.T, want map[string]string) {
	t.Helper()
	got := pe.gatewayPods(t)
	for name, w := range want {
		if got[name] != w {
			t.Errorf("gateway pod %s: %s, before: %s", name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("gateway pods are now %v", got)
	}
}

// conditions are those of the gateway.
func (e *end) conditions(ctx context.Context) ([]metav1.Condition, error) {
	if e.gateway == "server" {
		o := new(networkingv1beta1.GatewayServer)
		err := e.Get(ctx, e.namespace, e.gateway, o)
		return o.Status.Conditions, err
	}
	o := new(networkingv1beta1.GatewayClient)
	err := e.Get(ctx, e.namespace, e.gateway, o)
	return o.Status.Conditions, err
}

func (e *end) condition(ctx context.Context, t networkingv1beta1.ConditionType, s metav1.ConditionStatus, reason networkingv1beta1.ConditionReason) error {
	all, err := e.conditions(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Type == string(t) && c.Status == s && c.Reason == string(reason) {
			return nil
		}
	}
	return fmt.Errorf("conditions are %+v, want %s %s %s", all, t, s, reason)
}
