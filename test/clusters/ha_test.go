package clusters

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/source"
)

// testReplicas takes the active one of two gateways away, in each way in which
// it can go, and measures until pods talk again.
func testReplicas(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	for _, s := range p.sides() {
		s.replicatedTemplates(t)
	}
	pe := newPeering(t, p, "replicas")
	namespaces, objects := declarative(t, d, pe, wgNodePort)
	start := time.Now()
	for _, o := range append(namespaces, objects...) {
		for _, name := range []string{"wireguard-server", "wireguard-client"} {
			o.manifest = strings.ReplaceAll(o.manifest, "name: "+name, "name: "+name+"-replicated")
		}
		if err := o.apply(); err != nil {
			t.Fatal(err)
		}
	}
	pe.established(t, start)

	for _, e := range pe.ends() {
		from, to := p.consumer.pods[0], p.provider.pods[1]
		at, err := pe.consumer.here(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []struct {
			name string
			kill func(*testing.T, corev1.Pod)
			undo func(*testing.T, corev1.Pod)
		}{
			{"deleted", func(t *testing.T, pod corev1.Pod) {
				if err := e.Client.Delete(t.Context(), &pod); err != nil {
					t.Fatal(err)
				}
			}, nil},
			{"killed", func(t *testing.T, pod corev1.Pod) {
				if err := e.kubelet.Kill(pod.Namespace, pod.Name); err != nil {
					t.Fatal(err)
				}
			}, nil},
			{"killed and deleted", func(t *testing.T, pod corev1.Pod) {
				if _, err := e.Kubectl("delete", "pod", "-n", pod.Namespace, pod.Name, "--grace-period=0", "--force", "--wait=false"); err != nil {
					t.Fatal(err)
				}
			}, nil},
			{"with its node", func(t *testing.T, pod corev1.Pod) {
				if err := e.kubelet.KillNode(t.Context(), pod.Spec.NodeName, false); err != nil {
					t.Fatal(err)
				}
			}, func(t *testing.T, pod corev1.Pod) {
				if err := e.kubelet.StartNode(context.Background(), pod.Spec.NodeName); err != nil {
					t.Fatal(err)
				}
			}},
		} {
			t.Run(e.gateway+" "+way.name, func(t *testing.T) {
				pe.explainIfFailed(t)
				active := e.active(t)
				s := from.stream(t, at)
				controlplanetest.Eventually(t, "numbers go to and fro", s.lives)
				s.longest()
				m := from.ping(t, at)
				start := time.Now()
				way.kill(t, active)
				undo := sync.OnceFunc(func() {
					if way.undo != nil {
						way.undo(t, active)
					}
				})
				t.Cleanup(undo)
				controlplanetest.Eventually(t, "a page can be had again", func(ctx context.Context) error {
					if time.Since(start) < pingPause {
						return fmt.Errorf("too early to tell")
					}
					short, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					_, err := from.fetch(short, at, "/")
					return err
				})
				web := time.Since(start)
				controlplanetest.Eventually(t, "the connection goes on", s.lives)
				silence, err := s.longest()
				if err != nil {
					t.Errorf("the connection broke: %v", err)
				}
				pings := m.longest()
				undo()
				t.Logf("%s: pings back after %v, HTTP after %v, silence of a TCP connection %v; active is %s, was %s", way.name,
					pings.Round(10*time.Millisecond), web.Round(10*time.Millisecond), silence.Round(10*time.Millisecond), e.active(t).Name, active.Name)
			})
		}
	}
}

// active is the only pod with the mark of the one that leads. It waits until
// there is one, beside a ready one that stands by.
func (e *end) active(t *testing.T) (active corev1.Pod) {
	t.Helper()
	controlplanetest.Eventually(t, "one gateway leads and one stands by", func(ctx context.Context) error {
		pods, err := e.gatewayPods(ctx)
		if err != nil {
			return err
		}
		n, ready := 0, 0
		for _, p := range pods {
			if podReady(&p) && p.DeletionTimestamp == nil {
				ready++
				if p.Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue {
					active = p
					n++
				}
			}
		}
		if n != 1 || ready != 2 {
			return fmt.Errorf("%d of %d ready ones, of %d, have the mark", n, ready, len(pods))
		}
		leases := new(coordinationv1.LeaseList)
		if err := e.Client.List(ctx, leases, inNamespace(e.namespace)); err != nil {
			return err
		}
		for _, l := range leases.Items {
			if l.Spec.HolderIdentity != nil && strings.HasPrefix(*l.Spec.HolderIdentity, active.Name) {
				return nil
			}
		}
		return fmt.Errorf("%s does not hold the Lease", active.Name)
	})
	return active
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// replicatedTemplates makes copies of the default templates with two replicas,
// as the file with the templates says.
func (s *side) replicatedTemplates(t *testing.T) {
	t.Helper()
	f, err := os.Open(source.Path("deploy", "manifests", "gateway-templates.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for dec := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		o := new(unstructured.Unstructured)
		if err := dec.Decode(&o.Object); err != nil {
			return // the end
		}
		o.SetName(o.GetName() + "-replicated")
		if err := unstructured.SetNestedField(o.Object, int64(2), "spec", "template", "spec", "deployment", "spec", "replicas"); err != nil {
			t.Fatal(err)
		}
		if err := s.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), controlplanetest.Patience)
			defer cancel()
			if err := s.Client.Delete(ctx, o); err != nil {
				t.Error(err)
			}
		})
	}
}
