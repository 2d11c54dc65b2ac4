package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
		Long: `Show all peerings of a cluster, or some, in a table. With --remote-kubeconfig, the other end of the
peering with that cluster is shown below the end in this cluster.

STATE is the state of the Connection, or "No traffic" if the gateway forwards nothing; (!) means that something else is
wrong, or will be if nobody acts, which is explained below the table. If both ends are shown, contradictions between
them are explained, too. Below them are problems of the installation, such as a controller that does not
run. With --exit-code, neither these nor warnings make the command fail: traffic flows.

  OUT, IN         traffic to and from the peer between two readings of the gateway's counters
  DROPS           packets that the gateway has dropped since it started; -o wide lists the reasons
  KEY, HANDSHAKE  age of the key of this end, and of the last handshake
  PODS            pods of the gateway that are ready
  NODES           nodes of this cluster that are joined to the gateway
  AUTHENTICATION  state of the clusters' identities in each other, if there are any
  OFFLOADING      state of the virtual nodes, as 'liqoctl info' shows it
  SERVICES        if Services are exchanged: how many the peer may use, and how many it offers

The counters are read from the gateways in the same way as with 'kubectl exec'. Without that right, and for gateways of
Liqo, which are not queried, you see the rest of the table. The exit code is 1 if there may be peerings that could not
be read; if you may look into one namespace only, those of that namespace are all. If one of two clusters does not
answer, the other one is shown, and the exit code is 1; with -w the command keeps trying. In a narrow window the last
columns are left out first.`,
		Example: `  liqoctl network status
  liqoctl network status milan -o wide

  # Both ends, until Ctrl-C.
  liqoctl network status --remote-kubeconfig milan.yaml -w

  # In a script: fail if a peering is not healthy.
  liqoctl network status --interval 0 --exit-code`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completePeers(),
	}
	st := &statusRun{app: a}
	st.readOne = st.readSite
	cmd.Flags().BoolVarP(&st.watch, "watch", "w", false, "keep running until Ctrl-C")
	cmd.Flags().DurationVar(&st.interval, "interval", statusInterval, "`TIME` between two readings; 0: do not wait, and show no throughput")
	cmd.Flags().BoolVar(&st.exitCode, "exit-code", false, "exit with code 1 if a peering is not healthy")
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

	sites []*statusSite // one, or the local and the remote
	// readOne reads a site.
	readOne func(context.Context, *statusSite) (*survey.Cluster, error)
}

// statusSite is a cluster, and what is remembered of it between two readings.
type statusSite struct {
	*access.Cluster
	// err is why the last reading failed; nil: it did not.
	err error
	// id is the cluster's, once it was read.
	id string
	// answer is where the reading under way is told; nil: there is none.
	answer chan statusAnswer
	// nodes is the reading of which the nodes are, nil before the first.
	nodes *survey.Cluster
	// reports are those of the reading before, by pod.
	reports map[string]*survey.GatewayReport
	// denied is set when the user may not ask gateways, so they are not asked again.
	denied *survey.Gap
}

// statusAnswer is what a reading found.
type statusAnswer struct {
	reading *survey.Cluster
	err     error
}

// nodesAge is how long nodes are not read again: they are most of what there is to
// read in a large cluster.
const nodesAge = 30 * time.Second

