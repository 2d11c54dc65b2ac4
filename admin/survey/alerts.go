package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Health is how something is.
type Health string

// What something can be.
const (
	// Healthy: as it should be.
	Healthy Health = "Healthy"
	// Unhealthy: something of it does not work.
	Unhealthy Health = "Unhealthy"
	// Disabled: nobody asked for it.
	Disabled Health = "Disabled"
	// Unknown: the user may not see what tells.
	Unknown Health = "Unknown"
)

// Alert is something that is not as it should be.
type Alert struct {
	// Object is what it is about: "GatewayClient liqo-tenant-milan/milan".
	Object string
	// Reason is one word, that of a condition where it is one.
	Reason string
	// Message says what is the matter and what to do.
	Message string
	// Warning says that traffic flows nevertheless, between all pods.
	Warning bool
	// Idle says that nothing is forwarded, whatever the tunnel to the peer does.
	Idle bool
}

func (a Alert) String() string { return a.Object + ": " + cmp.Or(a.Message, a.Reason) }

// Reasons of alerts that are no conditions.
const (
	ReasonDeleting     = "Deleting"
	ReasonNoConditions = "NoConditions"
	ReasonNoPod        = "NoPod"
	ReasonPodNotReady  = "PodNotReady"
	ReasonMissing      = "Missing"
	ReasonNotConnected = "NotConnected"
	ReasonStale        = "Stale"
	ReasonSurplus      = "Surplus"
	ReasonNodes        = "NodesNotJoined"
	ReasonAPIAway      = "APIServerAway"
	ReasonKeys         = "KeysWrong"
	ReasonNotHeard     = "NodesNotHeard"
)

// Health tells how the network to a peer is, and everything that is not as it
// should be about it, the most telling first.
func (c *Cluster) Health(p *Peer) (Health, []Alert) {
	alerts := c.alerts(p)
	switch {
	case p.Gateway == nil && (c.Unread("GatewayServer") || c.Unread("GatewayClient")):
		return Unknown, alerts
	case p.Gateway == nil:
		return Disabled, alerts
	case slices.ContainsFunc(alerts, func(a Alert) bool { return !a.Warning }):
		return Unhealthy, alerts
	case p.Connection == nil:
		return Unknown, alerts // else there were an alert
	}
	return Healthy, alerts
}

// alerts asks every rule. Errors come before warnings.
func (c *Cluster) alerts(p *Peer) (out []Alert) {
	for _, rule := range []func(*Cluster, *Peer) []Alert{
		configurationAlerts, gatewayAlerts, podAlerts, connectionAlerts, keyAlerts, reportAlerts, nodeAlerts, translationAlerts, silentNodeAlerts, firewallAlerts, surplusAlerts,
	} {
		out = append(out, rule(c, p)...)
	}
	slices.SortStableFunc(out, func(a, b Alert) int { return trueFirst(!a.Warning, !b.Warning) })
	return out
}

// patience is how long the controllers may take to say something about an
// object.
const patience = 30 * time.Second

// conditionAlerts are the conditions that are not True. Nothing at all is an
// alert, too: then nobody looks after the object. Liqo's controllers write none.
func (c *Cluster) conditionAlerts(object string, conditions []metav1.Condition, created time.Time, liqos bool) (out []Alert) {
	if len(conditions) == 0 && c.ReadAt.Sub(created) > patience && !liqos {
		return []Alert{{Object: object, Reason: ReasonNoConditions,
			Message: "the controller has said nothing about it yet: see whether it runs, and its log"}}
	}
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			out = append(out, Alert{Object: object, Reason: c.Reason, Message: c.Message, Warning: flowsAnyway(c)})
		}
	}
	return out
}

// flowsAnyway tells whether traffic flows although a condition is not True.
func flowsAnyway(c metav1.Condition) bool {
	switch networkingv1beta1.ConditionType(c.Type) {
	case networkingv1beta1.ConditionAllPortsServed, networkingv1beta1.ConditionAllTunnelsCarry: // by the others, or the first
		return true
	case networkingv1beta1.ConditionConfigurationApplied: // what was in force stays
		return c.Reason == string(networkingv1beta1.ReasonRefused)
	case networkingv1beta1.ConditionKeysReady: // the gateway works with those that it has
		return c.Reason == string(networkingv1beta1.ReasonSecretDeleted)
	}
	return false
}

