package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
)

// givenToLiqo makes the gateway of an end Liqo's.
func givenToLiqo(e *end) {
	e.before, e.after, e.probe, e.reportErr = nil, nil, nil, survey.ErrOfLiqo
	e.peer.Connection.Status.Conditions = nil
	e.peer.Connection.Status.Latency.Value = "2.5ms"
	for i := range e.pods.items {
		e.pods.items[i].Spec.Containers = []corev1.Container{{Name: "gateway"}, {Name: "wireguard"}, {Name: "geneve"}}
	}
}

// TestGatewayOfLiqo: what a gateway of Liqo would have to be asked for is not judged, and what its objects tell is.
func TestGatewayOfLiqo(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w := newWorld(t)
		givenToLiqo(w.server)
		if alone {
			w.alone(w.server)
		}
		all := judge(w.facts)
		found := func(check, text string, s Status) {
			t.Helper()
			if !slices.ContainsFunc(of(check, all), func(f Finding) bool { return f.Status == s && strings.Contains(f.Message, text) }) {
				t.Errorf("alone: %t, %s: %+v", alone, check, of(check, all))
			}
		}
		found("gateway-pods", "it is Liqo's and is not asked: what follows is by its objects and its Connection", OK)
		found("gateway-rights", "Liqo", Skipped)
		found("objects-applied", "it is Liqo's", Skipped)
		passes := "UDP passes in both directions" // says our end, if it is seen
		if alone {
			passes += ", as the Connection says"
		}
		found("reachability", passes, OK)
		found("ping", "the Connection is Connected, latency 2.5ms", OK)
		found("drops", "it is Liqo's", Skipped)
		for _, f := range all {
			if f.Status == Failed || f.Status == Warning {
				t.Errorf("alone: %t: %s", alone, textOf(f))
			}
		}
	}
}

// TestLiqoIsNotAsked: to ask a pod would need a cluster, which is not there.
func TestLiqoIsNotAsked(t *testing.T) {
	w := newWorld(t)
	givenToLiqo(w.server)
	w.server.reportErr = nil
	w.server.pods.items = append(w.server.pods.items, *w.server.pods.items[0].DeepCopy())
	w.server.pods.items[1].Name, w.server.pods.items[1].Labels = "second", nil
	e := &endCase{access: &access.Cluster{}, end: w.server}
	(&peeringCase{ends: []*endCase{e}}).askGateways(t.Context(), nil)
	e.readProbe(t.Context())
	e.readRights(t.Context())
	if e.after != nil || !errors.Is(e.reportErr, survey.ErrOfLiqo) || e.probeErr != nil || e.accountErr != nil {
		t.Errorf("%+v, %v, %v, %v", e.after, e.reportErr, e.probeErr, e.accountErr)
	}

	agents := &endCase{access: &access.Cluster{}, end: w.client}
	agents.after.DataPlane.Nodes[0].LastSeen = now.Add(-1e12)
	for i := range w.rome.agents.items {
		w.rome.agents.items[i].Spec.Containers = []corev1.Container{{Name: "fabric", Args: []string{"--nodename=n"}}}
	}
	agents.askAgents(t.Context())
	if len(agents.agents) > 0 || !strings.Contains(agents.agentHint("worker-1"), "the log of Liqo's node agent there, pod liqo-fabric/liqo-fabric-worker-1") {
		t.Errorf("%+v, %s", agents.agents, agents.agentHint("worker-1"))
	}
}
