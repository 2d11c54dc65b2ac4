package mirror

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// writeTimeout bounds one write.
	writeTimeout = 5 * time.Second
	// writeSpacing lies between two writes, whoever else edits the object meanwhile.
	writeSpacing = time.Second
	// maxPause lies between two attempts while the API server is away.
	maxPause = 5 * time.Second
)

// LastTimeout bounds a write at the end of a process, which waits for it.
const LastTimeout = 700 * time.Millisecond

// AbsentError says that the object to write into does not exist yet, in words.
// That is no reason for longer pauses: the watch that shows it wakes the Writer.
type AbsentError string

// Error is the words.
func (e AbsentError) Error() string { return string(e) }

// Writer writes what a program tells of itself to the API server. A write waits
// for the network, so it happens in a goroutine of its own, always with the
// newest there is to tell.
type Writer struct {
	write   func(ctx context.Context, last bool) (wrote bool, err error)
	kick    chan struct{} // one slot: there may be something to write
	writing sync.Mutex    // held while a write is under way
}

// NewWriter builds a Writer around a function that compares what there is to
// tell with what the API server has, and writes the difference. It is never
// called twice at a time. last is set for the write at the end of the program.
func NewWriter(write func(ctx context.Context, last bool) (wrote bool, err error)) *Writer {
	return &Writer{write: write, kick: make(chan struct{}, 1)}
}

// Wake says that there may be something to write. It does not wait.
func (w *Writer) Wake() {
	select {
	case w.kick <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// Run writes until ctx ends, not too often, and after a failure again.
func (w *Writer) Run(ctx context.Context) {
	pause := writeSpacing
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
		}
		wrote, err := w.once(ctx, false)
		switch {
		case err == nil && !wrote:
			continue
		case err == nil, errors.As(err, new(AbsentError)):
			pause = writeSpacing
		default:
			pause = min(2*pause, maxPause)
			w.Wake() // to try again
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Last writes once more, in the little time that a process has to end in.
func (w *Writer) Last() {
	ctx, cancel := context.WithTimeout(context.Background(), LastTimeout)
	defer cancel()
	_, _ = w.once(ctx, true) // whoever wants to know has it from the function
}

func (w *Writer) once(ctx context.Context, last bool) (wrote bool, err error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return w.write(ctx, last)
}
