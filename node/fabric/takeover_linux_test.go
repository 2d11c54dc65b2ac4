package fabric

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	testsource "github.com/sluice-net/sluice/test/source"
)

// liqo makes what Liqo's agent does for InternalFabric milan, but for its link.
func (h *host) liqo() {
	h.t.Helper()
	testsource.NeedPrograms(h.t, "nft")
	h.ip("rule add pref 32765 to 10.80.0.1 lookup 978431797")
	h.ip("rule add pref 32764 to 10.90.0.0/16 lookup 978431797")
	h.ip("route add 10.90.0.0/16 dev liqo.other table 978431797")
	nft := exec.Command("nft", "add table ip milan-masquerade-bypass")
	if out, err := nft.CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
}

func (h *host) tables() string {
	h.t.Helper()
	out, err := exec.Command("nft", "list tables").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	return string(out)
}

// waitLiqo waits until the status says of Liqo what it should.
func (h *host) waitLiqo(what string, ok func(*LiqoState) bool) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		s := h.State().Liqo
		if s != nil && ok(s) {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: not within %v: %+v", what, patience, s)
		}
	}
}

func TestInKernelTakesOver(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		h := newHost(t)
		h.takeOver = true
		h.ip("link add liqo.other type veth peer name other")
		h.ip("link set liqo.other up")
		h.liqo()
		h.run("vxlan")
		for range 2 {
			h.waitLiqo("taken over", func(s *LiqoState) bool { return s.Removals == 1 && s.Left == "" && !s.Contested })
			h.shows("rule show", "600:\tnot from all fwmark 0x5c lookup 6091", "!978431797")
			h.shows("route show table all", "10.90.0.0/16", "!978431797")
			if tables := h.tables(); !strings.Contains(tables, "inet sluice-fabric") || strings.Contains(tables, "bypass") {
				t.Errorf("tables:\n%s", tables)
			}
			// Liqo's agent, which still runs, is known by the first thing that it makes again.
			h.liqo()
			h.waitLiqo("made again", func(s *LiqoState) bool { return s.Contested && s.Rules == 2 && s.Routes == 1 && s.Tables == 1 })
			h.settled()
			// The next agent finds a takeover that was interrupted.
			h.stop()
			h.run("vxlan")
		}
	})
}
