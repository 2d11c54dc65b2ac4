package console

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/admin/progress"
)

func TestSpinners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := onTerminal(t, 70, 24)
		say := c.Progress()
		check := func(when, want string) {
			t.Helper()
			if diff := cmp.Diff(want, s.text()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		say.Done("local", "Network correctly initialized")
		say.Waiting("remote", "Waiting for gateway pod gw-milan to be ready")
		check("what may be over at once", " INFO   (local) Network correctly initialized\n")
		time.Sleep(50 * time.Millisecond)
		check("still", " INFO   (local) Network correctly initialized\n")
		time.Sleep(100 * time.Millisecond)
		check("one wait", ` INFO   (local) Network correctly initialized
 ⠙      (remote) Waiting for gateway pod gw-milan to be ready (0s)
`)
		time.Sleep(2100 * time.Millisecond)
		say.Waiting("local", "Waiting for gateway pod gw-rome-with-a-very-long-name to be ready")
		time.Sleep(100 * time.Millisecond)
		check("two waits, one too long for the window", ` INFO   (local) Network correctly initialized
 ⠸      (remote) Waiting for gateway pod gw-milan to be ready (2s)
 ⠋      (local) Waiting for gateway pod gw-rome-with-a-very-lon… (0s)
`)
		fmt.Fprintln(c.Out(), "asked for")
		say.Done("local", "Gateway client correctly set up")
		check("lines above a wait", ` INFO   (local) Network correctly initialized
asked for
 INFO   (local) Gateway client correctly set up
 ⠸      (remote) Waiting for gateway pod gw-milan to be ready (2s)
`)
		s.resize(30)
		time.Sleep(time.Second)
		check("a narrower window", ` INFO   (local) Network correctly initialized
asked for
 INFO   (local) Gateway client correctly set up
 ⠸      (remote) Waitin… (3s)
`)
		c.Error(errors.New("(remote) the gateway pod did not become ready: ImagePullBackOff\n  see its events"))
		check("the end", ` INFO   (local) Network correctly initialized
asked for
 INFO   (local) Gateway client correctly set up
 ERRO   (remote) the gateway pod did not become ready: ImagePullBackOff
          see its events
`)
	})
}

// TestWaitsWithoutTerminal shows what a log or a pipe gets.
func TestWaitsWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, out, errOut := plain("")
		say := c.Progress()
		say.Waiting("local", "Waiting for a moment")
		time.Sleep(9 * time.Second)
		say.Done("local", "A moment has passed")
		say.Waiting("remote", "Waiting for the load balancer")
		time.Sleep(75 * time.Second)
		say.Waiting("remote", "Waiting for the load balancer: it says "+strings.Repeat("x", 1000))
		time.Sleep(75 * time.Second)
		say.Warning("remote", "It takes long")
		say.Failed("local", "Something else")
		c.Close()
		want := ` INFO   (local) A moment has passed
 INFO   (remote) Waiting for the load balancer (10s)
 INFO   (remote) Waiting for the load balancer: it says ` + strings.Repeat("x", 191) + `… (1m15s)
 WARN   (remote) It takes long
 ERRO   (local) Something else
`
		if diff := cmp.Diff(want, errOut.String()); diff != "" {
			t.Errorf("stderr (-want +got):\n%s", diff)
		}
		if out.Len() > 0 {
			t.Errorf("stdout: %q", out)
		}
	})
}

// TestWaitEndsWithoutAWord: a cluster that answered is no longer shown as waited for.
func TestWaitEndsWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := onTerminal(t, 70, 24)
		say := c.Progress()
		say.Waiting("local", "Waiting for rome")
		say.Waiting("remote", "Waiting for milan")
		time.Sleep(150 * time.Millisecond)
		say.Ended("local")
		if got, want := s.text(), " ⠙      (remote) Waiting for milan (0s)\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		say.Ended("remote")
		if got := s.text(); got != "" {
			t.Errorf("after the last: %q", got)
		}
	})
}

// TestWaitKeepsItsTime: what is waited for may be said more precisely meanwhile.
func TestWaitKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := onTerminal(t, 70, 24)
		say := c.Progress()
		say.Waiting("", "Waiting for the pod")
		time.Sleep(5 * time.Second)
		say.Waiting("", "Waiting for the pod: ContainerCreating")
		time.Sleep(150 * time.Millisecond)
		if got, want := s.text(), " ⠙      Waiting for the pod: ContainerCreating (5s)\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		c.Close()
		if got := s.text(); got != "" {
			t.Errorf("after the end: %q", got)
		}
	})
}

// TestSpinnersLeaveNothing: whatever is told and however the window changes, what
// stays are the lines that stay.
func TestSpinnersLeaveNothing(t *testing.T) {
	type step struct {
		what, columns, ms int
		cluster, text     string
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what: rapid.IntRange(0, 5).Draw(t, "what"), ms: rapid.IntRange(0, 900).Draw(t, "ms"),
			columns: rapid.IntRange(12, 31).Draw(t, "columns"), // lines that stay do not wrap by words there
			cluster: rapid.SampledFrom([]string{"local", "remote", ""}).Draw(t, "cluster"),
			text:    rapid.SampledFrom([]string{"short", "a gateway pod with a long name, which fits into no narrow window", "漢字 and more 漢字"}).Draw(t, "text"),
		}
	}), 1, 30)
	rapid.Check(t, func(rt *rapid.T) {
		todo, got := steps.Draw(rt, "steps"), ""
		var want strings.Builder
		synctest.Test(t, func(t *testing.T) {
			c, s := onTerminal(t, 30, 24)
			say := c.Progress()
			for _, st := range todo {
				switch st.what {
				case 0, 1:
					say.Waiting(st.cluster, st.text)
				case 2:
					s.resize(st.columns)
					time.Sleep(time.Duration(st.ms) * time.Millisecond)
				case 3:
					say.Done(st.cluster, "done")
					fmt.Fprintln(&want, " INFO   "+about(st.cluster)+"done")
				case 4:
					fmt.Fprintln(c.Out(), st.text)
					fmt.Fprintln(&want, st.text)
				case 5:
					say.Ended(st.cluster)
				}
			}
			c.Close()
			got = s.text()
		})
		if diff := cmp.Diff(want.String(), got); diff != "" {
			rt.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestEveryKindHasAPrefix(t *testing.T) {
	want := map[progress.Kind]string{progress.Done: "INFO", progress.Warning: "WARN", progress.Failed: "ERRO"}
	for kind, word := range want {
		if got := prefixOf(kind).word; got != word {
			t.Errorf("%v: %s, want %s", kind, got, word)
		}
	}
}
