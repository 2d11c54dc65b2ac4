package limit

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/chacha20poly1305"
)

func testKey(b byte) (key Key) {
	for i := range key {
		key[i] = b + byte(i)
	}
	return key
}

// TestSealIsTheMessageOfThePaper checks a message field by field against the
// cipher itself: WireGuard paper, section 5.4.6.
func TestSealIsTheMessageOfThePaper(t *testing.T) {
	plain := []byte("a packet")
	k := newSendKey(testKey(1))
	got := make([]byte, len(plain)+overhead)
	for range 0x1122 {
		k.seal(got, plain)
	}
	if n := k.seal(got, plain); n != len(got) {
		t.Errorf("seal = %d, want %d", n, len(got))
	}

	want := []byte{4, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0}
	key := testKey(1)
	aead, err := chacha20poly1305.New(key[:])
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, 12)
	binary.LittleEndian.PutUint64(nonce[4:], 0x1122)
	want = aead.Seal(want, nonce, plain, nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestOpenUndoesSeal(t *testing.T) {
	for _, size := range []int{0, 1, 40, 1340, 65000} {
		plain := bytes.Repeat([]byte{7}, size)
		send, receive := newSendKey(testKey(1)), newReceiveKey(testKey(1))

		// Sealed where the packet stands.
		message := append(make([]byte, dataHeaderLen), plain...)
		message = append(message, make([]byte, tagLen)...)
		send.seal(message, message[dataHeaderLen:dataHeaderLen+size])
		// And from elsewhere.
		second := make([]byte, size+overhead)
		send.seal(second, plain)

		for i, m := range [][]byte{second, message} { // in any order
			again := bytes.Clone(m)
			got, ok := receive.open(m)
			if !ok || !bytes.Equal(got, plain) {
				t.Errorf("%d bytes, message %d: %v, %d bytes", size, i, ok, len(got))
			}
			if _, ok := receive.open(again); ok {
				t.Errorf("%d bytes: message %d was opened twice", size, i)
			}
		}
	}
}

func TestOpenRefusesWhatWasChanged(t *testing.T) {
	send, receive := newSendKey(testKey(1)), newReceiveKey(testKey(1))
	message := make([]byte, 5+overhead)
	send.seal(message, []byte("12345"))
	for i := range message {
		if i >= 4 && i < 8 {
			continue // the index: nobody looks at it
		}
		changed := bytes.Clone(message)
		changed[i] ^= 1
		if _, ok := receive.open(changed); ok {
			t.Errorf("opened although byte %d was changed", i)
		}
	}
	if _, ok := receive.open(message[:overhead-1]); ok {
		t.Error("opened a message that is too short")
	}
	if _, ok := receive.open(message); !ok {
		t.Error("forgeries keep out the message itself")
	}
}

func TestSealAndOpenDoNotAllocate(t *testing.T) {
	send, receive := newSendKey(testKey(1)), newReceiveKey(testKey(1))
	plain, message := make([]byte, 1340), make([]byte, 1340+overhead)
	got := testing.AllocsPerRun(100, func() {
		send.seal(message, plain)
		if _, ok := receive.open(message); !ok {
			t.Fatal("not opened")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestPaddedLen(t *testing.T) {
	for _, tt := range []struct{ n, mtu, want int }{
		{0, 1340, 0}, {1, 1340, 16}, {16, 1340, 16}, {17, 1340, 32},
		{1330, 1340, 1340}, // the padding ends at the MTU
		{1340, 1340, 1340},
		{1341, 1340, 1341}, // as it is: whoever sends it has another MTU
	} {
		if got := paddedLen(tt.n, tt.mtu); got != tt.want {
			t.Errorf("paddedLen(%d, %d) = %d, want %d", tt.n, tt.mtu, got, tt.want)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	k := newSendKey(testKey(1))
	plain, message := make([]byte, 1340), make([]byte, 1340+overhead)
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		k.seal(message, plain)
	}
}
