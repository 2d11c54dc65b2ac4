package control

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/tunnel"
)

func TestTurns(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		from  string // the address of each handshake, - for none
		every time.Duration
		want  string // whether several take turns, after each
	}{
		{"one", "aaaaaa", 5 * time.Second, "......"},
		{"one that moves", "aabbbb", 5 * time.Second, "......"},
		{"one behind a NAT that forgets", "abcdef", 5 * time.Second, "......"},
		{"one that moves and comes back", "abaaaa", 5 * time.Second, "......"},
		{"two", "ababab", 5 * time.Second, "...!!!"},
		{"two, of which one is luckier", "aabaabaa", 5 * time.Second, ".....!!!"},
		{"three", "abcabc", 5 * time.Second, "....!!"},
		{"two, once in a while", "abababab", 30 * time.Second, "........"},
		{"two, until one ends", "abab----------------", 5 * time.Second, "...!!!!!!!!!........"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var turns turns
			got := ""
			s := tunnel.Stats{}
			for i, from := range tt.from {
				now := began.Add(time.Duration(i) * tt.every)
				if from != '-' {
					s.Endpoint, s.LastHandshake = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(from)}), 51840), now
				}
				for range 3 { // what is looked at more often counts once
					turns.observe(s, now)
				}
				if taking := turns.observe(s, now); len(taking) == 0 {
					got += "."
				} else if got += "!"; len(taking) < 2 {
					t.Errorf("after %s: %v takes turns with itself", tt.from[:i+1], taking)
				}
			}
			if got != tt.want {
				t.Errorf("after the handshakes %s\nit says %s\nwant    %s", tt.from, got, tt.want)
			}
		})
	}
}

// One that goes on in a session of before is another one, unless it has ended by then.
func TestReplacedSession(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		at   []int // seconds at which something came by a session of before
		want map[int]bool
	}{
		{"nobody", nil, map[int]bool{1: false, 100: false}},
		{"one that was cut off and reads the Lease", []int{10, 12}, map[int]bool{12: false, 60: false}},
		{"one that stays cut off", []int{10, 12, 14, 16, 18}, map[int]bool{12: false, 14: false, 16: true, 70: true, 76: false, 80: false}},
		{"one now and then", []int{10, 80}, map[int]bool{12: false, 80: false, 90: false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var turns turns
			s, at := tunnel.Stats{}, tt.at
			for second := range 101 {
				if len(at) > 0 && at[0] == second {
					s.LastReplaced, at = began.Add(time.Duration(second)*time.Second), at[1:]
				}
				got := turns.observeReplaced(s, began.Add(time.Duration(second)*time.Second))
				if want, asked := tt.want[second]; asked && got != want {
					t.Errorf("after %d s: %v, want %v", second, got, want)
				}
			}
		})
	}
}

func TestSeveralText(t *testing.T) {
	if got := severalText(nil); got != "" {
		t.Errorf("of none it says %q", got)
	}
	addrs := make([]netip.AddrPort, 6)
	for i := range addrs {
		addrs[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 51840)
	}
	if got := severalText(addrs); !strings.Contains(got, "from 192.0.2.0:51840 and 192.0.2.1:51840 and 192.0.2.2:51840 and 192.0.2.3:51840 and 2 more:") {
		t.Errorf("it says %q", got)
	}
}
