package tunnel

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A "get" of two peers as wireguard-go writes it.
var getText = "private_key=" + hexKey(1) + "\nlisten_port=51820\n" +
	"public_key=" + hexKey(2) + "\npreshared_key=" + strings.Repeat("0", 64) + "\nprotocol_version=1\n" +
	"endpoint=192.0.2.1:7\nlast_handshake_time_sec=1700000000\nlast_handshake_time_nsec=5\n" +
	"tx_bytes=10\nrx_bytes=18446744073709551615\npersistent_keepalive_interval=0\nallowed_ip=10.1.0.0/16\n" +
	"public_key=" + hexKey(3) + "\nprotocol_version=1\nendpoint=[2001:db8::1]:8\n" +
	"last_handshake_time_sec=0\nlast_handshake_time_nsec=0\ntx_bytes=1\nrx_bytes=2\n"

func TestParsePeerStats(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		peer       byte
		want       peerStats
		err        string
	}{
		{"first peer", getText, 2, peerStats{
			Endpoint: netip.MustParseAddrPort("192.0.2.1:7"), LastHandshake: time.Unix(1700000000, 5),
			TxBytes: 10, RxBytes: 1<<64 - 1,
		}, ""},
		{"second peer, no handshake yet", getText, 3, peerStats{
			Endpoint: netip.MustParseAddrPort("[2001:db8::1]:8"), TxBytes: 1, RxBytes: 2,
		}, ""},
		{"unknown peer", getText, 4, peerStats{}, ""},
		{"nothing", "", 2, peerStats{}, ""},
		{"a line without =", "public_key=" + hexKey(2) + "\nnonsense\n", 2, peerStats{}, "without ="},
		{"bad endpoint", "public_key=" + hexKey(2) + "\nendpoint=x\n", 2, peerStats{}, `"endpoint"`},
		{"bad number", "public_key=" + hexKey(2) + "\nrx_bytes=-1\n", 2, peerStats{}, `"rx_bytes"`},
		{"bad time", "public_key=" + hexKey(2) + "\nlast_handshake_time_sec=x\n", 2, peerStats{}, "last_handshake_time_sec"},
		{"bad values of another peer do not matter", "public_key=" + hexKey(3) + "\nrx_bytes=-1\n", 2, peerStats{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsePeerStats([]byte(tt.text), PublicKey(testKey(tt.peer)))
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestHandshakeTime: what the device tells is the time of a clock that may have been set by an hour since, either way.
func TestHandshakeTime(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name              string
		told, established time.Time
		want              time.Duration // ago
	}{
		{"a session", ago(time.Minute).Round(0), ago(time.Minute), time.Minute},
		{"a session, and the clock was set ahead", ago(61 * time.Minute).Round(0), ago(time.Minute), time.Minute},
		{"a session, and the clock was set back", ago(-59 * time.Minute).Round(0), ago(time.Minute), time.Minute},
		{"none", ago(10 * time.Minute).Round(0), time.Time{}, 10 * time.Minute},
		{"none, and the clock was set ahead", ago(70 * time.Minute).Round(0), time.Time{}, 70 * time.Minute},
		{"none, and the clock was set back", ago(-50 * time.Minute).Round(0), time.Time{}, sessionLife},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := now.Sub(handshakeTime(tt.told, tt.established, now)); got.Round(time.Millisecond) != tt.want {
				t.Errorf("%v ago, want %v", got, tt.want)
			}
		})
	}
	if got := handshakeTime(time.Time{}, time.Time{}, now); !got.IsZero() {
		t.Errorf("never: %v", got)
	}
}

// TestHandshakeTimeIsMonotonic: of a session that lives, the time has a monotonic reading, so that no step of the clock
// makes it another.
func TestHandshakeTimeIsMonotonic(t *testing.T) {
	a, b := newPair(t, newMemNet())
	cross(t, a, b, 0)
	for _, g := range []*gateway{a, b} {
		if at := g.Stats().LastHandshake; at.IsZero() || at == at.Round(0) { // which strips it
			t.Errorf("%s: last handshake %v", g.inner, at)
		}
	}
}

func FuzzParsePeerStats(f *testing.F) {
	f.Add([]byte(getText))
	f.Add([]byte("public_key=" + hexKey(2) + "\nendpoint=[fe80::1%eth0]:1\nlast_handshake_time_sec=-1"))
	f.Add([]byte("=\n\n=="))
	peer := PublicKey(testKey(2))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parsePeerStats(text, peer)
		if err != nil {
			if got != (peerStats{}) {
				t.Fatalf("error %v together with %+v", err, got)
			}
			if strings.Contains(err.Error(), hexKey(1)) {
				t.Fatalf("the error quotes a key: %v", err)
			}
			return
		}
		if !strings.Contains(string(text), hex.EncodeToString(peer[:])) && got != (peerStats{}) {
			t.Fatalf("%+v of a peer that is not there", got)
		}
	})
}
