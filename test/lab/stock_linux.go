package lab

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// healthPort is where the peer's gateway expects an answer to its JSON ping.
const healthPort = 12345

// Stock is the gateway that a user would build without this repository: kernel
// tunnels to the nodes, nftables for translation and MSS clamp, and stock
// wireguard-go on a TUN device. It translates IPv4 only.
type Stock struct {
	*Process
	// Interface is the name of the TUN device.
	Interface string

	cluster *Cluster
	tunnel  int      // its place among those of the peering
	further []*Stock // its further tunnels
	health  net.PacketConn
	undo    func() // removes what was plumbed
}

// TunnelAddr is the cluster's own address inside a tunnel, of which the first is 0: the server is A.
func (c *Cluster) TunnelAddr(tunnel int) netip.Addr {
	host := 1
	if c.Name != "a" {
		host = 2
	}
	return netip.AddrFrom4([4]byte{169, 254, 18, byte(4*tunnel + host)})
}

// StartStock builds the stock gateway in the cluster's gateway host. binary is
// wireguard-go, as Build returns it.
func (c *Cluster) StartStock(binary string) *Stock {
	c.lab.t.Helper()
	s := c.startWireGuard(binary, 0)
	s.plumb()
	s.undo = s.unplumb
	c.forgetGateway()
	s.answerHealth()
	return s
}

// StartWireGuard joins the clusters by stock wireguard-go alone: nodes and
// gateways route, nothing is translated or encapsulated towards the nodes.
func (c *Cluster) StartWireGuard(binary string) *Stock {
	c.lab.t.Helper()
	s := c.startWireGuard(binary, 0)
	s.undo = c.route("dev " + s.Interface)
	return s
}

// AddTunnel adds a further tunnel, on the next port: another device with the same keys. The
// kernel spreads the flows over all of them.
func (s *Stock) AddTunnel(binary string) *Stock {
	c, gw := s.cluster, s.cluster.Gateway
	c.lab.t.Helper()
	f := c.startWireGuard(binary, len(s.further)+1)
	s.further = append(s.further, f)
	gw.IP("rule add iif %s lookup 101", f.Interface)
	gw.Sysctl("net.ipv4.fib_multipath_hash_policy", "1") // by ports, too
	hops := "nexthop dev " + s.Interface
	for _, f := range s.further {
		hops += " nexthop dev " + f.Interface
	}
	gw.IP("route replace default table 100 %s", hops)
	f.answerHealth()
	return f
}

// startWireGuard starts wireguard-go with its peer and sets its device up, for the tunnel of a
// place.
func (c *Cluster) startWireGuard(binary string, tunnel int) *Stock {
	t := c.lab.t
	t.Helper()
	// wireguard-go keeps its control socket under this name in /run, for all
	// namespaces of the machine: it must be unique there.
	s := &Stock{Interface: "sl" + strconv.Itoa(os.Getpid()) + c.Name, cluster: c, tunnel: tunnel}
	if tunnel > 0 {
		s.Interface += strconv.Itoa(tunnel)
	}
	port := WireGuardPort + tunnel
	gw := c.Gateway
	gw.Forward()
	s.Process = gw.Start(Program{
		Name: "wireguard-go",
		Args: []string{binary, "-f", s.Interface},
		Env:  []string{"WG_PROCESS_FOREGROUND=1", "LOG_LEVEL=error"},
	})
	t.Cleanup(func() { _ = os.Remove(s.socket()) }) // a killed process leaves it
	Eventually(t, 5*time.Second, "wireguard-go's control socket", func() error {
		_, err := s.UAPI("get=1\n")
		return err
	})
	s.Configure(c.Peer.Keys.Public(), netip.AddrPortFrom(c.Peer.WAN, uint16(port)), port)
	gw.IP("link set %s mtu %d up", s.Interface, c.MTU)
	gw.IP("addr add %s/30 dev %s", c.TunnelAddr(tunnel), s.Interface)
	return s
}

// Configure sets the one peer and the port. An invalid endpoint means that the
// peer has to come first.
func (s *Stock) Configure(peer string, endpoint netip.AddrPort, port int) {
	s.cluster.lab.t.Helper()
	key, err := base64.StdEncoding.DecodeString(peer)
	if err != nil {
		s.cluster.lab.t.Fatal(err)
	}
	request := fmt.Sprintf("set=1\nprivate_key=%s\nlisten_port=%d\nreplace_peers=true\npublic_key=%s\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n",
		s.cluster.Keys.privateHex(), port, hex.EncodeToString(key))
	if endpoint.IsValid() {
		request += "endpoint=" + endpoint.String() + "\n"
	}
	if _, err := s.UAPI(request); err != nil {
		s.cluster.lab.t.Fatal(err)
	}
}

func (s *Stock) socket() string { return "/run/wireguard/" + s.Interface + ".sock" }

