package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// shortLeaseDuration is how long the Lease of one that is silent lasts, with shortLease.
const shortLeaseDuration = 6 * time.Second

var (
	shortLease = []string{"--leader-election", "--leader-election-lease-duration=6s", "--leader-election-renew-deadline=4s", "--leader-election-retry-period=500ms"}
	// longLease does not expire while a test runs.
	longLease = []string{"--leader-election", "--leader-election-lease-duration=1h", "--leader-election-retry-period=500ms"}
)

// answered waits until the peer has answered since then.
func answered(t *testing.T, patience time.Duration, p *pod, since time.Time) time.Duration {
	t.Helper()
	within(t, patience, "an answer of the peer", func(ctx context.Context) error {
		r, err := p.report(ctx)
		if err == nil && (r.Sync.Peer.Value != networkingv1beta1.Connected || !r.Sync.Peer.Timestamp.After(since)) {
			err = fmt.Errorf("%+v", r.Sync.Peer)
		}
		return err
	})
	return time.Since(since)
}

// A server gateway that is killed and started again is found soon, although its
// peer still has the session with the one before.
func testRestart(t *testing.T, c *controlplanetest.Cluster) {
	server, client, a, b := started(t, c)
	controlplanetest.Eventually(t, "WireGuard makes another handshake", func(ctx context.Context) error { // not within five seconds
		r, err := b.report(ctx)
		if age := time.Since(r.DataPlane.Tunnel.LastHandshake); err == nil && age < 5*time.Second {
			err = fmt.Errorf("the last is %v old", age)
		}
		return err
	})
	a.kill()
	killed := time.Now()
	server.start(t, "a")
	// Usually 5 to 7 seconds, and 5 more if the first message is lost. WireGuard
	// alone asks after 15 at the earliest, and the next ping is up to 2 later.
	took := answered(t, 15*time.Second, b, killed)
	t.Logf("the client has its session again %v after the server was killed", took)
	untilConnected(t, server, client)
}

func testTakeover(t *testing.T, c *controlplanetest.Cluster) {
	server, client := newPeering(t, c)
	for _, s := range []*side{server, client} {
		s.create(t, s.manifests(objectManifests)...)
	}
	s := server.start(t, "s")
	other := *client
	other.host = fmt.Sprintf("127.7.%d.9", client.number)
	a := client.start(t, "a", longLease...)
	controlplanetest.Eventually(t, "a leads", func(ctx context.Context) error { return client.ledBy(ctx, "a") })
	b := other.start(t, "b", shortLease...)
	untilConnected(t, server, client)
	within(t, controlplanetest.Patience, "b stands by", func(ctx context.Context) error {
		r, err := b.report(ctx)
		if err == nil && (r.Sync.Role != control.RoleStandBy || r.Sync.Generation == 0 || r.Cluster.Election.Holder != "a") {
			err = fmt.Errorf("%+v %+v", r.Sync, r.Cluster.Election)
		}
		if err == nil && (!r.DataPlane.Tunnel.Peer.IsZero() || len(r.DataPlane.Nodes) > 0 || r.DataPlane.Tunnel.TxBytes > 0) {
			t.Errorf("stands by with %+v", r.DataPlane)
		}
		return err
	})
	if code, body := getBody(t, "http://"+other.host+":8083/readyz"); code != http.StatusOK || body != "standing by\n" {
		t.Errorf("readyz: %d %q", code, body)
	}

	// An end in peace: the lease is given back, and the other one leads before this
	// one ends.
	a.cmd.Process.Signal(syscall.SIGTERM)
	told := time.Now()
	took := within(t, controlplanetest.Patience, "b leads", func(ctx context.Context) error { return client.ledBy(ctx, "b") })
	<-a.done
	if !strings.Contains(a.log.String(), "standing by") {
		t.Error("the leader has ended before it saw its successor")
	}
	t.Logf("led %v, and connected %v after the leader was told to end", took, answered(t, controlplanetest.Patience, b, told))

	// A violent one: the lease expires.
	a = client.start(t, "a2", shortLease...)
	within(t, controlplanetest.Patience, "a2 stands by", func(ctx context.Context) error { return standsBy(ctx, a) })
	b.kill()
	ended := time.Now()
	took = within(t, controlplanetest.Patience, "a2 leads", func(ctx context.Context) error { return client.ledBy(ctx, "a2") })
	t.Logf("led %v, and connected %v after the leader was killed", took, answered(t, controlplanetest.Patience, a, ended))

	// The controller sees the pod of the holder go and frees the lease.
	b = other.start(t, "b2", longLease...)
	within(t, controlplanetest.Patience, "b2 stands by", func(ctx context.Context) error { return standsBy(ctx, b) })
	a.kill()
	ended = time.Now()
	client.setHolder(t, "")
	took = within(t, controlplanetest.Patience, "b2 leads", func(ctx context.Context) error { return client.ledBy(ctx, "b2") })
	t.Logf("led %v, and connected %v after the lease was freed", took, answered(t, controlplanetest.Patience, b, ended))

	// One that is alone goes on until another one comes.
	b.cmd.Process.Signal(syscall.SIGTERM)
	within(t, controlplanetest.Patience, "the lease is free", func(ctx context.Context) error { return client.ledBy(ctx, "") })
	answered(t, controlplanetest.Patience, b, time.Now().Add(3*time.Second))
	a = client.start(t, "a3", longLease...)
	told = time.Now()
	took = within(t, controlplanetest.Patience, "a3 leads", func(ctx context.Context) error { return client.ledBy(ctx, "a3") })
	<-b.done
	t.Logf("led %v, and connected %v after the successor was started", took, answered(t, controlplanetest.Patience, a, told))

	// A leader that sees another holder steps down.
	client.setHolder(t, "somebody")
	took = within(t, controlplanetest.Patience, "a3 steps down", func(ctx context.Context) error { return standsBy(ctx, a) })
	t.Logf("stepped down after %v", took)

	// The Connection is the new leader's.
	edit(t, client, "gw-gw", new(networkingv1beta1.Connection), true, func(c *networkingv1beta1.Connection) {
		c.Status.Value = "Elsewhere"
	})
	time.Sleep(2 * time.Second) // within which a leader would have written
	if conn, err := client.connection(t.Context()); err != nil || conn.Status.Value != "Elsewhere" {
		t.Errorf("a replica that stands by has written %+v (%v)", conn.Status, err)
	}

	// Where the gateway is deleted nobody else comes, and nobody waits.
	const inVain = "no other replica has taken over in time"
	client.setHolder(t, "")
	within(t, controlplanetest.Patience, "a3 leads again", func(ctx context.Context) error { return client.ledBy(ctx, "a3") })
	if err := c.Client.Delete(t.Context(), &networkingv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: client.namespace, Name: "gw"}}); err != nil {
		t.Fatal(err)
	}
	a.cmd.Process.Signal(syscall.SIGTERM)
	<-a.done
	if log := a.log.String(); strings.Contains(log, inVain) {
		t.Errorf("it has waited for a successor:\n%s", log)
	}

	// Nor where the namespace ends: of all in it, pods go first.
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.done
	s = server.start(t, "s2", longLease...)
	controlplanetest.Eventually(t, "s2 leads", func(ctx context.Context) error { return server.ledBy(ctx, "s2") })
	if err := c.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: server.namespace}}); err != nil {
		t.Fatal(err)
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.done
	if log := s.log.String(); strings.Contains(log, inVain) || !strings.Contains(log, "the namespace is being deleted") {
		t.Errorf("it has waited for a successor:\n%s", log)
	}
}

