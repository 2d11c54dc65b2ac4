package fabric

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

const removeLiqo = "remove Liqo's rule"

// makeLiqo puts back what Liqo's agent makes.
func (k *fakeKernel) makeLiqo() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = hostnet.Left{Rules: 2, Tables: []string{"ip milan-masquerade-bypass"}, Plan: hostnet.Plan{Steps: []hostnet.Step{
		fakeStep{line: removeLiqo, link: "liqo's", do: func() { k.left = hostnet.Left{} }},
	}}}
}

// takingOver starts a Runner beside what Liqo's agent has left.
func takingOver(t *testing.T, change func(*running)) *running {
	return start(t, func(x *running) {
		x.kernel.makeLiqo()
		if change != nil {
			change(x)
		}
	}, Options{TakeOver: true, LiqoTables: []string{"milan-masquerade-bypass"}})
}

// liqoIs compares what the status says of Liqo.
func (x *running) liqoIs(what, left string, contested bool) {
	x.t.Helper()
	s := x.State().Liqo
	if s == nil || s.Left != left || s.Contested != contested {
		x.t.Errorf("%s: %+v, want %q, contested %v", what, s, left, contested)
	}
	if reason, message := x.condition("LiqoReplaced"); (reason == "LiqoReplaced") != (left == "" && !contested) || !strings.Contains(message, left) && !contested {
		x.t.Errorf("%s: condition %s: %s", what, reason, message)
	}
	reason, message := x.condition("TunnelsReady")
	if strings.Contains(message, besideLiqo) != contested {
		x.t.Errorf("%s: condition %s: %s", what, reason, message)
	}
}

func TestTakesOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := takingOver(t, nil)
		x.expect("ours first", time.Second, addMilan, addRome, translate, removeLiqo)
		x.liqoIs("at the end", "", false)
		want := hostnet.Predecessor{Tables: []string{"milan-masquerade-bypass"}, Fabrics: []hostnet.PredecessorFabric{
			{Name: "milan", Prefixes: []netip.Prefix{prefix("10.80.0.1/32"), prefix("10.90.0.0/16"), prefix("10.91.0.0/16")}},
			{Name: "rome", Prefixes: []netip.Prefix{prefix("10.80.0.2/32"), prefix("10.92.0.0/16")}},
		}}
		if got := x.kernel.looked()[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("looked for %+v, want %+v", got, want)
		}
		x.expect("nothing more", time.Hour)
		x.says("level=WARN", 0)

		// One that starts again finds nothing, and remembers nothing.
		x.stop()
		x.kernel.makeLiqo()
		x.expect("nobody runs", time.Hour)
		x.liqoIs("nobody runs", "", false)
	})
}

// A link of Liqo's is ours before anything else is done.
func TestTakesLinksFirst(t *testing.T) {
	const take = `take over link liqo.milan of Liqo: alias "sluice: InternalFabric t-milan/milan (MAC 4a:1b:00:5e:10:07)"`
	inBubble(t, func(t *testing.T) {
		x := takingOver(t, func(x *running) {
			l := hostnet.ActualLink{Name: "liqo.milan", Kind: hostnet.KindGeneve, VNI: 7, Port: 6091, Gateway: addr("10.0.0.11"), MAC: hostnet.MAC{0x4a, 0x1b, 0, 0x5e, 0x10, 7}}
			x.kernel.liqoLinks = []hostnet.ForeignLink{{Name: l.Name, Kind: string(l.Kind), Tunnel: l}}
			x.kernel.refuse[""] = errors.New("operation not permitted")
		})
		x.expect("refused", time.Second)
		if s := x.State(); len(s.Failures) != 1 || s.Failures[0] != "take over links of Liqo's node agent: operation not permitted" || s.Generation != 0 {
			t.Errorf("%q, generation %d", s.Failures, s.Generation)
		}
		x.kernel.allow("")
		x.expect("allowed", maxRetry, take, addMilan, addRome, translate, removeLiqo)
	})
}

func TestLeavesLiqoAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.kernel.makeLiqo() }, Options{})
		x.expect("not asked for", time.Hour, addMilan, addRome, translate)
		if x.State().Liqo != nil || len(x.kernel.looked()) > 0 {
			t.Errorf("%+v, looked %d times", x.State().Liqo, len(x.kernel.looked()))
		}
	})
}