// UAPI sends one request to wireguard-go and returns the lines of the answer.
func (s *Stock) UAPI(request string) (map[string]string, error) {
	conn, err := net.DialTimeout("unix", s.socket(), time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(conn, "%s\n", request); err != nil {
		return nil, err
	}
	answer := map[string]string{}
	lines := bufio.NewScanner(conn)
	for lines.Scan() && lines.Text() != "" {
		key, value, _ := strings.Cut(lines.Text(), "=")
		answer[key] = value
	}
	if answer["errno"] != "0" {
		return answer, fmt.Errorf("wireguard-go answered errno=%q to %q", answer["errno"], request)
	}
	return answer, lines.Err()
}

// plumb adds kernel tunnels, routes, translation and MSS clamp.
func (s *Stock) plumb() {
	c, gw := s.cluster, s.cluster.Gateway
	gw.IP("route replace default dev %s table 100", s.Interface)
	gw.IP("rule add iif %s lookup 101", s.Interface)
	for _, n := range c.Nodes {
		dev := "vx-" + n.Name
		gw.IP("link add %s mtu %d type vxlan id %d local %s remote %s dstport %d",
			dev, n.Spec.MTU, n.VNI, c.Underlay, n.Underlay, GatewayPort)
		gw.IP("addr add %s/32 dev %s", c.Internal, dev)
		gw.IP("link set %s up", dev)
		gw.IP("rule add iif %s lookup 100", dev)
		gw.IP("route add %s/32 dev %s src %s", n.Internal, dev, c.Internal)
		for _, table := range []string{"101", "main"} { // for the peer's packets; for the gateway's own
			gw.IP("route replace %s via %s dev %s onlink table %s", n.PodNet, n.Internal, dev, table)
		}
	}
	gw.Nft(fmt.Sprintf(`
table ip stock {
	chain pre { type nat hook prerouting priority dstnat; iifname "vx-*" ip daddr %[1]s dnat ip prefix to ip daddr map { %[1]s : %[2]s }; }
	chain tag { type filter hook prerouting priority mangle; iifname "%[3]s*" meta mark set 1; }
	chain post { type nat hook postrouting priority srcnat; meta mark 1 ip saddr %[2]s snat ip prefix to ip saddr map { %[2]s : %[1]s }; }
	chain clamp { type filter hook forward priority mangle; tcp flags syn tcp option maxseg size set %[4]d; }
}`, c.RemotePod, PodCIDR, s.Interface, c.MTU-40))

	// The kernel tunnels here are VXLAN devices as well; see Node.speakGeneve.
	var geneve []string
	for _, n := range c.Nodes {
		if n.Spec.Encapsulation == Geneve {
			geneve = append(geneve, n.Underlay.String())
		}
	}
	if len(geneve) > 0 {
		gw.Nft(fmt.Sprintf(`
table ip stock {
	chain out { type filter hook postrouting priority 0; ip daddr { %[1]s } udp dport %[2]d @th,64,32 set 0x00006558; }
	chain in { type filter hook prerouting priority -300; ip saddr { %[1]s } udp dport %[2]d @th,64,32 set 0x08000000; }
}`, strings.Join(geneve, ", "), GatewayPort))
	}
}

// answerHealth answers the JSON ping of a peer's gateway, which would count the
// connection as broken otherwise.
func (s *Stock) answerHealth() {
	t := s.cluster.lab.t
	t.Helper()
	err := s.cluster.Gateway.Do(func() (err error) {
		s.health, err = net.ListenPacket("udp4", fmt.Sprintf("%s:%d", s.cluster.TunnelAddr(s.tunnel), healthPort))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.health.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := s.health.ReadFrom(buf)
			if err != nil {
				return
			}
			var message map[string]any
			if json.Unmarshal(buf[:n], &message) != nil || message["msgType"] != "PING" {
				continue
			}
			message["msgType"] = "PONG"
			if answer, err := json.Marshal(message); err == nil {
				_, _ = s.health.WriteTo(answer, from)
			}
		}
	}()
}

// Stop ends the gateway and removes what was plumbed, so that another gateway
// can start in the same host.
func (s *Stock) Stop() {
	s.cluster.lab.t.Helper()
	for _, f := range s.further {
		s.cluster.Gateway.IP("rule del iif %s", f.Interface)
		f.health.Close()
		_, _ = f.Process.Stop(2 * time.Second)
	}
	if s.health != nil {
		s.health.Close()
	}
	_, _ = s.Process.Stop(2 * time.Second) // it exits with a failure on SIGTERM in some versions
	s.undo()
	s.cluster.Gateway.stopForwarding()
}

// unplumb undoes plumb.
func (s *Stock) unplumb() {
	s.cluster.lab.t.Helper()
	gw := s.cluster.Gateway
	for _, n := range s.cluster.Nodes {
		gw.IP("link del vx-%s", n.Name)
		gw.IP("rule del iif vx-%s", n.Name)
	}
	gw.IP("rule del iif %s", s.Interface)
	gw.Nft("delete table ip stock\n")
}
