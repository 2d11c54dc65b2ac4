package clusters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// connectSays are the lines of `network connect --wait`, in their order.
var connectSays = []string{
	"(local) Network configuration correctly retrieved",
	"(remote) Network configuration correctly retrieved",
	"(local) Network configuration correctly set up",
	"(remote) Network configuration correctly set up",
	"(local) Configuration applied successfully",
	"(remote) Configuration applied successfully",
	`(remote) Gateway server template "wireguard-server/liqo" correctly checked`,
	`(local) Gateway client template "wireguard-client/liqo" correctly checked`,
	"(local) Network correctly initialized",
	"(remote) Network correctly initialized",
	"(remote) Gateway server correctly set up",
	"(remote) Gateway pod gw-consumer is ready",
	"(remote) Gateway server Service created successfully",
	"(local) Gateway client correctly set up",
	"(local) Gateway pod gw-provider is ready",
	"(remote) Gateway server Secret created successfully",
	"(local) Public key correctly created",
	"(local) Gateway client Secret created successfully",
	"(remote) Public key correctly created",
	"(remote) Connection created successfully",
	"(local) Connection created successfully",
	"(local) Connection is established",
	"(remote) Connection is established",
}

// ownOverhead is how long a command may take that finds everything done.
const ownOverhead = 5 * time.Second

// testConnect connects the pair, twice, looks at it, and separates it again, as
// the document has it.
func testConnect(t *testing.T, p *pair) {
	t.Run("the document says the same", func(t *testing.T) {
		d := document.Read(t, document.Network)
		block := d.Block(t, []string{"(local) Network configuration correctly retrieved", "(remote) Connection is established"})
		want := strings.NewReplacer("gw-cl01", "gw-consumer", "gw-cl02", "gw-provider").Replace(block)
		if diff := cmp.Diff(done(linesOf(want)), connectSays); diff != "" {
			t.Errorf("(-document +expected here)\n%s", diff)
		}
	})
	pe := p.known()
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)

	t.Run("first time", func(t *testing.T) {
		start := time.Now()
		lines, err := p.liqoctl.listen(t.Context(), nil, p.connectCommand()...)
		if err != nil {
			t.Fatalf("%v\n%s", err, text(lines))
		}
		if diff := cmp.Diff(connectSays, done(lines)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		logSteps(t, lines, time.Since(start))
		for _, e := range pe.ends() {
			if err := e.connected(t.Context()); err != nil {
				t.Error(err)
			}
		}
		controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	})
	before := pe.state(t)
	pods := pe.gatewayPods(t)
	t.Run("second time", func(t *testing.T) {
		start := time.Now()
		lines, err := p.liqoctl.listen(t.Context(), nil, p.connectCommand()...)
		took := time.Since(start)
		if diff := cmp.Diff(connectSays, done(lines)); err != nil || diff != "" {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
		if took > ownOverhead {
			t.Errorf("with nothing to do it took %v, want at most %v", took, ownOverhead)
		}
		t.Logf("with nothing to do: %v", took.Round(time.Millisecond))
		if diff := cmp.Diff(before, pe.state(t)); diff != "" {
			t.Errorf("it changed something (-before +after)\n%s", diff)
		}
		pe.samePods(t, pods)
	})
	t.Run("tables", func(t *testing.T) {
		ip, port := endpoint(t, p.provider, pe.provider.namespace, pe.provider.gateway)
		for _, tt := range []struct {
			on   *side
			kind string
			row  string
		}{
			{p.consumer, "gatewayclients.networking.liqo.io", fmt.Sprintf("liqo-tenant-provider provider wireguard-client %s %s", ip, port)},
			{p.consumer, "connections.networking.liqo.io", "liqo-tenant-provider gw-provider Client Connected"},
			{p.provider, "gatewayservers.networking.liqo.io", fmt.Sprintf("liqo-tenant-consumer consumer wireguard-server %s %s", ip, port)},
			{p.provider, "connections.networking.liqo.io", "liqo-tenant-consumer gw-consumer Server Connected"},
		} {
			out := kubectl(t, tt.on, "get", tt.kind, "-A")
			if !strings.Contains(strings.Join(strings.Fields(out), " "), tt.row) {
				t.Errorf("%s of %s lacks %q:\n%s", tt.kind, tt.on.id, tt.row, out)
			}
		}
	})
	t.Run("disconnect", func(t *testing.T) {
		lines := p.separate(t, "disconnect")
		want := []string{"(local) Cluster identity correctly retrieved", "(remote) Cluster identity correctly retrieved",
			"(local) Gateway client correctly deleted", "(remote) Gateway server correctly deleted"}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		for _, e := range pe.ends() {
			names, err := e.names("get", "gatewayservers,gatewayclients,wggatewayservers,wggatewayclients,connections,deployments,services,internalfabrics", "-n", e.namespace)
			if err != nil || len(names) > 0 {
				t.Errorf("left in %s: %v (%v)", e.id, names, err)
			}
		}
	})
	t.Run("reset", func(t *testing.T) {
		lines := p.separate(t, "reset")
		want := []string{"(local) Network configuration correctly deleted", "(remote) Network configuration correctly deleted"}
		if missing := inOrder(want, lines); missing != "" {
			t.Errorf("no %q in %q", missing, lines)
		}
		for _, e := range pe.ends() {
			names, err := e.names("get", "configurations,publickeies,networks.ipam.liqo.io,secrets", "-n", e.namespace)
			if err != nil || len(names) > 0 {
				t.Errorf("left in %s: %v (%v)", e.id, names, err)
			}
		}
	})
	t.Run("again", func(t *testing.T) {
		p.liqoctl.ok(t, p.connectCommand()...)
		controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	})
}

// separate runs a command that asks before it begins.
func (p *pair) separate(t *testing.T, command string) []string {
	t.Helper()
	lines, err := p.liqoctl.listen(t.Context(), nil, p.both("network", command, "--wait", "--skip-confirm")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text(lines))
	}
	return done(lines)
}

