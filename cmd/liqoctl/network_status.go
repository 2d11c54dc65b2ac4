package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// statusInterval is the default of --interval.
const statusInterval = 2 * time.Second

func networkStatusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [PEER-ID...]",
		Short: "Show the peerings of a cluster: state, latency, throughput, drops, keys, nodes",
		Long: `Show all peerings of a cluster, or some, in a table. With --remote-kubeconfig, the other end of the peering with that
cluster stands below this one's.

STATE is that of the Connection, or No traffic where no pod of the gateway forwards; (!) means that something else is
wrong, which is said below the table. Of two ends it is also said where they contradict each other. OUT and IN are what
the gateway carried to the peer and from it between two readings of its counters, DROPS all packets that it dropped
since it started (-o wide names the reasons). KEY is the age of this end's key, HANDSHAKE of the last one. PODS are the
gateway's that are ready, NODES those of this cluster that are joined to it. AUTHENTICATION, where clusters have
identities in each other, is how these are, OFFLOADING how the virtual nodes are, as 'liqoctl info' shows it.

The counters come from the gateways by the same way as 'kubectl exec'. Who may not use it sees the rest of the table.
The exit code is 1 where there may be peerings that could not be read. In a narrow window the last columns make room for the first.`,
		Example: `  liqoctl network status
  liqoctl network status milan -o wide

  # Both ends, until Ctrl-C.
  liqoctl network status --remote-kubeconfig milan.yaml -w

  # In a script: fail when a peering is not healthy.
  liqoctl network status --interval 0 --exit-code`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completePeers,
	}
	st := &statusRun{app: a, views: make(map[string]*statusView)}
	cmd.Flags().BoolVarP(&st.watch, "watch", "w", false, "go on showing, until Ctrl-C")
	cmd.Flags().DurationVar(&st.interval, "interval", statusInterval, "`TIME` between two readings; 0 shows no throughput, and does not wait")
	cmd.Flags().BoolVar(&st.exitCode, "exit-code", false, "exit with 1 when a peering is not healthy")
	st.out = a.outputFlag(cmd, formatJSON, formatYAML, formatWide)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		st.ids = args
		return st.run(cmd.Context())
	}
	return cmd
}

// statusRun is one call of the command.
type statusRun struct {
	*app
	ids      []string
	watch    bool
	interval time.Duration
	exitCode bool
	out      *output

	clusters []*access.Cluster // one, or the local and the remote
	views    map[string]*statusView
}

// statusView is what is remembered of a cluster between two readings.
type statusView struct {
	// nodes is the reading of which the nodes are, nil before the first.
	nodes *survey.Cluster
	// reports are those of the reading before, by pod.
	reports map[string]*survey.GatewayReport
	// denied is set when the user may not ask gateways, so they are not asked again.
	denied *survey.Gap
}

// nodesAge is how long nodes are not read again: they are most of what there is to
// read in a large cluster.
const nodesAge = 30 * time.Second

func (r *statusRun) run(ctx context.Context) error {
	if r.watch && r.interval < minInterval {
		return fmt.Errorf("--interval %v is too short to watch by: take at least %v", r.interval, minInterval)
	}
	if err := r.connect(ctx); err != nil {
		return err
	}
	if r.watch {
		return r.follow(ctx)
	}
	readings, err := r.read(ctx)
	if err != nil {
		return err
	}
	if err := r.secondReading(ctx, readings); err != nil {
		return err
	}
	t := r.table(readings)
	if err := r.show(t); err != nil {
		return err
	}
	for i, c := range r.clusters {
		r.missing(readings[i], c)
	}
	var errs []error
	if unwell := t.unwell(); r.exitCode && len(unwell) > 0 {
		errs = append(errs, fmt.Errorf("not healthy: %s", strings.Join(unwell, ", ")))
	}
	if len(r.ids) == 0 {
		for i, c := range r.clusters {
			errs = append(errs, incomplete(readings[i], c))
		}
	}
	return errors.Join(errs...)
}

// minInterval keeps a watch from being a burden to API servers.
const minInterval = 500 * time.Millisecond

// connect reaches one cluster, or two where the user named the remote one.
func (r *statusRun) connect(ctx context.Context) error {
	if !r.remote.given() {
		c, err := r.one(ctx)
		r.clusters = []*access.Cluster{c}
		return err
	}
	local, remote, err := r.two(ctx)
	if err != nil {
		return err
	}
	r.clusters = []*access.Cluster{local, remote}
	return nil
}

