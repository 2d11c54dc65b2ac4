package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
)

const probeHead = `probe has a running gateway ping the peer's gateway through the tunnel, with
packets of several sizes, and then of growing size until one does not arrive. Up
to the MTU each packet goes both ways; above it only the path to the peer is
tested, so run it on both sides. Sizes are those of inner IP packets in bytes,
including headers, as for the MTU.

Usage:
  gateway probe [--size BYTES,...] [--count N] [--limit BYTES] [-o text|json]

Flags:
`

const probeTail = `
Examples:
  gateway probe
  gateway probe --size 100,1340 --count 50
  gateway probe -o json | jq .largest

Exit status: 0 if the peer answers, 1 if not.
`

// probeOptions are the flags of "gateway probe", checked.
type probeOptions struct {
	adminSocket string // empty: Program.AdminSockets
	json        bool
	probe       probeRequest
}

// probeCommand is "gateway probe".
func probeCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o, err := parseProbeFlags(args, stdout)
	if err != nil {
		return err
	}
	body, err := program.AdminGet(ctx, o.adminSocket, probePath+"?"+o.probe.query().Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	var r probeReport
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return fmt.Errorf("the gateway's answer is cut off: did it end? %w", err)
	}
	if o.json {
		err = daemon.WriteJSON(stdout, r)
	} else {
		err = writeProbe(stdout, r)
	}
	return cmp.Or(err, r.err())
}

func parseProbeFlags(args []string, stdout io.Writer) (o probeOptions, err error) {
	fs := daemon.NewFlagSet("gateway probe", nil)
	fs.IntSliceVar(&o.probe.Sizes, "size", nil, "`BYTES` of the packets, separated by commas (default: 100 and the MTU)")
	fs.IntVarP(&o.probe.Count, "count", "c", 5, "`number` of packets of each size")
	fs.IntVar(&o.probe.Limit, "limit", 0, "`BYTES` of the largest packet to try (default: what the path to the peer carries without fragmentation)")
	fs.DurationVar(&o.probe.Timeout, "timeout", time.Second, "`time` to wait for each answer")
	fs.StringVar(&o.adminSocket, "admin-socket", "", fmt.Sprintf("`PATH` of the gateway's socket (default %s)", program.AdminSocketText()))
	output := fs.StringP("output", "o", "text", "`format`: text or json")
	if err := daemon.Parse(fs, args, stdout, probeHead, probeTail); err != nil {
		return o, err
	}
	if o.json, err = daemon.JSONOutput(*output); err != nil {
		return o, err
	}
	return o, daemon.AsUsage(o.probe.validate())
}

// probeRequest is what shall be tried.
type probeRequest struct {
	// Sizes of the packets whose loss and times are measured; none: two.
	Sizes []int
	// Count is how many of each.
	Count int
	// Limit is the largest packet that is tried; 0: as the path asks for.
	Limit int
	// Timeout is how long each answer is waited for.
	Timeout time.Duration
}

// Bounds of a probeRequest: nobody shall flood a peer with it.
const (
	maxProbeSizes   = 16
	maxProbeCount   = 1000
	maxProbeTimeout = 10 * time.Second
)

func (r probeRequest) validate() error {
	switch {
	case len(r.Sizes) > maxProbeSizes:
		return fmt.Errorf("--size: %d sizes are too many, at most %d", len(r.Sizes), maxProbeSizes)
	case r.Count < 1 || r.Count > maxProbeCount:
		return fmt.Errorf("--count: %d is not between 1 and %d", r.Count, maxProbeCount)
	case r.Timeout <= 0 || r.Timeout > maxProbeTimeout:
		return fmt.Errorf("--timeout: %v is not between 0s and %v", r.Timeout, maxProbeTimeout)
	}
	for _, size := range r.Sizes {
		if size < minProbe || size > dataplane.MaxMTU {
			return fmt.Errorf("--size: %d is not between %d and %d", size, minProbe, dataplane.MaxMTU)
		}
	}
	if r.Limit != 0 && (r.Limit < minProbe || r.Limit > dataplane.MaxMTU) {
		return fmt.Errorf("--limit: %d is not between %d and %d", r.Limit, minProbe, dataplane.MaxMTU)
	}
	return nil
}

// probePath is the page of the admin socket.
const probePath = "/probe"

// query is the request as it goes over the admin socket.
func (r probeRequest) query() url.Values {
	q := url.Values{"count": {strconv.Itoa(r.Count)}, "limit": {strconv.Itoa(r.Limit)}, "timeout": {r.Timeout.String()}}
	for _, size := range r.Sizes {
		q.Add("size", strconv.Itoa(size))
	}
	return q
}

// parseProbeRequest is the reverse of query.
func parseProbeRequest(q url.Values) (r probeRequest, err error) {
	var errs [4]error
	r.Count, errs[0] = strconv.Atoi(q.Get("count"))
	r.Limit, errs[1] = strconv.Atoi(q.Get("limit"))
	r.Timeout, errs[2] = time.ParseDuration(q.Get("timeout"))
	for _, text := range q["size"] {
		size, err := strconv.Atoi(text)
		errs[3] = cmp.Or(errs[3], err)
		r.Sizes = append(r.Sizes, size)
	}
	return r, cmp.Or(errors.Join(errs[:]...), r.validate())
}

// serveProbe is the page that probeCommand asks for.
func (g *gateway) serveProbe(w http.ResponseWriter, r *http.Request) {
	request, err := parseProbeRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := g.forwarder.Status()
	peer := g.forwarder.PeerTunnelAddr()
	if !peer.IsValid() {
		http.Error(w, "there is no tunnel to probe yet: 'gateway status' says what is missing", http.StatusConflict)
		return
	}
	report := newProbeReport(time.Now(), peer, s)
	report.Path = pathOf(s.Tunnel.Endpoint)
	prober{g.forwarder.PingPeer, request}.run(r.Context(), &report)
	w.Header().Set("Content-Type", "application/json")
	daemon.WriteJSON(w, report) // an error means that the client has gone
}
