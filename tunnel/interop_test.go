package tunnel

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
)

// stockPeer is a wireguard-go of which nothing is ours: its own socket code and
// its own test TUN.
type stockPeer struct {
	dev  *device.Device
	tun  *tuntest.ChannelTUN
	port uint16
}

func newStockPeer(t *testing.T, key PrivateKey, peer PublicKey, allowed string, endpoint string) *stockPeer {
	t.Helper()
	p := &stockPeer{tun: tuntest.NewChannelTUN()}
	p.dev = device.NewDevice(p.tun.TUN(), conn.NewStdNetBind(), &device.Logger{Verbosef: device.DiscardLogf, Errorf: t.Logf})
	t.Cleanup(p.dev.Close)
	text := fmt.Sprintf("private_key=%s\nlisten_port=0\npublic_key=%s\nallowed_ip=%s\n",
		hex.EncodeToString(key[:]), hex.EncodeToString(peer[:]), allowed)
	if endpoint != "" {
		text += "endpoint=" + endpoint + "\n"
	}
	if err := p.dev.IpcSet(text); err != nil {
		t.Fatal(err)
	}
	if err := p.dev.Up(); err != nil {
		t.Fatal(err)
	}
	get, err := p.dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(get, "private_key="+hex.EncodeToString(key[:])+"\nlisten_port=%d", &p.port); err != nil {
		t.Fatal(err)
	}
	return p
}

// exchange sends packets in both directions and checks that they arrive unchanged.
func (p *stockPeer) exchange(t *testing.T, g *gateway, inner string) {
	t.Helper()
	for id := range uint32(500) {
		size := 100 + int(id)*2
		out := ipPacket(g.inner, inner, id, size)
		g.overlay.out <- out
		if got := receive(t, p.tun.Inbound, "packet at the stock peer"); string(got) != string(out) {
			t.Fatalf("packet %d arrived changed", id)
		}
		back := ipPacket(inner, g.inner, id, size)
		p.tun.Outbound <- back
		if got := receive(t, g.overlay.in, "packet from the stock peer"); string(got) != string(back) {
			t.Fatalf("packet %d came back changed", id)
		}
	}
}

func TestStockWireGuardAsServer(t *testing.T) {
	noLeaks(t)
	g := newGateway(t, "127.0.0.1", "10.1.0.1", Options{Listen: udp("127.0.0.1")})
	stock := GeneratePrivateKey()
	p := newStockPeer(t, stock, g.key.Public(), "10.1.0.0/16", "")
	g.apply(t, func(c *Config) {
		*c = Config{
			PrivateKey: g.key, PeerKey: stock.Public(), AllowedIPs: prefixes("10.2.0.0/16"),
			Endpoint: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.port).String(),
		}
	})
	g.run(t)
	p.exchange(t, g, "10.2.0.1")
	// It follows us to another port.
	g.apply(t, func(c *Config) { c.ListenPort = freePort(t) })
	p.exchange(t, g, "10.2.0.1")
	if s := g.Stats(); s.LastHandshake.IsZero() || s.DropRejected+s.DropMalformed+s.DropUnknownSession != 0 {
		t.Errorf("%+v", s)
	}
}

func TestStockWireGuardAsClient(t *testing.T) {
	noLeaks(t)
	g := newGateway(t, "127.0.0.1", "10.1.0.1", Options{Listen: udp("127.0.0.1")})
	stock := GeneratePrivateKey()
	g.apply(t, func(c *Config) {
		*c = Config{PrivateKey: g.key, PeerKey: stock.Public(), AllowedIPs: prefixes("10.2.0.0/16")}
	})
	g.run(t)
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), g.Stats().ListenPort).String()
	p := newStockPeer(t, stock, g.key.Public(), "10.1.0.0/16", server)
	p.tun.Outbound <- ipPacket("10.2.0.1", g.inner, 7, 100) // we do not know it before it contacts us
	expect(t, g, 7)
	p.exchange(t, g, "10.2.0.1")
	if got := g.Stats().Endpoint; got.Port() != p.port {
		t.Errorf("endpoint %v, want port %d", got, p.port)
	}
}
