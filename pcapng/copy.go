package pcapng

import (
	"errors"
	"io"
	"sync"
)

// Totals are what a Copier has seen.
type Totals struct {
	Packets uint64
	Bytes   uint64 // of the file
	Lost    uint64 // packets that were not captured for want of room
	// End is why the capture ended; empty: it has not said so.
	End string
}

// Copier passes a stream of blocks on, in whole blocks only: however the stream
// ends, what was passed on is a complete file.
type Copier struct {
	to      io.Writer
	partial []byte // the beginning of a block

	mu     sync.Mutex // guards what follows
	totals Totals
	lost   map[uint32]uint64 // by interface
}

// NewCopier returns a Copier that passes on to w.
func NewCopier(w io.Writer) *Copier { return &Copier{to: w, lost: make(map[uint32]uint64)} }

// ErrNoCapture says that what came is no stream of blocks.
var ErrNoCapture = errors.New("this is no capture file")

// maxBlock bounds a block: the largest packet and some options.
const maxBlock = 1 << 20

// Write implements io.Writer.
func (c *Copier) Write(b []byte) (int, error) {
	n := len(b)
	if len(c.partial) > 0 {
		b = append(c.partial, b...)
	}
	whole, first := 0, c.Totals().Bytes == 0
	var totals Totals
	lost := make(map[uint32]uint64)
	for {
		size, err := blockSize(b[whole:], first && whole == 0)
		if err != nil {
			return 0, err
		}
		if size == 0 || size > len(b)-whole {
			break
		}
		totals.count(b[whole:whole+size], lost)
		whole += size
	}
	if whole > 0 {
		if _, err := c.to.Write(b[:whole]); err != nil {
			return 0, err
		}
	}
	c.partial = append(c.partial[:0], b[whole:]...)
	totals.Bytes = uint64(whole)
	c.add(totals, lost)
	return n, nil
}

// blockSize returns the length of the block at the start of b, 0 where b is too
// short to tell.
func blockSize(b []byte, first bool) (int, error) {
	if len(b) < 8 {
		return 0, nil
	}
	if first && le.Uint32(b) != typeSection {
		return 0, ErrNoCapture
	}
	n := le.Uint32(b[4:])
	if n < 12 || n%4 != 0 || n > maxBlock {
		return 0, ErrNoCapture
	}
	return int(n), nil
}

func (c *Copier) add(t Totals, lost map[uint32]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.totals.Packets += t.Packets
	c.totals.Bytes += t.Bytes
	if t.End != "" {
		c.totals.End = t.End
	}
	for i, n := range lost {
		c.totals.Lost += n - c.lost[i]
		c.lost[i] = n
	}
}

// Totals returns what has passed so far. It may be called at any time.
func (c *Copier) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.totals
}

// count notes one block.
func (t *Totals) count(block []byte, lost map[uint32]uint64) {
	switch le.Uint32(block) {
	case typePacket:
		t.Packets++
	case typeStatistics:
		if len(block) < 24 {
			return
		}
		ended := false
		var comment string
		for code, value := range options(block[20 : len(block)-4]) {
			switch {
			case code == optDropped && len(value) == 8:
				lost[le.Uint32(block[8:])] = le.Uint64(value)
			case code == optStop:
				ended = true
			case code == optComment:
				comment = string(value)
			}
		}
		if ended {
			t.End = comment
		}
	}
}

// options yields codes and values, as far as they are well-formed.
func options(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			code, n := le.Uint16(b), int(le.Uint16(b[2:]))
			padded := (n + 3) &^ 3
			if code == optEnd || padded > len(b)-4 || !yield(code, b[4:4+n]) {
				return
			}
			b = b[4+padded:]
		}
	}
}
