package text

import (
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		s    string
		most int
		want string
	}{
		{"", 3, ""},
		{"abcdef", 6, "abcdef"},
		{"abcdefg", 6, "abc..."},
		{"abcdefg", 3, "..."},
		{"abäcdef", 6, "ab..."}, // without half a character
		{"a\xffb", 6, "a?b"},
		{"\xff\xfe\xff\xfe", 3, "..."},
	} {
		if got := Cut(c.s, c.most); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.s, c.most, got, c.want)
		}
	}
	if got := Quoted(strings.Repeat("x", 1<<20)); len(got) != maxQuoted || !strings.HasSuffix(got, "x...") {
		t.Errorf("Quoted: %q", got)
	}
}

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ s, want string }{
		{"it is äöü", "it is äöü"},
		{"\x1b[2J\na\tb\u202e", " [2J a b "},
		{"a\xff", "a?"},
		{"0123456789abcdef", "012345678..."},
	} {
		if got := Printable(c.s, 12); got != c.want {
			t.Errorf("Printable(%q) = %q, want %q", c.s, got, c.want)
		}
	}
}

func TestJoin(t *testing.T) {
	for want, got := range map[string]string{
		"":                 Join([]int32{}, ","),
		"1,20":             Join([]int32{1, 20}, ","),
		"a":                Join([]string{"a"}, ", "),
		"10.0.0.0/8, ::/0": Join([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}, ", "),
	} {
		if got != want {
			t.Errorf("Join: %q, want %q", got, want)
		}
	}
}

func TestFew(t *testing.T) {
	for want, names := range map[string][]string{
		"":                   nil,
		"a":                  {"a"},
		"a, b, c":            {"a", "b", "c"},
		"a, b, c and 1 more": {"a", "b", "c", "d"},
		"a, b, c and 2 more": {"a", "b", "c", "d", "e"},
	} {
		if got := Few(names); got != want {
			t.Errorf("Few(%q) = %q, want %q", names, got, want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("ä\xff", 4)
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 3 {
			return
		}
		got := Cut(s, most)
		if len(got) > most || !utf8.ValidString(got) {
			t.Errorf("Cut(%q, %d) = %q", s, most, got)
		}
		if utf8.ValidString(s) && len(s) <= most && got != s {
			t.Errorf("Cut(%q, %d) = %q", s, most, got)
		}
	})
}
