package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"testing/synctest"

	"context"
	"errors"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/golden"
)

// examplePage has one of everything.
func examplePage(p *Page) {
	p.Heading("Peerings of rome")
	p.Table([]string{"PEER", "STATUS", "LATENCY", "ENDPOINT", "ALERTS"}, [][]string{
		{"milan", Good("Connected"), "12ms", "172.19.0.8:32009", "-"},
		{"a-cluster-with-a-long-name", Bad("Error"), "N/A", "gateway.example.org:51840",
			"no handshake for 3m12s: nothing comes from the peer; check its firewall (UDP 51840)"},
		{"漢字", Caution("Connecting")},
	})
	p.Line("")
	var s Section
	s.Entry("Cluster ID", "rome")
	s.Entry("Pod CIDR", "10.243.0.0/16", "10.244.0.0/16")
	network := s.Sub("Network")
	network.Entry("Status", Good("Healthy"))
	network.Entry("A key that is rather long", "and a value that is long, too, and has to be wrapped somewhere")
	network.Text("Everything is as it should be.")
	p.Box("Local installation", &s)
	p.Section(&s)
	p.Line(fmt.Sprintf("%d peerings", 3))
}

func TestPageFitsTheWindow(t *testing.T) {
	for _, columns := range []int{0, 120, 80, 60, 40, 20} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			var p Page
			examplePage(&p)
			var text strings.Builder
			for _, line := range p.lines(layout{columns: columns}) {
				if n := width(line); columns > 0 && n > columns {
					t.Errorf("%d columns: %s", n, render(line, false))
				}
				fmt.Fprintln(&text, render(line, false))
			}
			golden.Compare(t, "testdata/"+fmt.Sprintf("page-%d.txt", columns), text.String())
		})
	}
	t.Run("ascii", func(t *testing.T) {
		var p Page
		examplePage(&p)
		var text strings.Builder
		for _, line := range p.lines(layout{columns: 60, ascii: true}) {
			fmt.Fprintln(&text, render(line, true))
		}
		golden.Compare(t, "testdata/page-60-ascii-colours.txt", text.String())
	})
}

// TestNothingIsCut: every word of a table is there at any width.
func TestNothingIsCut(t *testing.T) {
	var p Page
	examplePage(&p)
	text := func(columns int) string {
		var b strings.Builder
		for _, line := range p.lines(layout{columns: columns}) {
			b.WriteString(render(line, false))
		}
		return b.String()
	}
	for columns := 8; columns < 130; columns++ {
		got := spaceless(text(columns))
		for _, word := range []string{"milan", "Connecting", "12ms", "N/A", "漢字"} {
			if !strings.Contains(got, word) {
				t.Errorf("%d columns: %q is missing", columns, word)
			}
		}
		if strings.ContainsRune(got, '…') && columns >= 2*narrowValue {
			t.Errorf("%d columns: something is cut", columns)
		}
	}
}

func TestShowOnAPipe(t *testing.T) {
	c, out, _ := plain("")
	c.Show(func(p *Page) { p.Line(Good("fine") + " and long: " + strings.Repeat("x", 200)) })
	if got, want := out.String(), "fine and long: "+strings.Repeat("x", 200)+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if c.Width() != 0 {
		t.Errorf("width: %d", c.Width())
	}
}

func TestMessagesWrapWithAMargin(t *testing.T) {
	c, s := onTerminal(t, 44, 24)
	c.Warn("(local) the gateway of milan has been silent for a minute and a half")
	c.Info("short")
	want := ` WARN   (local) the gateway of milan has
        been silent for a minute and a half
 INFO   short
`
	if diff := cmp.Diff(want, s.text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPrefixesHaveColours(t *testing.T) {
	s := newScreen(t, 80, 24)
	var b strings.Builder
	colourful := s.stream(true)
	colourful.Writer = &b
	build(nil, &stream{Writer: &b}, colourful).Error(errors.New(Bad("x")))
	if got, want := b.String(), "\x1b[30;41m ERRO \x1b[0m  \x1b[31mx\x1b[0m\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLiveInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := onTerminal(t, 40, 6)
		ctx, cancel := context.WithCancel(t.Context())
		n, ended := 0, make(chan error)
		go func() {
			ended <- c.Live(ctx, time.Second, func(_ context.Context, p *Page) error {
				n++
				p.Heading(fmt.Sprintf("page %d", n))
				for i := range 2 * n {
					p.Line(fmt.Sprintf("line %d of a page that is wider than a narrow window", i))
				}
				return nil
			})
		}()
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, s.text()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		time.Sleep(500 * time.Millisecond)
		check("page 1\nline 0 of a page that is wider than a\nnarrow window\nline 1 of a page that is wider than a\nnarrow window\n")
		c.Info("in between")
		time.Sleep(time.Second)
		check("" +
			" INFO   in between\npage 2\nline 0 of a page that is wider than a\nnarrow window\nline 1 of a page that is wider than a\n5 more lines; enlarge the window\n")
		s.resize(20)
		time.Sleep(resized)
		check("" +
			" INFO   in between\npage 2\nline 0 of a page\nthat is wider than\na narrow window\n9 more lines; enla…\n")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
		if got := s.text(); !strings.Contains(got, "line 3 of a page") || strings.Contains(got, "page 1") {
			t.Errorf("what stays:\n%s", got)
		}
	})
}

func TestLiveOnAPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, out, _ := plain("")
		n := 0
		err := c.Live(t.Context(), time.Second, func(_ context.Context, p *Page) error {
			if n++; n == 4 {
				return errors.New("the cluster went away")
			}
			p.Line(fmt.Sprintf("page %d", n/2))
			return nil
		})
		if got, want := out.String(), "page 0\npage 1\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err == nil || err.Error() != "the cluster went away" {
			t.Errorf("error: %v", err)
		}
	})
}
