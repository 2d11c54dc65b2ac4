package doctor

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

const defaultMTU = 1340

func tenantNamespace(e *end) []Finding {
	if why := e.cluster.unread("GatewayServer", "GatewayClient", "Configuration"); e.peer == nil && why != "" {
		return []Finding{unseen(why)}
	}
	switch {
	case e.id == e.cluster.Installation.ClusterID && (e.peer == nil || e.peer.Namespace == ""):
		return []Finding{fail("%s is this cluster itself", e.id).
			because("a peering is with another cluster").fix("name another cluster, or none: then all peerings of this cluster are checked")}
	case e.peer == nil || e.peer.Namespace == "":
		return []Finding{fail("nothing in this cluster refers to %s", e.id).
			because("the clusters were never connected, or were disconnected").fix("'liqoctl network connect' connects them")}
	}
	ns := e.cluster.namespace(e.peer.Namespace)
	object := "Namespace " + e.peer.Namespace
	switch {
	case ns == nil && e.cluster.namespaces.err != nil:
		return []Finding{skip("%s", plain(e.cluster.namespaces.err))}
	case ns != nil && ns.Status.Phase == corev1.NamespaceTerminating:
		return []Finding{fail("it is being deleted, and the peering with it").on(object).
			fix("wait until it is gone, then connect again; 'kubectl get namespace %s -o yaml' shows what blocks the deletion", ns.Name)}
	case ns != nil && ns.Labels[networkingv1beta1.LabelTenantNamespace] != networkingv1beta1.LabelTrue:
		return []Finding{pass("%s, which is no tenant namespace by its labels, but needs not be", ns.Name)}
	}
	return []Finding{pass("%s", e.peer.Namespace)}
}

func (c *cluster) namespace(name string) *corev1.Namespace {
	for i := range c.namespaces.items {
		if c.namespaces.items[i].Name == name {
			return &c.namespaces.items[i]
		}
	}
	return nil
}

// conditionFindings are the findings of conditions that are not True. Their messages say
// what to do.
func conditionFindings(object string, conditions []metav1.Condition, types ...networkingv1beta1.ConditionType) (out []Finding) {
	for _, t := range types {
		if c := meta.FindStatusCondition(conditions, string(t)); c != nil && c.Status != metav1.ConditionTrue {
			out = append(out, fail("%s: %s", c.Reason, c.Message).on(object))
		}
	}
	return out
}

func configurations(p *peering) (out []Finding) {
	for _, e := range p.ends() {
		var other *cluster
		if o := p.opposite(e); o != nil {
			other = o.cluster
		}
		out = append(out, e.configuration(other)...)
	}
	if len(out) == 0 {
		if p.remote == nil {
			return []Finding{pass("complete; whether the CIDRs are those of %s can only be judged with its kubeconfig", p.id)}
		}
		return []Finding{pass("each cluster knows the CIDRs of the other")}
	}
	return out
}

// opposite is the other end; nil: nobody can look at it.
func (p *peering) opposite(e *end) *end {
	if e == p.local {
		return p.remote
	}
	return p.local
}

// configuration judges what this end knows of the other cluster's CIDRs.
func (e *end) configuration(other *cluster) (out []Finding) {
	if why := e.cluster.unread("Configuration"); why != "" {
		return []Finding{skip("%s", why).in(e.cluster)}
	}
	conf := e.peer.Configuration
	if conf == nil {
		return []Finding{fail("there is no Configuration of %s in namespace %s", e.id, e.peer.Namespace).in(e.cluster).
			because("this cluster does not know the other's CIDRs").fix("run 'liqoctl network connect', or apply what 'liqoctl generate configuration' prints in %s", e.id)}
	}
	object := "Configuration " + conf.Namespace + "/" + conf.Name
	for _, f := range conditionFindings(object, conf.Status.Conditions, networkingv1beta1.ConditionNetworkCIDRsConfigured) {
		out = append(out, f.in(e.cluster).because("the addresses by which %s is reached are not settled yet, or stay as they were before", e.id).
			fix("do what the message says; a Network of namespace %s that you delete is created again by the controller, with a free prefix", conf.Namespace))
	}
	if conf.Spec.Local != nil {
		out = append(out, e.differs("this cluster", "spec.local", conf.Spec.Local.CIDR, e.cluster,
			"remove spec.local from it: the controller fills it in")...)
	}
	if other != nil && other.err == nil {
		out = append(out, e.differs(e.id, "spec.remote", conf.Spec.Remote.CIDR, other,
			"run 'liqoctl network connect' again, or apply here what 'liqoctl generate configuration' prints in "+e.id)...)
	}
	return out
}

