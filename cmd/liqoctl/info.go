package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

func infoCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show the installation in a cluster and its peerings",
		Long: `Show the installation in a cluster, its state, the peerings of the cluster, and its offloaded namespaces.
The role is that of the other cluster: a Provider is asked for resources, a Consumer asks for them; Unknown is neither,
or you may not see it.

Objects that you may not read are left out, and a line on stderr names them. The exit code is 1 if there may be peerings
that could not be read; if you may look into one namespace only, as the user of 'liqoctl generate peering-user' may, those
of that namespace are all. With --get, only one value is printed, for scripts; "clusterid" is short for
"local.clusterID". The path is that of the output of -o json, in upper or lower case.`,
		Example: `  liqoctl info
  liqoctl info --verbose

  # The name of this cluster, which its peers need.
  liqoctl info --get clusterid

  liqoctl info --get network.podCIDRs -o json`,
		Args: cobra.NoArgs,
	}
	get := cmd.Flags().StringP("get", "g", "", "print only the value at this `PATH` of the output of -o json")
	out := a.outputFlag(cmd, formatJSON, formatYAML)
	cmd.RunE = a.inOne(func(ctx context.Context, c *access.Cluster, _ []string) error {
		if isClusterID(*get) { // one object tells, which nearly everybody may read
			id, err := c.ID(ctx)
			if err != nil {
				return err
			}
			return out.value(id)
		}
		s, err := a.survey(ctx, c, survey.Options{Offloaded: true})
		if err != nil {
			return err
		}
		defer a.missing(s, c)
		info := infoOf(s)
		info.Peerings.none = noPeersIn(c, s)
		switch {
		case *get != "":
			return out.getInfo(info, *get)
		case out.given():
			return errors.Join(out.data(info), incomplete(s, c))
		}
		a.console.Show(func(p *console.Page) { info.write(p, a.console.Verbose() > 0) })
		return incomplete(s, c)
	})
	cmd.AddCommand(infoPeerCommand(a))
	return cmd
}

// isClusterID tells whether a path asks for the name of the cluster.
func isClusterID(path string) bool {
	path = strings.TrimPrefix(path, ".")
	return strings.EqualFold(path, "clusterid") || strings.EqualFold(path, "local.clusterid")
}

// getInfo is get of what 'info' tells. Its error names 'info peer' where the path is one of that.
func (o *output) getInfo(i info, path string) error {
	err := o.get(i, path)
	if err != nil && isPathOfPeer(path) {
		err = fmt.Errorf("%w; for that of a peer: liqoctl info peer PEER-ID --get %s", err, path)
	}
	return err
}

// isPathOfPeer tells whether the output of 'info peer' has what the first two keys of a path name.
func isPathOfPeer(path string) bool {
	some := peerInfo{Network: peerNetwork{Connection: &peerConnection{}, ExposedIPs: []exposedIP{{}}}}
	keys := strings.SplitN(strings.Trim(path, "."), ".", 3)
	err := (&output{w: io.Discard}).get(some, strings.Join(keys[:min(2, len(keys))], "."))
	return err == nil || errors.Is(err, errNoValue)
}

// infoPeerReads is what it takes to show a peer.
var infoPeerReads = survey.Options{Slices: true, Exposed: true}

func infoPeerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peer [PEER-ID...]",
		Short: "Show peerings of a cluster",
		Long: `Show the peering with some clusters, or with all. "Network" shows its state, what is wrong and what to do
about it, the addresses by which this cluster reaches the peer, and where the gateway server is. "Authentication" shows
whether one cluster may ask the other for resources, and what was requested and granted.

Exposed IPs are addresses that IP objects make known to all peers, with their addresses in this cluster's external CIDR.
A peer reaches each of them by the same host part in its own prefix for that CIDR; run 'liqoctl info peer' there to see
the prefix.

The roles are the peer's: a Consumer asks this cluster for resources, a Provider is asked by it; Unknown is neither, or
you may not see it. If this cluster has the gateway server, the peer has the client. The address is always that of the
server, as the client needs it.`,
		Example: `  liqoctl info peer
  liqoctl info peer milan

  # Address and port for a GatewayClient in the other cluster.
  liqoctl info peer milan --get network.gateway
  liqoctl info peer milan --get authentication.status

  # With several peers the path begins with the ID.
  liqoctl info peer milan rome --get milan.network.status`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completePeers(),
	}
	get := cmd.Flags().StringP("get", "g", "", "print only the value at this `PATH` of the output of -o json")
	out := a.outputFlag(cmd, formatJSON, formatYAML)
	cmd.RunE = a.inOne(func(ctx context.Context, c *access.Cluster, args []string) error {
		s, err := a.survey(ctx, c, infoPeerReads)
		if err != nil {
			return err
		}
		defer a.missing(s, c)
		peers, err := choosePeers(c, s, args)
		if err != nil {
			return err
		}
		notAll := func() error {
			if len(args) > 0 {
				return nil // all that were asked for
			}
			return incomplete(s, c)
		}
		infos := make(map[string]peerInfo, len(peers))
		for _, p := range peers {
			infos[p.ID] = peerInfoOf(s, p)
		}
		if *get != "" || out.given() {
			a.warnOfNoAddress(peers)
		}
		switch {
		case *get != "" && len(peers) == 1:
			// The ID in front, as where there are several, does no harm.
			id := peers[0].ID
			return out.get(infos[id], *get, strings.TrimPrefix(strings.TrimPrefix(*get, "."), id))
		case *get != "":
			return out.get(infos, *get)
		case out.given():
			return errors.Join(out.data(infos), notAll())
		}
		a.console.Show(func(page *console.Page) {
			for i, p := range peers {
				if i > 0 {
					page.Line("")
				}
				infos[p.ID].write(page)
			}
			if len(peers) == 0 {
				page.Line(noPeersIn(c, s))
			}
		})
		return notAll()
	})
	return cmd
}

