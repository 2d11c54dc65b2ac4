package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

const dropsHead = `drops shows packets that a running gateway dropped: when, why,
in which direction, from where to where. The gateway keeps the headers of the last
few packets of each reason, at most four per second, and nothing of their
contents; status counts all of them. Packets counted as DropTunnelFlushed and
DropTunnelRejected are not kept.

Usage:
  gateway drops [-f] [--reason REASON,...] [-o text|json]

Flags:
`

const dropsTail = `
Examples:
  gateway drops
  gateway drops -f --reason NoMapping,NoAddress

Exit status: 0, also after Ctrl-C; 1 when the gateway does not answer.
`

// dropsPath is the page of the admin socket.
const dropsPath = "/drops"

const (
	// dropsPace is how often a follower is told what is new.
	dropsPace = 500 * time.Millisecond
	// dropsGrace is how long a follower may take to read what is new.
	dropsGrace = 10 * time.Second
)

// serveDrops is the page that dropsCommand asks for: a packet in each line. With
// follow it goes on, and leaves nothing behind for a client that is gone or does not
// read.
func (g *gateway) serveDrops(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, control := json.NewEncoder(w), http.NewResponseController(w)
	pace := time.NewTicker(dropsPace)
	defer pace.Stop()
	for last := uint64(0); ; {
		_ = control.SetWriteDeadline(time.Now().Add(dropsGrace))
		for _, p := range g.forwarder.Dropped(last) {
			if out.Encode(p) != nil {
				return
			}
			last = p.Number
		}
		if r.URL.Query().Get("follow") == "" || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-pace.C:
		}
	}
}

// dropsOptions are the flags of "gateway drops", checked.
type dropsOptions struct {
	adminSocket string // empty: Program.AdminSockets
	follow      bool
	untilEOF    bool // ends with stdin
	json        bool
	reasons     drops.Filter
}

// dropsCommand is "gateway drops".
func dropsCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o, err := parseDropsFlags(args, stdout)
	if err != nil {
		return err
	}
	target := dropsPath
	if o.follow {
		target += "?follow=true"
	}
	if o.untilEOF {
		ctx = daemon.UntilEOF(ctx, os.Stdin)
	}
	answer, err := program.AdminGet(ctx, o.adminSocket, target)
	if err != nil {
		return err
	}
	defer answer.Close()
	to := drops.Printer{Out: stdout, JSON: o.json}
	_, err = io.Copy(&drops.Decoder{Each: func(d drops.Drop) error {
		if !o.reasons.Has(d.Reason) {
			return nil
		}
		return to.Print(drops.NewReport("", "", d))
	}}, answer)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("ask the gateway: %w", err)
	case o.follow:
		return errors.New("the gateway went away")
	}
	return nil
}

func parseDropsFlags(args []string, stdout io.Writer) (o dropsOptions, err error) {
	fs := daemon.NewFlagSet("gateway drops", nil)
	fs.BoolVarP(&o.follow, "follow", "f", false, "keep running until Ctrl-C")
	reasons := fs.StringSlice("reason", nil, "show only these `REASONS`, such as DropNoMapping or NoMapping")
	output := fs.StringP("output", "o", "text", "`format`: text or json with one object per line")
	fs.BoolVar(&o.untilEOF, "until-eof", false, "also end when stdin ends; for callers over a network")
	fs.StringVar(&o.adminSocket, "admin-socket", "", fmt.Sprintf("`PATH` of the gateway's socket (default %s)", program.AdminSocketText()))
	if err := daemon.Parse(fs, args, stdout, dropsHead, dropsTail); err != nil {
		return o, err
	}
	if o.reasons, err = drops.ParseFilter(*reasons); err != nil {
		return o, daemon.Usagef("--reason: %w", err)
	}
	o.json, err = daemon.JSONOutput(*output)
	return o, err
}
