package dataplane_test

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
)

// cloneConfig returns a copy that may be changed without touching cfg.
func cloneConfig(cfg dataplane.Config) dataplane.Config {
	cfg.Internal, cfg.Nodes, cfg.Routes = slices.Clone(cfg.Internal), slices.Clone(cfg.Nodes), slices.Clone(cfg.Routes)
	cfg.Remote, cfg.Addresses = slices.Clone(cfg.Remote), slices.Clone(cfg.Addresses)
	cfg.LocalPods, cfg.LocalExternal = slices.Clone(cfg.LocalPods), slices.Clone(cfg.LocalExternal)
	return cfg
}

func TestApplyRefuses(t *testing.T) {
	remote := func(inside, outside string) nat.Mapping {
		return nat.Mapping{Inside: netip.MustParsePrefix(inside), Outside: netip.MustParsePrefix(outside)}
	}
	mapping := func(inside, outside string) dataplane.AddressMapping {
		return dataplane.AddressMapping{Inside: netip.MustParseAddr(inside), Outside: netip.MustParseAddr(outside)}
	}
	tests := []struct {
		name   string
		change func(c *dataplane.Config)
		want   []string // each a line of the message, or the start of one
	}{
		{
			name:   "MTU too small",
			change: func(c *dataplane.Config) { c.MTU = 575 },
			want:   []string{"mtu 575: must be 576 to 65455", "mtu 575: IPv6 needs at least 1280"},
		},
		{
			name:   "MTU too large",
			change: func(c *dataplane.Config) { c.MTU = 65456 },
			want:   []string{"mtu 65456: must be 576 to 65455"},
		},
		{
			name:   "MTU too small for IPv6",
			change: func(c *dataplane.Config) { c.MTU = 1279 },
			want:   []string{"mtu 1279: IPv6 needs at least 1280"},
		},
		{
			name:   "loopback as a pod CIDR",
			change: func(c *dataplane.Config) { c.LocalPods = append(c.LocalPods, netip.MustParsePrefix("127.1.0.0/16")) },
			want:   []string{"prefix 127.1.0.0/16: overlaps 127.0.0.0/8, which cannot be routed between clusters"},
		},
		{
			name: "everything as the peer's CIDR",
			change: func(c *dataplane.Config) {
				c.LocalPods, c.LocalExternal, c.Addresses, c.Remote = nil, nil, nil, []nat.Mapping{remote("::/0", "::/0")}
			},
			want: []string{
				"prefix ::/0: overlaps ::/127, which", "prefix ::/0: overlaps ::ffff:0.0.0.0/96, which",
				"prefix ::/0: overlaps fe80::/10, which", "prefix ::/0: overlaps ff00::/8, which",
				"prefix ::/0: overlaps ::/127, which", "prefix ::/0: overlaps ::ffff:0.0.0.0/96, which",
				"prefix ::/0: overlaps fe80::/10, which", "prefix ::/0: overlaps ff00::/8, which",
			},
		},
		{
			name: "the peer's CIDR overlaps with a local one",
			change: func(c *dataplane.Config) {
				c.Remote[0] = remote("10.243.0.0/16", "10.243.0.0/16")
			},
			want: []string{"remote prefix 10.243.0.0/16 (inside 10.243.0.0/16): overlaps the local prefix 10.243.0.0/16; remap it"},
		},
		{
			name:   "local CIDRs overlap with each other",
			change: func(c *dataplane.Config) { c.LocalPods = append(c.LocalPods, netip.MustParsePrefix("10.70.128.0/17")) },
			want:   []string{"pod prefix 10.70.128.0/17: overlaps the external prefix 10.70.0.0/16"},
		},
		{
			name:   "the zero prefix",
			change: func(c *dataplane.Config) { c.LocalExternal = append(c.LocalExternal, netip.Prefix{}) },
			want:   []string{"prefix invalid Prefix: not a prefix"},
		},
		{
			name:   "remapped to another length",
			change: func(c *dataplane.Config) { c.Remote[0] = remote("10.71.0.0/16", "10.243.0.0/17") },
			want:   []string{"translation: remote mapping 10.71.0.0/16 (inside) = 10.243.0.0/17 (outside): prefix lengths differ"},
		},
		{
			name:   "remapped to another family",
			change: func(c *dataplane.Config) { c.Remote[0] = remote("10.71.0.0/16", "fd00:243::/16") },
			want:   []string{"translation: remote mapping 10.71.0.0/16 (inside) = fd00:243::/16 (outside): one is IPv4, the other IPv6"},
		},
		{
			name:   "two remote CIDRs remapped to one",
			change: func(c *dataplane.Config) { c.Remote[2].Inside = netip.MustParsePrefix("10.71.0.0/16") },
			want:   []string{"translation: remote mapping 10.71.0.0/16 (inside) = 10.70.0.0/16 (outside): inside overlaps with 10.71.0.0/16 of mapping"},
		},
		{
			name:   "IP object outside of the external CIDR",
			change: func(c *dataplane.Config) { c.Addresses[0] = mapping("192.168.7.7", "10.99.0.7") },
			want:   []string{"address mapping 192.168.7.7: 10.99.0.7 is in no local external CIDR"},
		},
		{
			name:   "IP object on the unknown-source address",
			change: func(c *dataplane.Config) { c.Addresses[0] = mapping("192.168.7.7", "10.70.0.0") },
			want:   []string{"address mapping 192.168.7.7: 10.70.0.0 stands for senders that are not pods"},
		},
		{
			name:   "two IP objects with one address",
			change: func(c *dataplane.Config) { c.Addresses = append(c.Addresses, mapping("192.168.7.8", "10.70.0.7")) },
			want:   []string{"address mappings 192.168.7.7 and 192.168.7.8: both are 10.70.0.7"},
		},
		{
			name:   "a pod's and a host's IP object with one address",
			change: func(c *dataplane.Config) { c.Addresses = append(c.Addresses, mapping("192.168.7.8", "10.70.0.50")) },
			want:   []string{"address mappings 10.243.1.50 and 192.168.7.8: both are 10.70.0.50"},
		},
		{
			name:   "IP object that changes the family",
			change: func(c *dataplane.Config) { c.Addresses[0] = mapping("fd00::7", "10.70.0.7") },
			want:   []string{"translation: local mapping fd00::7/128 (inside) = 10.70.0.7/32 (outside): one is IPv4, the other IPv6"},
		},
		{
			name: "node twice",
			change: func(c *dataplane.Config) {
				c.Nodes = append(c.Nodes, dataplane.Node{Name: "node-0", VNI: 9, Underlay: []netip.Addr{netip.MustParseAddr("172.30.0.13")}})
			},
			want: []string{`node "node-0": named twice`},
		},
		{
			name: "two nodes with one tunnel",
			change: func(c *dataplane.Config) {
				c.Nodes = append(c.Nodes, dataplane.Node{Name: "twin", VNI: 7, Underlay: []netip.Addr{nodeAddrs[0].Addr()}})
			},
			want: []string{`nodes "node-0" and "twin": same underlay address 172.30.0.11 and VNI 7`},
		},
		{
			name:   "node without an address",
			change: func(c *dataplane.Config) { c.Nodes[0].Underlay = nil },
			want:   []string{`node "node-0": no underlay address`},
		},
		{
			name:   "node with the zero address",
			change: func(c *dataplane.Config) { c.Nodes[0].Underlay = []netip.Addr{{}} },
			want:   []string{`node "node-0": underlay address invalid IP cannot be a node's`},
		},
		{
			name:   "node at a group's address",
			change: func(c *dataplane.Config) { c.Nodes[0].Underlay = []netip.Addr{netip.MustParseAddr("224.0.0.1")} },
			want:   []string{`node "node-0": underlay address 224.0.0.1 cannot be a node's`},
		},
		{
			name:   "VNI that has more than 24 bits",
			change: func(c *dataplane.Config) { c.Nodes[0].VNI = 1 << 24 },
			want:   []string{`node "node-0": VNI 16777216 has more than 24 bits`},
		},
		{
			name: "route to no node",
			change: func(c *dataplane.Config) {
				c.Routes = append(c.Routes, dataplane.Route{Dst: netip.MustParsePrefix("10.243.9.0/24"), Node: "nobody"})
			},
			want: []string{`route 10.243.9.0/24: no node "nobody"`},
		},
		{
			name:   "route that is no prefix",
			change: func(c *dataplane.Config) { c.Routes[0].Dst = netip.Prefix{} },
			want:   []string{"route to node \"node-0\": not a prefix"},
		},
		{
			name:   "internal address that is none",
			change: func(c *dataplane.Config) { c.Internal[0] = netip.IPv4Unspecified() },
			want:   []string{"internal address 0.0.0.0: cannot be the gateway's"},
		},
		{
			name:   "two internal addresses of one family",
			change: func(c *dataplane.Config) { c.Internal = append(c.Internal, netip.MustParseAddr("10.80.0.2")) },
			want:   []string{"internal addresses 10.80.0.1 and 10.80.0.2: only one of each family"},
		},
		{
			name:   "tunnel address that is none",
			change: func(c *dataplane.Config) { c.TunnelAddr = netip.MustParseAddr("ff02::1") },
			want:   []string{"tunnel address ff02::1: cannot be the gateway's"},
		},
		{
			name:   "no private key",
			change: func(c *dataplane.Config) { c.Tunnel.PrivateKey = tunnel.PrivateKey{} },
			want:   []string{"tunnel: "},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			before := h.forwarder.Status()
			cfg := cloneConfig(h.config)
			tt.change(&cfg)
			err := h.forwarder.Apply(cfg)
			if err == nil {
				t.Fatalf("applied, want %q", tt.want)
			}
			lines := strings.Split(err.Error(), "\n")
			if !slices.EqualFunc(lines, tt.want, strings.HasPrefix) {
				t.Errorf("got  %q\nwant %q", lines, tt.want)
			}
			// The old state stays in force as a whole, and works.
			if diff := cmp.Diff(before, h.forwarder.Status(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{})); diff != "" {
				t.Errorf("status changed (-before +after)\n%s", diff)
			}
			h.ipFromNode(0, udp(localPod, 1000, remoteInside, 53, ""))
			if got := h.egress(); len(got) != 1 {
				t.Errorf("tunnel got %d packets afterwards, want 1", len(got))
			}
			h.atNode(0)
			h.ipFromNode(0, echoRequest(nodeIPs[0], gatewayIP))
			h.egress()
			if h.egressVerdicts()["Delivered"] != 1 {
				t.Errorf("the gateway's own address is gone: %v", h.egressVerdicts())
			}
		})
	}
}

