package clusters

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/document"
)

// orders is how many orders are tried.
const orders = 20

// testAnyOrder applies all objects of both clusters in any order. Every run is
// another peering; those before it are on their way out.
func testAnyOrder(outer *testing.T, p *pair) {
	d := document.Read(outer, document.Declarative)
	for i := range orders {
		seed := rand.Uint64()
		ok := outer.Run("", func(t *testing.T) {
			t.Logf("seed %#x", seed)
			pe := unmade(t, p, "order")
			outer.Cleanup(func() { pe.gone(outer) })
			t.Cleanup(func() { pe.delete(t) })
			pe.explainIfFailed(t)
			namespaces, objects := declarative(t, d, pe, wgNodePort+i)
			for _, o := range namespaces {
				if err := o.apply(); err != nil {
					t.Fatal(err)
				}
			}
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			start := time.Now()
			var order []string
			for _, o := range objects {
				if err := o.apply(); err != nil {
					t.Fatal(err)
				}
				_, kind, _ := strings.Cut(o.manifest, "kind: ")
				kind, _, _ = strings.Cut(kind, "\n")
				order = append(order, o.on.id+" "+kind)
			}
			t.Logf("order: %s", strings.Join(order, ", "))
			pe.established(t, start)
		})
		if !ok {
			return // one failure says enough, and takes a minute
		}
	}
}
