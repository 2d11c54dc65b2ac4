package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/tunnel"
)

// Gateways of a cluster run under the rights that they get, against a real API
// server. Both ends of every peering are in the same one.
func TestInACluster(t *testing.T) {
	c := controlplanetest.Start(t)
	t.Run("objects in any order", func(t *testing.T) { testAnyOrder(t, c) })
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *controlplanetest.Cluster){
			"connects and tells":  testConnects,
			"changes":             testChanges,
			"new keys":            testNewKeys,
			"firewall":            testFirewall,
			"restart of the peer": testRestart,
			"takeover":            testTakeover,
			"two leaders":         testTwoLeaders,
			"writes":              testWrites,
			"services":            testServices,
			"services, no rights": testServicesWithoutRights,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, c)
			})
		}
	})
	// What all gateways of the cluster see comes alone.
	t.Run("an IP that cannot be", func(t *testing.T) { testRefusedIP(t, c) })
	t.Run("API server away", func(t *testing.T) { testAPIServerAway(t, c) })
	t.Run("restart while the API server is away", func(t *testing.T) { testRestartWhileAPIServerAway(t, c) })
}

// started makes a peering whose gateways are connected.
func started(t *testing.T, c *controlplanetest.Cluster, more ...string) (server, client *side, a, b *pod) {
	t.Helper()
	server, client = newPeering(t, c)
	for _, s := range []*side{server, client} {
		s.create(t, s.manifests(objectManifests)...)
	}
	a = server.start(t, "a", more...)
	b = client.start(t, "b", more...)
	untilConnected(t, server, client)
	return server, client, a, b
}

func getBody(t *testing.T, url string) (code int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func testConnects(t *testing.T, c *controlplanetest.Cluster) {
	server, client, a, b := started(t, c)
	for _, p := range []*pod{a, b} {
		r, err := p.report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d := r.DataPlane
		if len(d.Nodes) != 1 || len(d.Routes) != 1 || len(d.Addresses) == 0 || len(d.Remote) != 2 {
			t.Errorf("%s: nodes %v, routes %v, addresses %v, remote %v", p.s.mode, d.Nodes, d.Routes, d.Addresses, d.Remote)
		}
		if want := fmt.Sprintf("127.7.%d.2", p.s.number); d.Nodes[0].Underlay.String() != want {
			t.Errorf("%s: the node is reached at %s, want its local address %s", p.s.mode, d.Nodes[0].Underlay, want)
		}
		if code, body := getBody(t, "http://"+p.s.host+":8083/readyz"); code != http.StatusOK || body != "ok\n" {
			t.Errorf("readyz: %d %q", code, body)
		}
		_, metrics := getBody(t, "http://"+p.s.host+":8082/metrics")
		for _, want := range []string{"\nsluice_api_connected 1\n", "\nsluice_leader 1\n", `liqo_peer_is_connected{cluster_id="` + p.s.peer} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics lack %q", want)
			}
		}
	}
	for _, s := range []*side{server, client} {
		var conn networkingv1beta1.Connection
		controlplanetest.Eventually(t, "the MTU is compared", func(ctx context.Context) (err error) {
			if conn, err = s.connection(ctx); err == nil && meta.FindStatusCondition(conn.Status.Conditions, string(networkingv1beta1.ConditionMTUMatches)) == nil {
				err = fmt.Errorf("%+v", conn.Status)
			}
			return err
		})
		for _, c := range conn.Status.Conditions {
			if c.Status != "True" || c.ObservedGeneration != conn.Generation {
				t.Errorf("condition %+v", c)
			}
		}
		if conn.Status.Latency.Value == "" || conn.Status.Latency.Timestamp.IsZero() {
			t.Errorf("latency %+v", conn.Status.Latency)
		}
	}
	for _, p := range []*pod{a, b} {
		checkProbe(t, p)
	}
	// A gateway that ends says so.
	a.cmd.Process.Signal(syscall.SIGTERM)
	<-a.done
	if err := server.is(t.Context(), networkingv1beta1.ConnectionError); err != nil {
		t.Error(err)
	}
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Whatever comes first, the end is the same. The gateways start at once.
func testAnyOrder(t *testing.T, c *controlplanetest.Cluster) {
	if err := c.Get(t.Context(), "", "liqo", new(corev1.Namespace)); err != nil { // opens the connection that stays
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	const orders, atOnce = 20, 10
	turns := make(chan struct{}, atOnce)
	t.Run("orders", func(t *testing.T) {
		for i := range orders {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				inOrder(t, c, rand.New(rand.NewPCG(uint64(i), 0)))
			})
		}
	})
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

