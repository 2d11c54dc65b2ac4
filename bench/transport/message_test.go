package transport

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/chacha20poly1305"
)

func testKey(b byte) (key [KeyLen]byte) {
	for i := range key {
		key[i] = b + byte(i)
	}
	return key
}

// TestSealIsTheMessageOfThePaper checks a message field by field against the
// cipher itself: WireGuard paper, section 5.4.6.
func TestSealIsTheMessageOfThePaper(t *testing.T) {
	plain := []byte("a packet")
	k := NewSendKey(testKey(1), 0x01020304)
	if first := k.Reserve(0x1122); first != 0 {
		t.Fatalf("the first counter is %d", first)
	}
	counter := k.Reserve(1)
	got := make([]byte, len(plain)+Overhead)
	if n := k.Seal(got, plain, counter, new(Nonce)); n != len(got) {
		t.Errorf("Seal = %d, want %d", n, len(got))
	}

	want := []byte{4, 0, 0, 0, 4, 3, 2, 1, 0x22, 0x11, 0, 0, 0, 0, 0, 0}
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
	if index, ok := Receiver(got); !ok || index != 0x01020304 {
		t.Errorf("Receiver = %#x, %v", index, ok)
	}
}

func TestOpenUndoesSeal(t *testing.T) {
	for _, size := range []int{0, 1, 40, 1340, 65000} {
		plain := bytes.Repeat([]byte{7}, size)
		send, receive := NewSendKey(testKey(1), 9), NewReceiveKey(testKey(1))
		nonce := new(Nonce)

		// Sealed where the packet stands.
		message := append(make([]byte, HeaderLen), plain...)
		message = append(message, make([]byte, TagLen)...)
		send.Seal(message, message[HeaderLen:HeaderLen+size], send.Reserve(1), nonce)
		// And from elsewhere.
		second := make([]byte, size+Overhead)
		send.Seal(second, plain, send.Reserve(1), nonce)

		for i, m := range [][]byte{second, message} { // in any order
			again := bytes.Clone(m)
			got, ok := receive.Open(m, nonce)
			if !ok || !bytes.Equal(got, plain) {
				t.Errorf("%d bytes, message %d: %v, %d bytes", size, i, ok, len(got))
			}
			if _, ok := receive.Open(again, nonce); ok {
				t.Errorf("%d bytes: message %d was opened twice", size, i)
			}
		}
	}
}

func TestOpenRefusesWhatWasChanged(t *testing.T) {
	send, receive := NewSendKey(testKey(1), 9), NewReceiveKey(testKey(1))
	nonce := new(Nonce)
	message := make([]byte, 5+Overhead)
	send.Seal(message, []byte("12345"), send.Reserve(1), nonce)
	for i := 8; i < len(message); i++ { // the counter and what is sealed
		changed := bytes.Clone(message)
		changed[i] ^= 1
		if _, ok := receive.Open(changed, nonce); ok {
			t.Errorf("opened although byte %d was changed", i)
		}
	}
	if _, ok := receive.Open(message[:Overhead-1], nonce); ok {
		t.Error("opened a message that is too short")
	}
	if _, ok := receive.Open(message, nonce); !ok {
		t.Error("forgeries keep out the message itself")
	}
}

func TestSealAndOpenDoNotAllocate(t *testing.T) {
	send, receive := NewSendKey(testKey(1), 9), NewReceiveKey(testKey(1))
	nonce, plain, message := new(Nonce), make([]byte, 1340), make([]byte, 1340+Overhead)
	got := testing.AllocsPerRun(100, func() {
		send.Seal(message, plain, send.Reserve(1), nonce)
		if _, ok := receive.Open(message, nonce); !ok {
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
		if got := PaddedLen(tt.n, tt.mtu); got != tt.want {
			t.Errorf("PaddedLen(%d, %d) = %d, want %d", tt.n, tt.mtu, got, tt.want)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	k, nonce := NewSendKey(testKey(1), 9), new(Nonce)
	plain, message := make([]byte, 1340), make([]byte, 1340+Overhead)
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		k.Seal(message, plain, k.Reserve(1), nonce)
	}
}
