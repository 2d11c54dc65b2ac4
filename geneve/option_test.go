package geneve

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func walk(h Header) (all []Option, err error) {
	it := h.OptionIterator()
	for o, ok := it.Next(); ok; o, ok = it.Next() {
		all = append(all, o)
	}
	return all, it.Err()
}

func TestOptions(t *testing.T) {
	want := []Option{
		{Class: 0x0102, Type: 0x11, Data: []byte{1, 2, 3, 4}},
		{Class: 0xffff, Type: 0x80, Data: []byte{}},
		{Class: 0, Type: 0xff, Data: make([]byte, MaxOptionDataLen)},
	}
	var h Header
	for _, o := range want {
		h.Options = AppendOption(h.Options, o)
	}
	got, err := walk(h)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	for i, critical := range []bool{false, true, true} {
		if got[i].Critical() != critical {
			t.Errorf("option %d: Critical = %v, want %v", i, !critical, critical)
		}
	}
}

func TestOptionsThatDoNotFit(t *testing.T) {
	for name, raw := range map[string][]byte{
		"half an option header": {0, 1},
		"data missing":          {0, 1, 2, 1},
		"data cut off":          {0, 1, 2, 2, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := walk(Header{Options: raw})
			if len(got) != 0 || err != ErrOptionLength {
				t.Errorf("got %v, %v; want none, %v", got, err, ErrOptionLength)
			}
		})
	}
}

func TestAppendOptionPanics(t *testing.T) {
	for name, data := range map[string][]byte{
		"half a word": make([]byte, 2),
		"32 words":    make([]byte, 128),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			AppendOption(nil, Option{Data: data})
		})
	}
}

func TestCriticalOptionSent(t *testing.T) {
	b := AppendHeader(nil, Header{VNI: 1, Protocol: ProtocolEthernet, Critical: true,
		Options: AppendOption(nil, Option{Class: 0xffff, Type: 0x80})})
	if want := unhex(t, `01 40 65 58 00 00 01 00 ff ff 80 00`); !bytes.Equal(b, want) {
		t.Fatalf("AppendHeader = %x, want %x", b, want)
	}
	if _, _, err := Decode(b); err != ErrCriticalOption {
		t.Errorf("Decode: %v, want %v", err, ErrCriticalOption)
	}
}
