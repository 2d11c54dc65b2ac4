package daemon

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// StatusOptions are the flags of a status command, checked.
type StatusOptions struct {
	AdminSocket string // empty: Program.AdminSockets
	JSON        bool
	All         bool // what text output shortens
}

// WholeLists is the help of --all of programs that shorten lists.
const WholeLists = "show whole lists, of which text output shows the beginning"

// ParseStatusFlags reads the command line of a status command. all is the help of --all; without it there is no such
// flag.
func (p Program) ParseStatusFlags(args []string, stdout io.Writer, head, tail, all string) (StatusOptions, error) {
	o := StatusOptions{}
	fs := NewFlagSet(string(p)+" status", nil)
	fs.StringVar(&o.AdminSocket, "admin-socket", "", fmt.Sprintf("`PATH` of the %s's socket (default %s)", p, p.AdminSocketText()))
	output := fs.StringP("output", "o", "text", "`format`: text or json")
	if all != "" {
		fs.BoolVarP(&o.All, "all", "a", false, all)
	}
	if err := Parse(fs, args, stdout, head, tail); err != nil {
		return o, err
	}
	var err error
	o.JSON, err = JSONOutput(*output)
	return o, err
}

// ShowStatus asks a running program for its status, a value of type R as JSON,
// and prints the answer.
func ShowStatus[R any](ctx context.Context, p Program, o StatusOptions, stdout io.Writer, write func(out io.Writer, r R, all bool) error) error {
	body, err := p.FetchStatus(ctx, o.AdminSocket)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err = stdout.Write(body)
		return err
	}
	var r R
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("the %s's answer is of another version: %w", p, err)
	}
	return write(stdout, r, o.All)
}

// Text prints tables for people: cells end with a tab, tables with an empty line.
type Text struct {
	out *bufio.Writer
	tab *tabwriter.Writer
	now time.Time
}

// NewText returns a Text whose times are relative to now.
func NewText(out io.Writer, now time.Time) Text {
	// One flush at the end: the error of any write shows there.
	buffered := bufio.NewWriter(out)
	return Text{buffered, tabwriter.NewWriter(buffered, 0, 8, 2, ' ', 0), now}
}

// Flush prints what is buffered. It returns the first error of all writes.
func (t Text) Flush() error { return cmp.Or(t.tab.Flush(), t.out.Flush()) }

// Row prints a row. Empty cells become dashes.
func (t Text) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if texts[i] = fmt.Sprint(c); texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(t.tab, strings.Join(texts, "\t"))
}

// Title starts a table; the columns of one table do not widen those of another.
func (t Text) Title(cells ...any) {
	fmt.Fprintln(t.tab)
	t.tab.Flush()
	t.Row(cells...)
}

// Line prints a line that belongs to no column.
func (t Text) Line(format string, args ...any) { fmt.Fprintf(t.tab, format+"\n", args...) }

// Ago says how long before now x was.
func (t Text) Ago(x time.Time) string {
	if x.IsZero() {
		return "never"
	}
	return t.Age(x) + " ago"
}

// Age says how long x has been.
func (t Text) Age(x time.Time) string {
	d := max(0, t.now.Sub(x))
	switch {
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// More says how many lines text output hides.
func (t Text) More(hidden int) {
	if hidden > 0 {
		t.Line("... %d more, shown by -a", hidden)
	}
}

// Shown returns the first items that text output shows, and how many it hides.
func Shown[T any](items []T, most int, all bool) (shown []T, hidden int) {
	if all || len(items) <= most {
		return items, 0
	}
	return items[:most], len(items) - most
}

// Size prints bytes with three digits or so.
func Size(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, "KMGTPE"
	for value >= unit {
		value, prefix = value/unit, prefix[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, prefix[0])
}

// Count prints a number of things, of which what names one.
func Count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OnOff prints a switch.
func OnOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Ratio prints how many a come to one b.
func Ratio(a, b uint64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}