func TestApplyDefaultMTU(t *testing.T) {
	h := newHarness(t, func(c *dataplane.Config) { c.MTU = 0 })
	if got := h.forwarder.Status().MTU; got != dataplane.DefaultMTU {
		t.Errorf("MTU is %d, want %d", got, dataplane.DefaultMTU)
	}
}

// TestApplyKeepsWhatWasLearnt changes everything about the nodes that may
// change; none of it may cost a packet.
func TestApplyKeepsWhatWasLearnt(t *testing.T) {
	h := newHarness(t, nil)
	h.ipFromNode(1, udp(unknownIP, 1000, remoteInside, 53, "opens a flow"))
	h.egress()
	status := func() (n dataplane.NodeStatus) {
		for _, n = range h.forwarder.Status().Nodes {
			if n.Name == "node-1" {
				return n
			}
		}
		t.Fatal("node-1 is gone")
		return n
	}
	before := status()

	cfg := cloneConfig(h.config)
	slices.Reverse(cfg.Nodes)
	cfg.Nodes[0].Underlay = append(slices.Clone(cfg.Nodes[0].Underlay), netip.MustParseAddr("172.30.0.200"))
	cfg.Nodes = append(cfg.Nodes, dataplane.Node{Name: "a-new-one", VNI: 99, Underlay: []netip.Addr{netip.MustParseAddr("172.30.0.13")}})
	cfg.Sources = dataplane.SourceStrict
	cfg.Routes = cfg.Routes[1:]
	if err := h.forwarder.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, status(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("what is known about node-1 (-before +after)\n%s", diff)
	}
	h.ingress(udp(remoteOutside, 53, unknownIP, 1000, "answer"))
	if got := h.atNode(1); len(got) != 1 {
		t.Errorf("node 1 got %d packets of its flow, want 1: %v", len(got), h.ingressVerdicts())
	}
}

