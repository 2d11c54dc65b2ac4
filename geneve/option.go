package geneve

import "encoding/binary"

const (
	// MaxOptionsLen is the most that Opt Len can state: 63 words.
	MaxOptionsLen = optLenMask * 4
	// MaxOptionDataLen is the most data one option can carry: 31 words.
	MaxOptionDataLen = optionLenMask * 4

	optionHeaderLen    = 4
	optionTypeCritical = 0x80 // high-order bit of Type
	optionLenMask      = 0x1F // octet 3, in words of four bytes
)

// Option is one tunnel option, RFC 8926 section 3.5:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|          Option Class         |      Type     |R|R|R| Length  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	~                  Variable-Length Option Data                  ~
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type Option struct {
	// Class is the namespace of Type, assigned by IANA.
	Class uint16
	// Type includes the critical bit.
	Type uint8
	// Data is a multiple of four bytes, at most MaxOptionDataLen.
	Data []byte
}

// Critical tells whether a receiver that does not know the option must drop
// the packet.
func (o Option) Critical() bool { return o.Type&optionTypeCritical != 0 }

// AppendOption appends o to b. It panics if Data is not a multiple of four or
// longer than MaxOptionDataLen bytes.
func AppendOption(b []byte, o Option) []byte {
	if len(o.Data)%4 != 0 || len(o.Data) > MaxOptionDataLen {
		panic("geneve: option data does not fit the option")
	}
	b = binary.BigEndian.AppendUint16(b, o.Class)
	b = append(b, o.Type, byte(len(o.Data)/4))
	return append(b, o.Data...)
}

// OptionIterator walks the options of a header. It is a value: copying it
// copies the position.
type OptionIterator struct {
	rest []byte
	err  error
}

// OptionIterator returns an iterator over the options of h.
func (h Header) OptionIterator() OptionIterator { return OptionIterator{rest: h.Options} }

// Next returns the next option, its data aliasing the header's options, and
// false at the end or at the first option that does not fit; Err tells which.
func (it *OptionIterator) Next() (Option, bool) {
	if len(it.rest) == 0 {
		return Option{}, false
	}
	if len(it.rest) < optionHeaderLen {
		return it.fail()
	}
	end := optionHeaderLen + int(it.rest[3]&optionLenMask)*4 // the three R bits are ignored
	if end > len(it.rest) {
		return it.fail()
	}
	o := Option{
		Class: binary.BigEndian.Uint16(it.rest),
		Type:  it.rest[2],
		Data:  it.rest[optionHeaderLen:end:end],
	}
	it.rest = it.rest[end:]
	return o, true
}

func (it *OptionIterator) fail() (Option, bool) {
	it.rest, it.err = nil, ErrOptionLength
	return Option{}, false
}

// Err returns ErrOptionLength if the walk ended at an option that reaches over
// the end of the options, and nil otherwise.
func (it *OptionIterator) Err() error { return it.err }
