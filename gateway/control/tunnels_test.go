package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/health"
	"github.com/sluice-net/sluice/tunnel"
)

// asClient makes a client of the server among the files, with these ports.
func asClient(ports string) string {
	return "gateway.yaml: kind: GatewayServer => kind: GatewayClient\n#" +
		"\x00gateway.yaml: port: 51840\n    serviceType: NodePort => ports: " + ports + "\n    addresses: [192.0.2.1]"
}

// Each port is a tunnel, with addresses of its own.
func TestBuildSeveralTunnels(t *testing.T) {
	build := func(edits ...string) dataplane.Config {
		t.Helper()
		d, err := decode(t, edits...)
		if err != nil {
			t.Fatal(err)
		}
		return d.DataPlane
	}
	server := build("gateway.yaml: port: 51840 => ports: [51840, 51841, 7]")
	client := build(strings.Split(asClient("[30001, 30002, 30003]"), "\x00")...)
	for name, c := range map[string]dataplane.Config{"server": server, "client": client} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(c.Further) != 2 || len(c.Tunnel.Further) != 2 {
			t.Fatalf("%s: %+v", name, c.Further)
		}
		for i, f := range c.Tunnel.Further {
			own, peer := netip.MustParseAddr(fmt.Sprintf("169.254.18.%d", 4*i+5)), netip.MustParseAddr(fmt.Sprintf("169.254.18.%d", 4*i+6))
			if name == "client" {
				own, peer = peer, own
			}
			if c.Further[i] != (dataplane.TunnelEnds{Own: own, Peer: peer}) {
				t.Errorf("%s: ends of tunnel %d: %v", name, i, c.Further[i])
			}
			// What the first one takes, with another end.
			first, ours := c.Tunnel.AllowedIPs, f.AllowedIPs
			if n := len(first) - 1; len(ours) != len(first) || !slices.Equal(ours[:n], first[:n]) || ours[n] != netip.PrefixFrom(peer, 32) {
				t.Errorf("%s: allowed IPs of tunnel %d: %v", name, i, ours)
			}
		}
	}
	if a, b := server.Tunnel.Further[0], server.Tunnel.Further[1]; server.Tunnel.ListenPort != 51840 || a.ListenPort != 51841 || b.ListenPort != 7 || a.Endpoint != "" {
		t.Errorf("%+v", server.Tunnel.Further)
	}
	if a, b := client.Tunnel.Further[0], client.Tunnel.Further[1]; client.Tunnel.Endpoint != "192.0.2.1:30001" || a.Endpoint != "192.0.2.1:30002" || b.Endpoint != "192.0.2.1:30003" || a.ListenPort != 0 {
		t.Errorf("%+v", client.Tunnel.Further)
	}
	var many []string
	for i := range tunnel.MaxTunnels + 1 {
		many = append(many, fmt.Sprint(1000+i))
	}
	for ports, problem := range map[string]string{
		"[51840, 0]":                         "spec.endpoint.ports[1]: 0 is not a UDP port",
		"[51840, 65536]":                     "spec.endpoint.ports[1]: 65536 is not a UDP port",
		"[7, 8, 8]":                          "spec.endpoint.ports[2]: 8 stands there twice",
		"[" + strings.Join(many, ", ") + "]": "spec.endpoint.ports: has 65 ports, the most are 64",
	} {
		if _, err := decode(t, "gateway.yaml: port: 51840 => ports: "+ports); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %q", ports, err, problem)
		}
	}
	dir := t.TempDir()
	copyFiles(t, "testdata/server", dir)
	edit(t, dir, "gateway.yaml: port: 51840 => ports: [51840, 6091]")
	if _, err := New(Options{Dir: dir, NodePort: 6091}).Load(); err == nil || !strings.Contains(err.Error(), "spec.endpoint.ports[1]: UDP port 6091 is asked for twice") {
		t.Errorf("the port of the node tunnels: %v", err)
	}
}