// As long as anything of ours is missing, what Liqo has made may be of use.
func TestTakesOverWhenInForce(t *testing.T) {
	const left = "2 rules, table ip milan-masquerade-bypass"
	for _, tt := range []struct {
		name       string
		lack, mend func(*running)
		waits      string
	}{
		{"no objects", func(x *running) { x.feed.waiting = manifests.Waiting{{Reason: "reading"}} },
			func(x *running) { x.feed.edit(func(*world) { x.feed.waiting = nil }) }, ""},
		{"a link cannot be made", func(x *running) { x.kernel.refuse["liqo.rome"] = errors.New("busy") },
			func(x *running) { x.kernel.allow("liqo.rome") }, "not everything is put in force"},
		{"an object cannot be used", func(x *running) { x.feed.world.fabrics[1].Spec.MTU = 1 },
			func(x *running) { x.feed.edit(func(w *world) { w.fabrics[1].Spec.MTU = 1340 }) }, "objects are ignored: InternalFabric t-rome/rome: spec.mtu: 1 is out of range: 576 to 65455"},
		{"an object is not complete", func(x *running) { x.feed.world.fabrics[1].Spec.GatewayIP = "" },
			func(x *running) { x.feed.edit(func(w *world) { w.fabrics[1].Spec.GatewayIP = "10.0.0.12" }) }, "the agent waits for objects: InternalFabric t-rome/rome: spec.gatewayIP: is not given yet: the tunnel waits for it"},
		{"no translation", func(x *running) { x.kernel.noNFT = true },
			func(x *running) {
				x.kernel.tamper(hostnet.Event{Ours: true}, func() { x.kernel.noNFT = false })
			}, "addresses are not translated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				x := takingOver(t, tt.lack)
				x.pass(time.Minute)
				if done := strings.Join(x.kernel.took(), "\n"); strings.Contains(done, removeLiqo) {
					t.Errorf("done: %s", done)
				}
				if reason, message := x.condition("LiqoReplaced"); tt.waits == "" && reason != "" || tt.waits != "" && (reason != "LiqoLeft" || message != "of Liqo's node agent is left: "+left+": "+tt.waits) {
					t.Errorf("condition %s: %s", reason, message)
				}
				if s := x.State().Liqo; s.Waits != tt.waits || tt.waits != "" && s.Left != left {
					t.Errorf("%+v, want %q, which waits as %q", s, left, tt.waits)
				}
				tt.mend(x)
				x.pass(time.Minute)
				if done := x.kernel.took(); len(done) == 0 || done[len(done)-1] != removeLiqo {
					t.Errorf("done afterwards: %q", done)
				}
				x.liqoIs("afterwards", "", false)
			})
		})
	}
}

// Liqo's agent makes again what is removed. That shows at once, and the removals
// become rare.
func TestContestWithLiqo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := takingOver(t, nil)
		x.expect("ours first", time.Second, addMilan, addRome, translate, removeLiqo)
		x.kernel.makeLiqo()
		x.expect("not at once", liqoInterval)
		x.liqoIs("made again once", "2 rules, table ip milan-masquerade-bypass", true)
		x.expect("after the pause", liqoPause, removeLiqo)
		x.liqoIs("removed again", "", true)
		var removals int
		x.kernel.makeLiqo()
		for end := time.Now().Add(time.Hour); time.Now().Before(end); x.pass(time.Second) {
			if done := x.kernel.took(); len(done) > 0 {
				removals++
				x.kernel.makeLiqo()
			}
		}
		if removals < 10 || removals > 20 {
			t.Errorf("%d removals within an hour", removals)
		}
		x.liqoIs("it goes on", "2 rules, table ip milan-masquerade-bypass", true)
		x.expect("Liqo's agent ends", maxLiqoPause+liqoInterval, removeLiqo)
		x.expect("nothing more", 3*maxLiqoPause)
		x.liqoIs("it has ended", "", false)
		x.says("runs beside this one: it made again", 1)
		x.says("runs beside this one no longer", 1)

		// What is of another peering may have been there all the time.
		x.kernel.makeLiqo()
		x.feed.edit(func(w *world) { w.fabrics[1].Spec.RemoteCIDRs = append(w.fabrics[1].Spec.RemoteCIDRs, "10.93.0.0/16") })
		x.pass(time.Second)
		if done := x.kernel.took(); done[len(done)-1] != removeLiqo {
			t.Errorf("done after another prefix: %q", done)
		}
		x.liqoIs("another prefix", "", false)
	})
}

// What cannot be removed is not a contest.
func TestLiqoCannotBeRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := takingOver(t, func(x *running) { x.kernel.refuse["liqo's"] = errors.New("operation not permitted") })
		x.pass(time.Hour)
		x.liqoIs("refused", "2 rules, table ip milan-masquerade-bypass", false)
		if s := x.State().Liqo; !strings.Contains(s.Waits, "it is removed again in") && !strings.Contains(s.Waits, "operation not permitted") || s.Removals != 0 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(x.out.String(), "cannot be removed"); n < 10 || n > 20 {
			t.Errorf("%d attempts within an hour", n)
		}
		x.kernel.allow("liqo's")
		x.pass(maxLiqoPause + liqoInterval)
		x.liqoIs("allowed", "", false)
	})
}
