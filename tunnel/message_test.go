package tunnel

import (
	"bytes"
	"testing"

	"github.com/sluice-net/sluice/test/mutate"
)

// layouts are the messages of the WireGuard paper, sections 5.4.2 to 5.4.7, field by field, in bytes. What is sealed is
// 16 bytes longer than its content.
var layouts = map[byte][]int{
	1: {1, 3, 4, 32, 32 + 16, 12 + 16, 16, 16}, // type, reserved, sender, ephemeral, static, timestamp, mac1, mac2
	2: {1, 3, 4, 4, 32, 0 + 16, 16, 16},        // type, reserved, sender, receiver, ephemeral, empty, mac1, mac2
	3: {1, 3, 4, 24, 16 + 16},                  // type, reserved, receiver, nonce, cookie
	4: {1, 3, 4, 8, 0 + 16},                    // type, reserved, receiver, counter, packet: empty, or any length
}

// slowClassify is classify by the layouts. The paper pads packets to multiples of 16 bytes, but a sender may stop at its
// MTU, so that a receiver cannot ask for that.
func slowClassify(b []byte) messageClass {
	if len(b) < 4 || b[1] != 0 || b[2] != 0 || b[3] != 0 {
		return messageMalformed
	}
	fields, known := layouts[b[0]]
	size := 0
	for _, width := range fields {
		size += width
	}
	switch more := len(b) - size; {
	case !known || more < 0:
		return messageMalformed
	case b[0] == 4 && more > 0:
		return messageData
	case b[0] == 4:
		return messageKeepalive
	case more > 0:
		return messageMalformed
	}
	return messageHandshake
}

// FuzzClassify: what strangers send is judged as the paper describes messages, and what else looks at handshakes agrees.
func FuzzClassify(t *testing.F) {
	f := mutate.New(t)
	add := func(size int, head ...byte) { f.Add(append(head, bytes.Repeat([]byte{0xa5}, 1500)...)[:size]) }
	for kind := range byte(6) {
		for _, size := range []int{0, 1, 3, 4, 16, 31, 32, 33, 48, 63, 64, 65, 91, 92, 93, 147, 148, 149, 1472} {
			add(size, kind, 0, 0, 0)
		}
		for _, size := range []int{32, 64, 92, 148, 1472} { // with each of the reserved bytes
			add(size, kind, 1, 0, 0)
			add(size, kind, 0, 1, 0)
			add(size, kind, 0, 0, 1)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		class := classify(b)
		if want := slowClassify(b); class != want {
			t.Fatalf("%d bytes that begin with % x: class %d, want %d", len(b), b[:min(len(b), 4)], class, want)
		}
		var counts handshakeCounts
		if class == messageHandshake {
			counts.add(b)
		}
		is := func(kind byte) bool { return class == messageHandshake && b[0] == kind }
		if isInitiation(b) != is(1) || (counts.initiations == 1) != is(1) || (counts.responses == 1) != is(2) {
			t.Fatalf("%d bytes of class %d: an initiation is %v, counted as %+v", len(b), class, isInitiation(b), counts)
		}
	})
}