// testFormerFlags connects in two steps, with flags as they were called earlier.
func testFormerFlags(t *testing.T, p *pair) {
	pe := p.known()
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	init := []string{
		"(local) Cluster identity correctly retrieved", "(remote) Cluster identity correctly retrieved",
		"(local) Network configuration correctly retrieved", "(remote) Network configuration correctly retrieved",
		"(local) Network configuration correctly set up", "(remote) Network configuration correctly set up",
		"(local) Configuration applied successfully", "(remote) Configuration applied successfully",
	}
	lines, err := p.liqoctl.listen(t.Context(), nil, p.both("network", "init", "--wait")...)
	if diff := cmp.Diff(init, done(lines)); err != nil || diff != "" {
		t.Fatalf("init: %v (-want +got)\n%s", err, diff)
	}
	if names, err := pe.provider.names("get", "gatewayservers", "-n", pe.provider.namespace); err != nil || len(names) > 0 {
		t.Errorf("init made %v (%v)", names, err)
	}
	lines, err = p.liqoctl.listen(t.Context(), nil, p.both("network", "connect", "--server-service-type", "NodePort", "--server-port", "51820", "--node-port", "30817", "--mtu", "1300", "--wait")...)
	if missing := inOrder(connectSays[8:], done(lines)); err != nil || missing != "" {
		t.Fatalf("connect: %v, no %q in\n%s", err, missing, text(lines))
	}
	server := kubectl(t, p.provider, "get", "gatewayservers", "-n", pe.provider.namespace, "consumer", "-o",
		"jsonpath={.spec.endpoint.serviceType} {.spec.endpoint.port} {.spec.endpoint.nodePort} {.spec.mtu} {.status.endpoint.port}")
	if want := "NodePort 51820 30817 1300 30817"; server != want {
		t.Errorf("the server is %s, want %s", server, want)
	}
	if mtu := kubectl(t, p.consumer, "get", "gatewayclients", "-n", pe.consumer.namespace, "provider", "-o", "jsonpath={.spec.mtu}"); mtu != "1300" {
		t.Errorf("the client has an MTU of %s", mtu)
	}
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)

	t.Run("the opposite direction", func(t *testing.T) {
		before := pe.state(t)
		out, errs, err := p.liqoctl.run(t.Context(), "network", "connect", "--wait", "--kubeconfig", p.provider.Kubeconfig, "--remote-kubeconfig", p.consumer.Kubeconfig)
		if err != nil || !strings.Contains(errs, "opposite direction") {
			t.Errorf("%v\n%s%s", err, out, errs)
		}
		if diff := cmp.Diff(before, pe.state(t)); diff != "" {
			t.Errorf("it changed something (-before +after)\n%s", diff)
		}
	})
}

// linesOf are lines as if they had been said.
func linesOf(text string) (lines []said) {
	for l := range strings.Lines(text) {
		lines = append(lines, said{line: strings.TrimRight(l, " \n")})
	}
	return lines
}

func text(lines []said) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%8v %s\n", l.at.Round(time.Millisecond), l.line)
	}
	return b.String()
}

// logSteps tells how long each step lasted.
func logSteps(t *testing.T, lines []said, all time.Duration) {
	t.Helper()
	last := time.Duration(0)
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%8v %s\n", (l.at - last).Round(time.Millisecond), l.line)
		last = l.at
	}
	t.Logf("connected after %v:\n%s", all.Round(time.Millisecond), &b)
}
