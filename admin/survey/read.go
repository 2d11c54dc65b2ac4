package survey

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Options say what is read.
type Options struct {
	// Namespace limits the objects of peerings to one namespace; empty: all.
	Namespace string
	// Peers limits Cluster.Peers to these remote clusters; empty: all.
	Peers []string
	// PeeringsOnly leaves out the installation, its Networks, and what is no part of the network.
	PeeringsOnly bool
	// Modules reads, with PeeringsOnly too, what the controller tells of peerings beside their networks.
	Modules bool
	// Components reads, with PeeringsOnly too, the components of the installation.
	Components bool
	// Slices adds the ResourceSlices and VirtualNodes of peers.
	Slices bool
	// Exposed adds the IPs.
	Exposed bool
	// Offloaded adds the offloaded namespaces.
	Offloaded bool
	// Nodes, when not nil, is where nodes and tunnels are taken from instead of
	// being read again: in a large cluster they are nearly everything that there
	// is to read, and they seldom change. So are components.
	Nodes *Cluster
}

// leftOfTakeover is the Gap of Installation.Interrupted.
const leftOfTakeover = "what is left of a takeover"

// readTimeout bounds everything that Read asks.
const readTimeout = time.Minute

// Read reads a cluster. What it may not or cannot read is a Gap; the error is for
// a cluster that does not answer at all.
func Read(ctx context.Context, c *access.Cluster, o Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	f := &facts{now: time.Now(), liqoNamespace: c.LiqoNamespace}
	var v version.Info
	if err := readVersion(ctx, c, &v); err != nil && !denied(err) {
		return nil, c.Explain("ask the API server for its version", err)
	}
	f.kubernetes = v.GitVersion
	r := &reader{cluster: c}
	f.gather(ctx, r, o)
	switch {
	case !o.PeeringsOnly:
		f.components = r.components(ctx)
	case o.Components && o.Nodes != nil:
		i := o.Nodes.Installation
		f.components, f.install.ControllerReplicas, f.interrupted = i.Components, i.ControllerReplicas, i.Interrupted
		for _, g := range o.Nodes.Gaps {
			if g.Kind == kindDeployment || g.Kind == kindDaemonSet || g.What == leftOfTakeover {
				r.add(g)
			}
		}
	case o.Components:
		f.components = r.components(ctx)
		if slices.ContainsFunc(f.components, func(c Component) bool { return c.Off() }) {
			f.install, _ = c.Installation(ctx) // else the default is told
		}
	}
	if liqos, _ := controllers(f.components); liqos && o.Nodes == nil {
		var err error
		f.interrupted, err = c.Interrupted(ctx)
		r.miss(leftOfTakeover, err)
	}
	s := f.build(c, o)
	s.Gaps, s.Within = r.gaps, r.within
	return s, nil
}

// readVersion asks what everybody may ask who may log in.
func readVersion(ctx context.Context, c *access.Cluster, v *version.Info) error {
	info, err := c.Clientset.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return err
	}
	return decode(info, v)
}

// PeerIDs returns the IDs of all peers, as far as they can be read: for
// completions, which have nobody to complain to.
func PeerIDs(ctx context.Context, c *access.Cluster) []string {
	r := &reader{cluster: c}
	queries := []query{
		networking("Configuration", ""), networking("GatewayServer", ""), networking("GatewayClient", ""), foreignClusters,
	}
	lists, _ := access.Parallel(queries, len(queries), func(q query) ([]metav1.PartialObjectMetadata, error) { return listNames(ctx, r, q), nil })
	ids := make(map[string]bool)
	for _, o := range slices.Concat(lists...) {
		if id := o.Labels[networkingv1beta1.LabelRemoteClusterID]; id != "" {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
