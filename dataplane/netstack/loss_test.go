package netstack

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"
	"time"
)

// A wire that loses and reorders packets must cost time only.
func TestTransferOverBadWire(t *testing.T) {
	a, b := newStack(t, Config{}, addrA4), newStack(t, Config{}, addrB4)
	rng := rand.New(rand.NewPCG(1, 2))
	var held []byte
	run(t, a, func(pkt []byte) {
		switch n := rng.IntN(1000); {
		case n < 10: // lost
		case n < 20 && held == nil: // overtaken by the next
			held = append(held, pkt...)
		default:
			b.Inject(pkt)
			if held != nil {
				b.Inject(held)
				held = nil
			}
		}
	})
	run(t, b, func(pkt []byte) { a.Inject(pkt) })
	data := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	start := time.Now()
	if got, want := transfer(t, a, b, addrB4, data), sha256.Sum256(data); got != want {
		t.Errorf("hash %x, want %x", got, want)
	}
	t.Logf("%v, %+v", time.Since(start), a.Stats())
}
