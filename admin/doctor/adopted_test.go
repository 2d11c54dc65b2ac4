package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// TestTakenOver: where Sluice has taken over the network of Liqo, what is Liqo's is not judged, but two node agents at once are.
func TestTakenOver(t *testing.T) {
	w := newWorld(t)
	i := &w.milan.Installation
	liqos := func(kind, name string, desired int32) survey.Component {
		return survey.Component{Kind: kind, Namespace: i.Namespace, Name: name, LiqosProgram: strings.TrimPrefix(name, "x-"),
			Version: "v1.2.0", Desired: desired, Ready: desired, Updated: desired}
	}
	i.Components = append(i.Components, liqos("Deployment", "x-controller-manager", 1), liqos("Deployment", "x-ipam", 0), liqos("DaemonSet", "x-fabric", 0))
	agent := &i.Components[len(i.Components)-1]
	crds := slices.Clone(w.milan.crds.items)
	for at := range crds {
		if strings.HasSuffix(crds[at].Name, ".authentication.liqo.io") {
			d := crds[at].DeepCopy()
			delete(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, "status")
			crds[at] = *d
		}
	}
	w.milan.crds.items = crds
	worst := func() map[string]Status {
		found := map[string]Status{}
		for _, f := range judge(w.facts) {
			if f.Cluster == "" || f.Cluster == remote {
				found[f.Check] = Worse(found[f.Check], f.Status)
				if f.Status == Warning || f.Status == Failed {
					t.Log(textOf(f))
				}
			}
		}
		return found
	}
	all := worst()
	for _, check := range []string{"crds", "installation", "versions", "pod-security", "gateway-rights", "template"} {
		if all[check] != OK {
			t.Errorf("%s: %v", check, all[check])
		}
	}
	for name, want := range map[string]string{
		"x-controller-manager": "authentication and offloading stop", "x-webhook": "the API server refuses what Liqo's webhooks judge", "x-crd-replicator": "nothing else does its work",
	} {
		for desired, cause := range []string{"somebody scaled it to zero: " + want, want} { // off, and not ready
			o := liqos("Deployment", name, int32(desired))
			o.Ready = 0
			if got := w.milan.component(&o); len(got) != 1 || got[0].Status != Warning || !strings.HasPrefix(got[0].Cause, cause) {
				t.Errorf("%s, %d wanted: %+v", name, desired, got)
			}
		}
	}
	i.Interrupted = "the takeover was interrupted: there is a policy"
	if got := of("installation", judge(w.facts)); !slices.ContainsFunc(got, func(f Finding) bool { return f.Status == Warning && f.Message == i.Interrupted }) {
		t.Errorf("an interrupted takeover: %+v", got)
	}
	i.Interrupted = ""
	agent.Desired, agent.Ready, agent.Updated = 2, 2, 2
	if got := worst()["installation"]; got != Warning {
		t.Errorf("two node agents at once: %v", got)
	}
	i.Components = slices.DeleteFunc(i.Components, func(c survey.Component) bool { return strings.HasSuffix(c.Namespace, "-fabric") })
	if got := worst()["installation"]; got != Warning {
		t.Errorf("no node agent of ours: %v", got)
	}
	isFalse(&w.milan.Nodes[1].Internal.Status.Conditions, networkingv1beta1.ConditionLiqoReplaced, networkingv1beta1.ReasonLiqoLeft,
		"of Liqo's node agent is left: 2 rules: the agent waits for objects: InternalFabric liqo-tenant-rome/rome: spec.gatewayIP")
	if got := worst()["nodes"]; got != Warning {
		t.Errorf("rules of Liqo's on a node: %v", got)
	}
	isFalse(&w.server.gateway().Conditions, networkingv1beta1.ConditionTemplateRendered, networkingv1beta1.ReasonTemplateOfLiqo, "run 'liqoctl network adopt rome'")
	if got := worst()["template"]; got != Failed {
		t.Errorf("a gateway of Liqo's template: %v", got)
	}
}