func configurationAlerts(c *Cluster, p *Peer) []Alert {
	if o := p.Configuration; o != nil {
		return c.conditionAlerts("Configuration "+o.Namespace+"/"+o.Name, o.Status.Conditions, o.CreationTimestamp.Time, c.MayBeOfLiqo())
	}
	if p.Gateway == nil || c.Unread("Configuration") {
		return nil
	}
	return []Alert{{Object: "namespace " + p.Namespace, Reason: ReasonMissing, Message: fmt.Sprintf(
		"there is no Configuration of %s: run 'liqoctl network connect', or apply what 'liqoctl generate configuration' prints in that cluster", p)}}
}

func gatewayAlerts(c *Cluster, p *Peer) []Alert {
	g := p.Gateway
	if g == nil {
		return nil
	}
	if g.Deleting {
		return []Alert{{Object: g.String(), Reason: ReasonDeleting, Message: "it is being deleted"}}
	}
	return c.conditionAlerts(g.String(), g.Conditions, g.Created, g.OfLiqo() || c.MayBeOfLiqo())
}

func podAlerts(c *Cluster, p *Peer) (out []Alert) {
	g := p.Gateway
	if g == nil || g.Deleting || c.Unread("Pod") {
		return nil
	}
	if g.Active() == nil && c.ReadAt.Sub(g.Created) > patience {
		out = append(out, Alert{Object: g.String(), Reason: ReasonNoPod, Idle: true, Message: "none of its pods is active, so nothing is forwarded: " + c.whyNoneActive()})
	}
	for _, pod := range g.Pods {
		if !pod.Ready {
			out = append(out, Alert{Object: "pod " + pod.Namespace + "/" + pod.Name, Reason: ReasonPodNotReady, Message: pod.Reason, Warning: !pod.Active})
		}
	}
	return out
}

// whyNoneActive says why a gateway has no active pod, and what to do.
func (c *Cluster) whyNoneActive() string {
	for i := range c.Installation.Components {
		if o := &c.Installation.Components[i]; c.Installation.Maintains(o) && o.Ready == 0 {
			advice := "see why its pods are not ready"
			if o.Off() {
				advice = c.Installation.ScaleUp(o)
			}
			return fmt.Sprintf("%s marks the leading pod and points the nodes to it, but no pod of it runs: %s", o, advice)
		}
	}
	return "see its condition Deployed, and whether the controller runs, which marks the leading pod"
}

// Idle tells whether the alerts say that nothing is forwarded, whatever the tunnel
// to the peer does.
func Idle(alerts []StatusAlert) bool {
	return slices.ContainsFunc(alerts, func(a StatusAlert) bool { return a.Idle })
}

// maxSilence is how old the latency of a Connection may be: a gateway renews it
// every ten seconds. The clocks of this machine and of the gateway may differ a
// little.
const maxSilence = 2 * time.Minute

func connectionAlerts(c *Cluster, p *Peer) (out []Alert) {
	g, o := p.Gateway, p.Connection
	switch {
	case g == nil || o == nil && c.Unread("Connection"):
		return nil
	case o == nil:
		return []Alert{{Object: g.String(), Reason: ReasonMissing, Message: "it has no Connection: see its conditions"}}
	}
	name := "Connection " + o.Namespace + "/" + o.Name
	answers := meta.FindStatusCondition(o.Status.Conditions, string(networkingv1beta1.ConditionPeerAnswers))
	if v := o.Status.Value; v != networkingv1beta1.Connected && (answers == nil || answers.Status == metav1.ConditionTrue) {
		out = append(out, Alert{Object: name, Reason: ReasonNotConnected,
			Message: fmt.Sprintf("it is %s: the gateway of %s has not answered yet", cmp.Or(v, "without a state"), p)})
	}
	for _, cond := range o.Status.Conditions {
		if cond.Status == metav1.ConditionTrue {
			continue
		}
		out = append(out, Alert{Object: name, Reason: cond.Reason, Message: cond.Message, Warning: flowsAnyway(cond)})
	}
	at := o.Status.Latency.Timestamp
	if age := c.ReadAt.Sub(at.Time); o.Status.Value == networkingv1beta1.Connected && g.Report == nil && !at.IsZero() && age > maxSilence {
		out = append(out, Alert{Object: name, Reason: ReasonStale, Warning: true, Message: fmt.Sprintf(
			"the gateway has written nothing into it for %s: it does not run or cannot reach the API server, unless the clocks differ", age.Round(time.Second))})
	}
	return out
}

