package tunnel

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The last maxWaiting packets wait, in order, and come out whole, whatever is sent, dropped
// and cleared in between.
func TestWaiting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w waiting
		var want [][]byte
		sent := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				p := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "packet")
				var dropped [][]byte
				w.push(p, func(oldest []byte) { dropped = append(dropped, slices.Clone(oldest)) })
				if want = append(want, p); len(want) > maxWaiting {
					if len(dropped) != 1 || !slices.Equal(dropped[0], want[0]) {
						t.Fatalf("%d packets are dropped", len(dropped))
					}
					want = want[1:]
				}
			},
			"next": func(t *rapid.T) {
				decided := rapid.SampledFrom([]verdict{stays, isSent, isDropped}).Draw(t, "verdict")
				asked := false
				buf, size, v := w.next(func(buf []byte, size int, since time.Time) verdict {
					asked = true
					if got := buf[sealFront:][:size]; !slices.Equal(got, want[0]) || len(buf) < sealFront+size+sealRoom || time.Since(since) < 0 {
						t.Fatalf("%d bytes in %d, want %d", size, len(buf), len(want[0]))
					}
					return decided
				})
				if asked != (len(want) > 0) || asked && v != decided || !asked && v != stays {
					t.Fatalf("asked %t, verdict %d", asked, v)
				}
				if v == isSent {
					if got := buf[sealFront:][:size]; !slices.Equal(got, want[0]) {
						t.Fatalf("%d bytes, want %d", size, len(want[0]))
					}
					clear(buf) // as sealing does
					sent++
				}
				if v != stays {
					want = want[1:]
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "rarely") > 0 {
					return
				}
				if n := w.clear(); n != len(want) {
					t.Fatalf("%d cleared, want %d", n, len(want))
				}
				want = nil
			},
			"": func(t *rapid.T) {
				if w.len() != len(want) {
					t.Fatalf("%d wait, want %d", w.len(), len(want))
				}
			},
		})
	})
}
