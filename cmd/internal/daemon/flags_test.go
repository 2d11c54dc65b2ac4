package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
)

// flags are some of every type.
type flags struct {
	A, B netip.AddrPort
	Log  Log
	Port uint16
	On   bool
	Time time.Duration
}

func parseAll(args []string) (f flags, err error) {
	fs := NewFlagSet("test", map[string]string{"alpha": "a"})
	AddrPortVar(fs, &f.A, "a", "127.0.0.1:1", "`IP:port` of a")
	AddrPortVar(fs, &f.B, "b", "off", "`IP:port` of b")
	LogVar(fs, &f.Log)
	fs.Uint16Var(&f.Port, "port", 9, "")
	fs.BoolVar(&f.On, "on", false, "")
	fs.DurationVar(&f.Time, "time", 0, "")
	if err = Parse(fs, args, new(bytes.Buffer), "", ""); err == nil {
		err = CheckOverlap(fs, "a", "b")
	}
	return f, err
}

func TestParse(t *testing.T) {
	one := netip.MustParseAddrPort("127.0.0.1:1")
	for _, tt := range []struct {
		args string
		want flags
	}{
		{"", flags{A: one, Port: 9}},
		{"--alpha=:2 --b=[::1]:2", flags{}}, // refused below
		{"--alpha=:2 --b=[::1]:3", flags{A: netip.MustParseAddrPort("[::]:2"), B: netip.MustParseAddrPort("[::1]:3"), Port: 9}},
		{"--a=0 --log-level=debug --log-format=json", flags{Log: Log{Level: slog.LevelDebug, JSON: true}, Port: 9}},
		{"--a=off", flags{Port: 9}},
		{"--a=", flags{Port: 9}},
		{"--a=:0 --b=:0", flags{A: netip.MustParseAddrPort("[::]:0"), B: netip.MustParseAddrPort("[::]:0"), Port: 9}},
	} {
		got, err := parseAll(strings.Fields(tt.args))
		if tt.want == (flags{}) {
			if want := "--a and --b ask for the same TCP port 2"; err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", tt.args, err, want)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", tt.args, err, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"extra":            `unexpected argument "extra"`,
		"--c":              "unknown flag: --c",
		"--a=8082":         `--a: "8082" is not IP:port, such as 127.0.0.1:8080`,
		"--a=:x":           `--a: ":x" is not IP:port, such as 127.0.0.1:8080`,
		"--a=localhost:1":  `--a: "localhost:1" is not IP:port, such as 127.0.0.1:8080`,
		"--port=65536":     `--port: "65536" is not a port: 1 to 65535`,
		"--on=maybe":       `--on: "maybe" is neither true nor false`,
		"--time=2":         `--time: "2" is not a time, such as 2s or 500ms`,
		"--log-level=loud": `--log-level: "loud" is not debug, info, warn or error`,
		"--log-format=xml": `--log-format: "xml" is neither text nor json`,
	} {
		_, err := parseAll([]string{args})
		if !errors.As(err, new(UsageError)) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	fs := NewFlagSet("test", nil)
	AddrPortVar(fs, new(netip.AddrPort), "a", "127.0.0.1:1", "`IP:port` of a")
	var out bytes.Buffer
	err := Parse(fs, []string{"--help"}, &out, "head\n", "tail\n")
	want := "head\n      --a IP:port   IP:port of a (default \"127.0.0.1:1\")\ntail\n"
	if !errors.Is(err, pflag.ErrHelp) || out.String() != want {
		t.Errorf("%v, %q", err, &out)
	}
}

func TestWords(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "help": "--help", "version -x": "--version -x", "--a help": "--a help",
	} {
		if got := strings.Join(Words(strings.Fields(args)), " "); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}

func TestNoCommand(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "--a b": "", "-h": "", "stat --a": `unknown command "stat"; the commands are: status, cleanup`,
	} {
		err := NoCommand(strings.Fields(args), "status", "cleanup")
		if text := fmt.Sprint(err); want == "" && err != nil || want != "" && (text != want || !errors.As(err, new(UsageError))) {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
}

func TestAddrPortText(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "[::]:2": ":2", "0.0.0.0:3": "0.0.0.0:3", "[::1]:4": "[::1]:4",
	} {
		if got := AddrPortText(netip.MustParseAddrPort(addr)); got != want {
			t.Errorf("%s: got %q, want %q", addr, got, want)
		}
	}
	if got := AddrPortText(netip.AddrPort{}); got != "" {
		t.Errorf("off is %q", got)
	}
}
