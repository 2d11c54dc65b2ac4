package daemon

import (
	"strings"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	var out strings.Builder
	w := NewText(&out, now)
	w.Row("Name", "a")
	w.Title("LONG TITLE", "B")
	w.Row("", w.Ago(time.Time{}))
	w.Row("x", w.Ago(now.Add(-time.Second)))
	w.Line("... %d more", 2)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "Name  a\n\nLONG TITLE  B\n-           never\nx           1s ago\n... 2 more\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s",
		90 * time.Second: "1m30s", time.Hour + time.Second: "1h0m", 47 * time.Hour: "47h0m", 48 * time.Hour: "2 days",
	} {
		if got := NewText(nil, now).Age(now.Add(-d)); got != want {
			t.Errorf("age of %v is %q, want %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1<<64 - 1: "16.0 EiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("size(%d) is %q, want %q", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 packets", 1: "1 packet", 2: "2 packets"} {
		if got := Count(n, "packet"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestShown(t *testing.T) {
	items := []int{1, 2, 3}
	for _, tt := range []struct {
		most          int
		all           bool
		shown, hidden int
	}{{2, false, 2, 1}, {2, true, 3, 0}, {3, false, 3, 0}} {
		shown, hidden := Shown(items, tt.most, tt.all)
		if len(shown) != tt.shown || hidden != tt.hidden {
			t.Errorf("%+v: %v, %d hidden", tt, shown, hidden)
		}
	}
}
