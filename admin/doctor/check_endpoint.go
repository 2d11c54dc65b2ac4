package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// service judges what exposes a gateway server.
func service(e *end) []Finding {
	g := e.gateway()
	if g.Role != networkingv1beta1.ConnectionServer {
		return []Finding{pass("a client needs none")}
	}
	object := "Service " + e.peer.Namespace + "/" + e.deployment()
	switch {
	case e.serviceErr != nil:
		return []Finding{skip("%s", plain(e.serviceErr))}
	case e.service == nil:
		return []Finding{fail("there is no Service for the gateway server").on(object).fix("the controller creates it: see its log, and 'kubectl -n %s describe gatewayserver %s'", g.Namespace, g.Name)}
	}
	if out := conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionEndpointReady); len(out) > 0 {
		return out
	}
	if p := e.activePod(); p != nil && !matches(e.service.Spec.Selector, p.Labels) {
		return []Finding{fail("it selects no pod: the labels of pod %s do not match its selector", p.Name).on(object).
			because("packets to the Service go nowhere").fix("make the selector match the pod labels of the template; delete the Service if somebody changed it by hand")}
	}
	if !slices.ContainsFunc(e.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP }) {
		return []Finding{fail("it has no UDP port").on(object).because("WireGuard is UDP").fix("set the protocol of the template's Service to UDP")}
	}
	if g.Endpoint == nil || len(g.Endpoint.Addresses) == 0 || portOf(g.Endpoint) == 0 {
		return []Finding{fail("the gateway server has no endpoint yet").on(g.String()).
			because("a Service of type %s gets its address from elsewhere", e.service.Spec.Type).fix("wait a moment; for a LoadBalancer see 'kubectl -n %s describe service %s'", e.peer.Namespace, e.deployment())}
	}
	return []Finding{pass("%s, at %s", e.service.Spec.Type, endpointText(g.Endpoint))}
}

// matches tells whether labels satisfy a plain selector.
func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

func endpointText(e *networkingv1beta1.Endpoint) string {
	if e == nil {
		return "no address yet"
	}
	var texts []string
	for _, a := range e.Addresses {
		texts = append(texts, hostPort(a, e.AllPorts()...))
	}
	if len(texts) == 0 {
		return "no address yet"
	}
	return strings.Join(texts, " or ")
}

// hostPort is a host with the ports of the tunnels.
func hostPort(host string, ports ...int32) string {
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	}
	return net.JoinHostPort(host, networkingv1beta1.PortsText(ports))
}

// endpoints compares what the client dials with where the server is.
func endpoints(p *peering) []Finding {
	server, client := p.by()
	if client == nil {
		return []Finding{skip("the client's end cannot be looked at without the other kubeconfig; it must dial %s", endpointText(server.gateway().Endpoint))}
	}
	dials := client.gateway().Endpoint
	object := client.gateway().String()
	if f, found := client.unroutable(dials, server); found {
		return []Finding{f.on(object).in(client.cluster)}
	}
	if server == nil {
		return []Finding{skip("the client dials %s; whether the server is there can only be judged with the other kubeconfig", endpointText(dials))}
	}
	at := server.gateway().Endpoint
	if at == nil || len(at.Addresses) == 0 {
		return []Finding{skip("the server has no endpoint yet")}
	}
	reached, there := client.hasReached(dials), reachesBy(dials, at)
	if here, has := dials.AllPorts(), at.AllPorts(); there && !slices.Equal(here, has) || reached && len(here) != len(has) {
		f := warn("the client dials %s, and the server has other tunnels: %s", endpointText(dials), endpointText(at)).on(object).in(client.cluster).
			because("each port is a tunnel, and those that only one side has carry nothing")
		if there {
			return []Finding{f.fix("have the client dial the same ports: %s", client.dialCommand("", has))}
		}
		return []Finding{f.fix("name a port for each with 'liqoctl network connect --gw-client-port', and forward them")}
	}
	if there {
		return []Finding{pass("the client dials %s, where the server is", endpointText(dials))}
	}
	if reached {
		return []Finding{pass("the client reaches the server at %s, which something in between, such as a NAT, translates to %s", endpointText(dials), endpointText(at))}
	}
	if client.after == nil && client.connected() {
		return []Finding{skip("the client dials %s, the server says that it is at %s, and they are connected; where the tunnel leads only the client's gateway can tell, which cannot be asked: %s",
			endpointText(dials), endpointText(at), client.silent()).on(object).in(client.cluster)}
	}
	f := warn("the client dials %s, but the server says that it is at %s", endpointText(dials), endpointText(at)).on(object).in(client.cluster)
	if client.connected() && client.after != nil && client.after.DataPlane.Tunnel.Endpoint.IsValid() {
		learnt := client.after.DataPlane.Tunnel.Endpoint
		f = f.because("it works because the tunnel has learnt the server's address, %s; after a restart it would not, unless a DNS name leads there", learnt)
		if len(addressesOf(dials)) < len(dials.Addresses) {
			return []Finding{f.fix("see that the name has the address %s, and that the port is %d", learnt.Addr(), learnt.Port())}
		}
		return []Finding{f.fix("set what the client dials to what works: %s", client.dialCommand(learnt.Addr().Unmap().String(), client.worksAt(learnt)))}
	}
	return []Finding{f.because("the server's endpoint has changed, somebody has set another one by hand, or a NAT or DNS name leads from the one to the other").
		fix("%s", client.redial(server))}
}

