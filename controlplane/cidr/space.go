package cidr

import (
	"math"
	"net/netip"
	"slices"
)

// space is all addresses of one family as a binary tree: a node is a prefix, its
// children are the halves. Nodes exist only where something is held at or below
// them, so what is not there is free. A search takes as many steps as a prefix
// has bits, however many are held.
type space struct {
	root node
}

type node struct {
	child   [2]*node
	holders []holder
	// largest is the length of the largest free prefix at or below this node;
	// nothing if there is none.
	largest uint8
}

// holder is who holds the prefix of a node.
type holder struct {
	owner  string
	shared bool
}

// nothing is longer than any prefix.
const nothing = math.MaxUint8

// measure sets largest of a node at that depth from its children's.
func (n *node) measure(depth int) {
	if len(n.holders) > 0 {
		n.largest = nothing
		return
	}
	n.largest = min(n.child[0].free(depth+1), n.child[1].free(depth+1))
	if n.child[0] == nil && n.child[1] == nil {
		n.largest = uint8(depth)
	}
}

// free is the length of the largest free prefix in a node at that depth, which
// may be nil.
func (n *node) free(depth int) uint8 {
	if n == nil {
		return uint8(depth)
	}
	return n.largest
}

// empty tells whether nothing is held at or below n.
func (n *node) empty() bool {
	return len(n.holders) == 0 && n.child[0] == nil && n.child[1] == nil
}

// path is the way from the root to a prefix: at depth i, bit i of the address.
type path struct {
	addr [16]byte
	bits int
}

func pathTo(p netip.Prefix) path {
	w := path{bits: p.Bits()}
	copy(w.addr[:], p.Addr().AsSlice())
	return w
}

func (w *path) bit(depth int) byte { return w.addr[depth/8] >> (7 - depth%8) & 1 }

// step appends a bit.
func (w *path) step(bit int) {
	w.addr[w.bits/8] |= byte(bit) << (7 - w.bits%8)
	w.bits++
}

// hold makes h a holder of the prefix at w.
func (s *space) hold(w path, h holder) { s.root.hold(&w, 0, h) }

func (n *node) hold(w *path, depth int, h holder) {
	if depth == w.bits {
		n.holders = append(n.holders, h)
	} else {
		next := &n.child[w.bit(depth)]
		if *next == nil {
			*next = new(node)
		}
		(*next).hold(w, depth+1, h)
	}
	n.measure(depth)
}

// drop takes the prefix at w, which must be there, from its owner.
func (s *space) drop(w path, owner string) { s.root.drop(&w, 0, owner) }

func (n *node) drop(w *path, depth int, owner string) {
	if depth == w.bits {
		n.holders = slices.DeleteFunc(n.holders, func(h holder) bool { return h.owner == owner })
	} else {
		next := &n.child[w.bit(depth)]
		if (*next).drop(w, depth+1, owner); (*next).empty() {
			*next = nil
		}
	}
	n.measure(depth)
}

// find follows w from the root. It returns the node there, or nil if nothing is
// held at or below it, and whether nothing is held above it.
func (s *space) find(w path) (n *node, open bool) {
	n = &s.root
	for depth := range w.bits {
		if len(n.holders) > 0 {
			return nil, false
		}
		if n = n.child[w.bit(depth)]; n == nil {
			return nil, true
		}
	}
	if n.empty() { // the root
		return nil, true
	}
	return n, true
}

// isFree tells whether nothing is held above, at or below the prefix at w.
func (s *space) isFree(w path) bool {
	n, open := s.find(w)
	return open && n == nil
}

// firstFree goes down from the prefix at w to the first free one of that length:
// where both halves have one, into the one that is in use already, so that large
// prefixes stay whole, else to the left.
func (s *space) firstFree(w path, bits int) (path, bool) {
	n, open := s.find(w)
	if !open || w.bits > bits || n.free(w.bits) > uint8(bits) {
		return path{}, false
	}
	for n != nil {
		next := -1
		for bit, child := range n.child {
			fits := child.free(w.bits+1) <= uint8(bits)
			if fits && (next < 0 || n.child[next] == nil && child != nil) {
				next = bit
			}
		}
		w.step(next)
		n = n.child[next]
	}
	w.bits = bits // the leftmost of what is free from here on
	return w, true
}

// visit calls yield for whoever holds space of the prefix at w, until it returns
// false: first who holds more, then what is inside, from left to right.
func (s *space) visit(w path, yield func(holder) bool) {
	n := &s.root
	for depth := range w.bits {
		for _, h := range n.holders {
			if !yield(h) {
				return
			}
		}
		if n = n.child[w.bit(depth)]; n == nil {
			return
		}
	}
	n.visit(yield)
}

func (n *node) visit(yield func(holder) bool) bool {
	if n == nil {
		return true
	}
	for _, h := range n.holders {
		if !yield(h) {
			return false
		}
	}
	return n.child[0].visit(yield) && n.child[1].visit(yield)
}
