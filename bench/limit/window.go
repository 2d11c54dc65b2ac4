package limit

// rejectAfterMessages bounds the use of one key (WireGuard paper, section 6.1).
const rejectAfterMessages = 1<<64 - 1<<13 - 1

const (
	wordBits = 64
	// windowWords is a power of two. One word is always that of the newest counter,
	// so a message may be (windowWords-1)*wordBits older.
	windowWords = 128
)

// window remembers which counters were seen (RFC 6479): a ring of bitmap words
// that moves by whole words, so that nothing is ever shifted.
type window struct {
	words [windowWords]uint64
	last  uint64
}

// accept reports whether counter is new, and remembers it.
func (w *window) accept(counter uint64) bool {
	if counter >= rejectAfterMessages {
		return false
	}
	word, newest := counter/wordBits, w.last/wordBits
	switch {
	case counter > w.last:
		for i := range min(word-newest, windowWords) {
			w.words[(newest+1+i)%windowWords] = 0
		}
		w.last = counter
	case newest-word >= windowWords:
		return false
	}
	bit := uint64(1) << (counter % wordBits)
	at := &w.words[word%windowWords]
	if *at&bit != 0 {
		return false
	}
	*at |= bit
	return true
}
