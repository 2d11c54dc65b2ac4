package kubernetes

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// The ports of the tunnels between nodes and gateways, and between the gateways.
const (
	geneve    = 6091
	wireGuard = layers.UDPPort(30742) // nodePort
)

// What packets between nodes and gateways are in.
const (
	geneveName = "Geneve"
	vxlanName  = "VXLAN"
)

// encapsulation is what the links of a node speak.
func encapsulation(t *testing.T, n *kubelab.Node) string {
	t.Helper()
	links, err := liqoLinks(n)
	if err != nil || len(links) == 0 {
		t.Fatalf("%s has the links %v (%v)", n.Name, links, err)
	}
	if links[0].Info.Kind == "vxlan" {
		return vxlanName
	}
	return geneveName
}

// ask sends a request with some text in it, and reads the answer to its end.
func ask(t *testing.T, from *kubelab.Pod, to netip.Addr, text string) {
	t.Helper()
	conn, err := from.DialContext(t.Context(), "tcp", netip.AddrPortFrom(to, webPort).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\nX-Text: %s\r\n\r\n", text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatal(err)
	}
}

// inner returns what a datagram between node and gateway carries.
func inner(p gopacket.Packet) (outer *layers.IPv4, encapsulation string, frame gopacket.Packet, ok bool) {
	ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if ip == nil || udp == nil || udp.DstPort != geneve || len(udp.Payload) < 8 {
		return nil, "", nil, false
	}
	// RFC 7348 begins with 08, RFC 8926 with version 0 and the length of options.
	encapsulation, header := geneveName, 8+4*int(udp.Payload[0]&0x3f)
	if udp.Payload[0] == 0x08 && binary.BigEndian.Uint16(udp.Payload[2:]) == 0 {
		encapsulation, header = vxlanName, 8
	}
	if len(udp.Payload) < header {
		return nil, "", nil, false
	}
	return ip, encapsulation, gopacket.NewPacket(udp.Payload[header:], layers.LayerTypeEthernet, gopacket.Default), true
}

// checkUnderlay sends a request from a pod of each node, and looks at what comes
// to the gateway and goes from it: datagrams to port 6091 between the node's
// address and the gateway's, in which the pod's packets are as the pod sent them.
func checkUnderlay(t *testing.T, v *view) {
	at := v.remoteOf(t, v.from.Cluster, v.to.Cluster, v.to.pods[0].Addr)
	for _, p := range v.from.pods {
		s := sniff(t, v.gateway, "eth0")
		text, speaks := "text-from-"+p.Name, encapsulation(t, p.Node)
		ask(t, p, at, text)
		lab.Eventually(t, patience, "the request passes between "+p.Node.Name+" and the gateway", func() error {
			toGateway, fromGateway, readable := 0, 0, false
			var tunnel string
			for _, f := range s.packets(func(f gopacket.Packet) bool { return f.Layer(layers.LayerTypeUDP) != nil }) {
				outer, spoken, frame, ok := inner(f)
				if !ok {
					continue
				}
				ip, _ := frame.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
				if ip == nil {
					continue
				}
				tunnel = fmt.Sprintf("%s from %s to %s", spoken, outer.SrcIP, outer.DstIP)
				if spoken != speaks {
					t.Errorf("%s, but the links of %s speak %s", tunnel, p.Node.Name, speaks)
				}
				switch {
				case ip.SrcIP.String() == p.Addr.String() && ip.DstIP.String() == at.String():
					if outer.DstIP.String() != v.gateway.Addr.String() || !slices.Contains(v.sources(p.Node), outer.SrcIP.String()) {
						t.Errorf("%s, want from one of %q to %s", tunnel, v.sources(p.Node), v.gateway.Addr)
					}
					toGateway++
					readable = readable || bytes.Contains(f.Data(), []byte(text))
				case ip.SrcIP.String() == at.String() && ip.DstIP.String() == p.Addr.String():
					if outer.SrcIP.String() != v.gateway.Addr.String() || !slices.Contains(v.sources(p.Node), outer.DstIP.String()) {
						t.Errorf("%s, want from %s to one of %q", tunnel, v.gateway.Addr, v.sources(p.Node))
					}
					fromGateway++
				}
			}
			if toGateway == 0 || fromGateway == 0 || !readable {
				return fmt.Errorf("%d packets to the gateway and %d from it; the text is readable: %t", toGateway, fromGateway, readable)
			}
			t.Logf("%s on %s: %s, port %d; %d packets there, %d back", p.Name, p.Node.Name, tunnel, geneve, toGateway, fromGateway)
			return nil
		})
	}
}