// differs compares CIDRs in the Configuration of this end with those of the
// cluster that they are about.
func (e *end) differs(who, field string, said networkingv1beta1.ClusterCIDR, of *cluster, fix string) (out []Finding) {
	conf := e.peer.Configuration
	if why := of.unread("Network"); why != "" {
		return []Finding{skip("whether the CIDRs of %s are right is not known: %s", who, why).in(e.cluster)}
	}
	for _, kind := range []struct {
		name, field string
		said        networkingv1beta1.CIDRs
		real        []named
	}{
		{"pods", field + ".cidr.pod", said.Pod, granted("", of.Networks.Pod)},
		{"external addresses", field + ".cidr.external", said.External, granted("", of.Networks.External)},
	} {
		said, is := parsed(kind.said), prefixesOf(kind.real)
		if len(is) == 0 || samePrefixes(said, is) {
			continue
		}
		out = append(out, fail("%s says that the %s of %s are in %s, but they are in %s", kind.field, kind.name, who, prefixText(said), prefixText(is)).
			on("Configuration "+conf.Namespace+"/"+conf.Name).in(e.cluster).
			because("packets are translated to addresses that do not exist there, or belong to something else").fix("%s", fix))
	}
	return out
}

func gateways(p *peering) (out []Finding) {
	for _, e := range p.ends() {
		g, why := e.gateway(), e.cluster.unread("GatewayServer", "GatewayClient")
		switch {
		case g == nil && why != "":
			out = append(out, unseen(why).in(e.cluster))
		case g == nil:
			out = append(out, fail("there is neither a GatewayServer nor a GatewayClient for %s", e.id).in(e.cluster).
				fix("'liqoctl network connect' makes them"))
		case g.Deleting:
			out = append(out, fail("it is being deleted").on(g.String()).in(e.cluster).fix("wait until it is gone, then connect again"))
		}
		for _, s := range e.peer.Surplus {
			out = append(out, warn("it has no effect, as another one is used").on(s).in(e.cluster).fix("delete it"))
		}
		if g != nil {
			for _, f := range conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionAllPortsServed) {
				f.Status = Warning
				out = append(out, f.in(e.cluster))
			}
		}
	}
	if p.remote != nil && !slices.ContainsFunc(out, func(f Finding) bool { return f.Status == Failed || f.blind }) {
		a, b := p.local.gateway(), p.remote.gateway()
		if a.Role == b.Role {
			f := fail("both ends are a %s", a.Kind).fix("disconnect ('liqoctl network disconnect') and connect again: one end is a GatewayServer, the other a GatewayClient")
			f = f.because("both dial, and neither waits")
			if a.Role == networkingv1beta1.ConnectionServer {
				f = f.because("both wait, and neither dials")
			}
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		var texts []string
		for _, e := range p.ends() {
			texts = append(texts, e.gateway().String())
		}
		out = append(out, pass("%s", strings.Join(texts, " and ")))
	}
	return out
}

func template(e *end) []Finding {
	g := e.gateway()
	if out := conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionTemplateRendered); len(out) > 0 {
		return out
	}
	name := g.Template.Name
	if g.Template.Namespace != "" {
		name = g.Template.Namespace + "/" + name
	}
	if unreadable(e.templateErr) {
		return []Finding{skip("%s", plain(e.templateErr))}
	}
	if e.templateErr != nil {
		return []Finding{warn("its template %s %s cannot be read: %s", g.Template.Kind, name, plain(e.templateErr)).on(g.String()).
			because("the gateway stays as it was rendered last, and cannot be rendered again").fix("create the template, or make the gateway refer to another one")}
	}
	switch rendered := meta.FindStatusCondition(g.Conditions, string(networkingv1beta1.ConditionTemplateRendered)) != nil; {
	case rendered, e.cluster.Installation.OfLiqo():
		return []Finding{pass("%s, rendered", name)}
	case e.ofLiqo():
		return []Finding{skip("its pods are Liqo's, whose controllers write no conditions")}
	case e.cluster.MayBeOfLiqo():
		return []Finding{skip("whether a controller has looked at it is not known: %s", e.cluster.unread("Deployment"))}
	}
	return []Finding{fail("no controller has looked at it").on(g.String()).
		because("the controller does not run, or is of another product").fix("see the Deployment of the controller, and its log")}
}

