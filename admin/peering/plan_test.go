package peering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
)

var (
	here  = &access.Cluster{Options: access.Options{Name: access.Local}}
	there = &access.Cluster{Options: access.Options{Name: access.Remote}}
)

// takes is a step that is over after a time.
func takes(in *access.Cluster, what string, d time.Duration) *step {
	var begun time.Time
	return &step{in: in, waiting: "Waiting for " + what, done: what + " done", try: func(context.Context) (string, error) {
		if begun.IsZero() {
			begun = time.Now()
		}
		if time.Since(begun) < d {
			return what + " is not ready", nil
		}
		return "", nil
	}}
}

// script collects what is told, with the time.
type script struct{ lines []string }

func (s *script) tell(started time.Time) progress.Func {
	return func(e progress.Event) {
		mark := map[progress.Kind]string{progress.Waiting: "...", progress.Done: "ok", progress.Warning: "warn", progress.Failed: "fail"}[e.Kind]
		s.lines = append(s.lines, fmt.Sprintf("%v %s %s %s", time.Since(started).Truncate(time.Second), e.Cluster, mark, e.Text))
	}
}

// only keeps what is not waiting, without the time.
func (s *script) only() (lines []string) {
	for _, l := range s.lines {
		if _, l, _ = strings.Cut(l, " "); !strings.Contains(l, " ... ") {
			lines = append(lines, l)
		}
	}
	return lines
}

// TestPlanTellsWhatIsMissing: of a step that says so the user reads what it waits for, whenever that changes.
func TestPlanTellsWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		try := func(context.Context) (string, error) {
			for i, missing := range []string{"a node", "a pod"} {
				if time.Since(began) < time.Duration(1+i)*time.Second {
					return missing, nil
				}
			}
			return "", nil
		}
		var p plan
		p.add(after(p.add(nil, &step{in: here, waiting: "Waiting", done: "A done", detailed: true, try: try})), takes(here, "B", time.Second))
		var s script
		if err := p.run(t.Context(), s.tell(began)); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"0s local ... Waiting", "0s local ... Waiting: a node", "1s local ... Waiting: a pod", "2s local ok A done", "2s local ... Waiting for B", "3s local ok B done",
		}
		if diff := cmp.Diff(want, s.lines); diff != "" {
			t.Errorf("what was told (-want +got):\n%s", diff)
		}
	})
}

func TestPlanTellsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p plan
		first := p.add(nil, takes(here, "A", 3*time.Second), takes(there, "B", time.Second))
		slow := p.add(after(first), takes(there, "C", 10*time.Second))
		p.add(after(first), takes(here, "D", time.Second)) // at the same time as C
		p.add(after(slow), takes(here, "E", 0))
		var s script
		if err := p.run(t.Context(), s.tell(time.Now())); err != nil {
			t.Fatal(err)
		}
		want := []string{"local ok A done", "remote ok B done", "remote ok C done", "local ok D done", "local ok E done"}
		if diff := cmp.Diff(want, s.only()); diff != "" {
			t.Errorf("what was told (-want +got):\n%s", diff)
		}
		last := s.lines[len(s.lines)-1]
		if !strings.HasPrefix(last, "13s ") {
			t.Errorf("the last line is %q, want it after 13 s: A, C and E one after another, D beside C", last)
		}
		for _, want := range []string{"0s local ... Waiting for A", "0s remote ... Waiting for B", "3s local ... Waiting for D", "3s remote ... Waiting for C"} {
			if !strings.Contains(strings.Join(s.lines, "\n"), want) {
				t.Errorf("%q was not told:\n%s", want, strings.Join(s.lines, "\n"))
			}
		}
	})
}

func TestPlanEndsEarly(t *testing.T) {
	broken := errors.New("broken")
	fails := func(err error) *step {
		return &step{in: there, waiting: "Waiting for B", done: "B done", try: func(context.Context) (string, error) { return "", err }}
	}
	clues := func(s *step) *step {
		s.clues = func(context.Context, string) []string { return []string{"Pod b: ImagePullBackOff"} }
		return s
	}
	for _, tt := range []struct {
		name    string
		step    *step
		timeout time.Duration
		stop    time.Duration // when it is interrupted
		after   time.Duration
		want    string
	}{
		{
			name: "what will not pass ends it at once", step: clues(fails(there.Errorf("forbidden: %w", broken))), after: time.Second,
			want: "(remote) waiting for B: forbidden: broken\n  Pod b: ImagePullBackOff\n1 of 3 steps are done and stay done: run the same command again to continue",
		},
		{
			name: "what a person must cure ends it soon", step: fails(&complaint{"two gateways"}), after: time.Second + complaintFor,
			want: "(remote) waiting for B: two gateways\n1 of 3 steps are done and stay done: run the same command again to continue",
		},
		{
			name: "what does not answer is tried for a while", step: fails(there.Errorf("read: %w", context.DeadlineExceeded)), after: time.Second + unreachableFor,
			want: "(remote) waiting for B: read: context deadline exceeded\n  Next: find out why the API server does not answer\n1 of 3 steps are done and stay done: run the same command again to continue",
		},
		{
			name: "time is up", step: clues(takes(there, "B", time.Hour)), timeout: time.Minute, after: time.Minute,
			want: "(remote) timed out after 1m0s while waiting for B: B is not ready\n  Pod b: ImagePullBackOff\n1 of 3 steps are done and stay done: run the same command again to continue",
		},
		{
			name: "an interruption ends it at once and needs no explanation", step: clues(takes(there, "B", time.Hour)), stop: 30 * time.Second, after: 30 * time.Second,
			want: "(remote) interrupted while waiting for B: B is not ready\n1 of 3 steps are done and stay done: run the same command again to continue",
		},
		{
			name: "time is up before anything", step: takes(there, "B", time.Hour), timeout: time.Millisecond, after: time.Millisecond,
			want: "(local) timed out after 0s while waiting for A: A is not ready",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := withTimeout(t.Context(), Options{Timeout: tt.timeout})
				defer cancel()
				if tt.stop > 0 {
					time.AfterFunc(tt.stop, cancel)
				}
				var p plan
				first := p.add(nil, takes(here, "A", time.Second))
				p.add(after(first), tt.step)
				p.add(after(first), takes(here, "C", time.Hour))
				started := time.Now()
				err := p.run(ctx, nil)
				if err == nil {
					t.Fatal("no error")
				}
				if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
				if took := time.Since(started); took < tt.after || took > tt.after+time.Second {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
				var f *Failure
				if !errors.As(err, &f) {
					t.Errorf("%T is no Failure", err)
				}
			})
		})
	}
}

func TestPlanTellsWhatIsDoneBesideAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p plan
		note := takes(here, "C", time.Second)
		note.note(progress.Warning, "C was odd")
		p.add(nil, takes(here, "A", time.Hour), takes(there, "B", time.Hour), note)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var s script
		if err := p.run(ctx, s.tell(time.Now())); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff([]string{"local warn C was odd", "local ok C done"}, s.only()); diff != "" {
			t.Errorf("what was told (-want +got):\n%s", diff)
		}
	})
}

func TestStepForgivesWhatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := &step{in: here, try: func(context.Context) (string, error) {
			if looks++; looks%3 != 0 && looks < 300 { // twice away, once back, for about a minute
				return "", here.Errorf("read: %w", context.DeadlineExceeded)
			}
			if looks < 300 {
				return "not ready", nil
			}
			return "", nil
		}}
		if err := s.run(t.Context()); err != nil {
			t.Errorf("after %d looks: %v", looks, err)
		}
	})
}
