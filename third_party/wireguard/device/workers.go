package device

// This file is Sluice's, as direct.go is.

import (
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	// workerShare is how many bytes a worker must have to do in a batch to be woken for it:
	// what takes longer than the waking.
	workerShare = 32 << 10
	// workerStep is how many messages are taken at a time.
	workerStep = 4
)

// nonce is that of the message at hand.
type nonce [chacha20poly1305.NonceSize]byte

// message is one of a batch, which is sealed or opened.
type message struct {
	keypair *Keypair
	peer    *Peer
	place   int // in the batch
	counter uint64
	buf     []byte // to be sealed: the header and the packet with its padding. To be opened: the message
	done    []byte // the message that was sealed or the packet that was opened, nil if it is not genuine
}

// workers seal or open the messages of a batch together with the goroutine that has it, which
// gets on without those that are not there in time. It is the only one that calls methods.
// The zero value has no workers.
type workers struct {
	nonce nonce
	batch []message
	work  func(*nonce, *message)

	n     int
	ended sync.WaitGroup // the workers
	wake  chan struct{}  // received by the workers; closed by close
	// finished is sent to by the worker who is the last to finish, if the caller is not.
	finished chan struct{}
	// untaken messages are the first ones of the batch. It is below zero when there are none.
	untaken atomic.Int64
	// unfinished is how many messages are not done.
	unfinished atomic.Int64
}

// start adds n workers.
func (w *workers) start(n int) {
	w.n, w.wake, w.finished = n, make(chan struct{}, n), make(chan struct{}, 1)
	for range n {
		w.ended.Go(func() {
			n := new(nonce)
			for range w.wake {
				if w.take(n) {
					w.finished <- struct{}{}
				}
			}
		})
	}
}

// close ends the workers.
func (w *workers) close() {
	if w.wake != nil {
		close(w.wake)
		w.ended.Wait()
	}
}

// do works on every message of the batch, of so many bytes.
func (w *workers) do(work func(*nonce, *message), bytes int) {
	workers := min(w.n, bytes/workerShare)
	if workers == 0 {
		for i := range w.batch {
			work(&w.nonce, &w.batch[i])
		}
		return
	}
	w.work = work
	w.unfinished.Store(int64(len(w.batch)))
	w.untaken.Store(int64(len(w.batch))) // those that are late with the batch before begin now
	for range workers {
		select {
		case w.wake <- struct{}{}:
		default: // all of them are to be woken, or have not looked since the last time
		}
	}
	if !w.take(&w.nonce) {
		<-w.finished
	}
}

// take works on messages until none is left, and reports whether it has finished the last one.
func (w *workers) take(n *nonce) (last bool) {
	for {
		end := w.untaken.Add(-workerStep) + workerStep
		if end <= 0 {
			return last
		}
		taken := w.batch[max(0, end-workerStep):end]
		for i := range taken {
			w.work(n, &taken[i])
		}
		last = w.unfinished.Add(int64(-len(taken))) == 0
	}
}

// clear forgets the batch, and with it the keys.
func (w *workers) clear() {
	clear(w.batch)
	w.batch = w.batch[:0]
}