func TestJudgePings(t *testing.T) {
	yes, silent := ping{status: health.Status{Value: health.Connected}}, ping{status: health.Status{Value: health.Connected}, lost: lostPings}
	begins, failed := ping{status: health.Status{Value: health.Connecting}}, ping{status: health.Status{Value: health.Error}, lost: 5}
	once := ping{status: health.Status{Value: health.Connected}, lost: 1}
	for _, tt := range []struct {
		name    string
		pings   []ping
		usable  []bool
		speaker int
	}{
		{"one", []ping{yes}, []bool{true}, 0},
		{"one that fails", []ping{failed}, []bool{false}, 0},
		{"all", []ping{yes, yes, once}, []bool{true, true, true}, 0},
		{"one has just begun", []ping{yes, begins}, []bool{true, false}, 0},
		{"one does not answer lately", []ping{yes, silent, yes}, []bool{true, false, true}, 0},
		{"the first one does not", []ping{failed, begins, yes, yes}, []bool{false, false, true, true}, 2},
		{"none does", []ping{failed, silent}, []bool{false, false}, 0},
	} {
		usable, speaker := judgePings(tt.pings)
		if !slices.Equal(usable, tt.usable) || speaker != tt.speaker {
			t.Errorf("%s: %v, %d", tt.name, usable, speaker)
		}
	}
}

func TestLeftOutText(t *testing.T) {
	server := tunnel.Config{ListenPort: 1, Further: []tunnel.Further{{ListenPort: 2}, {ListenPort: 3}}}
	client := tunnel.Config{Endpoint: "a:1", Further: []tunnel.Further{{Endpoint: "a:2"}, {Endpoint: "a:3"}}}
	yes, failed := ping{}, ping{lost: lostPings}
	fine := tunnel.Stats{Further: make([]tunnel.Stats, 2)}
	inUse := tunnel.Stats{Further: []tunnel.Stats{{}, {Problem: "in use"}}}
	for _, tt := range []struct {
		name  string
		c     tunnel.Config
		s     tunnel.Stats
		pings []ping
		want  string
	}{
		{"all answer", server, fine, []ping{yes, yes, yes}, ""},
		{"none does", server, fine, []ping{failed, failed, failed}, ""}, // that is another matter
		{"one alone", tunnel.Config{ListenPort: 1}, tunnel.Stats{}, []ping{failed}, ""},
		{"a server's", server, fine, []ping{yes, failed, yes}, "2 of 3 tunnels carry packets; UDP port 2: no answer."},
		{"a client's", client, fine, []ping{failed, yes, failed}, "1 of 3 tunnels carry packets; a:1: no answer, a:3: no answer."},
		{"a port in use", server, inUse, []ping{yes, yes, failed}, "2 of 3 tunnels carry packets; UDP port 3: in use."},
		{"before the data plane has them", server, tunnel.Stats{}, []ping{yes, failed, failed}, "1 of 3 tunnels carry packets; UDP port 2: no answer, UDP port 3: no answer."},
	} {
		if got := leftOutText(tt.c, tt.s, tt.pings); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// A peer that has fewer tunnels, and then a first one that fails, cost the connection nothing.
func TestRunnersOfSeveralTunnels(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		hub := &tunnelSwitch{conns: map[netip.AddrPort]*tunnelConn{}}
		server := start(t, hub, "gateway.yaml: port: 51840 => ports: [51840, 51841, 51842]")
		client := start(t, hub, strings.Split(asClient("[30001, 30002]"), "\x00")...)
		usable := func(r running, want ...bool) func() bool {
			return func() bool {
				r.forwarder.mu.Lock()
				defer r.forwarder.mu.Unlock()
				return slices.Equal(r.forwarder.usable, want)
			}
		}
		later(t, "two tunnels of the client", usable(client, true, true))
		later(t, "two of three tunnels of the server", usable(server, true, true, false))
		later(t, "the third one is left out", func() bool {
			return strings.HasPrefix(server.State().Peer.LeftOut, "2 of 3 tunnels carry packets; UDP port 51842: no answer.")
		})
		later(t, "the client leaves out none", func() bool { return client.State().Peer.LeftOut == "" })

		hub.mu.Lock() // nothing comes by the first one any more
		delete(hub.conns, netip.MustParseAddrPort("169.254.18.2:12345"))
		hub.mu.Unlock()
		later(t, "the first one is left out", usable(server, false, true, false))
		later(t, "the peer is connected by the other", func() bool {
			s := server.State().Peer
			return s.Value == networkingv1beta1.Connected && s.LatencyText != "N/A"
		})

		edit(t, server.dir, "gateway.yaml: ports: [51840, 51841, 51842] => port: 51840")
		later(t, "one tunnel", usable(server))
	})
}

// later is eventually for what takes several pings.
func later(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
	}
}
