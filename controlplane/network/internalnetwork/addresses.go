package internalnetwork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

// pool is where addresses come from. The zero pool is not known yet.
type pool struct {
	prefix   netip.Prefix
	reserved int
}

// grant is what an object may use as its address.
type grant struct {
	// Addr is not valid if there is none, and Reason and Message say why.
	Addr    netip.Addr
	Reason  networkingv1beta1.ConditionReason
	Message string
	// Lost says why it is not the address that the object has.
	Lost string
}

// addressBook knows who has which address of the internal CIDR.
type addressBook struct {
	reader  client.Reader // past the cache
	network client.ObjectKey

	mu   sync.Mutex // the allocator is not safe for concurrent use
	pool pool
	held *cidr.Addresses // nil until a pool was known
}

// grant returns the address that the owner holds; or the one that its object
// has, if that is free; or a free one. Without a pool everybody keeps what they
// have: the Network may be gone for a moment only.
func (b *addressBook) grant(ctx context.Context, p pool, owner string, has networkingv1beta1.Address) (grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p != b.pool && p.prefix.IsValid() {
		if err := b.load(ctx, p); err != nil {
			return grant{}, err
		}
	}
	if b.held != nil {
		if a, ok := b.held.Get(owner); ok {
			return grant{Addr: a}, nil
		}
	}
	addr, addrErr := has.Addr()
	if !p.prefix.IsValid() {
		if addrErr == nil {
			return grant{Addr: addr}, nil
		}
		return grant{
			Reason:  networkingv1beta1.ReasonWaitingForInternalCIDR,
			Message: fmt.Sprintf("Network %s is missing or has no prefix yet: see its condition Allocated, or create it", b.network),
		}, nil
	}
	var lost string
	if has != "" {
		err := addrErr
		if err == nil {
			err = b.held.Restore(owner, addr)
		}
		if err == nil {
			return grant{Addr: addr}, nil
		}
		lost = err.Error()
	}
	a, err := b.held.Acquire(owner)
	if full := (*cidr.FullError)(nil); errors.As(err, &full) {
		return grant{
			Reason:  networkingv1beta1.ReasonInternalCIDRExhausted,
			Message: fmt.Sprintf("%v: replace Network %s by one whose CIDR contains %s and is larger, then every address stays", err, b.network, full.Prefix),
		}, nil
	}
	return grant{Addr: a, Lost: lost}, err
}

// holds tells whether the owner has an address.
func (b *addressBook) holds(owner string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		return false
	}
	_, ok := b.held.Get(owner)
	return ok
}

// release takes the owner's address. Its object must be gone, not only from the
// cache: somebody else may get the address next.
func (b *addressBook) release(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held != nil {
		b.held.Release(owner)
	}
}

// load reads who has which address, at the first grant and when the pool is
// another one. Those who lose an address learn it when they ask for theirs.
func (b *addressBook) load(ctx context.Context, p pool) error {
	type holder struct {
		owner string
		since time.Time
		addr  networkingv1beta1.Address
	}
	var nodes networkingv1beta1.InternalNodeList
	if err := b.reader.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list InternalNodes: %w", err)
	}
	var fabrics networkingv1beta1.InternalFabricList
	if err := b.reader.List(ctx, &fabrics); err != nil {
		return fmt.Errorf("list InternalFabrics: %w", err)
	}
	holders := make([]holder, 0, len(nodes.Items)+len(fabrics.Items))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		holders = append(holders, holder{nodeOwner(n.Name), n.CreationTimestamp.Time, n.Spec.Interface.Node.IP})
	}
	for i := range fabrics.Items {
		f := &fabrics.Items[i]
		holders = append(holders, holder{fabricOwner(client.ObjectKeyFromObject(f)), f.CreationTimestamp.Time, f.Spec.Interface.Gateway.IP})
	}
	slices.SortFunc(holders, func(x, y holder) int {
		return cmp.Or(x.since.Compare(y.since), strings.Compare(x.owner, y.owner))
	})
	held := cidr.NewAddresses(p.prefix, cidr.WithReserved(p.reserved), cidr.WithoutEnds())
	for _, h := range holders {
		if a, err := h.addr.Addr(); err == nil {
			_ = held.Restore(h.owner, a) // a younger holder, or another prefix
		}
	}
	b.pool, b.held = p, held
	return nil
}

// Owners are named as in messages to the user.

func nodeOwner(name string) string { return "InternalNode " + name }

func fabricOwner(key client.ObjectKey) string { return "InternalFabric " + key.String() }