func inOrder(t *testing.T, c *controlplanetest.Cluster, r *rand.Rand) {
	server, client := newPeering(t, c)
	type step struct {
		s   *side
		doc string
	}
	var steps []step
	for _, s := range []*side{server, client} {
		for _, doc := range s.manifests(objectManifests) {
			steps = append(steps, step{s, doc})
		}
	}
	r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, s := range []*side{server, client} {
		wg.Go(func() {
			var log bytes.Buffer
			if code := run(ctx, s.args(t, "in", "--ping-interval=200ms"), io.Discard, &log); code != 0 || t.Failed() {
				t.Errorf("%s, exit code %d:\n%s", s.mode, code, &log)
			}
			os.Remove(s.socket(t, "in"))
		})
	}
	for _, step := range steps {
		step.s.create(t, step.doc)
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond) // so that some are seen apart, and some together
	}
	untilConnected(t, server, client)
}

// edit changes an object, as administrator.
func edit[T client.Object](t testing.TB, s *side, name string, o T, status bool, change func(T)) {
	t.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	if status {
		controlplanetest.EditStatus(t, s.c, o, change)
	} else {
		controlplanetest.Edit(t, s.c, o, change)
	}
}

func testChanges(t *testing.T, c *controlplanetest.Cluster) {
	server, _, a, _ := started(t, c)
	remote := func(ctx context.Context, want string) error {
		r, err := a.report(ctx)
		if err == nil && fmt.Sprintf("%+v", r.DataPlane.Remote) != want {
			err = fmt.Errorf("remote is %v, want %s; warnings %v", r.DataPlane.Remote, want, r.Sync.Warnings)
		}
		return err
	}
	const before = "[10.61.0.0/16 (inside) = 10.243.0.0/16 (outside) 10.71.0.0/16 (inside) = 10.70.0.0/16 (outside)]"
	if err := remote(t.Context(), before); err != nil {
		t.Fatal(err)
	}

	// The peer gets another pod CIDR. Until the controller has found what stands
	// for it here, the old one stays, and the warning says so.
	edit(t, server, server.peer, new(networkingv1beta1.Configuration), false, func(c *networkingv1beta1.Configuration) {
		c.Spec.Remote.CIDR.Pod.List[0] = "10.244.0.0/16"
	})
	controlplanetest.Eventually(t, "the gateway waits", func(ctx context.Context) error {
		r, err := a.report(ctx)
		if err == nil && !strings.Contains(r.Sync.Warnings.Error(), "has changed: what was in force stays") {
			err = fmt.Errorf("warnings %v", r.Sync.Warnings)
		}
		return err
	})
	if err := remote(t.Context(), before); err != nil {
		t.Error(err)
	}
	edit(t, server, server.peer, new(networkingv1beta1.Configuration), true, func(c *networkingv1beta1.Configuration) {
		c.Status.Conditions[0].ObservedGeneration = c.Generation
	})
	took := within(t, controlplanetest.Patience, "the new CIDR", func(ctx context.Context) error {
		return remote(ctx, strings.Replace(before, "10.243", "10.244", 1))
	})
	t.Logf("a change of the Configuration was applied after %v", took)
}

