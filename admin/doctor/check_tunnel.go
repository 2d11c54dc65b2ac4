package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// firewallHint is what to look at where UDP gets lost.
const firewallHint = "check firewalls and security groups on the way and at the server's nodes or load balancer, and whether the client's cluster can reach the address at all"

// reachability tells apart, by what both gateways sent and received, where UDP
// gets lost.
//
//	client sends nothing                                  it knows no address
//	client sends, server receives nothing                 lost on the way there
//	server receives initiations and answers none          not of the expected key
//	server answers, client receives nothing               lost on the way back
func reachability(p *peering) []Finding {
	server, client := p.by()
	if p.remote == nil {
		return oneSided(p.local, "run this with the kubeconfigs of both clusters, which shows the cause")
	}
	const liqosLog = "see the log of Liqo's gateway in the other cluster, which cannot be asked"
	switch {
	case server.ofLiqo() && !client.ofLiqo():
		return oneSided(client, liqosLog)
	case client.ofLiqo() && !server.ofLiqo():
		return oneSided(server, liqosLog)
	case client.ofLiqo() && client.connected() && server.connected():
		return []Finding{pass("UDP passes in both directions, as the Connections say")}
	case !client.asked():
		return []Finding{skip("the client's gateway cannot be asked: %s", client.silent()).in(client.cluster)}
	case !server.asked():
		return []Finding{skip("the server's gateway cannot be asked: %s", server.silent()).in(server.cluster)}
	}
	from, to := client.traffic(), server.traffic()
	at := client.after.DataPlane.Tunnel.Endpoint
	switch {
	case client.connected() && server.connected():
		if out := append(client.tunnelsLeftOut(), server.tunnelsLeftOut()...); len(out) > 0 {
			return out
		}
		return []Finding{pass("UDP passes in both directions between the client and %s", at)}
	case !from.sent():
		f := fail("the client sends nothing").on(client.gateway().String()).in(client.cluster)
		if why := client.after.DataPlane.Tunnel.LookupError; why != "" {
			return []Finding{f.because("its name in spec.endpoint has no address: %s", why).fix("correct the name, or the DNS of the client's cluster")}
		}
		if client.dialsElsewhere(server) {
			return []Finding{f.because("nothing can be sent to %s, which may not be the server's address: it says that it is at %s",
				endpointText(client.gateway().Endpoint), endpointText(server.gateway().Endpoint)).fix("%s", client.redial(server))}
		}
		return []Finding{f.because("it does not know the server's address or key yet").fix("see 'gateway status' in its pod, and the condition PeerAnswers of its Connection")}
	case !to.received():
		f := fail("the client sends to %s, but nothing arrives at the server", at).in(client.cluster).
			because("UDP is blocked or misrouted on the way to the server").fix("%s; the server's Service must lead to its pod", firewallHint)
		if client.dialsElsewhere(server) {
			f = f.because("this is not where the server is, or UDP is blocked on the way to it: it says that it is at %s", endpointText(server.gateway().Endpoint)).
				fix("%s; otherwise %s", client.redial(server), firewallHint)
		}
		return []Finding{f}
	case to.rxInitiations > 0 && to.txResponses == 0 && !session(server.after):
		return []Finding{fail("handshakes arrive at the server, but none that it accepts").in(server.cluster).
			because("they use another key than the server expects, or are older than one that it has accepted: the client's clock was set back").
			fix("compare the keys ('liqoctl network rotate-keys' replaces them on both sides), and the clock of the client's node")}
	case to.sent() && !from.received():
		return []Finding{fail("the server answers, but nothing comes back to the client").in(client.cluster).
			because("UDP is blocked on the way back, or the server's cluster sends its answers from another address than the client dialled").
			fix("%s; a load balancer or NAT must send answers back on the path of the requests", firewallHint)}
	}
	return []Finding{pass("UDP passes in both directions between the client and %s", at)}
}

// tunnelsLeftOut warns where packets go by some of several tunnels only.
func (e *end) tunnelsLeftOut() []Finding {
	c := e.peer.Connection
	if c == nil {
		return nil
	}
	out := conditionFindings("Connection "+c.Namespace+"/"+c.Name, c.Status.Conditions, networkingv1beta1.ConditionAllTunnelsCarry)
	for i, f := range out {
		f.Status = Warning
		out[i] = f.in(e.cluster).because("the other tunnels carry the traffic").fix("%s; 'gateway status' in the pods shows each tunnel", firewallHint)
	}
	return out
}

