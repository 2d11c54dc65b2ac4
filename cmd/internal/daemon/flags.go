package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
)

// UsageError is a mistake on the command line.
type UsageError struct{ error }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.error }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AsUsage makes a UsageError of err, which may be nil.
func AsUsage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// NewFlagSet returns an empty set of flags. The aliases are names by which Liqo,
// or an earlier version, calls some of them.
func NewFlagSet(name string, aliases map[string]string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard) // messages are ours
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(aliases[name], name))
	})
	fs.Usage = func() {}
	return fs
}

// Words turns help and version, as words which many programs take, into flags.
func Words(args []string) []string {
	if len(args) > 0 && (args[0] == "help" || args[0] == "version") {
		return append([]string{"--" + args[0]}, args[1:]...)
	}
	return args
}

// NoCommand refuses a first word that is neither a flag nor one of the commands,
// which it names.
func NoCommand(args []string, commands ...string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	return Usagef("unknown command %q; the commands are: %s", args[0], strings.Join(commands, ", "))
}

// Parse reads args. It answers --help on stdout, with the error pflag.ErrHelp;
// every other error is a UsageError.
func Parse(fs *pflag.FlagSet, args []string, stdout io.Writer, head, tail string) error {
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, head, fs.FlagUsagesWrapped(100), tail)
		return err
	case err != nil:
		return UsageError{plainFlagError(err)}
	case fs.NArg() > 0:
		return Usagef("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// plainFlagError says what a flag takes instead of how parsing failed.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	name, value := invalid.GetFlag().Name, invalid.GetValue()
	switch invalid.GetFlag().Value.Type() {
	case "uint16":
		return fmt.Errorf("--%s: %q is not a port: 1 to 65535", name, value)
	case "bool":
		return fmt.Errorf("--%s: %q is neither true nor false", name, value)
	case "duration":
		return fmt.Errorf("--%s: %q is not a time, such as 2s or 500ms", name, value)
	case "int", "uint32", "float32":
		return fmt.Errorf("--%s: %q is not a number", name, value)
	}
	// The values that are not pflag's explain themselves.
	return fmt.Errorf("--%s: %w", name, errors.Unwrap(invalid))
}

// value is a flag that f reads. It passes for a string, so that the usage has
// its default in quotes.
type value struct {
	text string
	f    func(string) error
}

// Set implements pflag.Value.
func (v *value) Set(s string) error {
	if err := v.f(s); err != nil {
		return err
	}
	v.text = s
	return nil
}

// String implements pflag.Value.
func (v *value) String() string { return v.text }

// Type implements pflag.Value.
func (v *value) Type() string { return "string" }

// Func defines a flag whose text f reads. The default is right or a mistake in
// the program.
func Func(fs *pflag.FlagSet, name, text, usage string, f func(string) error) {
	v := &value{f: f}
	if err := v.Set(text); err != nil {
		panic(fmt.Sprintf("default of --%s: %v", name, err))
	}
	fs.Var(v, name, usage)
}

// AddrPortVar defines a flag that takes the address of a server: "IP:port",
// ":port" for all addresses, or one of the words that mean off, for which the
// address is not valid.
func AddrPortVar(fs *pflag.FlagSet, to *netip.AddrPort, name, text, usage string) {
	Func(fs, name, text, usage, func(s string) (err error) {
		*to, err = parseAddrPort(s)
		return err
	})
}

func parseAddrPort(s string) (netip.AddrPort, error) {
	switch s {
	case "", "0", "off":
		return netip.AddrPort{}, nil
	}
	text := s
	if port, ok := strings.CutPrefix(s, ":"); ok {
		text = "[::]:" + port
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, fmt.Errorf("%q is not IP:port, such as 127.0.0.1:8080", s)
	}
	return a, nil
}

// AddrPortText is what net.Listen takes; off is empty. All addresses are written
// without any: then a host that has no IPv6 listens on IPv4.
func AddrPortText(a netip.AddrPort) string {
	switch {
	case !a.IsValid():
		return ""
	case a.Addr() == netip.IPv6Unspecified():
		return fmt.Sprintf(":%d", a.Port())
	}
	return a.String()
}

// CheckOverlap refuses flags that were defined by AddrPortVar if two of them ask
// for one port.
func CheckOverlap(fs *pflag.FlagSet, names ...string) error {
	addrs := make([]netip.AddrPort, len(names))
	for i, name := range names {
		a, err := parseAddrPort(fs.Lookup(name).Value.String())
		if err != nil {
			return Usagef("--%s: %w", name, err)
		}
		addrs[i] = a
		for j, b := range addrs[:i] {
			if overlap(a, b) {
				return Usagef("--%s and --%s ask for the same TCP port %d", names[j], name, a.Port())
			}
		}
	}
	return nil
}

// overlap tells whether two servers cannot listen both.
func overlap(a, b netip.AddrPort) bool {
	return a.IsValid() && b.IsValid() && a.Port() == b.Port() && a.Port() != 0 &&
		(a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// Log is the log of a command, as its flags have it.
type Log struct {
	Level slog.Level
	JSON  bool
}

// LogVar defines the flags of a log.
func LogVar(fs *pflag.FlagSet, to *Log) {
	Func(fs, "log-level", "info", "`level` of the log: debug, info, warn or error", func(s string) error {
		if err := to.Level.UnmarshalText([]byte(s)); err != nil {
			return fmt.Errorf("%q is not debug, info, warn or error", s)
		}
		return nil
	})
	Func(fs, "log-format", "text", "`format` of the log: text or json", func(s string) (err error) {
		to.JSON, err = textOrJSON(s)
		return err
	})
}

// JSONOutput tells whether the value of -o is json, and not text.
func JSONOutput(output string) (bool, error) {
	isJSON, err := textOrJSON(output)
	if err != nil {
		return false, Usagef("-o: %w", err)
	}
	return isJSON, nil
}

func textOrJSON(s string) (isJSON bool, err error) {
	switch s {
	case "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither text nor json", s)
}

// New returns the logger. The function, which may be nil, is that of
// slog.HandlerOptions.
func (l Log) New(w io.Writer, replace func(groups []string, a slog.Attr) slog.Attr) *slog.Logger {
	h := &slog.HandlerOptions{Level: l.Level, ReplaceAttr: replace}
	if l.JSON {
		return slog.New(slog.NewJSONHandler(w, h))
	}
	return slog.New(slog.NewTextHandler(w, h))
}
