package fabric

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// State is what the agent does now and what the kernel holds of it, as plain
// values for display.
type State struct {
	// Node is the InternalNode that this node is; empty where no agent was asked.
	Node string `json:"node,omitempty"`
	// Link is what links are made of.
	Link LinkChoice `json:"link"`
	Port uint16     `json:"port,omitempty"`
	// Generation counts the states that were put in force.
	Generation uint64    `json:"generation"`
	AppliedAt  time.Time `json:"appliedAt,omitzero"`
	// SampledAt is when the kernel was asked for what follows.
	SampledAt time.Time `json:"sampledAt,omitzero"`
	// Tunnels are those that there should be and those that are there, by name.
	Tunnels []TunnelState `json:"tunnels"`
	// Rules are the policy rules, as ip(8) prints them.
	Rules []string `json:"rules,omitempty"`
	// Translation is what is done with addresses.
	Translation hostnet.TranslationState `json:"translation"`
	// Planned says that the objects were read, and so what there should be is known.
	Planned bool `json:"planned"`
	// NodeIP is what this node tells the gateways about itself.
	NodeIP networkingv1beta1.NodeIP `json:"nodeIP"`
	// Conditions are those of InternalNode.status.
	Conditions []metav1.Condition `json:"conditions"`
	// ReportError is why the status of the InternalNode may not say so yet.
	ReportError string `json:"reportError,omitempty"`
	// Drift is what differs from what is desired, a line for each step that would
	// mend it.
	Drift []string `json:"drift,omitempty"`
	// Waiting are objects that others have to make or complete first.
	Waiting manifests.Problems `json:"waiting,omitempty"`
	// Ignored are objects of a cluster that cannot be used.
	Ignored manifests.Problems `json:"ignored,omitempty"`
	// Unreachable are gateways that cannot be reached, or not as they should.
	Unreachable manifests.Problems `json:"unreachable,omitempty"`
	// Diverted are the tunnels past which a rule of another program leads.
	Diverted manifests.Problems `json:"diverted,omitempty"`
	// Untranslated says why addresses are not translated as they should be.
	Untranslated manifests.Problems `json:"untranslated,omitempty"`
	// Refused says why the newest files are not in force; empty when they are.
	Refused   manifests.Problems `json:"refused,omitempty"`
	RefusedAt time.Time          `json:"refusedAt,omitzero"`
	Warnings  manifests.Problems `json:"warnings,omitempty"`
	// Failures is what the kernel refused at the last attempt; it is tried again.
	Failures []string `json:"failures,omitempty"`
	// Contested is what another program keeps changing.
	Contested string `json:"contested,omitempty"`
	// Liqo is about the place of Liqo's node agent; nil: this one does not take it.
	Liqo *LiqoState `json:"liqo,omitempty"`
	// Applies counts the changes of the kernel's state, Repairs those of them that
	// undid somebody else's, ApplyErrors those that did not succeed completely and
	// ReloadErrors the states of a directory that were refused.
	Applies      uint64 `json:"applies"`
	Repairs      uint64 `json:"repairs"`
	ApplyErrors  uint64 `json:"applyErrors"`
	ReloadErrors uint64 `json:"reloadErrors"`
	// LastApply is how long the last change took.
	LastApply time.Duration `json:"lastApplyNanoseconds,omitempty"`

	refusedWarnings manifests.Problems // warnings about files that are refused
	hints           manifests.Problems // warnings about this node
}