func gatewayRights(e *end) []Finding {
	g := e.gateway()
	switch {
	case e.accountErr != nil:
		return []Finding{skip("%s", plain(e.accountErr))}
	case e.ofLiqo():
		return []Finding{skip("what a gateway of Liqo needs is not judged")}
	case len(e.account) > 0:
		return []Finding{fail("its service account may not %s", text.Few(e.account)).on(g.String()).
			because("the gateway cannot read the objects that it needs, or cannot report its state").
			fix("the controller creates roles and bindings: see its log, and check whether somebody deleted the ClusterRole liqo-gateway")}
	}
	return []Finding{pass("the gateway may do what it must")}
}

// objectsApplied tells whether the gateway works by the newest objects.
func objectsApplied(e *end) (out []Finding) {
	g := e.gateway()
	if e.after == nil {
		c := e.peer.Connection
		if why := e.cluster.unread("Connection"); c == nil && why != "" {
			return []Finding{skip("%s", why)}
		}
		if c == nil {
			return []Finding{skip("the gateway cannot be asked, and there is no Connection: %s", e.silent())}
		}
		if out := conditionFindings("Connection "+c.Namespace+"/"+c.Name, c.Status.Conditions, networkingv1beta1.ConditionConfigurationApplied); len(out) > 0 {
			return out
		}
		if meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionConfigurationApplied)) == nil {
			return []Finding{skip("the gateway cannot be asked, and its Connection does not tell: %s", e.silent())}
		}
		return []Finding{pass("the gateway works by the newest objects, says its Connection")}
	}
	s := e.after.Sync
	for _, p := range s.Waiting {
		out = append(out, fail("the gateway waits: %s", p).on(g.String()))
	}
	for _, p := range s.Refused {
		out = append(out, fail("the gateway refuses the newest objects: %s", p).on(g.String()).because("the previous state stays in force"))
	}
	for _, p := range s.Ignored {
		out = append(out, warn("the gateway leaves an object out: %s", p).on(g.String()))
	}
	if c := e.after.Cluster; c != nil && !c.API.Connected {
		out = append(out, warn("the gateway cannot reach the API server: %s", c.API.Error).on(g.String()).
			because("it continues with the objects that it has, but follows no changes"))
	}
	if len(out) == 0 {
		out = append(out, pass("the gateway works by the newest objects"))
	}
	return out
}

// silent says why the gateway told nothing.
func (e *end) silent() string {
	switch {
	case e.reportErr != nil:
		return plain(e.reportErr)
	case e.pods.err != nil:
		return plain(e.pods.err)
	}
	return "none of its pods is active"
}

func firewall(e *end) (out []Finding) {
	if why := e.cluster.unread("FirewallConfiguration"); why != "" {
		return []Finding{skip("%s", why)}
	}
	g := e.gateway()
	for i := range e.peer.Firewall {
		o := &e.peer.Firewall[i]
		for _, h := range o.Status.Conditions {
			// A bare Error is what Liqo's gateways write.
			bad := h.Type == networkingv1beta1.HostConditionApplied && h.Status != metav1.ConditionTrue ||
				h.Type == networkingv1beta1.HostConditionError && h.Status == metav1.ConditionTrue
			if h.Host == g.Name && bad {
				out = append(out, warn("the gateway does not apply it: %s", h.Message).on("FirewallConfiguration "+o.Namespace+"/"+o.Name).
					because("traffic that it should filter passes, or traffic that it should allow is dropped; the previous rules stay in force"))
			}
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(e.peer.Firewall) == 0:
		return []Finding{pass("none")}
	}
	return []Finding{pass("%d FirewallConfigurations are in force", len(e.peer.Firewall))}
}

// addressesOf are the IP addresses of an endpoint; names are left out.
func addressesOf(e *networkingv1beta1.Endpoint) (out []netip.Addr) {
	if e == nil {
		return nil
	}
	for _, text := range e.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// portOf is the port of the first tunnel.
func portOf(e *networkingv1beta1.Endpoint) int32 {
	if e == nil || len(e.AllPorts()) == 0 {
		return 0
	}
	return e.AllPorts()[0]
}
