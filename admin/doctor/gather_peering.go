package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// peeringCase is a peering with the ways to its ends.
type peeringCase struct {
	*peering
	ends []*endCase
}

// endCase is an end with the way to its cluster.
type endCase struct {
	access *access.Cluster
	*end
	// settled says that the tunnel was seen at work once already.
	settled bool
}

// read asks for everything about a peering.
func (c *peeringCase) read(ctx context.Context, say progress.Func) {
	each(c.ends, len(c.ends), func(e *endCase) {
		if e.peer != nil {
			e.readObjects(ctx)
		}
	})
	c.askGateways(ctx, say)
	each(c.ends, len(c.ends), func(e *endCase) { e.askAgents(ctx) })
}

// readObjects asks for the objects of one end that the survey does not tell.
func (e *endCase) readObjects(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, ns := e.access, client.InNamespace(e.peer.Namespace)
	var wg sync.WaitGroup
	wg.Go(func() {
		e.policies = list[networkingv1.NetworkPolicy](ctx, c, "NetworkPolicies of namespace "+e.peer.Namespace, &networkingv1.NetworkPolicyList{}, ns)
	})
	wg.Go(func() {
		e.tenants = list[authv1beta1.Tenant](ctx, c, "Tenants of namespace "+e.peer.Namespace, &authv1beta1.TenantList{}, ns)
	})
	wg.Go(func() {
		e.identities = list[authv1beta1.Identity](ctx, c, "Identities of namespace "+e.peer.Namespace, &authv1beta1.IdentityList{}, ns)
	})
	g := e.gateway()
	if g == nil {
		wg.Wait()
		return
	}
	wg.Go(func() {
		e.pods = list[corev1.Pod](ctx, c, "Pods of namespace "+e.peer.Namespace, &corev1.PodList{}, ns,
			client.MatchingLabels{networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway})
		e.readLastLogs(ctx)
		e.readRights(ctx)
	})
	wg.Go(func() {
		var d appsv1.Deployment
		if c.Client.Get(ctx, types.NamespacedName{Namespace: e.peer.Namespace, Name: e.deployment()}, &d) == nil {
			e.replicas = d.Spec.Replicas
			e.admitted = !survey.PodsRefused(&d)
		}
	})
	wg.Go(func() { e.templateErr = e.readTemplate(ctx, g.Template) })
	if g.Role == networkingv1beta1.ConnectionServer {
		wg.Go(func() { e.readService(ctx) })
	}
	wg.Wait()
}

func (e *endCase) readService(ctx context.Context) {
	var s corev1.Service
	key := types.NamespacedName{Namespace: e.peer.Namespace, Name: e.deployment()}
	switch err := e.access.Client.Get(ctx, key, &s); {
	case err == nil:
		e.service = &s
	case !apierrors.IsNotFound(err):
		e.serviceErr = e.access.Explain("read Service "+key.String(), err)
	}
}

// readTemplate tells why the template of a gateway cannot be had.
func (e *endCase) readTemplate(ctx context.Context, ref corev1.ObjectReference) error {
	var o metav1.PartialObjectMetadata
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || ref.Kind == "" {
		return nil // the condition TemplateRendered says what is wrong with it
	}
	o.SetGroupVersionKind(gv.WithKind(ref.Kind))
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, e.access.LiqoNamespace), Name: ref.Name}
	return e.access.Explain("read "+ref.Kind+" "+key.String(), e.access.Client.Get(ctx, key, &o))
}

const (
	// lastLines is how much of the log of a container that ended is read.
	lastLines = 3
	// maxLogText is how much of it is shown.
	maxLogText = 400
)

// readLastLogs reads the ends of the logs of containers that have ended.
func (e *endCase) readLastLogs(ctx context.Context) {
	e.lastLogs = make(map[string]string)
	for i := range e.pods.items {
		p := &e.pods.items[i]
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount == 0 && c.State.Terminated == nil {
				continue
			}
			lines := int64(lastLines)
			stream, err := e.access.Clientset.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
				Container: c.Name, Previous: c.State.Terminated == nil, TailLines: &lines,
			}).Stream(ctx)
			if err != nil {
				continue // they are a hint, and not always kept
			}
			text, _ := io.ReadAll(io.LimitReader(stream, 64<<10)) // what was read until then
			stream.Close()
			e.lastLogs[p.Name] = tail(strings.Join(strings.Fields(string(text)), " "), maxLogText)
		}
	}
}