// checkWire looks at the WAN while a request passes: WireGuard between the routers
// and nothing else, in which nobody can read the request.
func checkWire(t *testing.T, v *view) {
	s := sniff(t, v.WAN, "w-"+v.from.Name)
	p := v.from.pods[0]
	at := v.remoteOf(t, v.from.Cluster, v.to.Cluster, v.to.pods[0].Addr)
	const text = "text-that-nobody-may-read"
	for range 3 {
		ask(t, p, at, text)
	}
	public := []string{v.from.Public.String(), v.to.Public.String()}
	var datagrams int
	lab.Eventually(t, patience, "the requests pass the WAN", func() error {
		datagrams = 0
		for _, f := range s.packets(func(gopacket.Packet) bool { return true }) {
			ip, _ := f.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			if ip == nil || !slices.Contains(public, ip.SrcIP.String()) || !slices.Contains(public, ip.DstIP.String()) {
				continue // of the administrator, or of nobody
			}
			udp, _ := f.Layer(layers.LayerTypeUDP).(*layers.UDP)
			if udp == nil || len(udp.Payload) < 4 || udp.Payload[0] < 1 || udp.Payload[0] > 4 || udp.Payload[1] != 0 {
				t.Errorf("between the clusters passes what is not WireGuard: %s", f)
			}
			if bytes.Contains(f.Data(), []byte(text)) {
				t.Error("the request can be read on the WAN")
			}
			if udp != nil && udp.DstPort != wireGuard && udp.SrcPort != wireGuard {
				t.Errorf("a datagram from port %s to %s, want %s at one end", udp.SrcPort, udp.DstPort, nodePort)
			}
			datagrams++
		}
		if datagrams < 6 {
			return fmt.Errorf("%d datagrams", datagrams)
		}
		return nil
	})
	t.Logf("%d datagrams of WireGuard", datagrams)
}

// checkTunnelAddresses captures inside the tunnel: the gateway that a packet leaves
// through has made its destination the pod's own address, and the source is still
// the pod's own, too.
func checkTunnelAddresses(t *testing.T, v *view) {
	file := filepath.Join(t.TempDir(), "tunnel.pcapng")
	cmd := v.command("network", "capture", v.to.Name, "--kubeconfig", v.from.Kubeconfig, "--point", "tunnel",
		"--filter", fmt.Sprintf("tcp dst port %d", webPort), "--count", "4", "--duration", "60s", "--write", file)
	done := make(chan error, 1)
	go func() {
		_, errs, err := v.run(t.Context(), cmd)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, errs)
		}
		done <- err
	}()
	p, to := v.from.pods[0], v.to.pods[0]
	at := v.remoteOf(t, v.from.Cluster, v.to.Cluster, to.Addr)
	for ended := false; !ended; {
		ask(t, p, at, "hello")
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("capture: %v", err)
			}
			ended = true
		default:
		}
	}
	want := fmt.Sprintf("%s -> %s", p.Addr, to.Addr)
	found := flows(t, file)
	if len(found) == 0 || slices.ContainsFunc(found, func(f string) bool { return f != want }) {
		t.Errorf("in the tunnel: %q, want %s", found, want)
	}
	t.Logf("%s -> %s at the node is %s in the tunnel", p.Addr, at, want)
}

// flows are the addresses of the packets in a file.
func flows(t *testing.T, file string) (found []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if ip, _ := gopacket.NewPacket(data, layers.LayerTypeIPv4, gopacket.Default).Layer(layers.LayerTypeIPv4).(*layers.IPv4); ip != nil {
			found = append(found, fmt.Sprintf("%s -> %s", ip.SrcIP, ip.DstIP))
		}
	}
}

// checkClamp looks at the SYN segments of a connection where they leave one pod and
// where they reach the other: on the way the gateways have lowered the MSS to what
// the tunnel carries.
func checkClamp(t *testing.T, v *view) {
	client, server := v.from.pods[0], v.to.pods[1]
	at, from := v.remoteOf(t, v.from.Cluster, v.to.Cluster, server.Addr), v.remoteOf(t, v.to.Cluster, v.from.Cluster, client.Addr)
	left, reached := sniff(t, client, "eth0"), sniff(t, server, "eth0")
	ask(t, client, at, "hello")
	limit := v.fabric.Spec.MTU - 40 // headers of IPv4 and TCP
	var offered, arrived, back int
	lab.Eventually(t, patience, "the SYN and its answer arrive", func() (err error) {
		if offered, err = mssOf(left, client.Addr, at, false); err != nil {
			return err
		}
		if arrived, err = mssOf(reached, from, server.Addr, false); err != nil {
			return err
		}
		back, err = mssOf(left, at, client.Addr, true)
		return err
	})
	if offered <= limit || arrived != limit {
		t.Errorf("MSS %d when it left the pod and %d when it arrived, want more than %d, and %[3]d", offered, arrived, limit)
	}
	if back != limit {
		t.Errorf("MSS of the answer %d, want %d", back, limit)
	}
	t.Logf("MSS %d -> %d, of the answer %d; MTU of the tunnel %d", offered, arrived, back, v.fabric.Spec.MTU)
}

// mssOf is the MSS in the first SYN from one address to another, alone or as an
// answer: kubelets connect to the pods, too.
func mssOf(s *sniffer, from, to netip.Addr, answer bool) (int, error) {
	for _, f := range s.packets(func(f gopacket.Packet) bool { return f.Layer(layers.LayerTypeTCP) != nil }) {
		tcp := f.Layer(layers.LayerTypeTCP).(*layers.TCP)
		ip, _ := f.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if ip == nil || !tcp.SYN || tcp.ACK != answer || ip.SrcIP.String() != from.String() || ip.DstIP.String() != to.String() {
			continue
		}
		for _, o := range tcp.Options {
			if o.OptionType == layers.TCPOptionKindMSS && len(o.OptionData) == 2 {
				return int(binary.BigEndian.Uint16(o.OptionData)), nil
			}
		}
	}
	return 0, fmt.Errorf("no SYN with an MSS, answer: %t", answer)
}
