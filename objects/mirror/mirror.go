package mirror

import (
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/objects/manifests"
)

// Mirror follows everything that one program reads from its API server. New
// builds it, Add says what is read, and Run follows.
type Mirror struct {
	contact *Contact
	watches []func(context.Context)       // each follows one watch
	sizes   map[string]func() (int, bool) // of the stores that were added
	version atomic.Uint64                 // counts the changes
	kick    chan struct{}                 // one slot: there was a change
	read    atomic.Bool                   // Read had all objects once: the lists leave garbage behind
}

// New builds a Mirror of nothing. log gets the loss of the API server and its
// return.
func New(log *slog.Logger) *Mirror {
	return &Mirror{contact: NewContact(log), sizes: make(map[string]func() (int, bool)), kick: make(chan struct{}, 1)}
}

// Add makes m follow w into s, whose changes become those of m.
func Add[T any, P Object[T]](m *Mirror, w Watched, s *Store[T, P]) {
	s.Changed = m.Changed
	m.sizes[w.Name()] = s.Size
	m.watches = append(m.watches, func(ctx context.Context) { Follow(ctx, w, s, m.contact) })
}

// Contact is that of all watches, for those that are followed beside the Mirror
// because what they show is no reason to read everything again.
func (m *Mirror) Contact() *Contact { return m.contact }

// Changed tells of a change: the digest is another one now. It is for what is
// read together with the objects, as files are.
func (m *Mirror) Changed() {
	m.version.Add(1)
	select {
	case m.kick <- struct{}{}:
	default: // a look is due already
	}
}

// Read gathers the objects from the stores, unless their digest is known. The
// error is a manifests.Waiting until all of them were listed once.
func (m *Mirror) Read(known manifests.Digest, gather func() manifests.Objects) (r manifests.Reading, err error) {
	// Before the objects are read: what comes in between is read again.
	version := m.version.Load()
	if waiting := m.waiting(); len(waiting) > 0 {
		return r, manifests.Waiting(waiting)
	}
	r.Digest[0] = 1 // never zero
	binary.BigEndian.PutUint64(r.Digest[1:], version)
	if r.Digest == known {
		return r, nil
	}
	r.Heavy = !m.read.Swap(true)
	r.Objects = gather()
	return r, nil
}

// waiting says what must be read before anything can be built: an incomplete
// list of anything looks as if the rest had been deleted. Nil: nothing.
func (m *Mirror) waiting() manifests.Problems {
	for _, size := range m.sizes {
		if _, synced := size(); synced {
			continue
		}
		if failing := m.contact.Problems(); len(failing) > 0 {
			return failing
		}
		return manifests.Problems{{Reason: "reading the objects of the cluster"}}
	}
	return nil
}

// Run follows what was added until ctx ends, and calls changed after changes,
// not at once and not too often.
func (m *Mirror) Run(ctx context.Context, changed func()) {
	var wg sync.WaitGroup
	for _, w := range m.watches {
		wg.Go(func() { w(ctx) })
	}
	m.pace(ctx, changed)
	wg.Wait()
}

const (
	// settle is how long a change waits for others that belong to it.
	settle = 50 * time.Millisecond
	// spacing lies between two changes that are passed on: a hundred pods a second
	// make four changes of the data plane.
	spacing = 250 * time.Millisecond
)

// pace passes changes on, none at once and not too many.
func (m *Mirror) pace(ctx context.Context, changed func()) {
	var last time.Time
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.kick:
		}
		timer.Reset(max(settle, time.Until(last.Add(spacing))))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		select {
		case <-m.kick: // came while this one waited: it is told now
		default:
		}
		last = time.Now()
		changed()
	}
}

// State is what a Mirror does now, for display.
type State struct {
	// Connected says that the API server answers everything that is asked.
	Connected bool `json:"connected"`
	// Away is since when it does not.
	Away time.Time `json:"away,omitzero"`
	// Error is one reason.
	Error string `json:"error,omitempty"`
	// Watches are the objects at hand.
	Watches []WatchState `json:"watches"`
}

// WatchState describes one watch.
type WatchState struct {
	Name string `json:"name"`
	// Objects counts those that matter here.
	Objects int `json:"objects"`
	// Synced says that the list was complete once.
	Synced bool `json:"synced"`
}

// State returns what m does now.
func (m *Mirror) State() State {
	s := State{}
	s.Away, s.Error = m.contact.Away()
	s.Connected = s.Away.IsZero()
	for name, size := range m.sizes {
		n, synced := size()
		s.Watches = append(s.Watches, WatchState{Name: name, Objects: n, Synced: synced})
		s.Connected = s.Connected && synced
	}
	slices.SortFunc(s.Watches, func(a, b WatchState) int { return strings.Compare(a.Name, b.Name) })
	return s
}
