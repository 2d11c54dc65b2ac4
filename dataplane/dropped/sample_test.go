package dropped

import (
	"sync"
	"testing"
	"time"
)

// offer is what the packet path does.
func offer(s *Sample, kind int, now time.Duration, length int) bool {
	if !s.Wants(kind, int64(now)) {
		return false
	}
	s.Keep(kind, &Packet{Length: length})
	return true
}

// TestFlood: a flood of one kind hides none of another, and costs no memory.
func TestFlood(t *testing.T) {
	s := New(3)
	kept := 0
	for i := range 100_000 {
		if offer(s, 1, time.Duration(i)*time.Millisecond, i) {
			kept++
		}
	}
	if want := Kept + 100*4 - 1; kept < want-1 || kept > want+1 {
		t.Errorf("%d kept of a flood of 100 s, want %d", kept, want)
	}
	offer(s, 0, 100*time.Second, -1)
	offer(s, 2, 100*time.Second, -2)
	got := s.After(0)
	if len(got) != Kept+2 || got[Kept].Length != -1 || got[Kept+1].Length != -2 {
		t.Errorf("%d packets: %+v", len(got), got)
	}
	for i := range got[1:] {
		if got[i+1].Number <= got[i].Number {
			t.Errorf("number %d comes after %d", got[i+1].Number, got[i].Number)
		}
	}
	if after := s.After(got[Kept].Number); len(after) != 1 || after[0] != got[Kept+1] {
		t.Errorf("after the last but one: %+v", after)
	}
	if after := s.After(got[Kept+1].Number); after != nil {
		t.Errorf("after the last: %+v", after)
	}
}

// TestBudget: a burst, and then four in a second.
func TestBudget(t *testing.T) {
	s := New(1)
	for i := range Kept {
		if !offer(s, 0, time.Hour, i) {
			t.Fatalf("packet %d of a burst is not kept", i)
		}
	}
	for _, later := range []time.Duration{0, 249 * time.Millisecond} {
		if offer(s, 0, time.Hour+later, 0) {
			t.Errorf("one more is kept after %v", later)
		}
	}
	if !offer(s, 0, time.Hour+250*time.Millisecond, 0) || offer(s, 0, time.Hour+250*time.Millisecond, 0) {
		t.Error("not one after 250 ms")
	}
}

// TestReader: whoever follows while packets are kept sees each of them once, and keeps
// nobody waiting.
func TestReader(t *testing.T) {
	s := New(4)
	var wg sync.WaitGroup
	for kind := range 4 {
		wg.Go(func() {
			for range 2000 {
				s.Keep(kind, &Packet{Length: kind})
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen, last := make(map[uint64]bool), uint64(0)
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		for _, p := range s.After(last) {
			if seen[p.Number] {
				t.Fatalf("number %d twice", p.Number)
			}
			seen[p.Number], last = true, p.Number
		}
	}
	for _, p := range s.After(0) {
		if !seen[p.Number] {
			t.Errorf("number %d was missed", p.Number)
		}
	}
	s.cells[0].mu.Lock()
	s.Keep(0, &Packet{Length: -1}) // does not wait
	s.cells[0].mu.Unlock()
	for _, p := range s.After(0) {
		if p.Length == -1 {
			t.Error("kept in a ring that somebody reads")
		}
	}
}
