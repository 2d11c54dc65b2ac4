package uml

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/source"
)

// TestBoot boots a kernel, as any user, and sees two namespaces inside talk over
// WireGuard and Geneve: what the other tests take for granted.
func TestBoot(t *testing.T) {
	kernel, err := source.Linux()
	if err != nil {
		source.Lacks(t, "%v", err)
	}
	source.NeedPrograms(t, "wg", "ip", "tc", "ping") // the guest uses the host's
	start := time.Now()
	g, err := Boot(Config{Kernel: kernel, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	t.Logf("booted in %v", time.Since(start).Round(time.Millisecond))

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := g.Run(ctx, `set -e
uname -r
ip netns add a
ip netns add b
ip link add va netns a type veth peer name vb netns b
ip -n a addr add 172.16.0.1/24 dev va; ip -n a link set va up
ip -n b addr add 172.16.0.2/24 dev vb; ip -n b link set vb up
ip -n a link add gnv type geneve id 7 remote 172.16.0.2 dstport 6091
ip -n b link add gnv type geneve id 7 remote 172.16.0.1 dstport 6091
ip -n a addr add 10.80.0.1/24 dev gnv; ip -n a link set gnv up
ip -n b addr add 10.80.0.2/24 dev gnv; ip -n b link set gnv up
ip netns exec a ping -c2 -i0.2 -W2 10.80.0.2
for n in a b; do
	wg genkey >/tmp/$n.key
	wg pubkey </tmp/$n.key >/tmp/$n.pub
	ip -n $n link add wg0 type wireguard
done
ip netns exec a wg set wg0 listen-port 51840 private-key /tmp/a.key peer "$(cat /tmp/b.pub)" allowed-ips 10.90.0.2/32 endpoint 172.16.0.2:51840
ip netns exec b wg set wg0 listen-port 51840 private-key /tmp/b.key peer "$(cat /tmp/a.pub)" allowed-ips 10.90.0.1/32
ip -n a addr add 10.90.0.1/24 dev wg0; ip -n a link set wg0 up
ip -n b addr add 10.90.0.2/24 dev wg0; ip -n b link set wg0 up
ip netns exec a ping -c2 -i0.2 -W2 10.90.0.2
tc qdisc add dev lo root netem delay 1ms loss 1% reorder 5%
`)
	if err != nil || strings.Count(out, " 0% packet loss") != 2 {
		t.Fatalf("%v\n%s\n%s", err, out, g.Console())
	}
	if out, err = g.Run(ctx, "exit 3"); err == nil {
		t.Errorf("a failing script is not reported: %q", out)
	}
}
