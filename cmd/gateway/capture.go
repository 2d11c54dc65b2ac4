package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/pcapng"
)

// capturePoints is the picture of the points, for help texts.
const capturePoints = `  node                            gateway                                  peer
    |             +--------------------------------------------+             ^
    +-- Geneve ---+-> check --> translate --> cut --> encrypt -+-- UDP ------+
            ^     |      |               ^         ^           |     ^
           node       dropped      translated   tunnel             wire

and the same in the other direction:
  node         frames from and to the nodes, as they are inside Geneve or VXLAN;
               each node is an interface in the file, with its name and VNI
  translated   IP packets with their new addresses, not yet segmented or encapsulated
  tunnel       IP packets inside WireGuard, as the peer sees them
  wire         WireGuard between the gateways, encrypted; the kernel's IP and UDP
               headers are not known and are made up from the addresses of the socket
  dropped      packets that are dropped, in their last form, with the reason as a
               comment
`

const captureHead = `capture writes packets of a running gateway to a file that Wireshark and tshark
open. It needs no privileges: packets are copied inside the gateway.

Usage:
  gateway capture -w FILE|- [--point POINT,...] [--filter EXPR] [flags]

Points:
` + capturePoints + `
Outbound packets go to the peer, inbound packets come from it. Packets of nodes may
be longer than any MTU and have unfinished checksums: with segmentation offload, the
kernel leaves both to the network device.

Filter:
` + capture.FilterSyntax + `
A filter sees a packet as it is at the capture point: at node with the addresses by
which this cluster reaches the peer's pods, in the tunnel with the pods' own
addresses, on the wire with those of the gateways.

A capture shows the traffic of users. By default only the beginning of each packet is
kept, which is mostly headers. Whoever may run this command in the gateway's pod may
see everything; the gateway logs when a capture begins and ends.

A capture ends when a limit is reached, after Ctrl-C, or when nobody reads it any
more. Two can run at once. Packets that cannot be written in time are left out and
counted; traffic does not wait for them.

Flags:
`

const captureTailHelp = `
Examples:
  # Packets from the nodes, packets to the peer, and packets that are dropped.
  gateway capture -w peering.pcapng --duration 30s

  # Look at it as it happens.
  gateway capture -w - --filter 'host 10.71.2.20 and tcp port 443' | tshark -r -

  # Only dropped packets, in full length.
  gateway capture -w drops.pcapng --point dropped -s 0

Exit status: 0 after a limit or Ctrl-C, 1 otherwise. In either case the file is
valid up to its last packet.
`

// captureOptions are the flags of "gateway capture", checked.
type captureOptions struct {
	adminSocket string // empty: Program.AdminSockets
	file        string // "-": stdout
	untilEOF    bool   // ends with stdin
	request     captureRequest
}

// captureCommand is "gateway capture".
func captureCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseCaptureFlags(args, stdout)
	if err != nil {
		return err
	}
	if o.file == "-" && isTerminal(stdout) {
		return daemon.Usagef("-w -: a terminal cannot show a capture file: write it to a file, or pipe it into 'tshark -r -'")
	}
	daemon.UseProcessors(func(int) int { return 1 }) // to copy takes no more, and the traffic needs the others
	if o.untilEOF {
		ctx = daemon.UntilEOF(ctx, os.Stdin)
	}
	// An interruption is told to the gateway, which has some last words.
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(captureGrace/2, cancel) })()
	answer, err := program.AdminGet(hard, o.adminSocket, capturePath+"?"+o.request.query().Encode())
	if err != nil {
		return err
	}
	defer answer.Close()
	defer context.AfterFunc(ctx, answer.Enough)()
	to := stdout
	if o.file != "-" {
		f, err := os.OpenFile(o.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) // nobody else's business
		if err != nil {
			return err
		}
		defer f.Close()
		to = f
	}
	return copyCapture(ctx, answer, to, stderr)
}

// copyCapture hands a capture on and tells how it goes.
func copyCapture(ctx context.Context, from io.Reader, to, stderr io.Writer) error {
	c := pcapng.NewCopier(to)
	done := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(c, from, make([]byte, captureChunk))
		done <- err
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for live := isTerminal(stderr); ; {
		select {
		case <-tick.C:
			if live {
				fmt.Fprintf(stderr, "\r\033[K%s ", captureProgress(c.Totals()))
			}
			continue
		case err := <-done:
			if live {
				fmt.Fprint(stderr, "\r\033[K")
			}
			return captureEnd(ctx, c.Totals(), err, stderr)
		}
	}
}

// captureEnd says how a capture has ended.
func captureEnd(ctx context.Context, t pcapng.Totals, err error, stderr io.Writer) error {
	why := t.End
	switch {
	case why != "":
	case ctx.Err() != nil:
		why = "interrupted"
	case err == nil || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s; then the gateway went away", captureProgress(t))
	default:
		return fmt.Errorf("%s; then: %w", captureProgress(t), err)
	}
	fmt.Fprintf(stderr, "%s; %s\n", captureProgress(t), why)
	return nil
}

func captureProgress(t pcapng.Totals) string {
	return fmt.Sprintf("%s captured, %d lost, %s", daemon.Count(t.Packets, "packet"), t.Lost, daemon.Size(t.Bytes))
}

func parseCaptureFlags(args []string, stdout io.Writer) (o captureOptions, err error) {
	fs := daemon.NewFlagSet("gateway capture", nil)
	fs.StringVarP(&o.file, "write", "w", "", "`FILE` to write; - is stdout")
	points := fs.String("point", defaultPoints, "`POINT` to capture at; several separated by commas, or all")
	filter := fs.String("filter", "", "`EXPR` that selects packets (default: all)")
	fs.IntVarP(&o.request.Snaplen, "snaplen", "s", defaultSnaplen, "`BYTES` to keep of each packet; 0: all")
	fs.Uint64VarP(&o.request.Count, "count", "c", 0, "`number` of packets after which it ends; 0: no limit")
	size := fs.String("max-size", "100MB", "`SIZE` of the file at which it ends")
	fs.DurationVar(&o.request.Duration, "duration", defaultDuration, "`time` after which it ends, 24h at most")
	fs.BoolVar(&o.untilEOF, "until-eof", false, "also end when stdin ends; for callers over a network")
	fs.StringVar(&o.adminSocket, "admin-socket", "", fmt.Sprintf("`PATH` of the gateway's socket (default %s)", program.AdminSocketText()))
	if err := daemon.Parse(fs, args, stdout, captureHead, captureTailHelp); err != nil {
		return o, err
	}
	if o.file == "" {
		return o, daemon.Usagef("-w is missing: name a file, or - for stdout")
	}
	if o.request.Points, err = capture.ParsePoints(*points); err != nil {
		return o, daemon.Usagef("--point: %w", err)
	}
	if o.request.Filter, err = capture.ParseFilter(*filter); err != nil {
		return o, daemon.Usagef("--filter: %w", err)
	}
	if o.request.MaxSize, err = parseSize(*size); err != nil {
		return o, daemon.Usagef("--max-size: %w", err)
	}
	return o, daemon.AsUsage(o.request.validate())
}

// isTerminal tells whether somebody looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
