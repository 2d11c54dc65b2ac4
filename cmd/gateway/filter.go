package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
)

const filterHead = `filter tells what the rules of FirewallConfigurations say of a packet: which of them
it matches, and which one drops it. The packet is the first of a TCP connection;
nothing is sent, counted or kept. --from and --to are its addresses as it comes to
the gateway: from a node, or with --ingress from the peer.

Rules of later hooks see translated addresses: give them with --then-from and
--then-to where they differ.

Usage:
  gateway filter --from IP:port --to IP:port [flags]

Flags:
`

const filterTail = `
Examples:
  gateway filter --from 10.243.1.10:40000 --to 10.71.2.20:80 --node worker-1 --then-to 10.243.2.20
  gateway filter --ingress --from 10.243.2.20:40000 --to 10.72.1.10:80 --then-from 10.71.2.20 --then-to 10.243.1.10

Exit status: 0, also if the packet is dropped; 1 when the gateway does not answer.
`

// filterPath is the page of the admin socket.
const filterPath = "/filter"

// filterAnswer is what it says.
type filterAnswer struct {
	// Action is accept, drop or reject.
	Action string        `json:"action"`
	Steps  []filter.Step `json:"steps"`
}

// filterOptions are the arguments of "gateway filter", checked.
type filterOptions struct {
	adminSocket string // empty: Program.AdminSockets
	json        bool
	query       dataplane.FilterQuery
}

// serveFilter is the page that filterCommand asks for.
func (g *gateway) serveFilter(w http.ResponseWriter, r *http.Request) {
	q, err := parseFilterQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	action, steps, err := g.forwarder.ExplainFilter(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(filterAnswer{action.String(), steps}) // an error means that nobody listens any more
}

func filterQueryText(q dataplane.FilterQuery) url.Values {
	v := url.Values{"from": {q.Src.String()}, "to": {q.Dst.String()}, "then-from": {q.Way.Src.String()}, "then-to": {q.Way.Dst.String()}, "node": {q.Node}}
	if !q.Egress {
		v.Set("ingress", "true")
	}
	if q.Answer {
		v.Set("answer", "true")
	}
	return v
}

func parseFilterQuery(v url.Values) (q dataplane.FilterQuery, err error) {
	var errs [4]error
	q.Src, errs[0] = netip.ParseAddrPort(v.Get("from"))
	q.Dst, errs[1] = netip.ParseAddrPort(v.Get("to"))
	q.Way.Src, errs[2] = netip.ParseAddr(v.Get("then-from"))
	q.Way.Dst, errs[3] = netip.ParseAddr(v.Get("then-to"))
	q.Node, q.Egress, q.Answer = v.Get("node"), v.Get("ingress") == "", v.Get("answer") != ""
	if err := errors.Join(errs[:]...); err != nil {
		return q, err
	}
	return q, sameFamily(q)
}

func sameFamily(q dataplane.FilterQuery) error {
	for _, a := range []netip.Addr{q.Dst.Addr(), q.Way.Src, q.Way.Dst} {
		if a.Is4() != q.Src.Addr().Is4() {
			return fmt.Errorf("%s and %s are not of the same family", q.Src.Addr(), a)
		}
	}
	return nil
}

// filterCommand is "gateway filter".
func filterCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o, err := parseFilterFlags(args, stdout)
	if err != nil {
		return err
	}
	body, err := program.AdminGet(ctx, o.adminSocket, filterPath+"?"+filterQueryText(o.query).Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	var answer filterAnswer
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return fmt.Errorf("ask the gateway: %w", err)
	}
	if o.json {
		return json.NewEncoder(stdout).Encode(answer)
	}
	var text strings.Builder
	for _, s := range answer.Steps {
		what := "policy"
		if s.Rule != "" {
			what = "rule " + s.Rule
		}
		fmt.Fprintf(&text, "  %s/%s, %s: %s\n", s.Table, s.Chain, what, s.Action)
	}
	_, err = fmt.Fprintf(stdout, "%s\n%s", answer.Action, text.String())
	return err
}

func parseFilterFlags(args []string, stdout io.Writer) (o filterOptions, err error) {
	fs := daemon.NewFlagSet("gateway filter", nil)
	ingress := fs.Bool("ingress", false, "the packet comes from the peer")
	fs.BoolVar(&o.query.Answer, "answer", false, "it is the answer to the first packet")
	fs.StringVar(&o.query.Node, "node", "", "`NODE` from which it comes, or to which it goes")
	daemon.AddrPortVar(fs, &o.query.Src, "from", "", "`IP:port` from which it comes")
	daemon.AddrPortVar(fs, &o.query.Dst, "to", "", "`IP:port` to which it goes")
	from := fs.String("then-from", "", "`IP` from which it comes after translation (default: that of --from)")
	to := fs.String("then-to", "", "`IP` to which it goes after translation (default: that of --to)")
	output := fs.StringP("output", "o", "text", "`format`: text or json")
	fs.StringVar(&o.adminSocket, "admin-socket", "", fmt.Sprintf("`PATH` of the gateway's socket (default %s)", program.AdminSocketText()))
	if err := daemon.Parse(fs, args, stdout, filterHead, filterTail); err != nil {
		return o, err
	}
	if !o.query.Src.IsValid() || !o.query.Dst.IsValid() {
		return o, daemon.Usagef("--from and --to are missing: give both, as IP:port")
	}
	o.query.Egress = !*ingress
	if o.json, err = daemon.JSONOutput(*output); err != nil {
		return o, err
	}
	o.query.Way.Src, o.query.Way.Dst = o.query.Src.Addr(), o.query.Dst.Addr()
	for _, then := range []struct {
		flag, text string
		to         *netip.Addr
	}{{"then-from", *from, &o.query.Way.Src}, {"then-to", *to, &o.query.Way.Dst}} {
		if then.text == "" {
			continue
		}
		if *then.to, err = netip.ParseAddr(then.text); err != nil {
			return o, daemon.Usagef("--%s: %q is not an IP address", then.flag, then.text)
		}
	}
	if err := sameFamily(o.query); err != nil {
		return o, daemon.Usagef("%w", err)
	}
	return o, nil
}
