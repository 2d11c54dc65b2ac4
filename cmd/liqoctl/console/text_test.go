package console

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestGlyphs(t *testing.T) {
	tests := []struct {
		name, in      string
		plain, styled string
		width         int
	}{
		{"plain text", "Connected", "Connected", "Connected", 9},
		{"a tone", Good("Connected"), "Connected", "\x1b[32mConnected\x1b[0m", 9},
		{"a tone within text", "is " + Bad("gone") + " now", "is gone now", "is \x1b[31mgone\x1b[0m now", 11},
		{"a tone within a tone", Strong("a " + Bad("b")), "a b", "\x1b[1ma \x1b[0m\x1b[1m\x1b[31mb\x1b[0m", 3},
		{"another end of a tone", "\x1b[32mgreen\x1b[m", "green", "\x1b[32mgreen\x1b[0m", 5},
		{"wide characters", "漢字", "漢字", "漢字", 4},
		{"an emoji", "🚀", "🚀", "🚀", 2},
		{"an emoji of one column", "🌡", "🌡", "🌡", 1},
		{"lines of boxes", "┌─┐…", "┌─┐…", "┌─┐…", 4},
		{"combining marks", "e\u0301a", "e\u0301a", "e\u0301a", 2},
		{"a tab", "a\tb", "a    b", "a    b", 6},
		{"cursor movements", "a\x1b[2Ab\x1b[Hc\x1b[1;1fd", "abcd", "abcd", 4},
		{"a cleared screen", "\x1b[2J\x1bcsafe", "safe", "safe", 4},
		{"a window title", "\x1b]0;title\asafe\x1b]8;;http://x\x1b\\link", "safelink", "safelink", 8},
		{"an unfinished sequence", "safe\x1b[31", "safe", "safe", 4},
		{"a lone escape", "safe\x1b", "safe", "safe", 4},
		{"control characters", "a\x00b\rc\bd\ae\x7ff\u0085g", "abcdefg", "abcdefg", 7},
		{"a reversed reading order", "user\u202etxt.exe", "usertxt.exe", "usertxt.exe", 11},
		{"bytes that are no UTF-8", "a\xffb", "a\ufffdb", "a\ufffdb", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gs := glyphs(tt.in)
			if got := render(gs, false); got != tt.plain {
				t.Errorf("without colours: %q, want %q", got, tt.plain)
			}
			if got := render(gs, true); got != tt.styled {
				t.Errorf("with colours: %q, want %q", got, tt.styled)
			}
			if got := width(gs); got != tt.width {
				t.Errorf("width: %d, want %d", got, tt.width)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	tests := []struct {
		name, in string
		columns  int
		want     []string
	}{
		{"fits", "one two", 7, []string{"one two"}},
		{"no limit", "one two", 0, []string{"one two"}},
		{"at a space", "one two three", 8, []string{"one two", "three"}},
		{"a word of just the width", "liqo-tenant milan", 11, []string{"liqo-tenant", "milan"}},
		{"after punctuation", "liqo-tenant-milan", 12, []string{"liqo-tenant-", "milan"}},
		{"anywhere", "abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"wide characters", "漢字漢字", 5, []string{"漢字", "漢字"}},
		{"narrower than one character", "漢字", 1, []string{"漢", "字"}},
		{"keeps the indentation", "  one two three", 8, []string{"  one", "  two", "  three"}},
		{"not where it takes the room", "      one two", 8, []string{"one two"}},
		{"no indentation where a wide character would not fit", " 00字", 2, []string{"00", "字"}},
		{"spaces at a break go", "one    two", 5, []string{"one", "two"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, line := range wrap(glyphs(tt.in), tt.columns) {
				got = append(got, render(line, false))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFold(t *testing.T) {
	in := "One paragraph of\n--several lines.\n\nA list:\n  - stays as it is, however long it may be\nThe end"
	want := "One paragraph of\n--several lines.\n\nA list:\n  - stays as it is, however long it may be\nThe end"
	if diff := cmp.Diff(want, Fold(in, 20)); diff != "" {
		t.Errorf("20 columns (-want +got):\n%s", diff)
	}
	want = strings.Replace(want, "of\n--several", "of --several", 1)
	if diff := cmp.Diff(want, Fold(in, 100)); diff != "" {
		t.Errorf("100 columns (-want +got):\n%s", diff)
	}
}

func TestFit(t *testing.T) {
	tests := []struct {
		in      string
		columns int
		want    string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"漢字", 3, "漢…"}, {"漢字", 2, "…"}, {"abc", 1, "…"}, {"abc", 0, ""}, {"abc", -1, ""},
	}
	for _, tt := range tests {
		if got := render(fit(glyphs(tt.in), tt.columns, false), false); got != tt.want {
			t.Errorf("%q in %d columns: %q, want %q", tt.in, tt.columns, got, tt.want)
		}
	}
}

// FuzzText: whatever a cluster says, no terminal gets a control character of it,
// and no line is longer than the window.
func FuzzText(f *testing.F) {
	f.Add("Connected", 5)
	f.Add(Good("Connected")+" \x1b[2J\x1b]0;x\a\x9b31m", 7)
	f.Add("漢字 e\u0301 \xff\u202e", 2)
	f.Fuzz(func(t *testing.T, in string, columns int) {
		gs := glyphs(in)
		for _, r := range render(gs, false) {
			if unicode.IsControl(r) {
				t.Errorf("%q: %#x", in, r)
			}
		}
		styled := render(gs, true)
		if !utf8.ValidString(styled) {
			t.Errorf("%q: %q is no UTF-8", in, styled)
		}
		if again := glyphs(styled); !slices.Equal(gs, again) {
			t.Errorf("%q: %v, written and read again: %v", in, gs, again)
		}
		columns = max(columns%200, 2)
		kept := ""
		for _, line := range wrap(gs, columns) {
			if n := width(line); n > columns {
				t.Errorf("%q: a line of %d columns in %d", in, n, columns)
			}
			kept += render(line, false)
		}
		if got, want := spaceless(kept), spaceless(render(gs, false)); got != want {
			t.Errorf("%q in %d columns: %q is left of %q", in, columns, got, want)
		}
		if n := width(fit(gs, columns, false)); n > columns {
			t.Errorf("%q: fitted to %d columns it has %d", in, columns, n)
		}
	})
}

func spaceless(s string) string { return strings.ReplaceAll(s, " ", "") }
