package dataplane_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// What one packet costs, and that it does not depend on the size of the
// cluster: with many nodes, routes and IP objects the figures must be those of
// few, within what the caches cost.

// benchSizes are the configurations that the packet path must not notice.
var benchSizes = []struct {
	name   string
	change func(*dataplane.Config)
}{
	{"nodes=1", oneNode},
	{"nodes=5000", func(c *dataplane.Config) {
		oneNode(c)
		for i := range 4999 {
			c.Nodes = append(c.Nodes, dataplane.Node{
				Name: fmt.Sprint("far-", i), VNI: 1000,
				Underlay: []netip.Addr{netip.AddrFrom4([4]byte{172, 31, byte(i >> 8), byte(i)})},
				Internal: []netip.Addr{netip.AddrFrom4([4]byte{10, 81, byte(i >> 8), byte(i)})},
			})
		}
	}},
	{"routes=100000", func(c *dataplane.Config) {
		oneNode(c)
		for i := range 65536 {
			c.Routes = append(c.Routes, dataplane.Route{Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 243, byte(i >> 8), byte(i)}), 32), Node: "node-0"})
		}
		for i := range 34464 {
			a := localPod6.As16()
			a[12], a[13] = byte(i>>8), byte(i)
			c.Routes = append(c.Routes, dataplane.Route{Dst: netip.PrefixFrom(netip.AddrFrom16(a), 128), Node: "node-0"})
		}
	}},
	{"mappings=1000", func(c *dataplane.Config) {
		oneNode(c)
		for i := range 1000 {
			c.Addresses = append(c.Addresses, dataplane.AddressMapping{
				Inside:  netip.AddrFrom4([4]byte{192, 168, byte(8 + i>>8), byte(i)}),
				Outside: netip.AddrFrom4([4]byte{10, 70, byte(8 + i>>8), byte(i)}),
			})
		}
	}},
}

// oneNode leaves the first node alone, with all routes.
func oneNode(c *dataplane.Config) {
	c.Nodes = c.Nodes[:1]
	firstNodeHasAll(c)
}

// firstNodeHasAll routes everything to the first node.
func firstNodeHasAll(c *dataplane.Config) {
	for i := range c.Routes {
		c.Routes[i].Node = c.Nodes[0].Name
	}
}

// repeat returns n times the same packet.
func repeat(b []byte, n int) (out [][]byte) {
	for range n {
		out = append(out, b)
	}
	return out
}

func innerBytes(ips [][]byte) (n int64) {
	for _, b := range ips {
		n += int64(len(b))
	}
	return n
}

// BenchmarkEgress measures ReadPackets, from a datagram in memory to a packet
// in the tunnel's buffer.
func BenchmarkEgress(b *testing.B) {
	loads := []struct {
		name string
		ips  [][]byte
	}{
		{"udp/64", repeat(udpOf(localPod, remoteInside, 64), 32)},
		{"udp/1300", repeat(udpOf(localPod, remoteInside, 1300), 32)},
		{"udp6/1300", repeat(udpOf(localPod6, remoteInside6, 1300), 32)},
		{"unfinished/1300", repeat(packettest.Unfinish(udpOf(localPod, remoteInside, 1300)), 32)},
		{"unknown-source/64", repeat(udpOf(unknownIP, remoteInside, 64), 32)},
		{"super-segment/64KiB", repeat(superSegment(64000), 2)},
	}
	for _, load := range loads {
		for _, size := range benchSizes {
			b.Run(load.name+"/"+size.name, func(b *testing.B) {
				r := newReplay(b, size.change)
				r.load(load.ips...)
				packets := 0
				b.SetBytes(innerBytes(load.ips))
				b.ReportAllocs()
				for b.Loop() {
					packets += r.egress()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
			})
		}
	}
}

// BenchmarkIngress measures WritePackets, from a packet in the tunnel's buffer
// to a datagram handed to the socket.
func BenchmarkIngress(b *testing.B) {
	loads := []struct {
		name string
		ips  [][]byte
	}{
		{"udp/64", repeat(udpOf(remoteOutside, localPod, 64), 32)},
		{"udp/1300", repeat(udpOf(remoteOutside, localPod, 1300), 32)},
		{"udp6/1300", repeat(udpOf(remoteOutside6, localPod6, 1300), 32)},
		{"tcp/1300", repeat(tcpOf(remoteOutside, localPod, packet.TCPAck, nil, 1260), 32)},
		{"mapped/64", repeat(udpOf(remoteOutside, mappedHostOut, 64), 32)},
	}
	for _, load := range loads {
		for _, size := range benchSizes {
			b.Run(load.name+"/"+size.name, func(b *testing.B) {
				r := newReplay(b, size.change)
				write := r.ingressBatch(load.ips...)
				b.SetBytes(innerBytes(load.ips))
				b.ReportAllocs()
				rounds := 0
				for b.Loop() {
					write()
					rounds++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rounds*len(load.ips)), "ns/packet")
				if v := r.forwarder.Status().Ingress.Verdicts; v["Forwarded"] != uint64(rounds*len(load.ips)) {
					b.Fatalf("verdicts %v", v)
				}
			})
		}
	}
}