// TestApplyForgetsNodes lets a node go and come back: nothing of what it was
// before may be believed.
func TestApplyForgetsNodes(t *testing.T) {
	h := newHarness(t, nil)
	h.ipFromNode(1, udp(unknownIP, 1000, remoteInside, 53, "opens a flow"))
	h.egress()
	without := cloneConfig(h.config)
	without.Nodes = without.Nodes[:1]
	without.Routes = without.Routes[:1]
	if err := h.forwarder.Apply(without); err != nil {
		t.Fatal(err)
	}
	h.datagram(h.nodes[1], make([]byte, geneve.HeaderLen))
	h.ingress(udp(remoteOutside, 53, unknownIP, 1000, "answer"))
	if got := h.ingressVerdicts()["DropNoNode"]; got != 1 {
		t.Errorf("verdicts %v, want one DropNoNode", h.ingressVerdicts())
	}
	h.forwarder.UpkeepAt(0)
	if got := h.forwarder.Status().Flows.Entries; got != 0 {
		t.Errorf("%d flows of a node that is gone", got)
	}
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	h.ingress(udp(remoteOutside, 53, netip.MustParseAddr("10.243.2.98"), 1000, ""))
	if got := h.ingressVerdicts()["DropNoNeighbor"]; got != 1 {
		t.Errorf("verdicts %v, want one DropNoNeighbor", h.ingressVerdicts())
	}
}

