package internalnetwork

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// maxVNI is the largest 24-bit number (RFC 8926, section 3.4).
const maxVNI = 1<<24 - 1

// vniBook knows which tunnel has which number. The numbers of all tunnels of the
// cluster are different, because a node tells its gateways apart by them.
//
// A new tunnel gets the number after the one granted last, and 0 never, which
// looks like a field that was left out. So a number that was released is not
// used again before 16 million others: packets that are under way, and caches
// that are behind, do not matter.
type vniBook struct {
	reader client.Reader // past the cache

	mu      sync.Mutex
	loaded  bool
	byOwner map[pair]int32
	byID    map[int32]pair
	last    int32
}

// grant returns the number that the pair holds; or the one that its tunnel has,
// if there is a tunnel and the number is free; or a free one. lost says why it
// is not the one that the tunnel has.
func (b *vniBook) grant(ctx context.Context, owner pair, has *networkingv1beta1.GeneveTunnel) (id int32, lost string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx); err != nil {
		return 0, "", err
	}
	if id, ok := b.byOwner[owner]; ok {
		return id, "", nil
	}
	if has != nil {
		err := b.restore(owner, has.Spec.ID)
		if err == nil {
			return has.Spec.ID, "", nil
		}
		lost = err.Error()
	}
	if len(b.byID) >= maxVNI {
		return 0, "", fmt.Errorf("all %d VNIs are in use", maxVNI)
	}
	for {
		b.last = b.last%maxVNI + 1
		if _, taken := b.byID[b.last]; !taken {
			b.hold(owner, b.last)
			return b.last, lost, nil
		}
	}
}

// release takes the pair's number.
func (b *vniBook) release(owner pair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, ok := b.byOwner[owner]; ok {
		delete(b.byOwner, owner)
		delete(b.byID, id)
	}
}

// heldFor returns the pairs of an InternalFabric that hold a number.
func (b *vniBook) heldFor(fabric types.NamespacedName) (pairs []pair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.byOwner {
		if p.fabric() == fabric {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

func (b *vniBook) restore(owner pair, id int32) error {
	if id < 0 || id > maxVNI {
		return fmt.Errorf("VNI %d does not fit into 24 bits", id)
	}
	if other, taken := b.byID[id]; taken {
		return fmt.Errorf("VNI %d is that of %s", id, other)
	}
	b.hold(owner, id)
	b.last = max(b.last, id)
	return nil
}

func (b *vniBook) hold(owner pair, id int32) { b.byOwner[owner], b.byID[id] = id, owner }

// load reads the numbers of all tunnels, at the first grant.
func (b *vniBook) load(ctx context.Context) error {
	if b.loaded {
		return nil
	}
	var l networkingv1beta1.GeneveTunnelList
	if err := b.reader.List(ctx, &l); err != nil {
		return fmt.Errorf("list GeneveTunnels: %w", err)
	}
	slices.SortFunc(l.Items, older)
	b.byOwner, b.byID = make(map[pair]int32, len(l.Items)), make(map[int32]pair, len(l.Items))
	for i := range l.Items {
		p := pairOf(&l.Items[i])
		if _, second := b.byOwner[p]; !second { // a second tunnel of a pair will be deleted
			_ = b.restore(p, l.Items[i].Spec.ID) // the younger of two gets another number
		}
	}
	b.loaded = true
	return nil
}

// older orders tunnels by age.
func older(x, y networkingv1beta1.GeneveTunnel) int {
	return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time),
		strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
}
