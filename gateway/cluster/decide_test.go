package cluster

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// heldBy is a lease with this holder; empty: nobody.
func heldBy(holder string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Spec.HolderIdentity = &holder
	return l
}

func TestDecide(t *testing.T) {
	short := heldBy("b")
	short.Spec.LeaseDurationSeconds = new(int32(3))
	tests := []struct {
		name    string
		lease   *coordinationv1.Lease
		leading bool
		seen    time.Duration // ago
		written time.Duration // ago
		want    action
	}{
		{"no lease yet", nil, false, 0, time.Hour, standBy},
		{"the leader's lease was deleted", nil, true, 0, time.Hour, lead},
		{"a lease without a holder", &coordinationv1.Lease{}, false, 0, time.Hour, acquire},
		{"a lease that was given back", heldBy(""), false, 0, time.Hour, acquire},
		{"the leader's lease was freed", heldBy(""), true, 0, time.Second, acquire},
		{"ours, as a process before wrote it", heldBy("a"), false, 0, time.Hour, renew},
		{"ours, written just now", heldBy("a"), true, 0, time.Second, lead},
		{"ours, time to renew", heldBy("a"), true, 2 * time.Second, 2 * time.Second, renew},
		{"ours, not renewed for an hour: the API server is away", heldBy("a"), true, time.Hour, time.Hour, renew},
		{"another's, renewed lately", heldBy("b"), false, 14 * time.Second, time.Hour, standBy},
		{"another's, silent", heldBy("b"), false, 15 * time.Second, time.Hour, acquire},
		{"another's, silent by its own setting", short, false, 3 * time.Second, time.Hour, acquire},
		{"another took it from the leader", heldBy("b"), true, 0, time.Second, standBy},
		{"another took it and died", heldBy("b"), true, time.Hour, time.Hour, standBy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := decide(facts{
				lease: tt.lease, self: "a", leading: tt.leading, now: noon, seen: noon.Add(-tt.seen), written: noon.Add(-tt.written),
				duration: 15 * time.Second, retry: 2 * time.Second,
			})
			if got != tt.want {
				t.Errorf("decided to %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDecideLeaving(t *testing.T) {
	tests := []struct {
		name    string
		lease   *coordinationv1.Lease
		leading bool
		want    action
	}{
		{"the lease is deleted", nil, true, lead},
		{"the leader", heldBy("a"), true, release},
		{"the leader, until another one comes", heldBy(""), true, lead},
		{"another one has come", heldBy("b"), true, standBy},
		{"never led", heldBy("b"), false, standBy},
		{"nobody leads, and this one will not", heldBy(""), false, standBy},
		{"the lease of the process before", heldBy("a"), false, release},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := decide(facts{
				lease: tt.lease, self: "a", leading: tt.leading, leaving: true, now: noon, seen: noon.Add(-time.Hour), written: noon,
				duration: 15 * time.Second, retry: 2 * time.Second,
			})
			if got != tt.want {
				t.Errorf("decided to %s, want %s", got, tt.want)
			}
		})
	}
}

// A pod of a template without election is left to end first.
func TestDecideBesideARival(t *testing.T) {
	never, freed := heldBy(""), heldBy("")
	freed.Spec.AcquireTime = new(metav1.NewMicroTime(noon))
	tests := []struct {
		name    string
		lease   *coordinationv1.Lease
		leading bool
		seen    time.Duration // ago
		want    action
	}{
		{"the lease is new", never, false, 14 * time.Second, standBy},
		{"the rival does not end", never, false, 15 * time.Second, acquire},
		{"the lease was held before", freed, false, 0, acquire},
		{"the lease was made again", never, true, 0, acquire},
		{"another one was faster", heldBy("b"), false, 0, standBy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := facts{
				lease: tt.lease, self: "a", leading: tt.leading, rival: true, now: noon, seen: noon.Add(-tt.seen),
				duration: 15 * time.Second, retry: 2 * time.Second,
			}
			if got := decide(f); got != tt.want {
				t.Errorf("decided to %s, want %s", got, tt.want)
			}
		})
	}
}

// A replica that stands by looks again when the lease expires, not later.
func TestNextLook(t *testing.T) {
	f := facts{lease: heldBy("b"), self: "a", now: noon, duration: 15 * time.Second, retry: 2 * time.Second}
	for _, tt := range []struct {
		seen, want time.Duration
	}{
		{0, 2 * time.Second}, {14500 * time.Millisecond, 500 * time.Millisecond}, {20 * time.Second, 2 * time.Second},
	} {
		f.seen = noon.Add(-tt.seen)
		if got := f.next(); got != tt.want {
			t.Errorf("seen %v ago: next look in %v, want %v", tt.seen, got, tt.want)
		}
	}
}

func TestHeld(t *testing.T) {
	o := ElectionOptions{Identity: "a", LeaseDuration: 15 * time.Second}
	l := withHolder(heldBy("b"), o, noon)
	if holderOf(l) != "a" || *l.Spec.LeaseDurationSeconds != 15 || *l.Spec.LeaseTransitions != 1 || !l.Spec.AcquireTime.Time.Equal(noon) || !l.Spec.RenewTime.Time.Equal(noon) {
		t.Errorf("taken over: %+v", l.Spec)
	}
	later := withHolder(l, o, noon.Add(time.Minute))
	if *later.Spec.LeaseTransitions != 1 || !later.Spec.AcquireTime.Time.Equal(noon) || !later.Spec.RenewTime.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("renewed: %+v", later.Spec)
	}
	if !l.Spec.RenewTime.Time.Equal(noon) {
		t.Error("the lease that was read has changed")
	}
}