// redial says how to have the client dial where the server is, as far as that can
// be known: behind a NAT only the port can.
func (e *end) redial(server *end) string {
	dials, at := e.gateway().Endpoint, server.gateway().Endpoint
	if here, there := dials.AllPorts(), at.AllPorts(); portOf(dials) != portOf(at) {
		port := "port"
		if len(here) > 1 || len(there) > 1 {
			port = "ports"
		}
		return fmt.Sprintf("unless something in between forwards %s %s to %s, correct the %s: %s", port, networkingv1beta1.PortsText(here), networkingv1beta1.PortsText(there), port, e.dialCommand("", there))
	}
	address := e.elsewhere(at)
	if address == "" {
		return fmt.Sprintf("check that the NAT or name still leads to the server; the address in the status of the %s is of no use to the client, as in its cluster it is the %s",
			server.gateway(), e.nodeAt(at).what)
	}
	return fmt.Sprintf("without such a NAT or name, make the client dial the address in the status of the %s: %s; otherwise check that it still leads there",
		server.gateway(), e.dialCommand(address, at.AllPorts()))
}

// elsewhere is the first address of an endpoint that is not that of a node of this end's
// cluster; empty: there is none.
func (e *end) elsewhere(at *networkingv1beta1.Endpoint) string {
	for _, a := range at.Addresses {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			return a // a name
		}
		if _, ours := e.cluster.nodeWith(ip); !ours {
			return a
		}
	}
	return ""
}

// nodeAt is the node of this end's cluster that has one of the addresses of an endpoint.
func (e *end) nodeAt(at *networkingv1beta1.Endpoint) (n named) {
	for _, a := range addressesOf(at) {
		if n, ours := e.cluster.nodeWith(a); ours {
			return n
		}
	}
	return n
}

// dialThere says how to have the client dial the server's cluster instead of its own.
func (e *end) dialThere(server *end) string {
	other := fmt.Sprintf("find the address by which %s is reached from this cluster, and run 'liqoctl network connect --gw-client-address ADDRESS'", e.id)
	if server == nil {
		return other
	}
	at := server.gateway().Endpoint
	if at == nil || e.elsewhere(at) == "" { // addresses of nodes there are in use here, too
		return other
	}
	return fmt.Sprintf("make the client dial the address in the status of the %s: %s; if that cannot be reached from this cluster, %s",
		server.gateway(), e.dialCommand(e.elsewhere(at), at.AllPorts()), other)
}

// dialCommand is a command that has the client dial something else. What is not given
// stays.
func (e *end) dialCommand(address string, ports []int32) string {
	g := e.gateway()
	var fields []string
	if address != "" {
		fields = append(fields, fmt.Sprintf("\"addresses\":[%q]", address))
	}
	switch before := g.Endpoint; {
	case len(ports) == 1:
		fields = append(fields, `"port":`+networkingv1beta1.PortsText(ports))
		if before != nil && len(before.Ports) > 0 {
			fields = append(fields, `"ports":null`)
		}
	case len(ports) > 1:
		if before != nil && before.Port != 0 {
			fields = append(fields, `"port":null`)
		}
		fields = append(fields, `"ports":[`+networkingv1beta1.PortsText(ports)+"]")
	}
	return fmt.Sprintf("kubectl -n %s patch gatewayclient %s --type=merge -p '{\"spec\":{\"endpoint\":{%s}}}'", g.Namespace, g.Name, strings.Join(fields, ","))
}

