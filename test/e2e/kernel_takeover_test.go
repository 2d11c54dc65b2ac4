package e2e

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

// liqoFunctions are for scripts in the guest. They make what Liqo's node agent makes
// there, as far as it is missing: the names of links, tables and numbers are those
// that it would choose.
const liqoFunctions = `
liqo() {
	if ! ip link show dev %[1]s >/dev/null 2>&1; then
		ip link add %[1]s mtu 1340 type geneve id %[2]d remote %[3]s dstport 6091
		ip addr add %[4]s/32 dev %[1]s
		ip link set %[1]s up
	fi
	pref=32765
	for to in %[5]s/32 %[6]s %[7]s; do
		ip rule show | grep -q "to ${to%%/32} lookup %[8]d" || ip rule add pref $pref to $to lookup %[8]d
		pref=$((pref - 1))
	done
	ip route replace %[5]s/32 dev %[1]s scope link table %[8]d
	ip route replace %[6]s via %[5]s dev %[1]s table %[8]d onlink
	ip route replace %[7]s via %[5]s dev %[1]s table %[8]d onlink
	nft list table ip %[9]s >/dev/null 2>&1 || nft -f - <<-'END'
		table ip %[9]s {
			chain pre-postrouting {
				type nat hook postrouting priority 99
				ip saddr 10.243.0.0/16 ip daddr { %[6]s, %[7]s } snat ip prefix to 10.243.0.0/16
				ip saddr != 10.243.0.0/16 ip daddr { %[6]s, %[7]s } snat to 10.70.0.0
			}
		}
	END
}
status() { /mnt/fabric status --admin-socket /tmp/admin.sock; }
wait_status() { # for a text, or with ! until it is gone
	for i in $(seq 250); do
		if [ "$1" = '!' ]; then
			status | grep -q "$2" || return 0
		else
			! status | grep -q "$1" || return 0
		fi
		sleep 0.2
	done
	status
	return 1
}
mac() { cat /sys/class/net/%[1]s/ifindex /sys/class/net/%[1]s/address; }
`

// liqoNode is a node on which Liqo's agent has been at work.
type liqoNode struct {
	*kernelNode
	functions string
	table     string // of nf_tables
	routes    uint32 // the number of the routing table
}

func newLiqoNode(w *world, k *kernelNode) *liqoNode {
	m := w.A.Manifests()
	sum := sha256.Sum256([]byte(m.PeerID + "-node-gw"))
	n := &liqoNode{kernelNode: k, table: m.PeerID + "-masquerade-bypass"}
	n.routes = (binary.LittleEndian.Uint32(sum[:]) | 0x100) & 0xffffff
	n.routes |= uint32(sum[3]>>1) << 24
	n.functions = fmt.Sprintf(liqoFunctions, tunnelLink, k.VNI, w.A.Underlay, k.Internal, w.A.Internal, w.A.RemotePod, w.A.RemoteExternal, n.routes, n.table)
	return n
}

func (n *liqoNode) liqo(t *testing.T, format string, args ...any) string {
	t.Helper()
	return n.script(t, "%s", n.functions+"options='--take-over-liqo --liqo-table "+n.table+"'\n"+fmt.Sprintf(format, args...))
}

// pinged does something while a pod of the other cluster pings the guest's: none of
// the answers may be missing.
func (n *liqoNode) pinged(t *testing.T, w *world, do func()) {
	t.Helper()
	to := w.B.Remote(n.Pods[0].Addr())
	done, result := make(chan struct{}), make(chan lab.PingResult)
	go func() {
		var all lab.PingResult
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true // once more, for what comes afterwards
			default:
			}
			r := w.B1.Pod.Ping(to, "-i0.02 -c25 -W5")
			all.Sent, all.Received, all.Lost = all.Sent+r.Sent, all.Received+r.Received, all.Lost+r.Lost
			if r.Lost > 0 || r.Received == 0 {
				all.Output += r.Output
			}
		}
		result <- all
	}()
	start := time.Now()
	defer func() {
		close(done)
		r := <-result
		t.Logf("%v: %d of %d pings answered, %d lost", time.Since(start).Round(time.Millisecond), r.Received, r.Sent, r.Lost)
		if r.Lost > 0 || r.Received < r.Sent/2 {
			t.Errorf("%d of %d pings answered, %d lost\n%s", r.Received, r.Sent, r.Lost, r.Output)
		}
	}()
	do()
}

