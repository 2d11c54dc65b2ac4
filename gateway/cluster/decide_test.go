package cluster

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
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
				toldFirst: noon.Add(-time.Hour), toldLast: noon.Add(-time.Second),
				duration: 15 * time.Second, retry: 2 * time.Second,
			})
			if got != tt.want {
				t.Errorf("decided to %s, want %s", got, tt.want)
			}
		})
	}
}

// A leader without other replicas renews seldom, and asks in between.
func TestDecideAlone(t *testing.T) {
	for _, tt := range []struct {
		name           string
		written, asked time.Duration // ago
		want           action
	}{
		{"written just now", time.Second, time.Hour, lead},
		{"asked just now", 10 * time.Second, time.Second, lead},
		{"time to ask", 10 * time.Second, 2 * time.Second, ask},
		{"time to renew", 20 * time.Second, time.Second, renew},
	} {
		got := decide(facts{lease: heldBy("a"), self: "a", leading: true, alone: true, now: noon, written: noon.Add(-tt.written), asked: noon.Add(-tt.asked),
			duration: 15 * time.Second, retry: 2 * time.Second})
		if got != tt.want {
			t.Errorf("%s: decided to %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A replica that stands by counts the silence of a leader from when that can know of it.
func TestDecideStandingBy(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, last time.Duration // ago; negative: never
		seen        time.Duration
		want        action
	}{
		{"it has just come", -1, -1, time.Hour, announce},
		{"the leader has not had time", 14 * time.Second, 14 * time.Second, time.Hour, standBy},
		{"the leader has had time", 15 * time.Second, 15 * time.Second, time.Hour, acquire},
		{"the leader renews", time.Hour, time.Second, 14 * time.Second, standBy},
		{"the leader is silent, and it was just announced again", time.Hour, time.Second, 15 * time.Second, acquire},
		{"time to say so again", time.Hour, tellEvery, time.Second, announce},
	} {
		f := facts{lease: heldBy("b"), self: "a", now: noon, seen: noon.Add(-tt.seen), duration: 15 * time.Second, retry: 2 * time.Second}
		if tt.first >= 0 {
			f.toldFirst, f.toldLast = noon.Add(-tt.first), noon.Add(-tt.last)
		}
		if got := decide(f); got != tt.want {
			t.Errorf("%s: decided to %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestWritesInAnHour counts what a gateway writes that is well: its Lease, and its
// Connection for a latency that varies a little.
func TestWritesInAnHour(t *testing.T) {
	const retry, interval = 5 * time.Second, 10 * time.Second // the defaults
	for _, tt := range []struct {
		name  string
		alone bool
		most  int
	}{
		{"the only replica", true, 108}, // of 1080 with a renewal every 5 s and a latency every 10 s
		{"with others", false, 720 + 36},
	} {
		leases, connections := 0, 0
		live := statusOf(connected(), new(networkingv1beta1.Connection))
		f := facts{lease: heldBy("a"), self: "a", leading: true, alone: tt.alone, duration: 15 * time.Second, retry: retry}
		f.written, f.asked = noon, noon
		wrote := noon
		for f.now = noon; f.now.Before(noon.Add(time.Hour)); f.now = f.now.Add(time.Second) {
			switch decide(f) {
			case renew:
				leases, f.written = leases+1, f.now
			case ask:
				f.asked = f.now
			}
			report := connected()
			report.Time, report.Peer.Timestamp, report.Peer.LatencyText = f.now, f.now, []string{"12ms", "14ms", "11ms"}[f.now.Second()%3]
			if want := statusOf(report, &networkingv1beta1.Connection{Status: live}); due(live, want, f.now.Sub(wrote), interval) {
				connections, live, wrote = connections+1, want, f.now
			}
		}
		t.Logf("%s: %d times the Lease, %d times the Connection", tt.name, leases, connections)
		if got := leases + connections; got > tt.most || leases < 60 || connections < 30 {
			t.Errorf("%s: %d writes in an hour, want %d at most", tt.name, got, tt.most)
		}
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
				lease: tt.lease, self: "a", leading: tt.leading, rival: true, now: noon, seen: noon.Add(-tt.seen), toldLast: noon,
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
	f := facts{lease: heldBy("b"), self: "a", now: noon, toldLast: noon, duration: 15 * time.Second, retry: 2 * time.Second}
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
