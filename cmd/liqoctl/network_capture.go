package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/exec"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/pcapng"
)

// gatewayProgram is a gateway's program, and its container.
const gatewayProgram = "gateway"

// capturePoints are those that the gateway knows, in the order in which a packet to
// the peer passes them.
var capturePoints = []string{"node", "translated", "tunnel", "wire", "dropped"}

func networkCaptureCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capture [PEER-ID]",
		Short: "Record the packets of a peering, for Wireshark",
		Long: `Record packets where the gateway of a peering handles them, to a file that Wireshark and tshark can open.
The gateway copies them itself: its pod needs no privileges and no change, and traffic is not delayed.

  node                            gateway                                  peer
    |             +--------------------------------------------+             ^
    +-- Geneve ---+-> check --> translate --> cut --> encrypt -+-- UDP ------+
            ^     |      |               ^         ^           |     ^
           node       dropped      translated   tunnel             wire

and the same in the other direction. Outbound packets go to the peer, inbound packets come from it.

  node         frames from and to the nodes, without Geneve; one interface per node
  translated   IP packets with their new addresses, not yet segmented or encapsulated
  tunnel       IP packets inside WireGuard, as the peer sees them
  wire         WireGuard between the gateways, encrypted; IP and UDP headers are made up
  dropped      packets that are dropped, in their last form, with the reason as a comment

A filter is an expression of tcpdump: host, net, port, portrange with src or dst, tcp, udp, sctp, icmp, icmp6, ip, ip6,
arp, and, or, not and parentheses. It sees a packet as it is at the capture point: at node with the addresses by which
this cluster reaches the peer's pods, at tunnel with the pods' own addresses, at wire with those of the gateways.

A capture shows the traffic of users. By default only the beginning of each packet is kept, which is mostly headers.
Whoever may run commands in the gateway's pod (pods/exec) may capture; the gateway logs the beginning and the end of
each capture, and counts captures. A capture ends when a limit is reached or with Ctrl-C; the file is valid then, and
also if the connection breaks. Packets that cannot be transferred in time are left out and counted as lost.`,
		Example: `  # Packets from the nodes, packets to the peer and dropped packets, for half a minute.
  liqoctl network capture milan --duration 30s

  # Watch packets live. Wireshark can read them, too: wireshark -k -i -
  liqoctl network capture milan -w - --filter 'host 10.71.2.20 and tcp port 443' | tshark -r -

  # Only dropped packets, in full length, with the reason.
  liqoctl network capture milan --point dropped -s 0

  # The other end of the tunnel.
  liqoctl network capture milan --remote --remote-kubeconfig milan.yaml --point tunnel,wire`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeers(),
	}
	r := &captureRun{app: a}
	fs := cmd.Flags()
	fs.StringSliceVar(&r.points, "point", []string{"node", "tunnel", "dropped"}, "`POINTS` to capture at, or all")
	fs.StringVar(&r.filter, "filter", "", "`EXPR` that selects packets (default: all)")
	fs.StringVarP(&r.file, "write", "w", "", "`FILE` to write; - is stdout (default: named after the peer and the time)")
	fs.DurationVar(&r.duration, "duration", 5*time.Minute, "`TIME` after which the capture ends, 24h at most")
	fs.IntVarP(&r.snaplen, "snaplen", "s", 128, "`BYTES` to keep of each packet; 0: all")
	fs.Uint64VarP(&r.count, "count", "c", 0, "`NUMBER` of packets after which the capture ends; 0: no limit")
	fs.StringVar(&r.maxSize, "max-size", "100MB", "`SIZE` of the file at which the capture ends")
	fs.BoolVar(&r.force, "force", false, "overwrite an existing FILE")
	fs.BoolVar(&r.atRemote, "remote", false, "capture in the gateway of the remote cluster")
	complete(cmd, "point", append(capturePoints, "all")...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return r.run(cmd.Context(), args)
	}
	return cmd
}

// captureRun is one call of the command.
type captureRun struct {
	*app
	points   []string
	filter   string
	file     string // "-": stdout; empty: named after the peer
	duration time.Duration
	snaplen  int
	count    uint64
	maxSize  string
	atRemote bool
	force    bool
}

func (r *captureRun) run(ctx context.Context, args []string) error {
	if r.file == "-" && r.console.Width() > 0 {
		return errors.New("-w -: a terminal cannot show a capture: pipe it into 'tshark -r -', or leave -w out to write a file")
	}
	if err := r.writable(r.file); err != nil {
		return err
	}
	c, s, peer, err := r.peer(ctx, args)
	if err != nil {
		return err
	}
	pod, err := capturePod(c, s, peer)
	if err != nil {
		return err
	}
	out := &captureFile{name: r.file, to: r.stdout, fresh: !r.force}
	if r.file == "" {
		out.name = captureName(peer.ID, time.Now())
		if err := r.writable(out.name); err != nil {
			return err
		}
	}
	return r.record(ctx, c, pod, out)
}