// keyAlerts are the faults of keys, but for what the conditions of the gateway say: that there is none.
func keyAlerts(c *Cluster, p *Peer) (out []Alert) {
	g := p.Gateway
	if g == nil || g.Deleting || c.Unread("PublicKey") || c.ReadAt.Sub(g.Created) < patience {
		return nil
	}
	told := func(of []metav1.Condition) bool {
		return slices.ContainsFunc(of, func(c metav1.Condition) bool {
			return c.Status != metav1.ConditionTrue && c.Reason == string(networkingv1beta1.ReasonPeerKeyMissing)
		})
	}
	if told(g.Conditions) || p.Connection != nil && told(p.Connection.Status.Conditions) {
		return nil
	}
	for _, f := range p.KeyFaults(g.Report) {
		out = append(out, f.alert(g))
	}
	if f := p.HandshakeFault(g.Report); f != nil {
		out = append(out, f.alert(g))
	}
	return out
}

func (f *KeyFault) alert(g *Gateway) Alert {
	text := f.Message + ": " + f.Cause
	if f.Fix != "" {
		text += ". " + strings.ToUpper(f.Fix[:1]) + f.Fix[1:]
	}
	return Alert{Object: cmp.Or(f.Object, g.String()), Reason: ReasonKeys, Message: text, Warning: f.Warning}
}