// tail is the end of a text.
func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return "..." + s[len(s)-most:]
}

// rightsOf are those that the gateway lives by.
func (e *endCase) rightsOf() (out []access.Permission) {
	group, ns := networkingv1beta1.GroupVersion.Group, e.peer.Namespace
	for _, resource := range []string{"configurations", "connections", "gatewayclients", "gatewayservers", "genevetunnels", "internalfabrics", "publickeies"} {
		out = append(out, access.Permission{Verb: "watch", Group: group, Resource: resource, Namespace: ns})
	}
	return append(out,
		access.Permission{Verb: "watch", Group: group, Resource: "internalnodes"},
		access.Permission{Verb: "watch", Group: ipamv1alpha1.GroupVersion.Group, Resource: "ips"},
		access.Permission{Verb: "watch", Group: group, Resource: "routeconfigurations", Namespace: e.access.LiqoNamespace})
}

// readRights asks what the gateway's service account may do.
func (e *endCase) readRights(ctx context.Context) {
	if e.accountErr = e.pods.err; e.accountErr != nil || e.ofLiqo() {
		return
	}
	if len(e.pods.items) == 0 {
		e.accountErr = e.access.Errorf("there is no pod whose service account could be asked for")
		return
	}
	user := "system:serviceaccount:" + e.peer.Namespace + ":" + cmp.Or(e.pods.items[0].Spec.ServiceAccountName, "default")
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + e.peer.Namespace, "system:authenticated"}
	ask := func(p access.Permission, name string) {
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Namespace: p.Namespace, Name: name,
			}}}
		switch err := e.access.Client.Create(ctx, &review); {
		case err != nil:
			e.accountErr = e.access.Explain("ask what "+user+" may do", err)
		case !review.Status.Allowed:
			e.account = append(e.account, p.String())
		}
	}
	for _, p := range e.rightsOf() {
		if ask(p, ""); e.accountErr != nil {
			return
		}
	}
	ask(access.Permission{Verb: "patch", Group: networkingv1beta1.GroupVersion.Group, Resource: "connections", Subresource: "status", Namespace: e.peer.Namespace}, e.deployment())
}

const (
	// patience is how long to wait for a sign of life of a tunnel that does not
	// work: WireGuard tries at least every five seconds.
	patience = 12 * time.Second
	// askAgain is how often gateways are asked meanwhile.
	askAgain = time.Second
	// probeTimeout bounds what a probe of the tunnel may take.
	probeTimeout = time.Minute
)

// askGateways asks the gateways twice, and probes the tunnel in between where it
// works. Where it does not, it waits until they have tried to reach each other.
func (c *peeringCase) askGateways(ctx context.Context, say progress.Func) {
	name := c.ends[0].access.Name
	say.Waiting(name, "Asking the gateways")
	c.sample(ctx, func(e *endCase, r *survey.GatewayReport) { e.before, e.after = r, r })
	each(c.ends, len(c.ends), func(e *endCase) { e.alsoLeads = e.findLeaders(ctx) })
	if c.established() {
		say.Waiting(name, "Pinging through the tunnel")
		each(c.ends, len(c.ends), func(e *endCase) { e.readProbe(ctx) })
		c.sample(ctx, func(e *endCase, r *survey.GatewayReport) { e.after = r })
		if !c.unanswered() || c.showsWhere() {
			return
		}
	}
	say.Waiting(name, "Waiting for the gateways to try again")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for !c.tried() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.sample(ctx, func(e *endCase, r *survey.GatewayReport) { e.after = r })
		}
	}
}

// established tells whether a gateway has a session with its peer.
func (c *peeringCase) established() bool {
	return slices.ContainsFunc(c.ends, func(e *endCase) bool { return e.after != nil && session(e.after) })
}

