package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// check is a line of the list. Exactly one of the four functions is set: it says
// what the check looks at, and returns at least one Finding.
type check struct {
	name string
	// title is what people read.
	title string
	// needs names checks that come before. Where one of them failed on what this
	// one looks at, this one is skipped.
	needs []string

	ofClient  func(*facts) []Finding   // the user's program and machine
	ofCluster func(*cluster) []Finding // each cluster by itself
	ofEnd     func(*end) []Finding     // each end of each peering
	ofPeering func(*peering) []Finding // each peering; an end may be missing
}

// judge asks all checks.
func judge(f *facts) (out []Finding) {
	j := judgement{failed: make(map[string][]scope)}
	for _, c := range checks {
		switch {
		case c.ofClient != nil:
			out = append(out, j.ask(c, scope{}, func() []Finding { return c.ofClient(f) })...)
		case c.ofCluster != nil:
			for _, cl := range f.clusters {
				out = append(out, j.ask(c, scope{clusters: []string{cl.name}}, func() []Finding { return c.ofCluster(cl) })...)
			}
		case c.ofEnd != nil:
			for _, p := range f.peerings {
				for _, e := range p.ends() {
					out = append(out, j.ask(c, p.scope(e), func() []Finding { return c.ofEnd(e) })...)
				}
			}
		default:
			for _, p := range f.peerings {
				out = append(out, j.ask(c, p.scope(p.ends()...), func() []Finding { return c.ofPeering(p) })...)
			}
		}
	}
	return out
}

// judgement remembers what failed, and where.
type judgement struct{ failed map[string][]scope }

// scope is what a check looks at, or what failed: clusters, and a peering or none.
type scope struct {
	clusters []string
	peer     string
	// root is, of what failed, the check that failed first.
	root string
}

// touches tells whether what failed matters for what is looked at.
func (s scope) touches(failed scope) bool {
	if failed.peer != "" && s.peer != "" && failed.peer != s.peer {
		return false
	}
	return len(failed.clusters) == 0 || slices.ContainsFunc(failed.clusters, func(c string) bool { return slices.Contains(s.clusters, c) })
}

// ask lets a check judge, unless what it needs has failed.
func (j judgement) ask(c check, s scope, judge func() []Finding) []Finding {
	cluster := ""
	if len(s.clusters) == 1 {
		cluster = s.clusters[0]
	}
	if roots := j.roots(c, s); len(roots) > 0 {
		for _, root := range roots {
			j.failed[c.name] = append(j.failed[c.name], scope{s.clusters, s.peer, root})
		}
		f := skip("needs what failed before: %s", strings.Join(titles(roots), ", "))
		f.Check, f.Cluster, f.Peer = c.name, cluster, s.peer
		return []Finding{f}
	}
	out := judge()
	for i := range out {
		f := &out[i]
		f.Check, f.Peer = c.name, s.peer
		if f.Cluster == "" {
			f.Cluster = cluster
		}
		if f.Status == Failed {
			at := scope{s.clusters, s.peer, c.name}
			if f.Cluster != "" {
				at.clusters = []string{f.Cluster}
			}
			j.failed[c.name] = append(j.failed[c.name], at)
		}
	}
	if len(out) == 0 {
		panic(fmt.Sprintf("check %s found nothing, not even that all is well", c.name))
	}
	return out
}

// roots are the checks whose failure keeps c from being judged.
func (j judgement) roots(c check, s scope) (roots []string) {
	for _, need := range c.needs {
		for _, failed := range j.failed[need] {
			if s.touches(failed) && !slices.Contains(roots, failed.root) {
				roots = append(roots, failed.root)
			}
		}
	}
	return roots
}

func titles(names []string) (out []string) {
	for _, n := range names {
		out = append(out, Title(n))
	}
	return out
}