// oneSided is reachability by what one side sees. Next is what to do where the other one has to tell the cause.
func oneSided(e *end, next string) []Finding {
	if e.ofLiqo() && e.connected() {
		return []Finding{pass("UDP passes in both directions, as the Connection says")}
	}
	if !e.asked() {
		return []Finding{skip("the gateway cannot be asked: %s", e.silent()).in(e.cluster)}
	}
	t, g := e.traffic(), e.gateway()
	switch {
	case e.connected():
		if out := e.tunnelsLeftOut(); len(out) > 0 {
			return out
		}
		return []Finding{pass("UDP passes in both directions")}
	case !t.sent() && g.Role == "Client":
		f := fail("the client sends nothing").on(g.String()).in(e.cluster)
		if why := e.after.DataPlane.Tunnel.LookupError; why != "" {
			return []Finding{f.because("its name in spec.endpoint has no address: %s", why).fix("correct the name, or what the DNS of this cluster says")}
		}
		return []Finding{f.because("it does not know the server's address or key yet").fix("see 'gateway status' in its pod")}
	case g.Role == "Client" && !t.received():
		return []Finding{fail("the client sends to %s, but nothing comes back", e.after.DataPlane.Tunnel.Endpoint).on(g.String()).in(e.cluster).
			because("UDP does not get there, its answers do not come back, or the server does not accept the client's key").fix("%s", next)}
	case !t.received():
		return []Finding{fail("nothing arrives from the client").on(g.String()).in(e.cluster).
			because("the client does not run or dials another address, or UDP does not get here").fix("%s", next)}
	case t.rxInitiations > 0 && t.txResponses == 0 && !session(e.after):
		return []Finding{fail("handshakes arrive, but none that this gateway accepts").on(g.String()).in(e.cluster).
			because("they use another key than this side expects").fix("%s", next)}
	}
	return []Finding{pass("UDP arrives")}
}

