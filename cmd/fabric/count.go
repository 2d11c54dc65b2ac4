package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/hostnet"
)

const countHead = `count tells how many packets between a pod of this node and an address behind a
peering pass the node, on either side: between pod and node, and between node and
tunnel link. A line of JSON comes every quarter of a second with the numbers so far.
'liqoctl network trace --live' asks for it.

The kernel counts, in an nftables table of its own that goes with the command. No
packet is looked at by fabric, and none is kept.

Usage:
  fabric count --link LINK --pod ADDR --peer ADDR [--port PORT] [--duration TIME]

Flags:
`

const countTail = `
Examples:
  fabric count --link liqo.abcdefghij --pod 10.243.1.5 --peer 10.71.2.20 --port 443

Exit status: 0 after the time or Ctrl-C, 1 otherwise.
`

// countRequest is what shall be counted.
type countRequest struct {
	Flow     hostnet.Flow
	Duration time.Duration
}

const (
	// maxCountDuration bounds a count that everybody has forgotten. It is longer than
	// what liqoctl asks for.
	maxCountDuration = 10 * time.Minute
	// maxCounts bounds those that are under way at once, and with them the rules that
	// each packet of the node meets.
	maxCounts = 2
	// countPace is how often the numbers are told.
	countPace = 250 * time.Millisecond
	// countGrace is how long a client may take for the end.
	countGrace = 2 * time.Second
	countPath  = "/count"
)

func (r countRequest) validate() error {
	if r.Duration <= 0 || r.Duration > maxCountDuration {
		return fmt.Errorf("duration %v is not between 0s and %v", r.Duration, maxCountDuration)
	}
	return r.Flow.Check()
}

// query is the request as it goes over the admin socket.
func (r countRequest) query() url.Values {
	return url.Values{
		"link": {r.Flow.Link}, "pod": {r.Flow.Pod.String()}, "peer": {r.Flow.Peer.String()},
		"port": {strconv.Itoa(int(r.Flow.Port))}, "duration": {r.Duration.String()},
	}
}

// parseCountRequest is the reverse of query.
func parseCountRequest(q url.Values) (r countRequest, err error) {
	var errs [4]error
	r.Flow.Link = q.Get("link")
	r.Flow.Pod, errs[0] = netip.ParseAddr(q.Get("pod"))
	r.Flow.Peer, errs[1] = netip.ParseAddr(q.Get("peer"))
	port, err := strconv.ParseUint(q.Get("port"), 10, 16)
	r.Flow.Port, errs[2] = uint16(port), err
	r.Duration, errs[3] = time.ParseDuration(q.Get("duration"))
	return r, cmp.Or(errors.Join(errs[:]...), r.validate())
}

// countLine is a line of the answer.
type countLine struct {
	Passed []hostnet.Passed `json:"passed"`
}

// errHidden is why an agent that hides pods does not count: what leaves the node has
// not the pod's address, and who looks for it there would think that it is lost.
var errHidden = errors.New("this node hides the addresses of pods (--full-masquerade): packets of one pod cannot be told apart behind it")

// serveCount is the page that countCommand asks for.
func (a *agent) serveCount(w http.ResponseWriter, r *http.Request) {
	request, err := parseCountRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case a.counts <- struct{}{}:
		defer func() { <-a.counts }()
	default:
		http.Error(w, fmt.Sprintf("%d counts are under way already: wait for one to end", maxCounts), http.StatusConflict)
		return
	}
	if a.options.fullMasquerade {
		http.Error(w, errHidden.Error(), http.StatusConflict)
		return
	}
	counter, err := a.host.Count(request.Flow)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer counter.Close()
	flow := []any{"link", request.Flow.Link, "pod", request.Flow.Pod, "peer", request.Flow.Peer, "port", request.Flow.Port}
	a.log.Info("a count of packets begins", append(flow, "duration", request.Duration)...)
	err = tellCounts(r.Context(), w, counter.Read, request.Duration)
	a.log.Info("a count of packets ends", append(flow, "error", err)...)
}

// tellCounts writes what read returns, now and then, until the time is over, nobody
// wants more, or an error.
func tellCounts(ctx context.Context, w http.ResponseWriter, read func() ([]hostnet.Passed, error), d time.Duration) error {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(d + countGrace))
	w.Header().Set("Content-Type", "application/x-ndjson")
	end := time.NewTimer(d)
	defer end.Stop()
	pace := time.NewTicker(countPace)
	defer pace.Stop()
	lines := json.NewEncoder(w)
	for ended := false; ; {
		passed, err := read()
		if err == nil {
			err = lines.Encode(countLine{passed})
		}
		if err == nil {
			err = control.Flush()
		}
		if err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			ended = true
		case <-end.C:
			ended = true
		case <-pace.C:
		}
	}
}

// countCommand is "fabric count".
func countCommand(ctx context.Context, args []string, stdout io.Writer) error {
	fs := daemon.NewFlagSet("fabric count", nil)
	var r countRequest
	fs.StringVar(&r.Flow.Link, "link", "", "`NAME` of the tunnel link")
	pod := fs.String("pod", "", "`ADDR` of the pod")
	peer := fs.String("peer", "", "`ADDR` that the link leads to, as this cluster calls it")
	fs.Uint16Var(&r.Flow.Port, "port", 0, "`PORT` of either end; 0: any")
	fs.DurationVar(&r.Duration, "duration", 10*time.Second, "`time` after which it ends, 10m at most")
	untilEOF := fs.Bool("until-eof", false, "end when stdin ends as well; for callers over a network")
	socket := fs.String("admin-socket", "", fmt.Sprintf("`PATH` of the agent's socket (default %s)", program.AdminSocketText()))
	if err := daemon.Parse(fs, args, stdout, countHead, countTail); err != nil {
		return err
	}
	var errs [2]error
	r.Flow.Pod, errs[0] = netip.ParseAddr(*pod)
	r.Flow.Peer, errs[1] = netip.ParseAddr(*peer)
	if err := cmp.Or(errors.Join(errs[:]...), r.validate()); err != nil {
		return daemon.AsUsage(err)
	}
	if *untilEOF {
		ctx = daemon.UntilEOF(ctx, os.Stdin)
	}
	// Nothing but numbers so far: what is not read any more is not missed.
	answer, err := program.AdminGet(ctx, *socket, countPath+"?"+r.query().Encode())
	if err == nil {
		defer answer.Close()
		_, err = io.Copy(stdout, answer)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