// TestNothingConfigured: a Forwarder drops everything until the first Apply.
func TestNothingConfigured(t *testing.T) {
	network := dataplanetest.NewNetwork()
	h := &harness{T: t, network: network, forwarder: newForwarder(t, network, gatewayAddr)}
	h.ingress(udp(remoteOutside, 53, localPod, 1000, ""), udp(peerTunnelIP, 1, tunnelIP, 1, ""))
	if diff := cmp.Diff(map[string]uint64{"DropNoConfiguration": 2}, h.ingressVerdicts()); diff != "" {
		t.Errorf("ingress verdicts (-want +got)\n%s", diff)
	}
	h.datagram(network.Listen(nodeAddrs[0]), inGeneve(7, nil))
	if st := h.forwarder.Status(); st.Configured {
		t.Errorf("status says that something is configured: %+v", st)
	}
	done := make(chan error)
	go func() {
		_, _, err := h.forwarder.ReadPackets([][]byte{make([]byte, 2048)}, make([]int, 1), offset)
		done <- err
	}()
	for len(h.egressVerdicts()) == 0 {
		runtime.Gosched()
	}
	h.forwarder.CloseRead()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("ReadPackets: %v, want %v", err, os.ErrClosed)
	}
	h.close()
	if diff := cmp.Diff(map[string]uint64{"DropNoConfiguration": 1}, h.egressVerdicts()); diff != "" {
		t.Errorf("egress verdicts (-want +got)\n%s", diff)
	}
}
