package dataplane_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// TestFabricFilter lets real TCP/IP stacks meet the rules of one gateway, in both
// directions. B's gateway judges; what it answers to a pod of A passes the
// translation of both.
func TestFabricFilter(t *testing.T) {
	f, a0, _, b0 := newFabric(t)
	const open, silent, rejected = 80, 81, 82
	to := func(p uint16) filter.Match {
		return filter.Match{Proto: packet.ProtoTCP, DstPort: filter.Ports{First: p, Last: p}}
	}
	cfg := f.B.Config
	cfg.Filter = filter.Config{Chains: []filter.Chain{{Table: "b", Name: "forward", Hook: filter.Forward, Rules: []filter.Rule{
		{Name: "clamp", Action: filter.ClampMSS, MSS: 1000},
		ruleFor(filter.Drop, to(silent)),
		ruleFor(filter.Reject, to(rejected)),
	}}}}
	if err := f.B.Gateway.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	drops := func() uint64 {
		s := f.B.Gateway.Status()
		return s.Egress.Verdicts["DropFilter"] + s.Ingress.Verdicts["DropFilter"]
	}
	first6 := dataplanetest.PodCIDR6.Addr() // IPv6 has no external CIDR here
	for _, tt := range []struct {
		name           string
		client, server *netstack.Stack
		pod            netip.Addr // the address of both, each in its own cluster
		far, from      netip.Prefix
		gateway        netip.Addr // of B, as the client knows it
	}{
		{"from A", a0, b0, dataplanetest.PodAddr(0, 0), dataplanetest.RemappedB, dataplanetest.RemappedA, dataplanetest.ExternalB.Addr()},
		{"from B", b0, a0, dataplanetest.PodAddr(0, 0), dataplanetest.RemappedA, dataplanetest.RemappedB, dataplanetest.GatewayAddress},
		{"from A, IPv6", a0, b0, dataplanetest.PodAddr6(0, 0), dataplanetest.RemappedB6, dataplanetest.RemappedA6, dataplanetest.Through(dataplanetest.RemappedB6, first6)},
		{"from B, IPv6", b0, a0, dataplanetest.PodAddr6(0, 0), dataplanetest.RemappedA6, dataplanetest.RemappedB6, first6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			far := dataplanetest.Through(tt.far, tt.pod)
			transfer(t, tt.client, tt.server, port(far, open), port(tt.pod, open), dataplanetest.Through(tt.from, tt.pod), 1<<20)

			errs := make(chan []byte, 16)
			stop := tt.client.ObserveICMP(func(b []byte) {
				if p, ok := packet.Parse(b); !ok || !p.IsICMPError() {
					return
				}
				select {
				case errs <- bytes.Clone(b):
				default: // it must not block
				}
			})
			defer stop()
			ctx := testContext(t, patience)
			dials, hangUp := context.WithCancel(ctx)
			dialled := make(chan error, 1)
			before := drops()
			go func() {
				_, err := tt.client.DialContext(dials, "tcp", port(far, silent).String())
				dialled <- err
			}()
			for drops() == before && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			// An answer to the packet that was dropped would be here before this one.
			if _, err := tt.client.Ping(ctx, far, 8, false); err != nil {
				t.Error(err)
			}
			hangUp()
			if err := <-dialled; !errors.Is(err, context.Canceled) {
				t.Errorf("dial of the port that is dropped: %v, want no answer", err)
			}
			if len(errs) != 0 {
				t.Errorf("%s is the answer to a dropped packet", describe(<-errs))
			}
			if _, err := tt.client.DialContext(ctx, "tcp", port(far, rejected).String()); err == nil || ctx.Err() != nil {
				t.Errorf("dial of the port that is rejected: %v, want a refusal", err)
			}
			var b []byte
			select {
			case b = <-errs:
			case <-ctx.Done():
				t.Fatal("no error arrived")
			}
			p, _ := packet.Parse(b)
			q, ok := p.Embedded()
			if !ok || p.Src() != tt.gateway || p.Dst() != tt.pod || q.Src() != tt.pod || q.Dst() != far || !dataplanetest.ChecksumsValid(b) {
				t.Errorf("got %s about %s > %s, want it from %s about %s > %s", describe(b), q.Src(), q.Dst(), tt.gateway, tt.pod, far)
			}
		})
	}
	for direction, verdicts := range map[string]map[string]uint64{
		"egress": f.B.Gateway.Status().Egress.Verdicts, "ingress": f.B.Gateway.Status().Ingress.Verdicts,
	} {
		if verdicts["DropFilter"] == 0 || verdicts["DropFilterReject"] == 0 {
			t.Errorf("%s: %v, want some of DropFilter and DropFilterReject", direction, verdicts)
		}
	}
}
