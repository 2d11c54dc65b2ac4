package tunnel

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestReadPeerStats compares with the text of the configuration protocol, in which wireguard-go itself tells the same.
func TestReadPeerStats(t *testing.T) {
	a, b := newPair(t, newMemNet())
	cross(t, a, b, 0)
	cross(t, b, a, 1)
	for _, g := range []*gateway{a, b} {
		dev, key := g.dev.Load(), g.config.PeerKey
		told := func() string {
			text, err := dev.IpcGet()
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		before, got, after := told(), readPeerStats(dev, key), told()
		for before != after { // something came or went meanwhile
			before, got, after = after, readPeerStats(dev, key), told()
		}
		for _, line := range []string{
			fmt.Sprint("endpoint=", got.Endpoint), fmt.Sprint("rx_bytes=", got.RxBytes), fmt.Sprint("tx_bytes=", got.TxBytes),
		} {
			if !strings.Contains(after, "\n"+line+"\n") {
				t.Errorf("%s: %s is not what the device tells", g.inner, line)
			}
		}
		if got.RxBytes == 0 || got.TxBytes == 0 || time.Since(got.LastHandshake) > time.Minute {
			t.Errorf("%s: %+v", g.inner, got)
		}
		unknown := GeneratePrivateKey().Public()
		for _, none := range []peerStats{readPeerStats(nil, key), readPeerStats(dev, PublicKey{}), readPeerStats(dev, unknown)} {
			if none != (peerStats{}) {
				t.Errorf("%s: %+v of no peer", g.inner, none)
			}
		}
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

// BenchmarkReadPeerStats: a gateway reads them several times a second.
func BenchmarkReadPeerStats(b *testing.B) {
	a, to := newPair(b, newMemNet())
	cross(b, a, to, 0)
	dev, peer := a.dev.Load(), a.config.PeerKey
	for b.Loop() {
		readPeerStats(dev, peer)
	}
}