// BenchmarkApply measures a new configuration, which is off the packet path.
func BenchmarkApply(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			r := newReplay(b, size.change)
			cfg := harnessConfig()
			size.change(&cfg)
			b.ReportAllocs()
			for b.Loop() {
				if err := r.forwarder.Apply(cfg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// longChain is a forward chain of n counted rules of which only the last matches
// what the benchmarks send: the others ask for the protocol, the port and one
// address, and fail at the last.
func longChain(n int) filter.Chain {
	c := forwardChain()
	for i := range n - 1 {
		c.Rules = append(c.Rules, ruleFor(filter.Drop, filter.Match{
			Proto: packet.ProtoUDP, DstPort: toPort53.DstPort, Src: only(netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)})),
		}))
	}
	c.Rules = append(c.Rules, ruleFor(filter.Accept, filter.Match{}))
	c.Policy = filter.Drop
	return c
}

// BenchmarkFilter measures what a chain adds to a packet.
func BenchmarkFilter(b *testing.B) {
	for _, rules := range []int{0, 1, 10, 100} {
		change := oneNode
		if rules > 0 {
			change = func(c *dataplane.Config) {
				oneNode(c)
				chain := longChain(rules)
				chain.Table, chain.Name = "bench", "forward"
				c.Filter.Chains = []filter.Chain{chain}
			}
		}
		b.Run(fmt.Sprintf("egress/rules=%d", rules), func(b *testing.B) {
			r := newReplay(b, change)
			r.load(repeat(udpOf(localPod, remoteInside, 64), 32)...)
			packets := 0
			b.ReportAllocs()
			for b.Loop() {
				packets += r.egress()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
		})
		b.Run(fmt.Sprintf("ingress/rules=%d", rules), func(b *testing.B) {
			r := newReplay(b, change)
			ips := repeat(udpOf(remoteOutside, localPod, 64), 32)
			write := r.ingressBatch(ips...)
			rounds := 0
			b.ReportAllocs()
			for b.Loop() {
				write()
				rounds++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rounds*len(ips)), "ns/packet")
		})
	}
}

// BenchmarkDrop measures packets that go nowhere, which anybody can send.
func BenchmarkDrop(b *testing.B) {
	nowhere := netip.MustParseAddr("8.8.8.8")
	for name, size := range map[string]uint64{"egress/DropNoMapping": 31, "egress/DropUnknownNode": 31} {
		b.Run(name, func(b *testing.B) {
			r := newReplay(b, oneNode)
			r.load(repeat(udpOf(localPod, nowhere, 64), 31)...)
			for i := range r.datagrams {
				if name == "egress/DropUnknownNode" {
					r.datagrams[i][6]++ // of the VNI
				}
			}
			r.datagrams = append(r.datagrams, r.encapsulated(udpOf(localPod, remoteInside, 64))) // or the read would not end
			dropped := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				r.egress()
				dropped += size
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(dropped), "ns/packet")
			if v := r.forwarder.Status().Egress.Verdicts[name[len("egress/"):]]; v != dropped {
				b.Fatalf("%d dropped of %d: %v", v, dropped, r.forwarder.Status().Egress.Verdicts)
			}
		})
	}
	b.Run("ingress/DropNoMapping", func(b *testing.B) {
		r := newReplay(b, oneNode)
		write := r.ingressBatch(repeat(udpOf(remoteOutside, nowhere, 64), 32)...)
		dropped := uint64(0)
		b.ReportAllocs()
		for b.Loop() {
			write()
			dropped += 32
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(dropped), "ns/packet")
		if v := r.forwarder.Status().Ingress.Verdicts["DropNoMapping"]; v != dropped {
			b.Fatalf("%d dropped of %d", v, dropped)
		}
	})
}
