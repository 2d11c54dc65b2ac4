package probe

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
)

// Variables from which the program takes its Identity.
const (
	EnvCluster = "CLUSTER_ID"
	EnvPod     = "POD_NAME"
	EnvNode    = "NODE_NAME"
)

const usage = `prober answers and asks, for 'liqoctl test network'.

  prober serve [--port 8080]   answer HTTP and UDP; who it is comes from CLUSTER_ID, POD_NAME and NODE_NAME
  prober idle                  do nothing, for pods that only ask
  prober get [--tries 3] [--timeout 5s] [--pause 500ms] [--count 1] [--parallel 8] URL...
                               try each URL and print a line of JSON for it

URLs:
  http://HOST:PORT/            a request; ?bytes=N downloads that much from a prober
  tcp://HOST:PORT              a connection
  udp://HOST:PORT?bytes=N      a datagram of that size, which a prober sends back
`

// Program is the prober as a program: what its command line says, on any network.
type Program struct {
	Identity Identity
	// Dial makes connections. Nil: those of this machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Run runs a command line, until it is done or ctx ends. It returns the exit code:
// 1 when something did not succeed, 2 when it was called in a way that it does not
// know.
func (p *Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]func(context.Context, []string, io.Writer) error{"serve": p.serve, "idle": p.idle, "get": p.get}
	if len(args) == 0 || commands[args[0]] == nil {
		_, _ = io.WriteString(stderr, usage)
		return 2
	}
	err := commands[args[0]](ctx, args[1:], stdout)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "prober: %v\n", err)
	if errors.As(err, new(usageError)) {
		_, _ = io.WriteString(stderr, "\n"+usage)
		return 2
	}
	return 1
}

// usageError is about the command line.
type usageError struct{ error }

// parse parses flags, and says in the error what is wrong with them.
func parse(fs *flag.FlagSet, args []string) error {
	fs.SetOutput(io.Discard)
	if err := fs.Parse(args); err != nil {
		return usageError{err}
	}
	return nil
}

func (*Program) idle(ctx context.Context, _ []string, _ io.Writer) error {
	<-ctx.Done()
	return nil
}

func (p *Program) serve(ctx context.Context, args []string, _ io.Writer) error {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	port := fs.Int("port", Port, "")
	if err := parse(fs, args); err != nil {
		return err
	}
	address := fmt.Sprintf(":%d", *port)
	web, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	datagrams, err := net.ListenPacket("udp", address)
	if err != nil {
		web.Close()
		return err
	}
	return (&Server{Identity: p.Identity}).Serve(ctx, web, datagrams)
}

// get tries URLs, and prints results as they come.
func (p *Program) get(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("get", flag.ContinueOnError)
	c := &Client{Dial: p.Dial}
	fs.DurationVar(&c.Timeout, "timeout", DefaultTimeout, "")
	fs.DurationVar(&c.Pause, "pause", DefaultPause, "")
	fs.IntVar(&c.Tries, "tries", DefaultTries, "")
	count, parallel := fs.Int("count", 1, ""), fs.Int("parallel", 8, "")
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() == 0 || c.Timeout <= 0 || c.Tries < 1 || *count < 1 || *parallel < 1 {
		return usageError{errors.New("get needs a URL, and no number may be zero")}
	}
	out := &results{to: json.NewEncoder(stdout)}
	var wg sync.WaitGroup
	slots := make(chan struct{}, *parallel) // filled before a try, emptied after it
	for range *count {
		for _, url := range fs.Args() {
			slots <- struct{}{}
			wg.Go(func() {
				out.add(c.Try(ctx, url))
				<-slots
			})
		}
	}
	wg.Wait()
	return out.err(*count * fs.NArg())
}

// results prints each as a line.
type results struct {
	mu       sync.Mutex
	to       *json.Encoder
	failed   int
	writeErr error
}

func (o *results) add(r Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !r.OK {
		o.failed++
	}
	if err := o.to.Encode(r); err != nil {
		o.writeErr = fmt.Errorf("write results: %w", err)
	}
}

func (o *results) err(all int) error {
	if o.writeErr == nil && o.failed > 0 {
		return fmt.Errorf("%d of %d did not succeed", o.failed, all)
	}
	return o.writeErr
}
