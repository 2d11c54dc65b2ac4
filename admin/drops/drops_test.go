package drops

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	at  = time.Date(2026, 11, 23, 12, 0, 0, 123e6, time.UTC)
	syn = Drop{
		Number: 7, Time: at, Direction: Egress, Reason: "DropNoMapping", Node: "worker-1", VNI: 7,
		Source: netip.MustParseAddr("10.243.1.1"), Destination: netip.MustParseAddr("8.8.8.8"), Protocol: 6, SourcePort: 1000, DestinationPort: 80,
		TCPFlags: 2, Length: 40, Total: 1219,
	}
)

const synLine = `{"number":7,"time":"2026-11-23T12:00:00.123Z","direction":"egress","reason":"DropNoMapping","node":"worker-1","vni":7,` +
	`"source":"10.243.1.1","destination":"8.8.8.8","protocol":6,"sourcePort":1000,"destinationPort":80,"tcpFlags":2,"length":40,"total":1219}`

// TestDecoder: lines may come in pieces of any size.
func TestDecoder(t *testing.T) {
	for _, size := range []int{1, 7, 10_000} {
		var got []Drop
		d := Decoder{Each: func(d Drop) error { got = append(got, d); return nil }}
		for text := strings.Repeat(synLine+"\n", 3); text != ""; {
			n := min(size, len(text))
			if _, err := d.Write([]byte(text[:n])); err != nil {
				t.Fatal(err)
			}
			text = text[n:]
		}
		if diff := cmp.Diff([]Drop{syn, syn, syn}, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestHostileAnswers: what is no address, number or name of the expected form gets no
// further, and no line grows without end.
func TestHostileAnswers(t *testing.T) {
	for name, line := range map[string]string{
		"escape sequence": strings.Replace(synLine, "worker-1", `\u001b[2Jgone`, 1),
		"markup":          strings.Replace(synLine, "worker-1", `<script>`, 1),
		"line break":      strings.Replace(synLine, "worker-1", `a\nb`, 1),
		"reason":          strings.Replace(synLine, "DropNoMapping", `Drop\u001b[2J`, 1),
		"long reason":     strings.Replace(synLine, "DropNoMapping", "Drop"+strings.Repeat("x", 61), 1),
		"direction":       strings.Replace(synLine, "egress", `up`, 1),
		"zone":            strings.Replace(synLine, "8.8.8.8", `fe80::1%\u001b[2J`, 1),
		"name as address": strings.Replace(synLine, "8.8.8.8", `example.org`, 1),
		"negative":        strings.Replace(synLine, `"length":40`, `"length":-40`, 1),
		"port":            strings.Replace(synLine, `"sourcePort":1000`, `"sourcePort":65536`, 1),
		"nothing":         "",
		"endless":         strings.Repeat("x", 1<<20),
	} {
		d := Decoder{Each: func(d Drop) error { t.Errorf("%s: %+v", name, d); return nil }}
		_, err := d.Write([]byte(line + "\n"))
		if !errors.Is(err, errNoDrop) {
			t.Errorf("%s: %v", name, err)
		}
		if cap(d.partial) > 2*maxLine {
			t.Errorf("%s: %d bytes are kept", name, cap(d.partial))
		}
	}
}

func TestPrinter(t *testing.T) {
	defer func(l *time.Location) { time.Local = l }(time.Local)
	time.Local = time.UTC
	from, to := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	var out bytes.Buffer
	p := Printer{Out: &out}
	for _, d := range []Drop{
		syn,
		{Time: at, Direction: Ingress, Reason: "DropNoMapping", Source: from, Destination: to, Protocol: 58, SourcePort: 7, DestinationPort: 7, Length: 64, Total: 1},
		{Time: at, Direction: Ingress, Reason: "DropTunnelMalformed", Outer: true, Source: from, Destination: to, Protocol: 17, SourcePort: 7, DestinationPort: 51820, Length: 9},
		{Time: at, Direction: Egress, Reason: "DropFrame", Node: "worker-1", Length: 5},
		{Time: at, Direction: Egress, Reason: "DropOfTheFuture", Source: from, Destination: to, Protocol: 47, Length: 5},
	} {
		if err := p.Print(NewReport("local", "milan", d)); err != nil {
			t.Fatal(err)
		}
	}
	want := `2026-11-23 12:00:00.123  (local) milan  DropNoMapping             to the peer    TCP 10.243.1.1:1000 > 8.8.8.8:80 SYN, 40 bytes, node worker-1, 1219 of this reason so far
    packets are sent to addresses outside the peer's CIDRs: applications use addresses that do not exist there
    What to do: use the remapped addresses: 'liqoctl info peer' shows the CIDRs.
    See "Drops by name" in docs/troubleshooting.md.
2026-11-23 12:00:00.123  (local) milan  DropNoMapping             from the peer  ICMPv6 2001:db8::1 > 2001:db8::2, 64 bytes
2026-11-23 12:00:00.123  (local) milan  DropTunnelMalformed       from the peer  UDP [2001:db8::1]:7 > [2001:db8::2]:51820 (outer addresses), 9 bytes
    packets that are not WireGuard arrive on the tunnel's port
    What to do: find out who sends them: 'liqoctl network capture --point wire'.
    See "Drops by name" in docs/troubleshooting.md.
2026-11-23 12:00:00.123  (local) milan  DropFrame                 to the peer    not IP, 5 bytes, node worker-1
    Ethernet frames arrive that are not for the gateway, or are neither IP nor ARP
    What to do: nothing: nodes send such frames on every link.
    See "Drops by name" in docs/troubleshooting.md.
2026-11-23 12:00:00.123  (local) milan  DropOfTheFuture           to the peer    protocol 47 2001:db8::1 > 2001:db8::2, 5 bytes
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	out.Reset()
	if err := p.Print(NewReport("", "milan", syn)); err != nil {
		t.Fatal(err)
	}
	// Without the remote cluster nobody needs to be told which it is.
	if want := "2026-11-23 12:00:00.123  milan  DropNoMapping "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %s, want %s", &out, want)
	}
	out.Reset()
	p = Printer{Out: &out, JSON: true}
	if err := p.Print(NewReport("", "", syn)); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if !strings.HasPrefix(got, synLine[:len(synLine)-1]+`,"cause":"packets are sent to `) || strings.Count(got, "\n") != 1 {
		t.Errorf("got %s", got)
	}
	d := Decoder{Each: func(d Drop) error {
		if d != syn {
			t.Errorf("read back: %+v", d)
		}
		return nil
	}}
	if _, err := d.Write([]byte(got)); err != nil {
		t.Error(err)
	}
}

func TestFilter(t *testing.T) {
	f, err := ParseFilter([]string{"NoMapping", "DropFilter"})
	if err != nil || !f.Has("DropNoMapping") || !f.Has("DropFilter") || f.Has("DropNoAddress") || !Filter(nil).Has("DropNoAddress") {
		t.Errorf("%v, %v", f, err)
	}
	if _, err := ParseFilter([]string{"Nothing"}); err == nil || !strings.HasPrefix(err.Error(), `unknown reason "Nothing"; the reasons are DropEncapsulation, `) {
		t.Error(err)
	}
}
