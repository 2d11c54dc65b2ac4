package doctor

import (
	"cmp"
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
	// one looks at, or could not see it, this one is skipped.
	needs []string

	ofClient  func(*facts) []Finding   // the user's program and machine
	ofCluster func(*cluster) []Finding // each cluster by itself
	ofEnd     func(*end) []Finding     // each end of each peering
	ofPeering func(*peering) []Finding // each peering; an end may be missing
}

// judge asks all checks.
func judge(f *facts) (out []Finding) {
	j := judgement{obstacles: make(map[string][]obstacle)}
	for _, c := range checks {
		switch {
		case c.ofClient != nil:
			out = append(out, j.askClient(c, f)...)
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
			out = append(out, j.skipUnpaired(c, f)...)
		default:
			for _, p := range f.peerings {
				out = append(out, j.ask(c, p.scope(p.ends()...), func() []Finding { return c.ofPeering(p) })...)
			}
			out = append(out, j.skipUnpaired(c, f)...)
		}
	}
	return out
}

// judgement remembers, by check, what keeps others from being judged.
type judgement struct{ obstacles map[string][]obstacle }

// obstacle is what failed or could not be seen, and where.
type obstacle struct {
	scope
	// root is the check that found it first.
	root string
	// unseen is what could not be read; empty: the check failed.
	unseen string
}

// scope is what a check looks at, or where something failed: clusters, and a
// peering or none.
type scope struct {
	clusters []string
	peer     string
}

// overlaps tells whether what failed matters for this scope.
func (s scope) overlaps(failed scope) bool {
	if failed.peer != "" && s.peer != "" && failed.peer != s.peer {
		return false
	}
	return slices.ContainsFunc(failed.clusters, func(c string) bool { return slices.Contains(s.clusters, c) })
}

// askClient asks a check that looks at all clusters at once. Those that it cannot
// look at are skipped, and what it finds is about the others.
func (j judgement) askClient(c check, f *facts) (out []Finding) {
	var seen scope
	for _, cl := range f.clusters {
		s := scope{clusters: []string{cl.name}}
		if why := j.obstaclesOf(c, s); len(why) > 0 {
			out = append(out, j.skip(c, s, why))
			continue
		}
		seen.clusters = append(seen.clusters, cl.name)
	}
	if len(seen.clusters) == 0 {
		return out
	}
	return append(j.ask(c, seen, func() []Finding { return c.ofClient(f) }), out...)
}

// skipUnpaired skips a check of peerings for clusters that are seen in none, where
// that is because of what was found before.
func (j judgement) skipUnpaired(c check, f *facts) []Finding {
	var s scope
	for _, cl := range f.clusters {
		has := func(p *peering) bool {
			return slices.ContainsFunc(p.ends(), func(e *end) bool { return e.cluster == cl })
		}
		if !slices.ContainsFunc(f.peerings, has) {
			s.clusters = append(s.clusters, cl.name)
		}
	}
	if why := j.obstaclesOf(c, s); len(why) > 0 {
		return []Finding{j.skip(c, s, why)}
	}
	return nil
}

// ask lets a check judge, unless what it needs has failed or could not be seen.
func (j judgement) ask(c check, s scope, judge func() []Finding) []Finding {
	if why := j.obstaclesOf(c, s); len(why) > 0 {
		return []Finding{j.skip(c, s, why)}
	}
	out := judge()
	for i := range out {
		f := &out[i]
		f.Check, f.Peer = c.name, s.peer
		f.Cluster = cmp.Or(f.Cluster, s.cluster())
		if f.Status != Failed && !f.blind {
			continue
		}
		o := obstacle{scope: s, root: c.name}
		if f.Cluster != "" {
			o.clusters = []string{f.Cluster}
		}
		if f.blind {
			o.unseen = f.Message
		}
		j.obstacles[c.name] = append(j.obstacles[c.name], o)
	}
	if len(out) == 0 {
		panic(fmt.Sprintf("check %s found nothing, not even that all is well", c.name))
	}
	return out
}

// cluster is the only one that is looked at; empty: there are two.
func (s scope) cluster() string {
	if len(s.clusters) == 1 {
		return s.clusters[0]
	}
	return ""
}

// skip is what becomes of a check that obstacles keep from judging, and of those
// that need it. A failure is a better reason than what could not be read.
func (j judgement) skip(c check, s scope, why []obstacle) Finding {
	var failed, unseen []string
	for _, o := range why {
		j.obstacles[c.name] = append(j.obstacles[c.name], obstacle{s, o.root, o.unseen})
		if title := Title(o.root); o.unseen == "" && !slices.Contains(failed, title) {
			failed = append(failed, title)
		}
		if o.unseen != "" && !slices.Contains(unseen, o.unseen) {
			unseen = append(unseen, o.unseen)
		}
	}
	f := skip("%s", strings.Join(unseen, "; "))
	if len(failed) > 0 {
		f = skip("needs what failed before: %s", strings.Join(failed, ", "))
	}
	f.Check, f.Cluster, f.Peer = c.name, s.cluster(), s.peer
	return f
}

// obstaclesOf returns what keeps a check from judging.
func (j judgement) obstaclesOf(c check, s scope) (out []obstacle) {
	for _, need := range c.needs {
		for _, o := range j.obstacles[need] {
			same := func(p obstacle) bool { return p.root == o.root && p.unseen == o.unseen }
			if s.overlaps(o.scope) && !slices.ContainsFunc(out, same) {
				out = append(out, o)
			}
		}
	}
	return out
}