// setHolder writes who holds the lease.
func (s *side) setHolder(t *testing.T, who string) {
	t.Helper()
	edit(t, s, s.leaseName(), new(coordinationv1.Lease), false, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &who })
}

// ledBy checks who holds the lease.
func (s *side) ledBy(ctx context.Context, who string) error {
	l, err := s.lease(ctx)
	if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != who) {
		err = fmt.Errorf("lease %+v", l.Spec)
	}
	return err
}

func standsBy(ctx context.Context, p *pod) error {
	r, err := p.report(ctx)
	if err == nil && (r.Sync.Role != control.RoleStandBy || r.Sync.Generation == 0 || !r.DataPlane.Tunnel.Peer.IsZero()) {
		err = fmt.Errorf("role %s, generation %d", r.Sync.Role, r.Sync.Generation)
	}
	return err
}

// Two pods of a client that both believe to lead take the tunnel from each other. Their
// peer says so, in its Connection and in its status.
func testTwoLeaders(t *testing.T, c *controlplanetest.Cluster) {
	server, client, a, _ := started(t, c)
	elsewhere := *client
	elsewhere.host = fmt.Sprintf("127.7.%d.9", client.number)
	elsewhere.start(t, "other") // without an election
	controlplanetest.Eventually(t, "the Connection of the peer says that there are two", func(ctx context.Context) error {
		conn, err := server.connection(ctx)
		if err != nil {
			return err
		}
		unique := meta.FindStatusCondition(conn.Status.Conditions, string(networkingv1beta1.ConditionPeerUnique))
		if unique == nil || unique.Reason != string(networkingv1beta1.ReasonSeveralPeers) || !strings.Contains(unique.Message, client.host+":") || !strings.Contains(unique.Message, elsewhere.host+":") {
			return fmt.Errorf("conditions are %+v", conn.Status.Conditions)
		}
		return nil
	})
	if r, err := a.report(t.Context()); err != nil || r.Sync.Peer.Several == "" {
		t.Errorf("the status does not say so: %+v (%v)", r.Sync.Peer, err)
	}
}