// read reads all clusters at the same time, and asks their gateways.
func (r *statusRun) read(ctx context.Context) ([]*survey.Cluster, error) {
	readings, errs := make([]*survey.Cluster, len(r.clusters)), make([]error, len(r.clusters))
	done := make(chan struct{})
	for i, c := range r.clusters {
		view := r.views[c.Name]
		if view == nil {
			view = &statusView{}
			r.views[c.Name] = view
		}
		go func() {
			readings[i], errs[i] = r.readOne(ctx, c, view)
			done <- struct{}{}
		}()
	}
	for range r.clusters {
		<-done
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if id := readings[0].Installation.ClusterID; len(readings) > 1 && id != "" && id == readings[1].Installation.ClusterID {
		c := r.clusters[1]
		return nil, c.Errorf("its ID is %s, too, and the two ends of a peering have different ones: name the other cluster with %s or %s", id, c.Flag("kubeconfig"), c.Flag("context"))
	}
	_, err := choosePeers(r.clusters[0], readings[0], r.ids)
	return readings, err
}

func (r *statusRun) readOne(ctx context.Context, c *access.Cluster, v *statusView) (*survey.Cluster, error) {
	o := survey.Options{PeeringsOnly: true, Modules: true}
	if v.nodes != nil && time.Since(v.nodes.ReadAt) < nodesAge {
		o.Nodes = v.nodes
	}
	s, err := r.survey(ctx, c, o)
	if err != nil {
		return nil, err
	}
	if o.Nodes == nil {
		v.nodes = s
	}
	if v.denied != nil {
		s.Gaps = append(s.Gaps, *v.denied)
		return s, nil
	}
	survey.AskGateways(ctx, c, s)
	if gap, ok := s.MayNotAsk(); ok {
		v.denied = &gap
	}
	return s, nil
}

// secondReading asks the gateways once more, so that there are two readings of
// their counters.
func (r *statusRun) secondReading(ctx context.Context, readings []*survey.Cluster) error {
	asked := false
	for i, c := range r.clusters {
		v := r.views[c.Name]
		v.remember(readings[i])
		asked = asked || len(v.reports) > 0
	}
	if !asked || r.interval <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.interval):
	}
	done := make(chan struct{})
	for i, c := range r.clusters {
		go func() {
			survey.AskGateways(ctx, c, readings[i])
			done <- struct{}{}
		}()
	}
	for range r.clusters {
		<-done
	}
	return nil
}

// remember keeps the reports of a reading for the next.
func (v *statusView) remember(s *survey.Cluster) {
	v.reports = make(map[string]*survey.GatewayReport)
	for i := range s.Peers {
		if g := s.Peers[i].Gateway; g != nil && g.Report != nil {
			v.reports[reportKey(g)] = g.Report
		}
	}
}

// reportKey tells reports of different processes apart.
func reportKey(g *survey.Gateway) string { return g.Namespace + "/" + g.Active().Name }

// before is the report of a gateway that was remembered.
func (v *statusView) before(p *survey.Peer) *survey.GatewayReport {
	if p.Gateway == nil || p.Gateway.Report == nil {
		return nil
	}
	return v.reports[reportKey(p.Gateway)]
}

// table joins the ends of all peerings: below each of the local ones the remote
// one, if that cluster was read.
func (r *statusRun) table(readings []*survey.Cluster) statusTable {
	t := statusTable{Time: readings[0].ReadAt.UTC().Truncate(time.Second), Peerings: []survey.Status{}, both: len(readings) > 1, none: noPeersIn(readings[0])}
	chosen, _ := choosePeers(r.clusters[0], readings[0], r.ids) // read has reported the error
	add := func(i int, p, other *survey.Peer) {
		s := readings[i].Status(p, r.views[r.clusters[i].Name].before(p))
		s.Compare(p, other)
		t.Peerings = append(t.Peerings, s)
	}
	there := len(readings) == 1
	for _, p := range chosen {
		if there || p.ID != readings[1].Installation.ClusterID {
			add(0, p, nil)
			continue
		}
		other := readings[1].Peer(readings[0].Installation.ClusterID)
		add(0, p, other)
		if other != nil && other.Peered() {
			add(1, other, p)
		}
		there = true
	}
	// The remote cluster may have an end that the local one does not have.
	if !there && len(r.ids) == 0 {
		if other := readings[1].Peer(readings[0].Installation.ClusterID); other != nil && other.Peered() {
			add(1, other, nil)
		}
	}
	return t
}

// show prints a table in the format that the user wants.
func (r *statusRun) show(t statusTable) error {
	switch r.out.format {
	case formatJSON, formatYAML:
		return r.out.data(t)
	}
	r.console.Show(func(p *console.Page) { r.draw(p, t) })
	return nil
}

func (r *statusRun) draw(p *console.Page, t statusTable) {
	t.draw(p, statusLook{wide: r.out.format == formatWide, rates: r.interval > 0, columns: r.console.Width()})
}

// follow shows the table again and again. What cannot be read for a while is no
// reason to end: the table stays, and a line says so.
func (r *statusRun) follow(ctx context.Context) error {
	last := statusTable{Peerings: []survey.Status{}}
	step := func(ctx context.Context) (trouble error, err error) {
		readings, err := r.read(ctx)
		if err != nil {
			if last.Time.IsZero() { // nothing can be shown yet
				return nil, err
			}
			return err, nil
		}
		last = r.table(readings)
		for i, c := range r.clusters {
			r.views[c.Name].remember(readings[i])
			last.missing = append(last.missing, survey.GapLines(readings[i].Gaps, c.Origin)...)
		}
		return nil, nil
	}
	if r.out.format == formatJSON || r.out.format == formatYAML {
		return r.followData(ctx, step, &last)
	}
	return r.console.Live(ctx, r.interval, func(ctx context.Context, p *console.Page) error {
		trouble, err := step(ctx)
		if err != nil {
			return err
		}
		if r.console.Width() > 0 {
			p.Line(console.Faint(fmt.Sprintf("%s, every %v; Ctrl-C ends", last.Time.Local().Format(time.TimeOnly), r.interval)))
		}
		r.draw(p, last)
		if trouble != nil {
			p.Line(console.Bad("This is old, as the cluster cannot be read: " + trouble.Error()))
		}
		for _, line := range last.missing {
			p.Line(console.Caution(line))
		}
		return nil
	})
}

// followData prints one document after the other.
func (r *statusRun) followData(ctx context.Context, step func(context.Context) (trouble, err error), last *statusTable) error {
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	for {
		trouble, err := step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case trouble != nil:
			r.console.Warn(trouble.Error())
		default:
			if r.out.format == formatYAML {
				fmt.Fprintln(r.stdout, "---")
			}
			if err := r.out.data(last); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