// unanswered tells whether pings through the tunnel went out, and none came back.
func (c *peeringCase) unanswered() bool {
	return slices.ContainsFunc(c.ends, func(e *endCase) bool { return e.unanswered() })
}

// showsWhere tells whether the probe alone shows in which direction packets get lost: both gateways
// have a session and sent by it, and what came was of that session.
func (c *peeringCase) showsWhere() bool {
	return len(c.ends) == 2 && !slices.ContainsFunc(c.ends, func(e *endCase) bool {
		return !e.asked() || !session(e.after) || !e.unanswered() || !e.traffic().sent() || e.traffic().strange > 0
	})
}

// tried tells whether the gateways have shown what there is to see: an initiation
// was sent, and what comes of it has had the time to arrive.
func (c *peeringCase) tried() bool {
	asked := false
	for _, e := range c.ends {
		if !e.asked() {
			continue
		}
		asked = true
		t := e.traffic()
		active := t.txInitiations > 0 || len(c.ends) == 1 && t.rxInitiations > 0
		if active && e.settled {
			return true
		}
		e.settled = active // one more look
	}
	return !asked
}

// sample asks the gateways that can be asked, at the same time.
func (c *peeringCase) sample(ctx context.Context, keep func(*endCase, *survey.GatewayReport)) {
	each(c.ends, len(c.ends), func(e *endCase) {
		pod := e.activePod()
		if pod == nil {
			return
		}
		if e.ofLiqo() {
			e.reportErr = survey.ErrOfLiqo
			return
		}
		asked := time.Now()
		r, err := survey.ReadGateway(ctx, e.access, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		if err != nil {
			if e.after == nil {
				e.reportErr = err
			}
			return
		}
		ahead := r.Time.Sub(midpoint(asked, time.Now()))
		e.clockAhead, e.reportErr = &ahead, nil
		keep(e, r)
	})
}

// findLeaders asks the other pods of the gateway whether they forward, too. A handover on
// the way does not count: who says so is asked again, after the active one.
func (e *endCase) findLeaders(ctx context.Context) (names []string) {
	active := e.activePod()
	if active == nil || e.after == nil {
		return nil
	}
	leads := func(p *corev1.Pod) bool {
		r, err := survey.ReadGateway(ctx, e.access, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		return err == nil && r.Sync.Role == roleActive
	}
	for i := range e.pods.items {
		p := &e.pods.items[i]
		if p.Name != active.Name && p.DeletionTimestamp.IsZero() && p.Status.Phase == corev1.PodRunning && !survey.OfLiqo(&p.Spec) && leads(p) && leads(active) && leads(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// roleActive is what a gateway says that forwards.
const roleActive = "active"

// readProbe has the gateway ping its peer.
func (e *endCase) readProbe(ctx context.Context) {
	pod := e.activePod()
	if pod == nil || e.ofLiqo() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := e.access.Output(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, "gateway", []string{"gateway", "probe", "--count=10", "-o", "json"})
	var r probe
	// A probe that nobody answers tells so, and ends with an error all the same.
	if json.Unmarshal(out, &r) == nil && len(r.Pings) > 0 {
		e.probe = &r
		return
	}
	e.probeErr = err
}

// mostAgents is how many agents are asked: nodes with the same trouble mostly
// have the same reason.
const mostAgents = 3

// askAgents asks the agents of nodes that the gateway has never heard.
func (e *endCase) askAgents(ctx context.Context) {
	if e.after == nil {
		return
	}
	e.agents = make(map[string]*survey.FabricReport)
	for _, n := range e.after.DataPlane.Nodes {
		if problem, _ := e.after.Unheard(n.Name); problem == "" || len(e.agents) == mostAgents {
			continue
		}
		for i := range e.cluster.agents.items {
			p := &e.cluster.agents.items[i]
			if p.Spec.NodeName != n.Name || !survey.PodReady(p) || survey.OfLiqo(&p.Spec) {
				continue
			}
			e.agents[n.Name], _ = survey.ReadFabric(ctx, e.access, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
	}
}