// warnOfNoAddress tells a script, which sees an empty address only, that there is
// none yet.
func (a *app) warnOfNoAddress(peers []*survey.Peer) {
	for _, p := range peers {
		if g := p.Gateway; g != nil && (g.Endpoint == nil || len(g.Endpoint.Addresses) == 0) {
			a.console.Warn(fmt.Sprintf("%s has no address yet: 'liqoctl get %s -n %s %s' shows when it has one", g, strings.ToLower(g.Kind), g.Namespace, g.Name))
		}
	}
}

// noPeers is shown where there is nothing to show.
const noPeers = "This cluster has no peering yet: 'liqoctl network connect' makes one."

// noPeersRead is shown where there may be peerings that are not seen.
const noPeersRead = "There is no peering that could be read."

// peersForbidden is shown where the user may not read the objects of which peerings consist; empty: that is not the reason.
func peersForbidden(s *survey.Cluster) string {
	var kinds []string
	for _, g := range s.Gaps {
		if slices.Contains(peeringKinds, g.Kind) && apierrors.IsForbidden(g.Err) && !slices.Contains(kinds, g.Kind+"s") {
			kinds = append(kinds, g.Kind+"s")
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	slices.Sort(kinds)
	return "Whether there are peerings cannot be seen: you may not read " + strings.Join(kinds, ", ") + "."
}

// noPeersIn is noPeers, unless they are only not seen: by who may not read them, or as one
// namespace is looked into: that of c, or the only one that the user may read. Without c that is all of them.
func noPeersIn(c *access.Cluster, s *survey.Cluster) string {
	switch {
	case !allPeersRead(s):
		return cmp.Or(peersForbidden(s), noPeersRead)
	case c != nil && c.NamespaceGiven:
		return fmt.Sprintf("There is no peering in namespace %s: without -n, those of all namespaces are shown.", c.Namespace)
	case s.Within != "":
		return fmt.Sprintf("There is no peering in namespace %s, the only one that you may read.", s.Within)
	}
	return noPeers
}

// peeringKinds are those by whose objects peerings are known.
var peeringKinds = []string{"GatewayServer", "GatewayClient", "Configuration"}

// allPeersRead tells whether s has all peerings of the cluster.
func allPeersRead(s *survey.Cluster) bool { return !slices.ContainsFunc(peeringKinds, s.Unread) }

// incomplete is the error of commands that show the peerings of a cluster, where there
// may be more of them. What could not be read is told by missing.
func incomplete(s *survey.Cluster, c *access.Cluster) error {
	if allPeersRead(s) {
		return nil
	}
	return c.Errorf("the cluster may have peerings that are not shown, as not everything could be read")
}

// survey reads a cluster. Of one that nothing is installed in there is nothing
// to show.
func (a *app) survey(ctx context.Context, c *access.Cluster, o survey.Options) (*survey.Cluster, error) {
	if c.NamespaceGiven {
		o.Namespace = c.Namespace
	}
	s, err := survey.Read(ctx, c, o)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, c.Explain("read the cluster", err)
	}
	for _, g := range s.Gaps {
		if errors.Is(g.Err, access.ErrNotInstalled) {
			return nil, g.Err
		}
	}
	return s, nil
}

// missing tells what is not shown.
func (a *app) missing(s *survey.Cluster, c *access.Cluster) {
	for _, line := range s.Missing(c.Origin) {
		a.console.Warn(line)
	}
}

// choosePeers returns the peers of some IDs or, without IDs, all.
func choosePeers(c *access.Cluster, s *survey.Cluster, ids []string) ([]*survey.Peer, error) {
	var all []*survey.Peer
	var known []string
	for i := range s.Peers {
		if p := &s.Peers[i]; p.Peered() {
			all = append(all, p)
			if p.ID != "" {
				known = append(known, p.ID)
			}
		}
	}
	if len(ids) == 0 {
		return all, nil
	}
	var chosen []*survey.Peer
	for _, id := range ids {
		p := s.Peer(id)
		if p == nil || !p.Peered() || id == "" {
			return nil, noPeering(c, s, id, known)
		}
		chosen = append(chosen, p)
	}
	return chosen, nil
}

// noPeering is the error about a peer that is not among those that could be read.
func noPeering(c *access.Cluster, s *survey.Cluster, id string, known []string) error {
	for _, g := range s.Gaps {
		if slices.Contains(peeringKinds, g.Kind) && apierrors.IsForbidden(g.Err) {
			return c.Errorf("it is not known whether there is a peering with %q: the user of %s may not read %ss, of which peerings consist", id, c.Origin, g.Kind)
		}
	}
	if !allPeersRead(s) {
		return c.Errorf("it is not known whether there is a peering with %q, as not all peerings could be read", id)
	}
	return c.Errorf("there is no peering with %q: %s", id, knownPeers(c, s, known))
}

func knownPeers(c *access.Cluster, s *survey.Cluster, ids []string) string {
	if len(ids) == 0 {
		none := strings.TrimSuffix(noPeersIn(c, s), ".")
		return strings.ToLower(none[:1]) + none[1:]
	}
	return fmt.Sprintf("this cluster's are with %s", strings.Join(ids, ", "))
}
