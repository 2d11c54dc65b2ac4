package console

import (
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/pflag"
)

// Console is where a command speaks to its user. Its methods may be called from
// several goroutines.
type Console struct {
	// Words changes what is told before it is shown; nil: nothing does. It is set before
	// the first line.
	Words func(string) string

	in          io.Reader
	out, errOut *stream
	verbosity   verbosity

	mu    sync.Mutex
	area  area  // what is redrawn below the lines that stay
	waits waits // what the area shows while work is under way
}

// New builds a Console. What the outputs can show it finds out itself.
func New(in io.Reader, out, errOut io.Writer) *Console {
	return build(in, detect(out, os.Getenv), detect(errOut, os.Getenv))
}

func build(in io.Reader, out, errOut *stream) *Console {
	return &Console{in: in, out: out, errOut: errOut}
}

// AddFlags adds the flags that change what is shown.
func (c *Console) AddFlags(fs *pflag.FlagSet) {
	flag := fs.VarPF(&c.verbosity, "verbose", "v", "show more; from `LEVEL` 6 on also the requests to the API server, as kubectl's does")
	flag.NoOptDefVal = "+1"
	flag.DefValue = "0"
}

// Verbose is how much the user wants to see: 0, or the level of -v.
func (c *Console) Verbose() int { return int(c.verbosity) }

// Width is the number of columns for what was asked for; 0 where there is no
// limit.
func (c *Console) Width() int { return c.out.width() }

// Out is stdout, for what was asked for.
func (c *Console) Out() io.Writer { return writer{c, c.out} }

// ErrOut is stderr, for what somebody else logs.
func (c *Console) ErrOut() io.Writer { return writer{c, c.errOut} }

type writer struct {
	c *Console
	s *stream
}

func (w writer) Write(b []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return len(b), w.c.area.write(w.s, string(b))
}

// Info writes a line to stderr.
func (c *Console) Info(text string) { c.say(info, text) }

// Warn writes a line to stderr.
func (c *Console) Warn(text string) { c.say(warning, text) }

// Error writes an error to stderr, the last thing before the end.
func (c *Console) Error(err error) {
	c.Close()
	c.say(failure, err.Error())
}

// Close ends what is redrawn: the spinners.
func (c *Console) Close() {
	c.mu.Lock()
	stopped := c.waits.clear()
	c.area.set(c.errOut, nil)
	c.area.draw()
	c.mu.Unlock()
	stopped()
}

func (c *Console) say(p prefix, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sayLocked(p, text)
}

func (c *Console) sayLocked(p prefix, text string) {
	if c.Words != nil {
		text = c.Words(text)
	}
	_ = c.area.write(c.errOut, message(p, text, c.errOut)) // nobody is left to tell
}

// prefix is what a line of progress begins with.
type prefix struct{ word, tone string }

var (
	info    = prefix{"INFO", "30;46"}
	warning = prefix{"WARN", "30;43"}
	failure = prefix{"ERRO", "30;41"}
)

// margin is where the text of such lines begins.
const margin = 8

// message lays out a line of progress. On a terminal it wraps, with the margin
// kept free.
func message(p prefix, text string, s *stream) string {
	columns := 0
	if n := s.width(); n-margin >= 2*narrowValue {
		columns = n - margin
	}
	var b strings.Builder
	head := " " + p.word + "   "
	if s.colours {
		head = "\x1b[" + p.tone + "m " + p.word + " \x1b[0m  "
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		for _, gs := range wrap(glyphs(line), columns) {
			b.WriteString(head + render(gs, s.colours) + "\n")
			head = strings.Repeat(" ", margin)
		}
	}
	return b.String()
}
