package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
)

// probeReport is what "gateway probe" shows. Its JSON form is what scripts read:
// fields are added, not renamed.
type probeReport struct {
	Time time.Time `json:"time"`
	// Peer is the address that was pinged, inside the tunnel; Endpoint is where the
	// tunnel's own packets go.
	Peer     netip.Addr     `json:"peer"`
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	// MTU is the largest packet that leaves for the peer: the tunnel's MTU, or less if the
	// gateway has found that the path carries less.
	MTU int `json:"mtu"`
	// Path is what this host knows of the way to Endpoint.
	Path probePathMTU `json:"path,omitzero"`
	// Pings has one entry for each size.
	Pings []pingReport `json:"pings"`
	// Largest is the largest packet that got through, zero if none did; Limit is the
	// largest that was tried.
	Largest int `json:"largest"`
	Limit   int `json:"limit"`
}

// newProbeReport has what is known without a ping.
func newProbeReport(at time.Time, peer netip.Addr, s dataplane.Status) probeReport {
	return probeReport{Time: at, Peer: peer, Endpoint: s.Tunnel.Endpoint, MTU: s.PathMTU}
}

// probePathMTU is the size of packets that this host sends towards the peer
// without fragmenting them, by its routes and by what routers have told it.
type probePathMTU struct {
	// MTU counts outer packets, Inner what fits into them.
	MTU   int `json:"mtu,omitempty"`
	Inner int `json:"inner,omitempty"`
}

// pingReport is how packets of one size fared. Times are in nanoseconds.
type pingReport struct {
	Size     int           `json:"size"`
	Sent     int           `json:"sent"`
	Received int           `json:"received"`
	Min      time.Duration `json:"minNanoseconds"`
	Avg      time.Duration `json:"avgNanoseconds"`
	Max      time.Duration `json:"maxNanoseconds"`
}

// err says that the peer does not answer at all.
func (r probeReport) err() error {
	for _, p := range r.Pings {
		if p.Received > 0 {
			return nil
		}
	}
	if r.Largest > 0 {
		return nil
	}
	return errors.New("the peer does not answer: 'gateway status' says more")
}

// writeProbe prints a report for a person.
func writeProbe(out io.Writer, r probeReport) error {
	w := daemon.NewText(out, r.Time)
	w.Row("Peer", fmt.Sprintf("%s, through %s", r.Peer, addrPort(r.Endpoint)))
	w.Row("MTU", fmt.Sprint(r.MTU))
	if p := r.Path; p.MTU > 0 {
		text := fmt.Sprintf("%d bytes at a time, %d of the tunnel", p.MTU, p.Inner)
		if p.Inner < r.MTU {
			text += fmt.Sprintf("  WARNING: larger packets leave in fragments, which many networks drop: an mtu of %d would fit", p.Inner)
		}
		w.Row("The way takes", text)
	}
	w.Row("Largest", largestText(r))
	w.Title("SIZE", "SENT", "RECEIVED", "LOSS", "MIN", "AVG", "MAX")
	for _, p := range r.Pings {
		w.Row(p.Size, p.Sent, p.Received, fmt.Sprintf("%d%%", 100*(p.Sent-p.Received)/max(p.Sent, 1)), timeText(p.Min), timeText(p.Avg), timeText(p.Max))
	}
	return w.Flush()
}

func largestText(r probeReport) string {
	switch {
	case r.Largest == 0:
		return "nothing gets through"
	case r.Largest == r.Limit:
		return fmt.Sprintf("%d bytes get through, no more were tried", r.Largest)
	case r.Largest < r.MTU:
		return fmt.Sprintf("%d bytes get through, %d do not  WARNING: larger packets get lost; give both gateways this mtu", r.Largest, r.Largest+1)
	}
	return fmt.Sprintf("%d bytes get through, %d do not", r.Largest, r.Largest+1)
}

func timeText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	if d < 10*time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
