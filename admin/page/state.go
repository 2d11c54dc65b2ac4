package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// State is what the map shows.
type State struct {
	// Sequence tells states apart; it grows.
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Version  string    `json:"version"`
	// Interval is the time between two states, in milliseconds.
	Interval int64 `json:"interval"`
	// Kinds are those of objects that can be shown.
	Kinds []string `json:"kinds"`
	// Past tells whether plots can reach back further than the page.
	Past     bool      `json:"past,omitempty"`
	Clusters []Cluster `json:"clusters"`
	Peerings []Peering `json:"peerings"`
	// Omitted counts peerings that are too many to show.
	Omitted int `json:"omitted,omitempty"`
}

// Cluster is a box of the map.
type Cluster struct {
	// Key is its place among the clusters that were given, or "?ID" for one that is known
	// only as the peer of another.
	Key string `json:"key"`
	ID  string `json:"id"`
	// Named tells whether it can be asked.
	Named      bool   `json:"named"`
	Origin     string `json:"origin,omitempty"`
	APIServer  string `json:"apiServer,omitempty"`
	Version    string `json:"version,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// Problem is why it cannot be read; everything else is then from an earlier reading.
	Problem  string              `json:"problem,omitempty"`
	ReadAt   time.Time           `json:"readAt,omitzero"`
	Gaps     []string            `json:"gaps,omitempty"`
	CIDRs    map[string][]string `json:"cidrs,omitempty"`
	Nodes    []Node              `json:"nodes,omitempty"`
	AllNodes int                 `json:"allNodes,omitempty"`
}

// Node is a node of a cluster.
type Node struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"`
}

// Tone is how something looks.
type Tone string

// The tones.
const (
	Up       Tone = "up"
	Degraded Tone = "degraded"
	Down     Tone = "down"
	// Off: no network was asked for.
	Off     Tone = "off"
	Unknown Tone = "unknown"
)

// badness orders tones: a peering has that of its worse end.
var badness = []Tone{Off, Up, Unknown, Degraded, Down}

// Peering is a line of the map.
type Peering struct {
	Key  string `json:"key"`
	A    string `json:"a"` // keys of clusters
	B    string `json:"b"`
	Tone Tone   `json:"tone"`
	// Why is the most significant problem.
	Why  string `json:"why,omitempty"`
	Ends []End  `json:"ends"` // one or two
	// Diagnosis is what the doctor found out about an unhealthy peering.
	Diagnosis *Diagnosis `json:"diagnosis,omitempty"`
	// silent: the gateway of an end has lost pings lately.
	silent bool
}

// lostPings is how many lost in a row are no coincidence. A gateway waits for more before it
// reports that its peer does not answer.
const lostPings = 2

// urgency is how much a peering needs the doctor; zero: it does not.
func (p *Peering) urgency() int {
	switch {
	case p.Tone == Down || p.silent:
		return 2
	case p.Tone == Degraded:
		return 1
	}
	return 0
}

// End is one cluster's side of a peering.
type End struct {
	// Key is that of the cluster and the ID of its peer: "0/milan".
	Key     string        `json:"key"`
	Cluster string        `json:"cluster"`
	Tone    Tone          `json:"tone"`
	Status  survey.Status `json:"status"`
	CIDRs   []Called      `json:"cidrs,omitempty"`
	Pods    []GatewayPod  `json:"pods,omitempty"`
	Memory  uint64        `json:"memory,omitempty"` // bytes
	// Missing are nodes that are not joined to the gateway.
	Missing []string `json:"missing,omitempty"`
	// Lost counts the last pings to the peer that got lost.
	Lost int `json:"lost,omitempty"`
	// Silent is why the gateway did not answer.
	Silent string `json:"silent,omitempty"`
	// Stale tells that the cluster cannot be read: this end is as it was read before.
	Stale bool `json:"stale,omitempty"`
}

// Called is a CIDR of the peer as the peer itself and as this cluster calls it.
type Called struct {
	What  string `json:"what"` // pods, external
	There string `json:"there"`
	Here  string `json:"here,omitempty"`
}