// An IP that cannot be is left out, and the Connection says so.
func testRefusedIP(t *testing.T, c *controlplanetest.Cluster) {
	server, _, _, _ := started(t, c)
	server.create(t, server.manifests(`
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: another, namespace: $NAMESPACE}
spec: {ip: 192.168.1.$N}
status: {ip: 10.70.1.$N, cidr: 10.70.0.0/16}`)...)
	controlplanetest.Eventually(t, "the Connection tells", func(ctx context.Context) error {
		conn, err := server.connection(ctx)
		if err != nil {
			return err
		}
		applied := meta.FindStatusCondition(conn.Status.Conditions, string(networkingv1beta1.ConditionConfigurationApplied))
		if want := fmt.Sprintf("IP %s/another: spec.ip: 192.168.1.%d is mapped by IP printer already", server.namespace, server.number); !strings.Contains(applied.Message, want) || applied.Status != "False" {
			return fmt.Errorf("%+v", applied)
		}
		return nil
	})
	ip := &ipamv1alpha1.IP{}
	ip.Namespace, ip.Name = server.namespace, "another"
	if err := c.Client.Delete(t.Context(), ip); err != nil {
		t.Fatal(err)
	}
	untilConnected(t, server)
}

// A gateway tells every FirewallConfiguration what became of it, next to what
// others tell.
func testFirewall(t *testing.T, c *controlplanetest.Cluster) {
	server, _, a, _ := started(t, c)
	server.create(t, server.manifests(`
apiVersion: networking.liqo.io/v1beta1
kind: FirewallConfiguration
metadata: {name: quiet, namespace: $NAMESPACE, labels: {networking.liqo.io/firewall-category: gateway, networking.liqo.io/firewall-unique: $PEER}}
spec:
  table:
    name: quiet
    family: IPV4
    chains:
    - name: forward
      type: filter
      hook: forward
      policy: accept
      priority: 0
      rules: {filterRules: [{name: printer, action: drop, counter: true, match: [{op: eq, ip: {value: 10.61.0.9, position: src}}]}]}
status:
  conditions: [{host: another, type: Applied, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]`)...)
	hosts := func(want ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			var f networkingv1beta1.FirewallConfiguration
			if err := c.Get(ctx, server.namespace, "quiet", &f); err != nil {
				return err
			}
			var got []string
			for _, c := range f.Status.Conditions {
				got = append(got, fmt.Sprintf("%s %s %s", c.Host, c.Status, c.Reason))
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				return fmt.Errorf("conditions %+v", f.Status.Conditions)
			}
			return nil
		}
	}
	controlplanetest.Eventually(t, "the table is applied", hosts("another True ", "gw True Applied"))
	r, err := a.report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	edit(t, server, "quiet", new(networkingv1beta1.FirewallConfiguration), false, func(f *networkingv1beta1.FirewallConfiguration) {
		f.Labels[networkingv1beta1.LabelFirewallUnique] = "elsewhere"
	})
	controlplanetest.Eventually(t, "the table is not ours any more", hosts("another True "))
	controlplanetest.Eventually(t, "it is not in force", func(ctx context.Context) error {
		now, err := a.report(ctx)
		if err == nil && now.Sync.Generation <= r.Sync.Generation {
			err = errors.New("nothing was applied")
		}
		return err
	})
}

// New keys reach both gateways without a restart.
func testNewKeys(t *testing.T, c *controlplanetest.Cluster) {
	server, client, a, b := started(t, c, "--ping-interval=200ms")
	server.key = tunnel.GeneratePrivateKey()
	began := time.Now()
	server.writeKeys(t)
	edit(t, client, client.peer, new(networkingv1beta1.PublicKey), false, func(k *networkingv1beta1.PublicKey) {
		public := server.key.Public()
		k.Spec.PublicKey = public[:]
	})
	within(t, controlplanetest.Patience, "a session with the new key", func(ctx context.Context) error {
		for _, p := range []*pod{a, b} {
			r, err := p.report(ctx)
			switch {
			case err != nil:
				return err
			case p == b && r.DataPlane.Tunnel.Peer != server.key.Public():
				return errors.New("the client has the old key")
			case r.Sync.Peer.Value != networkingv1beta1.Connected || r.Sync.Peer.Timestamp.Before(began) || !r.DataPlane.Tunnel.LastHandshake.After(began):
				return fmt.Errorf("%s: %+v, handshake %v", p.s.mode, r.Sync.Peer, r.DataPlane.Tunnel.LastHandshake)
			}
		}
		return nil
	})
	t.Logf("connected by the new key after %v", time.Since(began))
	untilConnected(t, server, client)
}
