package dataplanetest

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/geneve"
)

func TestThrough(t *testing.T) {
	tests := []struct{ prefix, host, want string }{
		{"10.71.0.0/16", "10.243.2.20", "10.71.2.20"},
		{"10.71.128.0/17", "10.243.2.20", "10.71.130.20"},
		{"10.71.0.0/12", "10.243.2.20", "10.67.2.20"},
		{"10.71.2.20/32", "10.243.9.9", "10.71.2.20"},
		{"fd00:71::/48", "fd00:243:0:2::20", "fd00:71:0:2::20"},
		{"fd00:71::/33", "fd00:243:ffff:2::20", "fd00:71:7fff:2::20"},
	}
	for _, tt := range tests {
		prefix := netip.MustParsePrefix(tt.prefix).Masked()
		if got := Through(prefix, netip.MustParseAddr(tt.host)); got.String() != tt.want {
			t.Errorf("%s through %s is %s, want %s", tt.host, prefix, got, tt.want)
		}
	}
}

// TestNodesOfEveryKind lets a pod behind each kind of node reach a pod behind
// each other.
func TestNodesOfEveryKind(t *testing.T) {
	defer goleak.VerifyNone(t)
	kinds := []geneve.Encapsulation{geneve.Geneve, geneve.VXLAN, geneve.GeneveIP}
	f, err := NewFabric(Options{NodesA: kinds, NodesB: kinds})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range kinds {
		for _, c := range []*Cluster{f.A, f.B} {
			if _, err := c.AddPod(i, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for i, from := range kinds {
		pod, err := f.A.AddPod(i, 1)
		if err != nil {
			t.Fatal(err)
		}
		for j, to := range kinds {
			for _, dst := range []netip.Addr{Through(RemappedB, PodAddr(j, 0)), Through(RemappedB6, PodAddr6(j, 0))} {
				if _, err := pod.Ping(ctx, dst, 56, false); err != nil {
					t.Errorf("ping of %s, node %s to node %s: %v", dst, from, to, err)
				}
			}
		}
	}
}

func TestFabricThatIsNotReady(t *testing.T) {
	defer goleak.VerifyNone(t)
	f, err := NewFabric(Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.Network.Impair(func(src, _ netip.AddrPort, _ []byte) Fate { return Fate{Drop: src.Port() == 51840} })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.WaitReady(ctx); err == nil {
		t.Error("ready without a way between the gateways")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func ExampleFabric() {
	f, err := NewFabric(Options{})
	if err != nil {
		panic(err)
	}
	defer f.Close()
	client, _ := f.A.AddPod(0, 0)
	_, _ = f.B.AddPod(0, 0) // 10.243.1.10 as well
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.WaitReady(ctx); err != nil {
		panic(err)
	}
	_, err = client.Ping(ctx, Through(RemappedB, PodAddr(0, 0)), 56, false)
	fmt.Println("ping of", Through(RemappedB, PodAddr(0, 0)), err)
	// Output: ping of 10.71.1.10 <nil>
}
