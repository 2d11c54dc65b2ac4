package capture

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/test/source"
)

// TestFilterAsTcpdump: tcpdump, whose language this is, chooses the same packets.
func TestFilterAsTcpdump(t *testing.T) {
	source.NeedPrograms(t, "tcpdump")
	packets := randomPackets(2000)
	file := filepath.Join(t.TempDir(), "all.pcap")
	writePcap(t, file, packets)
	texts := []string{
		"ip", "ip6", "tcp", "udp", "sctp", "icmp", "icmp6",
		"host 10.1.0.1", "src host 10.1.0.1", "dst 10.2.0.2", "net 10.0.0.0/14", "src net 10.2.0.0/16", "net fd00:1::/32", "host fd00:2::2",
		"port 80", "src port 80", "dst port 443", "tcp port 80", "udp src port 53", "portrange 50-100", "tcp portrange 400-500", "sctp dst port 80",
		"src or dst port 80", "src and dst port 80", "src and dst net 10.0.0.0/8", "src or dst host 10.1.0.1",
		"not tcp", "not port 80", "tcp and not port 80", "tcp or udp and port 80", "udp or tcp and not host 10.1.0.1",
		"not tcp and port 80", "not (tcp and port 80)", "port 80 or 443", "tcp port 80 or 443 or 53", "src host 10.1.0.1 or 10.2.0.2 and port 53",
		"ip host 10.1.0.1", "ip6 host fd00:1::1", "ip net 10.1.0.0/16",
		"port 80 or (443 or 53)", "not port 80 and 443", "tcp port 80 or host 10.1.0.1 or 10.2.0.2",
		"tcp && (port 80 || port 443)", "! ip", "!(ip && tcp)", "((tcp))",
		"host 10.1.0.1 and not (port 80 or 53)",
	}
	random := rand.New(rand.NewPCG(7, 8))
	for range packettest.Rounds(100) {
		texts = append(texts, randomFilter(random, 4))
	}
	for _, text := range texts {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got, err := tcpdump(t, file, text)
		if err != nil {
			t.Errorf("tcpdump %q: %v", text, err)
			continue
		}
		var want [][]byte
		for _, p := range packets {
			if q := (Packet{Body: p}); f.matches(&q) {
				want = append(want, p)
			}
		}
		if !equal(got, want) {
			t.Errorf("%q: we choose %d packets, tcpdump %d", text, len(want), len(got))
		}
	}
}

// tcpdump returns the packets of a file that it chooses.
func tcpdump(t *testing.T, file, filter string) ([][]byte, error) {
	t.Helper()
	out, err := exec.Command("tcpdump", "-r", file, "-w", "-", filter).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if bytes.Contains(exit.Stderr, []byte("expression rejects all packets")) {
			return nil, nil
		}
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, err
	}
	return readPcap(t, out), nil
}

// randomFilter makes expressions that both must understand.
func randomFilter(random *rand.Rand, depth int) string {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	if depth == 0 || random.IntN(4) == 0 {
		direction := one("", "", "src ", "dst ", "src or dst ", "src and dst ")
		switch random.IntN(4) {
		case 0:
			return one("ip", "ip6", "tcp", "udp", "sctp", "icmp", "icmp6")
		case 1:
			return direction + one("host 10.1.0.1", "host fd00:1::1", "net 10.2.0.0/15", "net fd00::/14", "host 10.3.0.3 or 10.1.0.1")
		case 2:
			return one("", "", "tcp ", "udp ") + direction + one("port 80", "port 53 or 99", "portrange 60-90", "port 443 and 80")
		}
		return "ip " + direction + one("host 10.1.0.1", "net 10.3.0.0/16 or 10.2.0.0/16")
	}
	x, y := randomFilter(random, depth-1), randomFilter(random, depth-1)
	switch random.IntN(4) {
	case 0:
		return x + one(" and ", " && ", " or ", " || ") + y
	case 1:
		return "(" + x + ")" + one(" and ", " or ") + y
	case 2:
		return one("not ", "!") + x
	}
	return x + one(" and not ", " or not ") + "(" + y + ")"
}

func equal(a, b [][]byte) bool {
	return bytes.Equal(bytes.Join(a, nil), bytes.Join(b, nil)) && len(a) == len(b)
}

// randomPackets are of few addresses and ports, so that filters have something to
// choose. There are no extension headers of IPv6 among them: tcpdump does not look
// behind those.
func randomPackets(n int) (out [][]byte) {
	random := rand.New(rand.NewPCG(5, 6))
	addrs := []netip.Addr{a4, b4, netip.MustParseAddr("10.3.0.3"), a6, b6, netip.MustParseAddr("fd00:3::3")}
	ports := []byte{53, 80, 99}
	for len(out) < n {
		i, j := random.IntN(3), random.IntN(3)
		if random.IntN(2) == 0 {
			i, j = i+3, j+3
		}
		s := packettest.Random(random, addrs[i], addrs[j])
		s.Extensions = nil
		if s.Src.Is6() {
			s.Part = packettest.Part{}
		}
		switch s.Proto {
		case packettest.TCP, packettest.UDP, packettest.SCTP:
			s.Transport[0], s.Transport[1] = 0, ports[random.IntN(3)]
			s.Transport[2], s.Transport[3] = 0, ports[random.IntN(3)]
			if random.IntN(4) == 0 {
				s.Transport[2], s.Transport[3] = 443>>8, 443&0xff
			}
		}
		if b := s.Bytes(); parses(b) {
			out = append(out, b)
		}
	}
	return out
}

func parses(b []byte) bool {
	_, ok := packet.Parse(b)
	return ok
}

func writePcap(t *testing.T, path string, packets [][]byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(MaxSnaplen, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(p), Length: len(p)}, p); err != nil {
			t.Fatal(err)
		}
	}
}

func readPcap(t *testing.T, b []byte) (out [][]byte) {
	t.Helper()
	r, err := pcapgo.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, _, err := r.ReadPacketData()
		if err != nil {
			return out
		}
		out = append(out, p)
	}
}