// worksAt are the ports to dial where the tunnel has learnt one: of several, only one has
// been seen, and they stay.
func (e *end) worksAt(learnt netip.AddrPort) []int32 {
	if len(e.gateway().Endpoint.AllPorts()) > 1 {
		return nil
	}
	return []int32{int32(learnt.Port())}
}

// dialsElsewhere tells whether what a client dials is not what the server tells,
// and has never led there either.
func (e *end) dialsElsewhere(server *end) bool {
	dials, at := e.gateway().Endpoint, server.gateway().Endpoint
	return dials != nil && at != nil && len(at.Addresses) > 0 && !reachesBy(dials, at) && !e.hasReached(dials)
}

// reachesBy tells whether what a client dials is what the server tells, at least by its
// first port.
func reachesBy(dials, at *networkingv1beta1.Endpoint) bool {
	return portOf(dials) == portOf(at) && slices.ContainsFunc(dials.Addresses, func(a string) bool { return slices.Contains(at.Addresses, a) })
}

// hasReached tells whether the tunnel has had a session with one of the addresses
// of an endpoint: that is the proof that they lead to the server.
func (e *end) hasReached(dials *networkingv1beta1.Endpoint) bool {
	if e.after == nil || e.after.DataPlane.Tunnel.LastHandshake.IsZero() {
		return false
	}
	at := e.after.DataPlane.Tunnel.Endpoint
	return slices.ContainsFunc(dials.Addresses, func(a string) bool {
		return slices.ContainsFunc(dials.AllPorts(), func(p int32) bool { return hostPort(a, p) == at.String() })
	})
}

// unroutable finds endpoints that packets of this cluster do not leave it for. The server's
// end is nil where nobody can look at it.
func (e *end) unroutable(dials *networkingv1beta1.Endpoint, server *end) (f Finding, found bool) {
	inside := e.cluster.own()
	if conf := e.peer.Configuration; conf != nil && conf.Status.Remote != nil {
		for _, p := range append(parsed(conf.Status.Remote.CIDR.Pod), parsed(conf.Status.Remote.CIDR.External)...) {
			inside = append(inside, named{"CIDR that leads into the tunnel itself,", p})
		}
	}
	if e.connected() {
		return f, false
	}
	for _, a := range addressesOf(dials) {
		if o, ok := clash(netip.PrefixFrom(a, a.BitLen()), inside); ok {
			return fail("the client dials %s, which in this cluster lies in the %s %s", a, o.what, o.prefix).
				because("packets to it do not leave the cluster").
				fix("expose the server by an address that both clusters can route: NodePort or LoadBalancer ('--gw-server-service-type')"), true
		}
		if o, ours := e.cluster.nodeWith(a); ours {
			return fail("%s is the %s of this cluster", a, o.what).
				because("the client must dial an address of %s: packets to this one stay in this cluster", e.id).
				fix("%s", e.dialThere(server)), true
		}
	}
	return f, false
}

func mtus(p *peering) (out []Finding) {
	for _, e := range p.ends() {
		if a := e.after; a != nil && a.DataPlane.MTU != 0 && a.DataPlane.MTU != e.mtu() {
			out = append(out, warn("its spec says an MTU of %d, its gateway works with %d", e.mtu(), a.DataPlane.MTU).on(e.gateway().String()).in(e.cluster).
				because("the gateway has not applied the change yet, or refuses it"))
		}
		if fabric := e.peer.Fabric; fabric != nil && fabric.Spec.MTU != 0 && fabric.Spec.MTU != e.mtu() {
			out = append(out, warn("the nodes send packets of up to %d bytes, the gateway accepts %d", fabric.Spec.MTU, e.mtu()).
				on("InternalFabric "+fabric.Namespace+"/"+fabric.Name).in(e.cluster).because("the controller has not followed the change yet").fix("see the log of the controller"))
		}
	}
	here, there := p.local.mtu(), 0
	switch {
	case p.remote != nil:
		there = p.remote.mtu()
	case p.local.after != nil:
		there = p.local.after.Sync.Peer.MTU // as the peer tells in its pings
	}
	switch {
	case there == 0:
		out = append(out, skip("%d here; the peer does not tell its own", here))
	case here != there:
		out = append(out, fail("it is %d here and %d there", here, there).
			because("packets of more than %d bytes get lost in one direction: connections open and then hang", min(here, there)).
			fix("give both gateways the same spec.mtu: 'liqoctl network connect --mtu %d'", min(here, there)))
	case len(out) == 0:
		out = append(out, pass("%d on both sides", here))
	}
	return out
}
