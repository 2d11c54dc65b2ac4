package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// metricsWithin bounds how long a metrics command waits.
const metricsWithin = 5 * time.Second

// MetricsCommand reads the command line of a metrics command, and prints the metrics of the
// process that serves them at the address on this host. This is for those who can run a
// command in a pod: a NetworkPolicy may stop everybody else.
func (p Program) MetricsCommand(ctx context.Context, args []string, stdout io.Writer, address string) error {
	var from netip.AddrPort
	fs := NewFlagSet(string(p)+" metrics", nil)
	AddrPortVar(fs, &from, "metrics-address", address, "`IP:port` at which the "+string(p)+" serves them, as its own flag --metrics-address says")
	head := fmt.Sprintf("metrics prints the Prometheus metrics of a running %[1]s on this host.\n\nUsage:\n  %[1]s metrics [--metrics-address IP:port]\n\nFlags:\n", p)
	tail := fmt.Sprintf("\nExamples:\n  %s metrics\n", p)
	if err := Parse(fs, args, stdout, head, tail); err != nil {
		return err
	}
	if !from.IsValid() {
		return Usagef("--metrics-address: name the address at which the %s serves its metrics", p)
	}
	if from.Addr().IsUnspecified() { // all addresses, so also this one
		from = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), from.Port())
	}
	ctx, cancel := context.WithTimeout(ctx, metricsWithin)
	defer cancel()
	return p.copyMetrics(ctx, from, stdout)
}

// copyMetrics copies what an address serves.
func (p Program) copyMetrics(ctx context.Context, from netip.AddrPort, to io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+from.String()+"/metrics", nil)
	if err != nil {
		return err
	}
	// No proxy of the environment: it is this host.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: new(net.Dialer).DialContext}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no %s serves metrics at %s: is it running, and with this --metrics-address?", p, from)
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/plain") {
		return fmt.Errorf("what answers at %s serves no metrics: %s, %s", from, answer.Status, kind)
	}
	if _, err := io.Copy(to, answer.Body); err != nil {
		return fmt.Errorf("read the metrics of the %s: %w", p, err)
	}
	return nil
}
