package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/deploy"
)

// Target is a cluster to look at.
type Target struct {
	// Name is access.Local or access.Remote; empty where there is only one.
	Name string
	// Origin says where the credentials come from.
	Origin string
	// Cluster is nil where these are of no use; Err says why.
	Cluster *access.Cluster
	Err     error
}

// Options say what to look at.
type Options struct {
	// Version is that of the program that looks.
	Version string
	// Clusters are one or two. Of two, the peering between them is judged; of one,
	// each of its peerings as far as one side tells.
	Clusters []Target
	// Peer, with one cluster, is the only remote cluster to look at; empty: all.
	Peer string
}

// Examine looks at the clusters and judges what it finds. What cannot be read is
// a finding; the error is for a ctx that ended.
func Examine(ctx context.Context, o Options, say progress.Func) (*Report, error) {
	f, err := gather(ctx, o, say.Serial())
	if err != nil {
		return nil, err
	}
	r := &Report{Version: o.Version, Time: f.now, Findings: judge(f)}
	for _, c := range f.clusters {
		r.Clusters = append(r.Clusters, Examined{Name: c.name, ClusterID: c.Installation.ClusterID, APIServer: c.host, Origin: c.origin})
	}
	r.sum()
	return r, nil
}

// gather asks for everything that the checks judge.
func gather(ctx context.Context, o Options, say progress.Func) (*facts, error) {
	wanted, err := wantedCRDs(deploy.CRDs())
	if err != nil {
		return nil, err
	}
	f := &facts{version: o.Version, now: time.Now()}
	readers, _ := access.Parallel(o.Clusters, len(o.Clusters), func(t Target) (*clusterReader, error) {
		say.Waiting(t.Name, "Reading the cluster")
		r := readCluster(ctx, t, wanted)
		if r.err != nil {
			say.Failed(t.Name, "The cluster cannot be examined")
		} else {
			say.Done(t.Name, "Cluster examined")
		}
		return r, nil
	})
	for _, p := range readers {
		f.clusters = append(f.clusters, p.cluster)
	}
	cases := casesOf(readers, o.Peer)
	each(cases, atOnce, func(c *peeringCase) {
		c.read(ctx, say)
		say.Done(c.ends[0].access.Name, "Peering with "+c.id+" examined")
	})
	for _, c := range cases {
		f.peerings = append(f.peerings, c.peering)
	}
	return f, ctx.Err()
}

// atOnce is how many peerings are looked at at the same time: each costs several
// connections through the API servers.
const atOnce = 8

// each calls do for all items, at most n at a time.
func each[T any](items []T, n int, do func(T)) {
	access.Parallel(items, n, func(item T) (struct{}, error) { do(item); return struct{}{}, nil })
}

// clusterReader reads a cluster, and holds what was read.
type clusterReader struct {
	access *access.Cluster // nil: it cannot be asked
	*cluster
}

// casesOf are the peerings to look at: of two clusters the one between them; of
// the only one that answers, all that it has.
func casesOf(readers []*clusterReader, peer string) (out []*peeringCase) {
	well := slices.DeleteFunc(slices.Clone(readers), func(p *clusterReader) bool { return p.err != nil })
	if len(well) == 2 {
		a, b := well[0], well[1]
		idA, idB := a.Installation.ClusterID, b.Installation.ClusterID
		if idA == "" || idB == "" || idA == idB {
			return nil // the checks of the clusters say why
		}
		local, remote := newEnd(a, idB), newEnd(b, idA)
		return []*peeringCase{{
			peering: &peering{id: idB, local: local.end, remote: remote.end}, ends: []*endCase{local, remote},
		}}
	}
	if len(well) == 0 {
		return nil
	}
	p := well[0]
	for _, id := range peerIDs(p.cluster, peer) {
		e := newEnd(p, id)
		out = append(out, &peeringCase{peering: &peering{id: id, local: e.end}, ends: []*endCase{e}})
	}
	return out
}

func peerIDs(c *cluster, only string) (ids []string) {
	if only != "" {
		return []string{only}
	}
	for i := range c.Peers {
		if id := c.Peers[i].ID; id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func newEnd(p *clusterReader, id string) *endCase {
	return &endCase{access: p.access, end: &end{cluster: p.cluster, id: id, peer: p.Peer(id)}}
}

// wantedCRDs reads the CRDs that this program was built with.
func wantedCRDs(dir fs.FS) ([]apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the CRDs of this program: %w", err)
	}
	out := make([]apiextensionsv1.CustomResourceDefinition, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err == nil {
			err = yaml.Unmarshal(text, &out[i])
		}
		if err != nil {
			return nil, fmt.Errorf("CRD %s of this program: %w", name, err)
		}
	}
	return out, nil
}

// unasked is the survey of a cluster that does not answer.
func unasked(name string) *survey.Cluster { return &survey.Cluster{Name: name} }