func (r *statusRun) run(ctx context.Context) error {
	if r.watch && r.interval < minInterval {
		return fmt.Errorf("--interval %v is too short for -w: use at least %v", r.interval, minInterval)
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
	var errs []error
	for i, s := range r.sites {
		if errs = append(errs, s.err); s.err == nil {
			r.missing(readings[i], s.Cluster)
		}
	}
	if unwell := t.unwell(); r.exitCode && len(unwell) > 0 {
		errs = append(errs, fmt.Errorf("not healthy: %s", strings.Join(unwell, ", ")))
	}
	for i, s := range r.sites {
		if s.err == nil && len(r.ids) == 0 {
			errs = append(errs, incomplete(readings[i], s.Cluster))
		}
	}
	return errors.Join(errs...)
}

// minInterval keeps a watch from being a burden to API servers.
const minInterval = 500 * time.Millisecond

// connect reaches one cluster, or two where the user named the remote one. One of two is
// enough.
func (r *statusRun) connect(ctx context.Context) error {
	if !r.remote.given() {
		c, err := r.one(ctx)
		r.sites = []*statusSite{{Cluster: c}}
		return err
	}
	clusters, unreached, err := r.either(ctx)
	for i, c := range clusters {
		r.sites = append(r.sites, &statusSite{Cluster: c, err: unreached[i]})
	}
	return err
}

// read reads all clusters at the same time, and asks their gateways. Without a reading of
// a cluster, its err says why; the error is for none at all. A watch tries such a cluster
// again, and does not wait for it where another one answers.
func (r *statusRun) read(ctx context.Context) ([]*survey.Cluster, error) {
	readings, silent := make([]*survey.Cluster, len(r.sites)), true
	for _, s := range r.sites {
		silent = silent && s.err != nil
		if s.answer == nil && (s.err == nil || r.watch) {
			answer := make(chan statusAnswer, 1)
			s.answer = answer
			go func() {
				reading, err := r.readOne(ctx, s)
				answer <- statusAnswer{reading, err}
			}()
		}
	}
	for i, s := range r.sites {
		if s.err == nil || silent {
			readings[i] = s.take(<-s.answer)
		}
	}
	var errs []error
	for i, s := range r.sites {
		select {
		case a := <-s.answer:
			readings[i] = s.take(a)
		default:
		}
		errs = append(errs, s.err)
	}
	if !slices.ContainsFunc(readings, func(s *survey.Cluster) bool { return s != nil }) {
		return nil, errors.Join(errs...)
	}
	if len(readings) > 1 && readings[0] != nil && readings[1] != nil {
		if id, c := r.sites[0].id, r.sites[1]; id != "" && id == c.id {
			return nil, c.Errorf("its ID is also %s, but the two ends of a peering have different IDs: name the other cluster with %s or %s", id, c.Flag("kubeconfig"), c.Flag("context"))
		}
	}
	if readings[0] == nil {
		return readings, nil
	}
	_, err := choosePeers(r.sites[0].Cluster, readings[0], r.ids)
	return readings, err
}

// take ends a reading.
func (s *statusSite) take(a statusAnswer) *survey.Cluster {
	s.answer, s.err = nil, a.err
	if a.err == nil {
		s.id = a.reading.Installation.ClusterID
	}
	return a.reading
}

// readSite is how a site is looked at.
func (r *statusRun) readSite(ctx context.Context, s *statusSite) (*survey.Cluster, error) {
	if r.watch { // it may have fallen silent
		if err := r.answers(ctx, s.Cluster); err != nil {
			return nil, err
		}
	}
	o := survey.Options{PeeringsOnly: true, Modules: true, Components: true}
	if s.nodes != nil && time.Since(s.nodes.ReadAt) < nodesAge {
		o.Nodes = s.nodes
	}
	c, err := r.survey(ctx, s.Cluster, o)
	if err != nil {
		return nil, err
	}
	if o.Nodes == nil {
		s.nodes = c
	}
	if s.denied != nil {
		c.Gaps = append(c.Gaps, *s.denied)
		return c, nil
	}
	survey.AskGateways(ctx, s.Cluster, c)
	if gap, ok := c.MayNotAsk(); ok {
		s.denied = &gap
	}
	return c, nil
}

// secondReading asks the gateways once more, so that there are two readings of
// their counters.
func (r *statusRun) secondReading(ctx context.Context, readings []*survey.Cluster) error {
	asked := false
	for i, s := range r.sites {
		s.remember(readings[i])
		asked = asked || len(s.reports) > 0
	}
	if !asked || r.interval <= 0 {
		return nil
	}
	if !access.Pause(ctx, r.interval) {
		return ctx.Err()
	}
	var wg sync.WaitGroup
	for i, s := range r.sites {
		if readings[i] != nil {
			wg.Go(func() { survey.AskGateways(ctx, s.Cluster, readings[i]) })
		}
	}
	wg.Wait()
	return nil
}

// remember keeps the reports of a reading for the next.
func (s *statusSite) remember(c *survey.Cluster) {
	s.reports = make(map[string]*survey.GatewayReport)
	if c == nil {
		return
	}
	for i := range c.Peers {
		if g := c.Peers[i].Gateway; g != nil && g.Report != nil {
			s.reports[reportKey(g)] = g.Report
		}
	}
}

// reportKey tells reports of different processes apart.
func reportKey(g *survey.Gateway) string { return g.Namespace + "/" + g.Active().Name }

// before is the report of a gateway that was remembered.
func (s *statusSite) before(p *survey.Peer) *survey.GatewayReport {
	if p.Gateway == nil || p.Gateway.Report == nil {
		return nil
	}
	return s.reports[reportKey(p.Gateway)]
}

// table joins the ends of all peerings: below each of the local ones the remote
// one, if that cluster was read.
func (r *statusRun) table(readings []*survey.Cluster) statusTable {
	t := statusTable{Peerings: []survey.Status{}, both: len(readings) > 1}
	for i, s := range r.sites {
		if readings[i] == nil {
			t.Unread = append(t.Unread, unreadCluster{Cluster: s.Name, Server: s.Config.Host, Error: s.err.Error()})
		} else if t.Time.IsZero() {
			t.Time, t.none = readings[i].ReadAt.UTC().Truncate(time.Second), noPeersIn(s.Cluster, readings[i])
		}
		if readings[i] != nil {
			t.addProblems(readings[i])
		}
	}
	if len(t.Unread) > 0 {
		t.none = noPeersRead
	}
	add := func(i int, p, other *survey.Peer) {
		s := readings[i].Status(p, r.sites[i].before(p))
		s.Compare(p, other)
		t.Peerings = append(t.Peerings, s)
	}
	if readings[0] == nil {
		r.remoteAlone(readings[1], func(p *survey.Peer) { add(1, p, nil) })
		return t
	}
	chosen, _ := choosePeers(r.sites[0].Cluster, readings[0], r.ids) // read has reported the error
	there := len(readings) == 1 || readings[1] == nil
	for _, p := range chosen {
		if there || p.ID != r.sites[1].id {
			add(0, p, nil)
			continue
		}
		other := readings[1].Peer(r.sites[0].id)
		add(0, p, other)
		if other != nil && other.Peered() {
			add(1, other, p)
		}
		there = true
	}
	// The remote cluster may have an end that the local one does not have.
	if !there && len(r.ids) == 0 {
		if other := readings[1].Peer(r.sites[0].id); other != nil && other.Peered() {
			add(1, other, nil)
		}
	}
	return t
}

// remoteAlone adds the ends of a remote cluster while the local one is silent: which of its
// peers that one is, only itself can tell.
func (r *statusRun) remoteAlone(reading *survey.Cluster, add func(*survey.Peer)) {
	if len(r.ids) > 0 && !slices.Contains(r.ids, r.sites[1].id) {
		return
	}
	for i := range reading.Peers {
		if p := &reading.Peers[i]; p.Peered() && (r.sites[0].id == "" || r.sites[0].id == p.ID) {
			add(p)
		}
	}
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
// reason to end: the table stays, and a line says so. Of two clusters one is shown alone.
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
		for i, s := range r.sites {
			if s.remember(readings[i]); readings[i] != nil {
				last.missing = append(last.missing, readings[i].Missing(s.Origin)...)
			}
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
		} else {
			for _, u := range last.Unread {
				p.Line(console.Bad("Not shown: " + u.Error))
			}
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
