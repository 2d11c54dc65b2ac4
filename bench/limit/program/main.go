//go:build linux

// Command program is the gateway of bench/limit: one end, configured by a JSON object
// in its first argument.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	_ "net/http/pprof" // for -profile
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/sluice-net/sluice/bench/limit"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		os.Exit(1)
	}
}

func run() error {
	var o limit.Options
	if len(os.Args) != 2 {
		return fmt.Errorf("want one argument, a JSON object of limit.Options")
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		return fmt.Errorf("read the options: %w", err)
	}
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	// Two threads in loops, and one for signals and profiles. There is nothing to collect.
	runtime.GOMAXPROCS(3)
	debug.SetGCPercent(-1)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg.Alone = true
	if o.Pprof != "" {
		go func() { fmt.Fprintln(os.Stderr, "limit:", http.ListenAndServe(o.Pprof, nil)) }()
	}
	g, err := limit.New(cfg)
	if err != nil {
		return err
	}
	return g.Run(ctx)
}