// writable tells what is in the way of a file of this name, before anything is captured.
// It leaves nothing behind.
func (r *captureRun) writable(name string) error {
	if name == "" || name == "-" {
		return nil
	}
	flags := os.O_WRONLY
	info, err := os.Stat(name)
	switch {
	case err != nil: // Opening it tells more.
		flags |= os.O_CREATE | os.O_EXCL
	case info.IsDir():
		return fmt.Errorf("-w %s: this is a directory: name a file in it, such as %s", name, filepath.Join(name, "capture.pcapng"))
	case !info.Mode().IsRegular():
		return nil // A device or a pipe is there to be written to, and opening a pipe waits for its reader.
	case !r.force:
		return fmt.Errorf("-w %s: this file already exists: name another one, or overwrite it with --force", name)
	}
	f, err := os.OpenFile(name, flags, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("-w %s: there is no directory %s: create it, or name another file", name, filepath.Dir(name))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("-w %s: you may not write here: name another file", name)
	case err != nil:
		return fmt.Errorf("-w %s: %w: name another file", name, errors.Unwrap(err))
	case flags&os.O_EXCL == 0:
		return f.Close()
	}
	return errors.Join(f.Close(), os.Remove(name))
}

// peer returns the peer to capture the packets of, the cluster in whose gateway,
// and what could be read of it.
// Without a name it is the only one.
func (r *captureRun) peer(ctx context.Context, ids []string) (*access.Cluster, *survey.Cluster, *survey.Peer, error) {
	var c *access.Cluster
	var err error
	if !r.atRemote {
		c, err = r.one(ctx)
	} else if c, ids, err = r.remotePeer(ctx, ids); err == nil {
		c.NamespaceGiven = false // that flag is about the local cluster
	}
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := r.survey(ctx, c, survey.Options{PeeringsOnly: true, Nodes: new(survey.Cluster)})
	if err != nil {
		return nil, nil, nil, err
	}
	peers, err := choosePeers(c, s, ids)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(peers) != 1 {
		var known []string
		for _, p := range peers {
			known = append(known, p.ID)
		}
		return nil, nil, nil, c.Errorf("no peer given: name one of them: %s", knownPeers(c, s, known))
	}
	return c, s, peers[0], nil
}

// remotePeer turns the view around: in the remote cluster the peer is the local one.
func (r *captureRun) remotePeer(ctx context.Context, ids []string) (*access.Cluster, []string, error) {
	if !r.remote.given() {
		return nil, nil, errors.New("--remote: name the remote cluster with --remote-kubeconfig or --remote-context")
	}
	local, remote, err := r.two(ctx)
	if err != nil {
		return nil, nil, err
	}
	here, err := local.ID(ctx)
	if err != nil {
		return nil, nil, err
	}
	there, err := remote.ID(ctx)
	if err == nil && len(ids) > 0 && ids[0] != there {
		err = remote.Errorf("this cluster is %q, not %q: name another one with --remote-kubeconfig or --remote-context", there, ids[0])
	}
	return remote, []string{here}, err
}

