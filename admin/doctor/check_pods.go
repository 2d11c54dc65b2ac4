package doctor

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// podSecurity judges the namespaces in which pods of the network run. The node
// agents need the node's network; gateways run under every level, so whether their
// pods are admitted depends on the template alone, which gatewayPods sees.
func podSecurity(c *cluster) (out []Finding) {
	if c.namespaces.err != nil {
		return []Finding{skip("%s", plain(c.namespaces.err))}
	}
	for i := range c.Installation.Components {
		o := &c.Installation.Components[i]
		ns := c.namespace(o.Namespace)
		if o.Kind != "DaemonSet" || ns == nil || c.Installation.BesideOurs(o) {
			continue
		}
		if level := ns.Labels[networkingv1beta1.LabelPodSecurity]; level == "baseline" || level == "restricted" {
			f := fail("the level %s admits no pod that uses the node's network, as the node agents do", level).on("Namespace "+ns.Name).
				because("running agents keep working, new ones are refused").
				fix("kubectl label --overwrite namespace %s %s=privileged", ns.Name, networkingv1beta1.LabelPodSecurity)
			if o.Healthy() {
				f.Status = Warning
			}
			out = append(out, f)
		}
	}
	if len(out) > 0 {
		return out
	}
	if why := c.unread("DaemonSet"); why != "" && !slices.ContainsFunc(c.Installation.Components, func(o survey.Component) bool { return o.Kind == "DaemonSet" }) {
		return []Finding{skip("%s", why)}
	}
	var levels []string
	for i := range c.Peers {
		name := c.Peers[i].Namespace
		if ns := c.namespace(name); ns != nil && ns.Labels[networkingv1beta1.LabelPodSecurity] != "" {
			levels = append(levels, name+" is "+ns.Labels[networkingv1beta1.LabelPodSecurity])
		}
	}
	if len(levels) == 0 {
		return []Finding{pass("the node agents are admitted; no level is enforced where gateways run")}
	}
	return []Finding{pass("the node agents are admitted; %s, which gateways satisfy", text.Few(levels))}
}

// deployment is the name of the gateway's Deployment.
func (e *end) deployment() string {
	if g := e.gateway(); g != nil {
		return "gw-" + g.Name
	}
	return ""
}

func gatewayPods(e *end) (out []Finding) {
	g := e.gateway()
	if e.pods.err != nil {
		return []Finding{skip("%s", plain(e.pods.err))}
	}
	if len(e.pods.items) == 0 {
		return addConsequence([]Finding{e.noPods()})
	}
	active := 0
	for i := range e.pods.items {
		p := &e.pods.items[i]
		if p.Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue && p.DeletionTimestamp.IsZero() {
			active++
		}
		if f, ok := e.podProblem(p); ok {
			out = append(out, f.on("pod "+p.Namespace+"/"+p.Name))
		}
	}
	ready := e.activePod()
	switch {
	case ready != nil && survey.PodReady(ready):
		// What else is wrong is another replica's.
		for i := range out {
			out[i].Status = Warning
		}
	case len(out) == 0:
		out = conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionDeployed)
		if len(out) == 0 {
			out = append(out, e.noActivePod().on(g.String()))
		}
	}
	if active > 1 {
		out = append(out, fail("%d pods are active at the same time", active).on(g.String()).
			because("two gateways with one key take the tunnel from each other").
			fix("let the template run one replica, or several with --leader-election and without the label %s", networkingv1beta1.LabelActive))
	}
	if len(e.alsoLeads) > 0 && active == 1 {
		out = append(out, fail("%s leads, and so does %s", ready.Name, text.Few(e.alsoLeads)).on(g.String()).
			because("a gateway that was cut off does not know that another one leads: two gateways with one key take the tunnel from each other").
			fix("delete the pod that lacks the label %s", networkingv1beta1.LabelActive))
	}
	if c := e.peer.Connection; c != nil {
		out = append(out, conditionFindings("Connection "+c.Namespace+"/"+c.Name, c.Status.Conditions, networkingv1beta1.ConditionPeerUnique)...)
	}
	if len(out) == 0 {
		f := pass("%s runs on %s", ready.Name, ready.Spec.NodeName)
		if e.ofLiqo() {
			f.Message += "; it is Liqo's and is not asked: what follows is by its objects and its Connection"
		}
		out = append(out, f)
	}
	return addConsequence(out)
}

// noActivePod says why none of a gateway's pods is marked as the one that leads.
func (e *end) noActivePod() Finding {
	f := fail("none of %d pods is active", len(e.pods.items))
	for i := range e.cluster.Installation.Components {
		o := &e.cluster.Installation.Components[i]
		if !e.cluster.Installation.Maintains(o) || o.Ready > 0 {
			continue
		}
		f = f.because("the controller marks the leading pod and points the nodes to it, but no pod of %s runs", o)
		if o.Off() {
			return f.fix("%s", e.cluster.Installation.ScaleUp(o))
		}
		return f.fix("see 'kubectl -n %s describe pods'", o.Namespace)
	}
	return f.because("the leading pod becomes active when the controller has marked it: none leads yet").
		fix("see the logs of the gateway's pods, and of the Deployment liqo-controller")
}

