// Package mutate runs fuzz targets over hundreds of millions of mutated seeds,
// for which `go test -fuzz` would take days: its coverage guidance costs more than
// most parsers do.
//
// A target that takes an F in place of its testing.F is an ordinary fuzz target.
// With
//
//	go test ./geneve -run '^FuzzDecode$' -v -timeout 2h -mutate.inputs=100000000
//
// it runs over that many inputs instead. They depend on -mutate.seed and the name
// of the target alone, so a second run repeats the first one. Targets run one
// after the other, as they share state between inputs; `go test` runs packages
// beside each other.
package mutate

import (
	"encoding/binary"
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"testing"
)

var (
	inputs = flag.Int("mutate.inputs", 0, "run each fuzz target over so many mutated seeds; 0: over its seeds")
	chosen = flag.Uint64("mutate.seed", 1, "which mutations")
)

// F is a testing.F that knows the seeds of its target.
type F struct {
	*testing.F
	seeds [][]any
}

// New returns the F of a target.
func New(f *testing.F) *F { return &F{F: f} }

// Add is that of testing.F.
func (f *F) Add(args ...any) {
	f.F.Helper()
	f.seeds = append(f.seeds, args)
	if *inputs == 0 || len(f.seeds) == 1 { // or each is a test of its own that does nothing
		f.F.Add(args...)
	}
}

// Fuzz is that of testing.F, or runs the body over mutated seeds. A body must not
// skip inputs but return, and must not keep them: their memory is used again, as
// that of a socket's reader is.
func (f *F) Fuzz(body any) {
	f.F.Helper()
	if *inputs == 0 {
		f.F.Fuzz(body)
		return
	}
	h := fnv.New64a()
	h.Write([]byte(f.Name()))
	m := newMutator(f.seeds, *chosen, h.Sum64())
	began := false
	// The testing package makes a testing.T for each seed; the first one is for all inputs.
	f.F.Fuzz(reflect.MakeFunc(reflect.TypeOf(body), func(args []reflect.Value) []reflect.Value {
		if !began {
			began = true
			m.run(args[0].Interface().(*testing.T), body, *inputs)
		}
		return nil
	}).Interface())
}

// run calls a body with n inputs. It ends at the first one that fails, and says which.
func (m *mutator) run(t *testing.T, body any, n int) {
	done := 0
	var args []any
	defer func() {
		if t.Failed() || done < n { // a panic, FailNow or SkipNow ended the body
			t.Errorf("input %d of -mutate.seed=%d failed, or was skipped: %#v", done, m.seed, args)
			return
		}
		t.Logf("%d inputs made from %d seeds, -mutate.seed=%d", n, len(m.seeds), m.seed)
	}()
	plain, _ := body.(func(*testing.T, []byte))
	call, values := reflect.ValueOf(body), make([]reflect.Value, 1)
	values[0] = reflect.ValueOf(t)
	for ; done < n; done++ {
		args = m.next()
		if plain != nil {
			plain(t, m.bytes)
		} else {
			values = values[:1]
			for _, a := range args {
				values = append(values, reflect.ValueOf(a))
			}
			call.Call(values)
		}
		if t.Failed() {
			return
		}
	}
}

// mutator makes inputs of seeds.
type mutator struct {
	seeds [][]any
	seed  uint64
	r     *rand.Rand
	args  []any
	// bytes is the []byte among args: a target has one.
	bytes []byte
	// store and text are what inputs are written to.
	store, text []byte
}

func newMutator(seeds [][]any, seed, target uint64) *mutator {
	return &mutator{seeds: seeds, seed: seed, r: rand.New(rand.NewPCG(seed, target)), store: make([]byte, 0, maxLen), text: make([]byte, 0, maxLen)}
}

// maxLen bounds what insertions may make of a seed: a message of a socket that
// receives in bulk.
const maxLen = 1 << 16

// next returns the next input, which is valid until the one after it.
func (m *mutator) next() []any {
	m.args = m.args[:0]
	for i, a := range m.pick() {
		switch v := a.(type) {
		case []byte:
			m.bytes = m.mutated(m.store, v, i)
			m.args = append(m.args, m.bytes)
		case string:
			m.args = append(m.args, string(m.mutated(m.text, []byte(v), i)))
		case bool:
			m.args = append(m.args, v != (m.r.IntN(4) == 0))
		default:
			m.args = append(m.args, m.number(reflect.ValueOf(a)))
		}
	}
	return m.args
}

func (m *mutator) pick() []any { return m.seeds[m.r.IntN(len(m.seeds))] }