// TunnelState is one tunnel.
type TunnelState struct {
	Name string `json:"name"`
	// Owner is the object behind it, as in "InternalFabric tenant/milan".
	Owner          string            `json:"owner"`
	Status         TunnelStatus      `json:"status"`
	Kind           hostnet.Kind      `json:"kind"`
	VNI            uint32            `json:"vni"`
	Gateway        netip.Addr        `json:"gateway,omitzero"`
	Port           uint16            `json:"port,omitempty"`
	MTU            int               `json:"mtu"`
	Address        netip.Addr        `json:"address,omitzero"`
	GatewayAddress netip.Addr        `json:"gatewayAddress,omitzero"`
	Routes         []string          `json:"routes,omitempty"`
	Path           *hostnet.Path     `json:"path,omitempty"` // nil: no way to the gateway is known
	Neighbor       string            `json:"neighbor,omitempty"`
	RxPackets      uint64            `json:"rxPackets"`
	RxBytes        uint64            `json:"rxBytes"`
	RxDropped      uint64            `json:"rxDropped"`
	TxPackets      uint64            `json:"txPackets"`
	TxBytes        uint64            `json:"txBytes"`
	TxDropped      uint64            `json:"txDropped"`
	Drops          map[string]uint64 `json:"drops,omitempty"` // of a TUN device, by reason
	Offloads       []string          `json:"offloads,omitempty"`
	// LastSeen is when the gateway was heard last, as far as anybody looked.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Problem is why it is not as it should be.
	Problem string `json:"problem,omitempty"`
}

// TunnelStatus is how a tunnel is.
type TunnelStatus string

// What a tunnel can be.
const (
	// TunnelUp: it is there and as desired.
	TunnelUp TunnelStatus = "up"
	// TunnelMissing: it should be there and is not.
	TunnelMissing TunnelStatus = "missing"
	// TunnelKept: what is desired of it cannot be had, and what was there stays.
	TunnelKept TunnelStatus = "kept"
	// TunnelDown: it is there and does not work, or nobody has the TUN device open.
	TunnelDown TunnelStatus = "down"
	// TunnelSurplus: it is there and nobody asks for it, as far as is known.
	TunnelSurplus TunnelStatus = "surplus"
)

// view is what State compares the kernel with. It is never changed, only
// replaced.
type view struct {
	planned  bool
	desired  hostnet.Desired
	concerns map[string]string
	failures map[string]string // by link
	paths    map[netip.Addr]hostnet.Path
}

// publish gives State what has changed.
func (r *Runner) publish() {
	failed := make(map[string]string, len(r.failures))
	for link, err := range r.failures {
		failed[link] = err.Error()
	}
	conditions := r.conditions()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view = view{planned: r.planned, desired: r.plan.Desired, concerns: r.plan.Concerns, failures: failed, paths: r.ways.paths}
	r.state.Link, r.state.Failures, r.state.Contested, r.state.hints = r.choice, r.failures.lines(), r.contest.over, r.hints
	r.state.Diverted = r.detours
	if r.options.TakeOver {
		r.state.Liqo = r.liqo.state()
	}
	r.state.Conditions = mergeConditions(r.state.Conditions, conditions)
}

// State returns what the agent does and what the kernel holds. It may be called
// at any time.
func (r *Runner) State() State {
	sample := r.sampler.take(sampleAge)
	r.mu.Lock()
	s, v := r.state, r.view
	r.mu.Unlock()
	s.Waiting, s.Ignored, s.Refused, s.Warnings = slices.Clone(s.Waiting), slices.Clone(s.Ignored), slices.Clone(s.Refused), slices.Concat(s.hints, s.Warnings)
	s.Unreachable, s.Untranslated = slices.Clone(s.Unreachable), slices.Clone(s.Untranslated)
	s.Diverted = slices.Clone(s.Diverted)
	s.Conditions = slices.Clone(s.Conditions)
	s.Planned = v.planned
	s.fill(sample, v)
	if v.planned && !sample.at.IsZero() {
		s.Drift = r.diff(v.desired, sample.actual).Lines()
	}
	return s
}

// ReadState returns what the kernel holds, where no agent can be asked.
func ReadState(h Host) (State, error) {
	actual, err := h.Read()
	if err != nil {
		return State{}, err
	}
	var s State
	s.fill(sample{at: time.Now(), actual: actual}, view{})
	return s, nil
}