func handshake(p *peering) (out []Finding) {
	var texts []string
	for _, e := range p.ends() {
		if e.after == nil {
			continue
		}
		last := e.after.DataPlane.Tunnel.LastHandshake
		switch {
		case session(e.after):
			texts = append(texts, fmt.Sprintf("%s ago", e.after.Time.Sub(last).Round(time.Second)))
		case last.IsZero():
			out = append(out, fail("there was never a handshake with %s", e.id).on(e.gateway().String()).in(e.cluster).
				because("%s", cmp.Or(e.after.Sync.Peer.Silence.Message, "nothing that the peer's key made has come back")).
				fix("see the checks of keys and UDP above; 'gateway status' in the pod shows what the gateway waits for"))
		default:
			out = append(out, fail("the last handshake with %s was %s ago, and none since", e.id, e.after.Time.Sub(last).Round(time.Second)).on(e.gateway().String()).in(e.cluster).
				because("%s", cmp.Or(e.after.Sync.Peer.Silence.Message, "the session has expired after three minutes")).
				fix("check that the other gateway runs, that its cluster was not disconnected or uninstalled, and that keys were not replaced on one side only"))
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(texts) == 0:
		return []Finding{skip("no gateway can be asked: %s", p.local.silent())}
	}
	return []Finding{pass("the last was %s", strings.Join(texts, ", "))}
}

// maxLoss is how much of the pings may get lost before it is worth a word.
const maxLoss = 0.1

func pings(p *peering) (out []Finding) {
	var texts []string
	for _, e := range p.ends() {
		if e.probe == nil || len(e.probe.Pings) == 0 {
			if f, known := e.pingsByConnection(); known {
				out = append(out, f)
			} else if e.ofLiqo() && e.connected() {
				texts = append(texts, fmt.Sprintf("the Connection is %s, latency %s", networkingv1beta1.Connected, cmp.Or(e.peer.Connection.Status.Latency.Value, "not known")))
			}
			continue
		}
		small := e.probe.Pings[0]
		switch lost := small.Sent - small.Received; {
		case small.Received == 0:
			out = append(out, fail("%d pings to the peer's gateway, no answer", small.Sent).on(e.gateway().String()).in(e.cluster).
				because("%s", cmp.Or(e.silence(), "there is a WireGuard session, but the other gateway forwards nothing: it has no configuration in force, or does not lead")).
				fix("see the checks of the other cluster, and 'gateway status' in its pod"))
		case float64(lost) > maxLoss*float64(small.Sent):
			out = append(out, warn("%d of %d pings got lost", lost, small.Sent).on(e.gateway().String()).in(e.cluster).
				because("the network between the gateways loses packets, or one of the gateways is overloaded").
				fix("look for overruns and drops in 'gateway status', and for loss between the clusters"))
		default:
			texts = append(texts, fmt.Sprintf("%d of %d answered, %s", small.Received, small.Sent, milliseconds(small.Avg)))
		}
	}
	switch {
	case len(out) == 2 && out[0].Status == Failed && out[1].Status == Failed:
		return out[:1] // neither hears the other: one problem
	case len(out) > 0:
		return out
	case len(texts) == 0:
		return []Finding{skip("the tunnel could not be probed: %s", p.local.unprobed())}
	}
	return []Finding{pass("%s", strings.Join(texts, "; "))}
}

// silence is what the gateway says of a peer that does not answer.
func (e *end) silence() string {
	if e.after == nil {
		return ""
	}
	return e.after.Sync.Peer.Silence.Message
}

// unprobed says why the tunnel was not probed.
func (e *end) unprobed() string {
	if e.probeErr != nil {
		return plain(e.probeErr)
	}
	return e.silent()
}

// pingsByConnection is what the gateway's own pings say, where it could not be
// asked for more.
func (e *end) pingsByConnection() (f Finding, known bool) {
	c := e.peer.Connection
	if c == nil || c.Status.Value == "" {
		return f, false
	}
	if !e.connected() {
		return fail("the Connection is %s", c.Status.Value).on("Connection " + c.Namespace + "/" + c.Name).in(e.cluster).
			because("the peer's gateway does not answer the pings of this one"), true
	}
	return f, false
}

func milliseconds(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

func pathMTU(p *peering) (out []Finding) {
	var texts []string
	for _, e := range p.ends() {
		r := e.probe
		if r == nil || r.Largest == 0 {
			continue
		}
		g := e.gateway().String()
		switch {
		case r.Largest < r.MTU:
			out = append(out, fail("packets of %d bytes get through, %d do not; the MTU is %d", r.Largest, r.Largest+1, r.MTU).on(g).in(e.cluster).
				because("something on the path silently drops packets that are too large: connections open and then hang").
				fix("give both gateways an MTU of at most %d: 'liqoctl network connect --mtu %d'", r.Largest, r.Largest))
		case r.Path.Inner > 0 && r.Path.Inner < r.MTU:
			out = append(out, warn("the path to the peer carries packets of %d bytes: the tunnel's packets of up to %d are fragmented", r.Path.Inner, r.MTU).on(g).in(e.cluster).
				because("fragments cost throughput, and many networks drop them").
				fix("give both gateways an MTU of at most %d: 'liqoctl network connect --mtu %d'", r.Path.Inner, r.Path.Inner))
		case r.Largest > r.MTU:
			texts = append(texts, fmt.Sprintf("%d passes, up to %d would", r.MTU, r.Largest))
		default:
			texts = append(texts, fmt.Sprintf("%d passes", r.MTU))
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(texts) == 0:
		return []Finding{skip("the tunnel could not be probed: %s", p.local.unprobed())}
	}
	return []Finding{pass("%s", strings.Join(texts, "; "))}
}

// headers of TCP, and of the IP packet around it.
const (
	headers4 = 40
	headers6 = 60
	// smallestMSS is what every host must take (RFC 9293 section 3.7.1).
	smallestMSS = 536
)

// mss tells what new TCP connections are clamped to: gateways do so always, by the size
// of their packets, so that it is right where that is.
func mss(p *peering) (out []Finding) {
	var texts []string
	for _, e := range p.ends() {
		mtu := e.packetSize()
		if mtu-headers4 < smallestMSS {
			out = append(out, warn("an MTU of %d leaves %d bytes for TCP in a packet", mtu, mtu-headers4).on(e.gateway().String()).in(e.cluster).
				because("hosts need not accept an MSS below %d", smallestMSS).fix("use a larger MTU"))
			continue
		}
		text := fmt.Sprintf("%d for IPv4, %d for IPv6", mtu-headers4, mtu-headers6)
		if len(texts) == 0 || texts[0] != text {
			texts = append(texts, text)
		}
	}
	if len(out) > 0 {
		return out
	}
	return []Finding{pass("TCP connections get an MSS of at most %s", strings.Join(texts, "; "))}
}