// GatewayPod is a pod of a gateway.
type GatewayPod struct {
	Name     string `json:"name"`
	Node     string `json:"node,omitempty"`
	Active   bool   `json:"active,omitempty"`
	Ready    bool   `json:"ready,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Restarts int32  `json:"restarts,omitempty"`
}

// Diagnosis is what the doctor found wrong with a peering.
type Diagnosis struct {
	Time     time.Time        `json:"time"`
	Findings []doctor.Finding `json:"findings,omitempty"`
	Problem  string           `json:"problem,omitempty"` // why it could not examine it
	// urgency is that of the peering that was examined.
	urgency int
	// cut: a failure was found that keeps packets out of the tunnel.
	cut bool
}

// Bounds of a map that somebody can look at.
const (
	maxNodes    = 1000 // of a cluster
	maxPeerings = 500
	maxListed   = 10  // of what is listed beside the map
	maxName     = 253 // that is what Kubernetes allows
)

// listed is the part of a list that is shown.
func listed[T any](list []T) []T { return list[:min(len(list), maxListed)] }

// reading is what was last read of a cluster.
type reading struct {
	origin, host string
	survey       *survey.Cluster // nil: never
	before       map[string]*survey.GatewayReport
	problem      string
}

// build makes a State of readings.
func build(readings []reading, diagnoses map[string]*Diagnosis) *State {
	s := &State{Kinds: slices.Sorted(maps.Keys(viewable)), Clusters: []Cluster{}, Peerings: []Peering{}}
	index := make(map[string]int) // of cluster IDs
	for i := range readings {
		c := clusterOf(i, &readings[i])
		if first, twice := index[c.ID]; c.ID != "" && twice {
			c.Problem = fmt.Sprintf("its cluster ID is %s, the same as that of %s: give each cluster its own ID, or name the cluster only once if both are the same", c.ID, readings[first].origin)
		} else if c.ID != "" {
			index[c.ID] = i
		}
		s.Clusters = append(s.Clusters, c)
	}
	lines := make(map[string]int)      // of keys of peerings, in s.Peerings
	strangers := make(map[string]bool) // keys of clusters that were not given
	for i := range readings {
		read := readings[i].survey
		if read == nil || index[read.Installation.ClusterID] != i && read.Installation.ClusterID != "" {
			continue
		}
		for k := range read.Peers {
			p := &read.Peers[k]
			if !p.Peered() {
				continue
			}
			other, otherPeer := "?"+p.ID, (*survey.Peer)(nil)
			if j, known := index[p.ID]; known && j != i {
				other = strconv.Itoa(j)
				otherPeer = readings[j].survey.Peer(read.Installation.ClusterID)
			}
			key := lineKey(strconv.Itoa(i), other)
			at, drawn := lines[key]
			if !drawn {
				if len(s.Peerings) == maxPeerings {
					s.Omitted++
					continue
				}
				if other[0] == '?' && !strangers[other] {
					strangers[other] = true
					s.Clusters = append(s.Clusters, Cluster{Key: other, ID: p.ID})
				}
				at = len(s.Peerings)
				lines[key] = at
				s.Peerings = append(s.Peerings, Peering{Key: key, A: strconv.Itoa(i), B: other, Tone: Off})
			}
			s.Peerings[at].Ends = append(s.Peerings[at].Ends, endOf(i, &readings[i], p, otherPeer))
		}
	}
	for i := range s.Peerings {
		p := &s.Peerings[i]
		p.judge()
		d := diagnoses[p.Key]
		if p.silent && p.Tone != Down && d != nil && d.cut { // the Connection will say so, too
			p.Tone = Down
		}
		if p.Tone == Down || p.Tone == Degraded {
			p.Diagnosis = d
		}
		// The doctor knows more than the objects, which with time say less.
		if p.Tone == Down && d != nil && len(d.Findings) > 0 {
			p.Why = d.Findings[0].Message
		}
	}
	return s
}

// lineKey names a peering, whichever end comes first.
func lineKey(a, b string) string { return min(a, b) + "~" + max(a, b) }

// judge gives a peering the tone of its worse end, as far as the ends can be read.
func (p *Peering) judge() {
	fresh := false
	for i := range p.Ends {
		e := &p.Ends[i]
		if e.Stale {
			continue
		}
		fresh = true
		p.silent = p.silent || e.Lost >= lostPings
		if slices.Index(badness, e.Tone) <= slices.Index(badness, p.Tone) {
			continue
		}
		p.Tone, p.Why = e.Tone, ""
		if len(e.Status.Alerts) > 0 && (e.Tone == Down || e.Tone == Degraded) {
			p.Why = cmp.Or(e.Status.Alerts[0].Message, e.Status.Alerts[0].Reason)
		}
	}
	if !fresh && slices.ContainsFunc(p.Ends, func(e End) bool { return e.Tone != Off }) {
		p.Tone, p.Why = Unknown, "what is known of it was read before the API server stopped answering"
	}
}

func clusterOf(i int, r *reading) Cluster {
	c := Cluster{Key: strconv.Itoa(i), Named: true, Origin: r.origin, APIServer: r.host, Problem: r.problem}
	s := r.survey
	if s == nil {
		return c
	}
	c.ID, c.Version, c.Kubernetes, c.ReadAt = s.Installation.ClusterID, s.Installation.Version, s.Installation.KubernetesVersion, s.ReadAt
	c.Gaps = listed(s.Missing(r.origin))
	c.CIDRs = make(map[string][]string)
	for what, networks := range map[string][]survey.Network{
		"pods": s.Networks.Pod, "services": s.Networks.Service, "external": s.Networks.External, "internal": s.Networks.Internal,
	} {
		for _, n := range listed(networks) {
			c.CIDRs[what] = append(c.CIDRs[what], cmp.Or(n.CIDR, n.Problem))
		}
	}
	c.AllNodes = len(s.Nodes)
	for k := range s.Nodes[:min(len(s.Nodes), maxNodes)] {
		c.Nodes = append(c.Nodes, Node{Name: text.Cut(s.Nodes[k].Name, maxName), Problem: text.Cut(s.Nodes[k].Problem(), maxStateText)})
	}
	return c
}

func endOf(i int, r *reading, p, other *survey.Peer) End {
	key := strconv.Itoa(i)
	e := End{Key: key + "/" + p.ID, Cluster: key, CIDRs: calledOf(p.Configuration), Stale: r.problem != ""}
	g := p.Gateway
	var before *survey.GatewayReport
	if g != nil {
		before = r.before[e.Key]
		for _, pod := range listed(g.Pods) {
			e.Pods = append(e.Pods, GatewayPod{Name: text.Cut(pod.Name, maxName), Node: text.Cut(pod.Node, maxName), Active: pod.Active, Ready: pod.Ready, Reason: pod.Reason, Restarts: pod.Restarts})
		}
		if g.Report != nil {
			e.Memory, e.Lost = g.Report.Memory.Resident, g.Report.Sync.Peer.Lost
		} else if g.ReportErr != nil {
			e.Silent = g.ReportErr.Error()
		}
		if p.Fabric != nil && !r.survey.Unread("GeneveTunnel") {
			_, _, e.Missing = r.survey.Joined(p)
			e.Missing = listed(e.Missing)
			for k := range e.Missing {
				e.Missing[k] = text.Cut(e.Missing[k], maxName)
			}
		}
	}
	e.Status = r.survey.Status(p, before)
	e.Status.Compare(p, other)
	e.Tone = toneOf(&e.Status)
	e.Status.Alerts = listed(e.Status.Alerts)
	if t := e.Status.Traffic; t != nil {
		t.Drops = listed(t.Drops)
	}
	for _, m := range []*survey.ModuleState{e.Status.Authentication, e.Status.Offloading} {
		if m != nil {
			m.Alerts = listed(m.Alerts)
		}
	}
	for k := range e.Status.Alerts {
		a := &e.Status.Alerts[k] // before hundreds of them are copied
		a.Object, a.Reason, a.Message = text.Cut(a.Object, maxStateText), text.Cut(a.Reason, maxName), text.Cut(a.Message, maxStateText)
	}
	return e
}

// toneOf is how an end looks. It is down if nothing is forwarded.
func toneOf(s *survey.Status) Tone {
	switch {
	case s.Health == survey.Disabled:
		return Off
	case s.Health == survey.Unknown:
		return Unknown
	case s.Health == survey.Unhealthy && (s.State != string(networkingv1beta1.Connected) || survey.Idle(s.Alerts)):
		return Down
	case s.Health == survey.Unhealthy || len(s.Alerts) > 0:
		return Degraded
	}
	return Up
}

func calledOf(c *networkingv1beta1.Configuration) (out []Called) {
	if c == nil {
		return nil
	}
	there, here := c.Spec.Remote.CIDR, networkingv1beta1.ClusterCIDR{}
	if c.Status.Remote != nil {
		here = c.Status.Remote.CIDR
	}
	add := func(what string, there, here []networkingv1beta1.CIDR) {
		for i, cidr := range listed(there) {
			called := Called{What: what, There: text.Cut(string(cidr), maxName)}
			if i < len(here) {
				called.Here = text.Cut(string(here[i]), maxName)
			}
			out = append(out, called)
		}
	}
	add("pods", there.Pod.List, here.Pod.List)
	add("external", there.External.List, here.External.List)
	return out
}

// addressHere is the address that a peer's pod has in this cluster.
func addressHere(p *survey.Peer, there netip.Addr) (netip.Addr, error) {
	if p == nil || p.Configuration == nil || p.Configuration.Status.Remote == nil {
		return netip.Addr{}, fmt.Errorf("there is no Configuration with the CIDRs of that cluster")
	}
	remaps, err := peering.Remaps(p.Configuration.Spec.Remote.CIDR.Pod, p.Configuration.Status.Remote.CIDR.Pod)
	if err != nil {
		return netip.Addr{}, err
	}
	if a := peering.Translate(remaps, there); a.IsValid() {
		return a, nil
	}
	return netip.Addr{}, fmt.Errorf("%s is not in any of that cluster's pod CIDRs", there)
}