// capturePod is where the packets of a peer are. Where gateways or pods could not
// be read, that is why there is none.
func capturePod(c *access.Cluster, s *survey.Cluster, p *survey.Peer) (types.NamespacedName, error) {
	unread := func(kinds ...string) int {
		return slices.IndexFunc(s.Gaps, func(g survey.Gap) bool { return slices.Contains(kinds, g.Kind) })
	}
	if i := unread("GatewayServer", "GatewayClient"); p.Gateway == nil && i >= 0 {
		return types.NamespacedName{}, s.Gaps[i].Err
	}
	if p.Gateway == nil {
		return types.NamespacedName{}, c.Errorf("the peering with %s has no gateway: 'liqoctl network doctor %s' finds out what is missing", p.ID, p.ID)
	}
	pod := p.Gateway.Active()
	if i := unread("Pod"); pod == nil && i >= 0 {
		return types.NamespacedName{}, s.Gaps[i].Err
	}
	if pod == nil {
		return types.NamespacedName{}, c.Errorf("no pod of %s carries traffic now: 'liqoctl network doctor %s' finds out why", p.Gateway, p.ID)
	}
	if pod.OfLiqo {
		return types.NamespacedName{}, c.Errorf("pod %s/%s is of Liqo's gateway, which shows no packets: 'liqoctl network adopt %s' hands it over to Sluice's, which does", pod.Namespace, pod.Name, p.ID)
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, nil
}

// captureName is what a file is called that the user gave no name.
func captureName(peer string, now time.Time) string {
	return fmt.Sprintf("%s-%s.pcapng", peer, now.Format("20060102-150405"))
}

// command is what runs in the pod.
func (r *captureRun) command() []string {
	argv := []string{
		gatewayProgram, "capture", "-w", "-", "--until-eof", "--point", strings.Join(r.points, ","), "--duration", r.duration.String(),
		"--snaplen", fmt.Sprint(r.snaplen), "--count", fmt.Sprint(r.count), "--max-size", r.maxSize,
	}
	if r.filter != "" {
		argv = append(argv, "--filter", r.filter)
	}
	return argv
}

// record captures until the gateway ends it or ctx.
func (r *captureRun) record(ctx context.Context, c *access.Cluster, pod types.NamespacedName, out *captureFile) error {
	file := pcapng.NewCopier(out)
	say := r.console.Progress()
	shown := func() { // on a terminal; elsewhere every half minute
		say.Waiting(c.Name, fmt.Sprintf("Capturing in pod %s at %s: %s", pod, strings.Join(r.points, ", "), captured(file.Totals())))
	}
	done := make(chan error, 1)
	go func() { done <- c.ExecUntil(ctx, pod, gatewayProgram, r.command(), file) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var err error
	for running := true; running; {
		shown()
		select {
		case <-tick.C:
		case err = <-done:
			running = false
		}
	}
	if out.failure != nil { // The connection only tells that it was closed.
		err = out.failure
	} else {
		err = captureError(c, ctx, file.Totals(), err)
	}
	err = errors.Join(err, out.close())
	t := file.Totals()
	if out.opened {
		text := captured(t) + " in " + out.describe()
		if why := captureEnd(ctx, t); why != "" {
			text += ": " + why
		}
		if t.Lost > 0 {
			say.Warning(c.Name, text+"; what is lost was more than could be sent here, a filter or a smaller -s makes it less")
		} else {
			say.Done(c.Name, text)
		}
	}
	return err
}

// captureEnd is why it ended; empty: the connection broke.
func captureEnd(ctx context.Context, t pcapng.Totals) string {
	if t.End == "" && ctx.Err() != nil {
		return "interrupted"
	}
	return t.End
}

// captureError is what went wrong, nil where it ended as it should.
func captureError(c *access.Cluster, ctx context.Context, t pcapng.Totals, err error) error {
	switch {
	case t.End != "" || ctx.Err() != nil && t.Bytes > 0:
		return nil
	case err == nil:
		return c.Errorf("the capture broke off early")
	}
	// What the gateway refuses it explains better than the way to it does.
	var exit exec.CodeExitError
	if text := err.Error(); errors.As(err, &exit) {
		if _, refusal, ok := strings.Cut(text, "gateway: "); ok {
			refusal, _, _ = strings.Cut(refusal, "\nTry '")
			refusal = strings.TrimSuffix(refusal, ": "+exit.Error())
			return c.Errorf("the gateway refuses: %s", refusal)
		}
	}
	return err
}

func captured(t pcapng.Totals) string {
	return fmt.Sprintf("%s captured, %d lost, %s", count(int(t.Packets), "packet"), t.Lost, sizeText(t.Bytes))
}

// sizeText is a size for people.
func sizeText(n uint64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// captureFile is where a capture goes. It is opened by the first packets: what fails
// before leaves no empty file.
type captureFile struct {
	name   string // "-": stdout
	fresh  bool   // it must not exist yet
	to     io.Writer
	opened bool
	file   *os.File
	// failure is why something could not be written.
	failure error
}

// Write implements io.Writer.
func (f *captureFile) Write(b []byte) (n int, err error) {
	defer func() {
		if f.failure == nil {
			f.failure = err
		}
	}()
	if !f.opened && f.name != "-" {
		flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
		// A device or a pipe is there to be written to.
		if info, err := os.Stat(f.name); f.fresh && (err != nil || info.Mode().IsRegular()) {
			flags |= os.O_EXCL
		}
		if f.file, err = os.OpenFile(f.name, flags, 0o600); err != nil { // nobody else's business
			return 0, err
		}
		f.to = f.file
	}
	f.opened = true
	return f.to.Write(b)
}

func (f *captureFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

func (f *captureFile) describe() string {
	if f.name == "-" {
		return "all"
	}
	return f.name
}
