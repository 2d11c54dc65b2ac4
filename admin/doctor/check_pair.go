package doctor

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sluice-net/sluice/api/text"
)

// reachable are the clusters that answer. What is about the others has been said.
func (f *facts) reachable() (out []*cluster) {
	for _, c := range f.clusters {
		if c.err == nil {
			out = append(out, c)
		}
	}
	return out
}

func identity(f *facts) (out []Finding) {
	cs := f.reachable()
	for _, c := range cs {
		if c.Installation.ClusterID == "" {
			out = append(out, c.noID(len(cs)))
		}
	}
	if len(cs) == 2 && len(out) == 0 {
		a, b := cs[0], cs[1]
		switch {
		case a.uid != "" && a.uid == b.uid:
			out = append(out, fail("both are the same cluster, %s", a.Installation.ClusterID).
				because("%s and %s lead to the same API server", a.origin, b.origin).
				fix("name two clusters: --kubeconfig and --context, --remote-kubeconfig and --remote-context"))
		case a.Installation.ClusterID == b.Installation.ClusterID:
			out = append(out, fail("both clusters have the ID %s", a.Installation.ClusterID).because("a cluster cannot tell itself from its peer").
				fix("reinstall one of them with another --cluster-id"))
		}
	}
	if len(out) == 0 {
		var ids []string
		for _, c := range cs {
			ids = append(ids, c.Installation.ClusterID)
		}
		out = append(out, pass("%s", strings.Join(ids, " and ")))
	}
	return out
}

// noID says why a cluster has no ID, or none that can be read. Of two clusters,
// the IDs are needed to know what of one is about the other.
func (c *cluster) noID(clusters int) Finding {
	for _, g := range c.Gaps {
		if g.What != "the cluster ID" {
			continue
		}
		f := fail("the cluster has no ID: %s", plain(g.Err))
		if unreadable(g.Err) {
			f = unseen(plain(g.Err))
			f.blind = clusters > 1
		}
		return f.in(c)
	}
	return fail("the cluster has no ID").in(c)
}

// running is a version of something, and where it runs.
type running struct{ what, version string }

func (f *facts) versionsRunning() (out []running) {
	for _, c := range f.reachable() {
		if c.Installation.OfLiqo() {
			continue // its versions are none of ours
		}
		where := ""
		if c.name != "" {
			where = " (" + c.name + ")"
		}
		for i := range c.Installation.Components {
			o := &c.Installation.Components[i]
			if c.Installation.BesideOurs(o) {
				continue
			}
			out = append(out, running{o.Name + where, o.Version})
		}
	}
	for _, p := range f.peerings {
		for _, e := range p.ends() {
			if e.after != nil {
				out = append(out, running{fmt.Sprintf("gateway of %s (%s)", e.id, e.cluster.name), e.after.Version})
			}
		}
	}
	return out
}

// versions compares those that can be compared: tags like latest cannot.
func versions(f *facts) (out []Finding) {
	all := append([]running{{"liqoctl", f.version}}, f.versionsRunning()...)
	var first *version.Version
	var name string
	var differ, texts []string
	for _, r := range all {
		v, err := version.ParseSemantic(r.version)
		if err != nil {
			continue
		}
		texts = append(texts, r.what+" "+r.version)
		if first == nil {
			first, name = v, r.what
			continue
		}
		if v.Major() != first.Major() || v.Minor() != first.Minor() {
			differ = append(differ, r.what)
		}
	}
	for _, c := range f.reachable() {
		if why := c.unread("Deployment", "DaemonSet"); why != "" && len(c.Installation.Components) == 0 {
			out = append(out, skip("%s", why).in(c))
		}
	}
	switch {
	case len(texts) < 2 && len(out) > 0:
		return out
	case len(texts) < 2:
		return []Finding{pass("nothing to compare: %s is %s", all[0].what, all[0].version)}
	case len(differ) > 0:
		return append(out, warn("versions differ: %s", strings.Join(texts, ", ")).because("%s and %s are of different releases: one may not understand what the other writes", name, strings.Join(differ, ", ")).
			fix("bring both clusters to the same version: 'liqoctl install' of that version"))
	}
	return append(out, pass("%s", text.Few(texts)))
}

// maxSkew is how far clocks may differ before somebody notices.
const maxSkew = 10 * time.Second

func clocks(f *facts) (out []Finding) {
	type clock struct {
		what  string
		in    *cluster
		ahead *time.Duration
	}
	var all []clock
	for _, c := range f.reachable() {
		all = append(all, clock{"the API server's clock", c, c.clockAhead})
	}
	for _, p := range f.peerings {
		for _, e := range p.ends() {
			all = append(all, clock{"the clock of the gateway of " + e.id, e.cluster, e.clockAhead})
		}
	}
	known := 0
	for _, c := range all {
		if c.ahead == nil {
			continue
		}
		known++
		if d := *c.ahead; d.Abs() > maxSkew {
			out = append(out, warn("%s is %s", c.what, offset(d)).in(c.in).
				because("certificates and tokens may count as expired or not yet valid, and displayed ages are wrong by this much; a peer rejects a gateway whose clock was set back, as WireGuard accepts no handshake that is older than the last").
				fix("synchronise the clocks: NTP or chrony on nodes and on this machine"))
		}
	}
	switch {
	case len(out) > 0:
		return out
	case known == 0:
		return []Finding{skip("no clock could be read")}
	}
	return []Finding{pass("%d clocks differ by less than %v from this machine's", known, maxSkew)}
}

func offset(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%v behind this machine's", d.Abs().Round(time.Second))
	}
	return fmt.Sprintf("%v ahead of this machine's", d.Round(time.Second))
}