// number returns a number of the type of v: v itself, a small one, or any.
func (m *mutator) number(v reflect.Value) any {
	to := reflect.New(v.Type()).Elem()
	n := m.r.Uint64()
	switch m.r.IntN(4) {
	case 0, 1:
		return v.Interface()
	case 2:
		n >>= 48 + m.r.IntN(16)
	}
	if v.CanInt() {
		to.SetInt(int64(n))
	} else {
		to.SetUint(n)
	}
	return to.Interface()
}

// mutated writes v, the argument at an index, with some changes into a store, one
// time in 64 with none.
func (m *mutator) mutated(store, v []byte, at int) []byte {
	b := append(store[:0], v[:min(len(v), maxLen)]...)
	changes := howMany(m.r.Uint64())
	for range changes {
		b = m.change(b, at)
	}
	if changes > 0 && m.r.IntN(2) == 0 {
		repair(b)
	}
	return b[:len(b):len(b)]
}

// howMany makes of a random number how many changes an input has, mostly few: 0 to 16.
func howMany(n uint64) int {
	if n&63 == 0 {
		return 0
	}
	changes := 1
	for n >>= 6; n&1 == 1 && changes < 16; n >>= 1 {
		changes++
	}
	return changes
}

// words are values of fields at which something ends or begins: lengths, and the
// EtherTypes of what tunnels carry.
var words = []uint16{0, 1, 7, 8, 20, 39, 40, 64, 576, 1280, 1340, 0x1fff, 0x2000, 0x4000, 0x7fff, 0x8000, 0xfffe, 0xffff, 0x0800, 0x0806, 0x6558, 0x86dd}

// change makes one change.
func (m *mutator) change(b []byte, at int) []byte {
	kind := m.r.IntN(12)
	if len(b) == 0 {
		kind = 10
	}
	switch kind {
	case 0, 1, 2:
		b[m.where(b)] ^= 1 << m.r.IntN(8)
	case 3, 4:
		b[m.where(b)] = byte(m.r.Uint32())
	case 5:
		b[m.where(b)] = []byte{0, 1, 0x7f, 0x80, 0xff}[m.r.IntN(5)]
	case 6, 7:
		i := m.where(b)
		if i+2 > len(b) {
			break
		}
		w := words[m.r.IntN(len(words))]
		if m.r.IntN(2) == 0 { // a length of what is there, or one that is off by a little
			w = uint16(len(b) - m.r.IntN(i+2) + m.r.IntN(5) - 2)
		}
		binary.BigEndian.PutUint16(b[i:], w)
	case 8: // cut off
		b = b[:m.r.IntN(len(b)+1)]
	case 9: // leave something out
		i := m.where(b)
		n := m.r.IntN(min(len(b)-i, 64) + 1)
		b = append(b[:i], b[i+n:]...)
	case 10: // put something in: random bytes, or what follows once more
		i, n := m.r.IntN(len(b)+1), m.r.IntN(64)
		if len(b)+n > maxLen {
			break
		}
		b = b[:len(b)+n]
		copy(b[i+n:], b[i:])
		if m.r.IntN(2) == 0 {
			for j := range n {
				b[i+j] = byte(m.r.Uint32())
			}
		}
	case 11: // go on as another seed does
		var other []byte
		switch v := m.pick()[at].(type) {
		case []byte:
			other = v
		case string:
			other = []byte(v)
		}
		i := m.r.IntN(min(len(b), len(other)) + 1)
		b = append(b[:i], other[i:min(len(other), maxLen)]...)
	}
	return b
}

// where chooses a byte: half of the time among the first 64, where headers are.
func (m *mutator) where(b []byte) int {
	n := len(b)
	if m.r.IntN(2) == 0 {
		n = min(n, 64)
	}
	return m.r.IntN(n)
}

// starts are where IPv4 headers are in the inputs of the packet path: at the
// beginning, behind a virtio header, behind a Geneve header, and behind that and
// an Ethernet header.
var starts = []int{0, 8, 10, 12, 22}

// repair corrects the checksum of an IPv4 header, so that changes of other fields
// reach what lies behind its check.
func repair(b []byte) {
	for _, at := range starts {
		if len(b) < at+20 || b[at]>>4 != 4 {
			continue
		}
		n := int(b[at]&15) * 4
		if n < 20 || len(b) < at+n {
			continue
		}
		ip := b[at : at+n]
		ip[10], ip[11] = 0, 0
		sum := uint32(0)
		for i := 0; i < n; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
		return
	}
}
