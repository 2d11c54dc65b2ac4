package release_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// otherBuild is the version of another build of this program.
const otherBuild = "a823017"

// testTakeOverAway takes the network over while a node is cut off. When it is back, something of Liqo's is left there.
func testTakeOverAway(t *testing.T, s *takeoverSite) {
	run := func(o release.Options) (warnings []string) {
		t.Helper()
		p, err := s.takeOver(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*controlplanetest.Patience)
		defer cancel()
		if _, err := p.Run(ctx, func(e progress.Event) {
			s.tell(e)
			if e.Text == "Installing the release sluice" {
				s.nothingSaid() // what the agents of the first takeover have said is not believed
			}
			if e.Kind == progress.Warning {
				warnings = append(warnings, e.Text)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return warnings
	}
	s.kubelet.SetAway(t, "node-2", true)
	got := run(release.Options{Values: release.Values{"common": release.Values{"nodeSelector": release.Values{"kubernetes.io/hostname": "node-1"}}}})
	want := []string{"node node-2 is not ready: what Liqo's node agent has made there stays until Sluice's runs there"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
	const why = "of Liqo's node agent is left: 2 rules: the agent waits for objects: InternalFabric liqo-tenant-milan/milan: spec.gatewayIP"
	s.leaves("node-2", why)
	s.kubelet.SetAway(t, "node-2", false)
	s.agentReady("liqo-fabric", 2)
	s.said("node-2", metav1.ConditionFalse)
	if diff := cmp.Diff([]string{"node node-2: " + why}, run(release.Options{})); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
	s.leaves("node-2", "")
	s.said("node-2", metav1.ConditionTrue)
	if w := run(release.Options{}); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
}

// testHandBackAway gives the network back, by a program of another build, while a node is cut off and somebody has deleted
// Sluice's agents: only the release tells their image.
func testHandBackAway(t *testing.T, s *takeoverSite) {
	chart, err := release.Embedded(release.Build{Version: otherBuild})
	if err != nil {
		t.Fatal(err)
	}
	o, err := release.PrepareTakeOver(t.Context(), s.access, chart, "", release.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*controlplanetest.Patience)
	defer cancel()
	if _, err := o.Run(ctx, s.tell); err != nil {
		t.Fatal(err)
	}
	s.kubelet.SetAway(t, "node-2", true)
	if _, err := s.Kubectl("delete", "-n=liqo-fabric", "daemonset", "liqo-fabric", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	h, err := s.handBack()
	if err != nil {
		t.Fatal(err)
	}
	var images []string
	removed, err := h.Run(ctx, func(e progress.Event) {
		s.tell(e)
		var d appsv1.DaemonSet
		if strings.Contains(e.Text, "until the nodes are clean") && s.Get(ctx, "liqo-fabric", "liqo-fabric-cleanup", &d) == nil {
			images = append(images, d.Spec.Template.Spec.Containers[0].Image)
		}
	})
	if err != nil {
		t.Fatalf("%v; Liqo was refused %v", err, s.refused())
	}
	if images = slices.Compact(images); !slices.Equal(images, []string{"sluice.local/fabric:" + otherBuild}) {
		t.Errorf("images of the cleanup: %q", images)
	}
	want := []string{"what the agents created on nodes that are not ready (node-2): run 'fabric cleanup --leave-links' there to remove it"}
	if diff := cmp.Diff(want, removed.Left); diff != "" {
		t.Errorf("left (-want +got)\n%s", diff)
	}
	s.kubelet.SetAway(t, "node-2", false)
	s.agentReady("liqo", 2)
}

// said waits until an agent says whether it has replaced Liqo's.
func (s *takeoverSite) said(node string, replaced metav1.ConditionStatus) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "the condition LiqoReplaced of "+node, func(ctx context.Context) error {
		var n networkingv1beta1.InternalNode
		if err := s.Get(ctx, "", node, &n); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(n.Status.Conditions, string(networkingv1beta1.ConditionLiqoReplaced)); c == nil || c.Status != replaced {
			return fmt.Errorf("it is %+v, want %s", c, replaced)
		}
		return nil
	})
}

// agentReady waits until the node agents of a namespace are ready on so many nodes.
func (s *takeoverSite) agentReady(namespace string, n int32) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "the node agents in "+namespace, func(ctx context.Context) error {
		var d appsv1.DaemonSet
		if err := s.Get(ctx, namespace, "liqo-fabric", &d); err != nil || d.Status.NumberReady != n {
			return fmt.Errorf("%+v, %v", d.Status, err)
		}
		return nil
	})
}

// testEndedAgents gives back what somebody has removed by hand all but the end of Liqo's agents.
func testEndedAgents(t *testing.T, s *takeoverSite) {
	controlplanetest.Edit(t, s.Cluster, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-fabric"}}, func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.NodeSelector["networking.liqo.io/handed-over-to-sluice"] = "true"
	})
	s.agents("have ended", 0)
	s.interrupted(s.back)
	s.agents("are back", 2)
}
