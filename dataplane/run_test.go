package dataplane_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// running starts h's Forwarder and returns its end.
func (h *harness) running(ctx context.Context) <-chan error {
	h.ran = true
	done := make(chan error, 1)
	go func() { done <- h.forwarder.Run(ctx) }()
	return done
}

// ends waits for Run, which must not take long, and returns its error.
func ends(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("Run does not return")
		return nil
	}
}

// answersPings waits until the Forwarder is at work: its own address answers.
func (h *harness) answersPings() {
	h.Helper()
	h.atNode(0)
	h.ipFromNode(0, echoRequest(nodeIPs[0], gatewayIP))
	got := h.read(h.nodes[0], 1)
	want := "10.80.0.1:77 > 10.80.0.11:77 proto 1 ttl 64 len 32 valid true"
	if describe(got[0].ip()) != want {
		h.Fatalf("node got %s, want an echo reply, %s", describe(got[0].ip()), want)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := newHarness(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := h.running(ctx)
	h.answersPings()
	cancel()
	if err := ends(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
	// Everything is closed, and what comes late is harmless.
	if _, err := h.network.Listen(strangerUDP).WriteBatch([]underlay.Datagram{{Addr: gatewayAddr, Body: []byte("late")}}); err != nil {
		t.Error(err)
	}
	if _, _, err := h.forwarder.ReadPackets(h.bufs, h.sizes, offset); err == nil {
		t.Error("ReadPackets works after Run")
	}
	h.ingress(udp(remoteOutside, 53, localPod, 1000, ""))
	if err := h.forwarder.Apply(h.config); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Apply after Run: %v, want %v", err, net.ErrClosed)
	}
	_ = h.forwarder.Status()
}

func TestRunWithoutConfiguration(t *testing.T) {
	defer goleak.VerifyNone(t)
	network := dataplanetest.NewNetwork()
	h := &harness{T: t, network: network, forwarder: newForwarder(t, network, gatewayAddr)}
	ctx, cancel := context.WithCancel(t.Context())
	done := h.running(ctx)
	cancel()
	if err := ends(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A configuration may come after Run has begun: the gateway is ready before it
// knows its peer.
func TestRunIsConfiguredLater(t *testing.T) {
	defer goleak.VerifyNone(t)
	network := dataplanetest.NewNetwork()
	h := &harness{T: t, network: network, forwarder: newForwarder(t, network, gatewayAddr)}
	ctx, cancel := context.WithCancel(t.Context())
	done := h.running(ctx)
	if err := h.forwarder.Apply(harnessConfig()); err != nil {
		t.Fatal(err)
	}
	node := network.Listen(nodeAddrs[0])
	probe := h.read(node, 1) // the gateway looks for its nodes
	if probe[0].header.VNI != 7 {
		t.Errorf("probe has VNI %d, want 7", probe[0].header.VNI)
	}
	cancel()
	if err := ends(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRunEndsWhenTheSocketIsClosedUnderIt(t *testing.T) {
	defer goleak.VerifyNone(t)
	network := dataplanetest.NewNetwork()
	socket := network.Listen(gatewayAddr)
	h := &harness{T: t, network: network, forwarder: newForwarderOn(t, network, socket)}
	if err := h.forwarder.Apply(harnessConfig()); err != nil {
		t.Fatal(err)
	}
	done := h.running(t.Context())
	h.read(network.Listen(nodeAddrs[0]), 1) // at work
	socket.Close()
	if err := ends(t, done); !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "tunnel: ") {
		t.Errorf("Run: %v, want the tunnel's %v", err, net.ErrClosed)
	}
}

// brokenUnderlay fails to read, as a socket does whose device is gone.
type brokenUnderlay struct {
	*dataplanetest.Socket
	err error
}

func (b brokenUnderlay) WaitMessages([][]byte, []underlay.Message) (int, error) { return 0, b.err }

func TestRunReturnsTheFirstCause(t *testing.T) {
	defer goleak.VerifyNone(t)
	network := dataplanetest.NewNetwork()
	broken := errors.New("cable is cut")
	h := &harness{T: t, network: network, forwarder: newForwarderOn(t, network, brokenUnderlay{network.Listen(gatewayAddr), broken})}
	if err := h.forwarder.Apply(harnessConfig()); err != nil {
		t.Fatal(err)
	}
	if err := ends(t, h.running(t.Context())); !errors.Is(err, broken) {
		t.Errorf("Run: %v, want %v", err, broken)
	}
}

// The stack can only run once, and so can a Forwarder.
func TestRunTwice(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := newHarness(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := h.running(ctx)
	h.answersPings()
	cancel()
	if err := ends(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
	second, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.forwarder.Run(second); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second Run: %v, want an error at once", err)
	}
}

func TestCloseReadEndsABlockedRead(t *testing.T) {
	h := newHarness(t, nil)
	done := make(chan error, 1)
	go func() {
		_, _, err := h.forwarder.ReadPackets(h.bufs, h.sizes, offset)
		done <- err
	}()
	h.forwarder.CloseRead()
	for range 2 { // the blocked one, and one that comes later
		if err := ends(t, done); !errors.Is(err, os.ErrClosed) {
			t.Errorf("ReadPackets: %v, want %v", err, os.ErrClosed)
		}
		_, _, err := h.forwarder.ReadPackets(h.bufs, h.sizes, offset)
		done <- err
	}
}

func TestNewFailsWithoutASocketForTheTunnel(t *testing.T) {
	defer goleak.VerifyNone(t)
	if _, err := dataplane.New(dataplane.Options{Underlays: []dataplane.Underlay{dataplanetest.NewNetwork().Listen(gatewayAddr)}, Tunnel: tunnel.Options{}}); err == nil {
		t.Error("built without tunnel.Options.Listen")
	}
}