// silentNodeAlerts speaks of the nodes that are joined, as far as objects tell, but of which
// nothing arrives at the gateway.
func silentNodeAlerts(c *Cluster, p *Peer) []Alert {
	g := p.Gateway
	if g == nil || g.Report == nil || !g.Report.DataPlane.Configured || p.Fabric == nil || c.Unread("InternalNode") || c.Unread("GeneveTunnel") {
		return nil
	}
	_, all, missing := c.Joined(p)
	var silent []string
	why := ""
	for i := range c.Nodes {
		name := c.Nodes[i].Name
		if slices.Contains(missing, name) {
			continue
		}
		if problem, _ := g.Report.Unheard(name); problem != "" {
			silent, why = append(silent, name), cmp.Or(why, name+" "+problem)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return []Alert{{Object: g.String(), Reason: ReasonNotHeard, Idle: len(silent)+len(missing) == all, Message: fmt.Sprintf(
		"of %d of %d nodes nothing arrives at the gateway: %s. The agent of the node does not run, or UDP between node and gateway pod is blocked: 'liqoctl network doctor' finds out which",
		len(silent), all, why)}}
}

func reportAlerts(_ *Cluster, p *Peer) []Alert {
	g := p.Gateway
	if g == nil || g.Report == nil || g.Report.Cluster == nil || g.Report.Cluster.API.Connected {
		return nil
	}
	api := g.Report.Cluster.API
	return []Alert{{Object: g.String(), Reason: ReasonAPIAway, Warning: true, Message: "the gateway cannot read from the API server, so what it does may be out of date: " + cmp.Or(api.Error, "it is reading")}}
}

func firewallAlerts(_ *Cluster, p *Peer) (out []Alert) {
	if p.Gateway == nil {
		return nil
	}
	for i := range p.Firewall {
		o := &p.Firewall[i]
		for _, h := range o.Status.Conditions {
			if h.Host == p.Gateway.Name && h.Type == networkingv1beta1.HostConditionApplied && h.Status != metav1.ConditionTrue {
				out = append(out, Alert{Object: "FirewallConfiguration " + o.Namespace + "/" + o.Name, Reason: h.Reason, Message: h.Message, Warning: true})
			}
		}
	}
	return out
}

func surplusAlerts(_ *Cluster, p *Peer) (out []Alert) {
	for _, o := range p.Surplus {
		out = append(out, Alert{Object: o, Reason: ReasonSurplus, Warning: true, Message: fmt.Sprintf(
			"it has no effect, as another one is used for %s, in namespace %s: delete it", p, p.Namespace)})
	}
	return out
}

// String is the ID, or what stands for it in sentences.
func (p *Peer) String() string {
	if p.ID == "" {
		return "a cluster without a name (the label " + networkingv1beta1.LabelRemoteClusterID + " is missing)"
	}
	return p.ID
}

// Joined counts the nodes that are joined to the gateway of a peer, as far as
// objects tell, out of all. The names are the first of those that are not.
func (c *Cluster) Joined(p *Peer) (joined, all int, missing []string) {
	has := make(map[string]bool, len(p.Tunnels))
	for _, n := range p.Tunnels {
		has[n] = true
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if has[n.Name] && n.Problem() == "" {
			joined++
		} else {
			missing = append(missing, n.Name)
		}
	}
	return joined, len(c.Nodes), missing
}

// Problem says why a node is not joined to the gateways; empty: it is.
func (n *Node) Problem() string {
	if n.Internal == nil {
		return "it has no InternalNode: see the log of the controller"
	}
	ready := meta.FindStatusCondition(n.Internal.Status.Conditions, string(networkingv1beta1.ConditionTunnelsReady))
	switch ip := n.Internal.Status.NodeIP; {
	case ready != nil && ready.Status != metav1.ConditionTrue:
		return ready.Message
	case ip.Local == "" && ip.Remote == "":
		return "the agent of the node has reported nothing: see whether its pod runs"
	}
	return ""
}

// joinTime is how long the agent of a new node may take until the node is joined.
const joinTime = time.Minute

// nodeAlerts speaks of nodes together: there may be thousands. One of them is enough for an
// error, unless it is new: all its pods have lost the peer.
func nodeAlerts(c *Cluster, p *Peer) []Alert {
	if p.Gateway == nil || p.Fabric == nil || c.Unread("InternalNode") || c.Unread("GeneveTunnel") {
		return nil
	}
	joined, all, missing := c.Joined(p)
	if len(missing) == 0 {
		return nil
	}
	const shown = 3
	names := missing[:min(len(missing), shown)]
	text := fmt.Sprintf("%d of %d nodes are not joined to the gateway: %s", all-joined, all, strings.Join(names, ", "))
	if len(missing) > shown {
		text += ", ..."
	}
	i := slices.IndexFunc(c.Nodes, func(n Node) bool { return n.Name == missing[0] })
	why := cmp.Or(c.Nodes[i].Problem(), "there is no GeneveTunnel for it: see the log of the controller")
	isMissing := make(map[string]bool, len(missing))
	for _, name := range missing {
		isMissing[name] = true
	}
	lasting := slices.ContainsFunc(c.Nodes, func(n Node) bool { return isMissing[n.Name] && c.ReadAt.Sub(n.Created) >= joinTime })
	return []Alert{{
		Object: p.Gateway.String(), Reason: ReasonNodes, Idle: joined == 0, Message: fmt.Sprintf("%s. %s: %s", text, missing[0], why),
		Warning: joined > 0 && !lasting,
	}}
}

// translationAlerts speaks of nodes whose tunnels work, but not the translation of addresses:
// the peer sees wrong ones, or does not find the way back.
func translationAlerts(c *Cluster, p *Peer) []Alert {
	if p.Gateway == nil || p.Fabric == nil || c.Unread("InternalNode") {
		return nil
	}
	var first *metav1.Condition
	node, count := "", 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Internal == nil || n.Problem() != "" {
			continue
		}
		ready := meta.FindStatusCondition(n.Internal.Status.Conditions, string(networkingv1beta1.ConditionAddressTranslationReady))
		if ready == nil || ready.Status == metav1.ConditionTrue {
			continue
		}
		if count++; first == nil {
			first, node = ready, n.Name
		}
	}
	if first == nil {
		return nil
	}
	return []Alert{{Object: p.Gateway.String(), Reason: first.Reason, Message: fmt.Sprintf(
		"%d of %d nodes do not translate addresses as they should. %s: %s", count, len(c.Nodes), node, first.Message)}}
}