// addConsequence says what follows, where nothing else is said to be the cause.
func addConsequence(out []Finding) []Finding {
	for i := range out {
		if out[i].Status == Failed && out[i].Cause == "" {
			out[i] = out[i].because("no gateway of this cluster works: no traffic passes to or from the peer")
		}
	}
	return out
}

// noPods says why there are none.
func (e *end) noPods() Finding {
	object := "Deployment " + e.peer.Namespace + "/" + e.deployment()
	if n := e.replicas; n != nil && *n == 0 {
		return fail("it is scaled to zero pods").on(object).because("somebody scaled it to zero, and no controller has undone that").
			fix("kubectl -n %s scale deployment %s --replicas=1; and see that the controller runs, which maintains this", e.peer.Namespace, e.deployment())
	}
	if ev := refusedPods(e.cluster.events.items, e.peer.Namespace, e.deployment()); ev != nil && !e.admitted { // else it is about pods before
		return refusedBy(ev).on(object)
	}
	g := e.gateway()
	if out := conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionDeployed); len(out) > 0 {
		return out[0]
	}
	return fail("the gateway has no pod").on(object).fix("see 'kubectl -n %s describe deployment,replicaset', and the log of the controller", e.peer.Namespace)
}

// podProblem says why a pod does not do its work.
func (e *end) podProblem(p *corev1.Pod) (f Finding, found bool) {
	if !p.DeletionTimestamp.IsZero() || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed && !survey.PodReady(p) && len(e.pods.items) > 1 {
		return f, false // on its way out
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fail("it is not scheduled: %s", c.Message).fix("make room on a node, or change what the template asks for: resources, node selector, tolerations"), true
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if f, found := e.containerProblem(p, &c); found {
			return f, true
		}
	}
	if !survey.PodReady(p) {
		f = fail("it is not ready")
		if ev := e.lastWarning(p); ev != nil {
			f = fail("it is not ready: %s", ev.Message)
		}
		if why := e.diverted(p.Spec.NodeName); why != "" { // it may keep the kubelet's probes away, too
			return f.because("node %s: %s", p.Spec.NodeName, why).fix("remove that rule from the node, or give it a priority above that of the agents"), true
		}
		return f.fix("see 'kubectl -n %s describe pod %s', and its log", p.Namespace, p.Name), true
	}
	return f, false
}

// diverted is what the agent of a node says of another program's policy rule that takes packets of pods elsewhere; empty:
// nothing.
func (e *end) diverted(node string) string {
	for i := range e.cluster.Nodes {
		if n := &e.cluster.Nodes[i]; n.Name == node && n.Internal != nil {
			c := meta.FindStatusCondition(n.Internal.Status.Conditions, string(networkingv1beta1.ConditionTunnelsReady))
			if c != nil && c.Status != metav1.ConditionTrue && c.Reason == string(networkingv1beta1.ReasonTrafficDiverted) {
				return c.Message
			}
		}
	}
	return ""
}

func (e *end) containerProblem(p *corev1.Pod, c *corev1.ContainerStatus) (f Finding, found bool) {
	if w := c.State.Waiting; w != nil {
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return fail("its image %s cannot be pulled: %s", c.Image, w.Message).fix("make the image available to the node %s, or name another in the template", p.Spec.NodeName), true
		case "CrashLoopBackOff", "RunContainerError":
			return e.crashed(p, c), true
		case "ContainerCreating", "PodInitializing":
			if ev := e.lastWarning(p); ev != nil {
				return fail("it does not start: %s", ev.Message).fix("see 'kubectl -n %s describe pod %s'", p.Namespace, p.Name), true
			}
			return fail("it is still starting").fix("wait a moment, then look again"), true
		}
		return fail("it does not start: %s %s", w.Reason, w.Message), true
	}
	if c.State.Terminated != nil {
		return e.crashed(p, c), true
	}
	return f, false
}

// crashed says how a container ended, with the end of its log.
func (e *end) crashed(p *corev1.Pod, c *corev1.ContainerStatus) Finding {
	text := fmt.Sprintf("its container %s ends again and again, %d times so far", c.Name, c.RestartCount)
	t := c.LastTerminationState.Terminated
	if c.State.Terminated != nil {
		t = c.State.Terminated
	}
	if t != nil {
		text += fmt.Sprintf(", with exit code %d", t.ExitCode)
		if t.Reason == "OOMKilled" {
			return fail("%s: it was out of memory", text).fix("raise the memory limit in the template")
		}
	}
	f := fail("%s", text).fix("see 'kubectl -n %s logs %s --previous'", p.Namespace, p.Name)
	if words := e.lastLogs[p.Name]; words != "" {
		f = f.because("its last output: %s", words)
	}
	return f
}

// lastWarning is the last event about a pod of this end's namespace that is a warning and is not older than its containers
// that run: what kept them from running has passed.
func (e *end) lastWarning(p *corev1.Pod) *corev1.Event {
	var since time.Time
	for _, c := range p.Status.ContainerStatuses {
		if r := c.State.Running; r != nil && r.StartedAt.After(since) {
			since = r.StartedAt.Time
		}
	}
	for i := range e.cluster.events.items { // the last first
		if ev := &e.cluster.events.items[i]; isAbout(ev, "Pod", p) && ev.Type == corev1.EventTypeWarning && !survey.EventTime(ev).Before(since) {
			return ev
		}
	}
	return nil
}