// gone tells whether Liqo's rules, routes and tables are gone.
func (n *liqoNode) gone(t *testing.T) {
	t.Helper()
	network := n.liqo(t, "network")
	for _, of := range []string{fmt.Sprint(n.routes), n.table} {
		if strings.Contains(network, of) {
			t.Errorf("left of Liqo's is %q:\n%s", of, network)
		}
	}
}

// TestKernelTakeOver takes the place of Liqo's agent and gives it back. The guest has
// a geneve device; the other nodes are the lab's.
func TestKernelTakeOver(t *testing.T) {
	w := newWorld(t)
	k := newKernelNode(t, w, lab.Build(t, lab.FabricPackage))
	n := newLiqoNode(w, k)
	manifests := w.A.Manifests()
	manifests.Nodes = append(manifests.Nodes, k.NodeManifest)
	k.write(t, manifests)
	n.liqo(t, "liqo")
	binary := lab.Build(t, lab.GatewayPackage)
	w.gatewayA = w.A.StartGateway(binary, lab.GatewayOptions{Manifests: manifests})
	w.gatewayB = w.B.StartGateway(binary, lab.GatewayOptions{})
	w.gatewayA.WaitConnected(lab.Patience)
	w.gatewayB.WaitConnected(lab.Patience)
	defer w.report(t)
	defer k.report(t)
	// A gateway knows a node that has been there for a while.
	n.liqo(t, "ping -c3 -i0.2 -W5 %s; mac >/tmp/mac; network >/tmp/liqo", w.A.Internal)
	wantAnswers(t, w.B1.Pod, w.B.Remote(k.Pods[0].Addr()), 3, "")

	t.Run("take over", func(t *testing.T) {
		n.pinged(t, w, func() { n.liqo(t, "agent; wait_status ! LIQO:; mac | diff /tmp/mac -") })
		n.gone(t)
		link := n.liqo(t, "ip -d link show %s", tunnelLink)
		if !strings.Contains(link, "alias sluice: InternalFabric liqo-tenant-cluster-b/cluster-b (MAC ") {
			t.Errorf("the link is not ours, or has forgotten its MAC address:\n%s", link)
		}
		if status := n.liqo(t, "status"); strings.Contains(status, "CONTESTED") {
			t.Errorf("the status is\n%s", status)
		}
		n.liqo(t, "ip netns exec pod ping -c3 -i0.1 -W5 -M do -s 1312 %s", w.fromA(w.B1.PodAddr))
	})
	t.Run("beside Liqo's agent", func(t *testing.T) {
		n.pinged(t, w, func() { n.liqo(t, "liqo; wait_status \"CONTESTED: Liqo's node agent runs beside this one\"") })
	})
	t.Run("again after an end in the middle", func(t *testing.T) {
		n.pinged(t, w, func() { n.liqo(t, "end KILL; liqo; agent; wait_status ! LIQO:; mac | diff /tmp/mac -") })
		n.gone(t)
	})
	t.Run("give back", func(t *testing.T) {
		var said string
		n.pinged(t, w, func() {
			said = n.liqo(t, "end TERM; liqo; /mnt/fabric cleanup --leave-links; network | diff /tmp/liqo -; mac | diff /tmp/mac -; /mnt/fabric cleanup --leave-links")
		})
		t.Logf("cleanup says\n%s", said)
		if !strings.HasSuffix(said, "\nnothing to remove\n") {
			t.Errorf("the second cleanup found something:\n%s", said)
		}
	})
}