// fill adds what the kernel says.
func (s *State) fill(m sample, v view) {
	s.SampledAt, s.Translation = m.at, m.actual.Translation
	for _, rule := range m.actual.Rules {
		s.Rules = append(s.Rules, rule.String())
	}
	routes := make(map[string][]string)
	for _, rt := range m.actual.Routes {
		routes[rt.Device] = append(routes[rt.Device], rt.String())
	}
	tunnels := make(map[string]*TunnelState)
	for _, l := range v.desired.Links {
		tunnels[l.Name] = &TunnelState{
			Name: l.Name, Owner: l.Owner, Status: TunnelMissing, Kind: l.Kind, VNI: l.VNI, Gateway: l.Gateway, Port: l.Port, MTU: l.MTU,
			Address: l.Address, GatewayAddress: l.GatewayAddress,
		}
	}
	for i := range m.actual.Links {
		l := &m.actual.Links[i]
		t, wanted := tunnels[l.Name]
		if !wanted {
			t = &TunnelState{Name: l.Name, Owner: l.Owner(), VNI: l.VNI, Gateway: l.Gateway, Port: l.Port}
			tunnels[l.Name] = t
		}
		t.take(l, m)
		t.Status = tunnelStatus(l, wanted, v)
		t.Routes = routes[l.Name]
	}
	s.Tunnels = make([]TunnelState, 0, len(tunnels))
	for _, t := range tunnels {
		t.Problem = cmp.Or(v.failures[t.Name], v.concerns[t.Owner])
		if path, ok := v.paths[t.Gateway]; ok {
			t.Path = &path
		}
		s.Tunnels = append(s.Tunnels, *t)
	}
	slices.SortFunc(s.Tunnels, func(x, y TunnelState) int { return strings.Compare(x.Name, y.Name) })
}

// take adds what the kernel says about one link: it may differ from what is
// desired.
func (t *TunnelState) take(l *hostnet.ActualLink, m sample) {
	t.Kind, t.MTU, t.Neighbor = l.Kind, l.MTU, l.Neighbor.State
	if l.Gateway.IsValid() { // else a TUN device whose alias does not tell
		t.VNI, t.Gateway, t.Port = l.VNI, l.Gateway, l.Port
	}
	if len(l.Addresses) > 0 && !t.Address.IsValid() {
		t.Address = l.Addresses[0].Addr()
	}
	if l.Neighbor.Addr.IsValid() && !t.GatewayAddress.IsValid() {
		t.GatewayAddress = l.Neighbor.Addr
	}
	c := l.Counters
	t.RxPackets, t.RxBytes, t.RxDropped = c.RxPackets, c.RxBytes, c.RxDropped+c.RxErrors
	t.TxPackets, t.TxBytes, t.TxDropped = c.TxPackets, c.TxBytes, c.TxDropped+c.TxErrors
	t.LastSeen = l.Neighbor.Confirmed
	if seen := m.seen[l.Name]; seen.at.After(t.LastSeen) {
		t.LastSeen = seen.at
	}
	if end, ok := m.ends[l.Name]; ok {
		t.RxPackets, t.RxBytes, t.TxPackets, t.TxBytes = end.RxPackets, end.RxBytes, end.TxPackets, end.TxBytes
		t.LastSeen, t.Drops, t.Offloads = end.LastSeen, end.Drops, end.Offloads
	}
}

func tunnelStatus(l *hostnet.ActualLink, wanted bool, v view) TunnelStatus {
	switch {
	case slices.Contains(v.desired.Keep, l.Name):
		return TunnelKept
	case !l.Up, l.Kind == hostnet.KindTUN && !l.Carrier:
		return TunnelDown
	case !wanted && v.planned:
		return TunnelSurplus
	}
	return TunnelUp
}

// Ready tells whether the agent does its work. why is for the person who asks.
func (r *Runner) Ready() (ready bool, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.state
	switch {
	case s.Generation > 0:
		return true, "ok"
	case len(s.Refused) > 0:
		return false, "refused: " + s.Refused.Error()
	case len(s.Failures) > 0:
		return false, "failing: " + strings.Join(s.Failures, "; ")
	case len(s.Waiting) > 0:
		return false, "waiting: " + s.Waiting.Error()
	}
	return false, "starting"
}
