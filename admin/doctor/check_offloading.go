package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/reflection"
)

// offloads is what a cluster has of offloading, as a consumer.
type offloads struct {
	// virtualNodes and namespaces are empty where offloading is not used.
	virtualNodes read[offloadingv1beta1.VirtualNode]
	namespaces   read[offloadingv1beta1.NamespaceOffloading]
	slices       read[authv1beta1.ResourceSlice]
	// pods are those that do not run yet, and events those of their namespaces, the last first.
	pods   read[corev1.Pod]
	events read[corev1.Event]
}

// virtualNodes judges the nodes that stand for the peer.
func virtualNodes(e *end) (out []Finding) {
	o := &e.cluster.offloads
	if err := cmp.Or(o.virtualNodes.err, o.slices.err); err != nil {
		return []Finding{skip("%s", plain(err))}
	}
	seen := 0
	for i := range o.virtualNodes.items {
		v := &o.virtualNodes.items[i]
		if string(v.Spec.ClusterID) != e.id {
			continue
		}
		seen++
		if why := e.cluster.nodeProblem(v); why != "" {
			out = append(out, fail("the virtual node is not ready").on("VirtualNode "+v.Namespace+"/"+v.Name).
				because("%s", why).fix("fix what is named; to see more: kubectl -n %s describe virtualnode %s; kubectl -n %[1]s logs deployment/%[3]s", v.Namespace, v.Name, offloadingv1beta1.VirtualKubeletName))
		}
	}
	for i := range o.slices.items {
		s := &o.slices.items[i]
		asks := s.Annotations[authv1beta1.AnnotationCreateVirtualNode]
		if !e.asks(s) || asks == "" || asks == "false" ||
			slices.ContainsFunc(o.virtualNodes.items, func(v offloadingv1beta1.VirtualNode) bool { return v.Namespace == s.Namespace && v.Name == s.Name }) {
			continue
		}
		why := "no controller has looked at it as it is now: offloading is not enabled, or the controller does not run"
		cure := "liqoctl install --set authentication.enabled=true --set offloading.enabled=true; or, if you want no virtual node: " +
			fmt.Sprintf("kubectl -n %s annotate rslice %s %s-", s.Namespace, s.Name, authv1beta1.AnnotationCreateVirtualNode)
		if c := denial(s); c != nil {
			why, cure = fmt.Sprintf("cluster %s denies %s: %s", e.id, c.Type, text.Cut(c.Message, maxSaid)), e.fixDenial(s, c.Reason)
		} else if i := slices.IndexFunc(e.cluster.events.items, func(ev corev1.Event) bool { return isAbout(&ev, "ResourceSlice", s) }); i >= 0 { // the last
			if ev := &e.cluster.events.items[i]; !survey.EventTime(ev).Before(answered(s)) {
				why, cure = ev.Message, fmt.Sprintf("fix what is named; to see whether anything else is missing: kubectl -n %s describe rslice %s", s.Namespace, s.Name)
			}
		}
		out = append(out, fail("there is no virtual node for it").on("ResourceSlice "+s.Namespace+"/"+s.Name).
			because("%s", why).fix("%s", cure))
	}
	switch {
	case len(out) > 0:
		return out
	case seen == 0:
		return []Finding{pass("no virtual nodes")}
	}
	return []Finding{pass("virtual nodes are ready")}
}

// nodeProblem says why a virtual node is not ready; empty: it is.
func (c *cluster) nodeProblem(v *offloadingv1beta1.VirtualNode) string {
	for _, of := range []offloadingv1beta1.VirtualNodeConditionType{offloadingv1beta1.VirtualNodeVirtualKubelet, offloadingv1beta1.VirtualNodeNode} {
		i := slices.IndexFunc(v.Status.Conditions, func(c offloadingv1beta1.VirtualNodeCondition) bool { return c.Type == of })
		switch {
		case of == offloadingv1beta1.VirtualNodeNode && v.Spec.CreateNode != nil && !*v.Spec.CreateNode:
		case i < 0:
			return fmt.Sprintf("nothing has looked at it: it has no condition %s", of)
		case v.Status.Conditions[i].Status != offloadingv1beta1.VirtualNodeRunning:
			return v.Status.Conditions[i].Message
		}
	}
	i := slices.IndexFunc(c.nodes.items, func(n corev1.Node) bool { return n.Name == v.Name })
	if i < 0 {
		return "" // as its conditions say
	}
	for _, nc := range c.nodes.items[i].Status.Conditions {
		if nc.Type == corev1.NodeReady && nc.Status != corev1.ConditionTrue {
			return cmp.Or(nc.Message, "its Node is "+nc.Reason)
		}
	}
	return ""
}

// answered is when the provider last changed its mind about a slice.
func answered(s *authv1beta1.ResourceSlice) (last time.Time) {
	for _, c := range s.Status.Conditions {
		if t := c.LastTransitionTime.Time; t.After(last) {
			last = t
		}
	}
	return last
}

// trouble is what keeps a pod from running.
type trouble struct{ cause, fix string }

// offloadedPods judges the pods that should run in another cluster and do not, one finding for each reason.
func offloadedPods(c *cluster) (out []Finding) {
	o := &c.offloads
	if err := cmp.Or(o.virtualNodes.err, o.namespaces.err, o.pods.err); err != nil {
		return []Finding{skip("%s", plain(err))}
	}
	kept := map[trouble][]string{}
	for i := range o.pods.items {
		p := &o.pods.items[i]
		if t, ok := c.whyPending(p); ok {
			kept[t] = append(kept[t], p.Namespace+"/"+p.Name)
		}
	}
	for t, pods := range kept {
		slices.Sort(pods)
		f := fail("it is Pending").on("Pod "+pods[0]).because("%s", t.cause).fix("%s", t.fix)
		if len(pods) > 1 {
			f.Message = fmt.Sprintf("it is Pending, one of %d pods", len(pods))
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Cause, b.Cause))
	})
	switch {
	case len(out) > 0:
		return out
	case len(o.namespaces.items) == 0:
		return []Finding{pass("no offloaded namespaces")}
	}
	return []Finding{pass("no offloaded pod is Pending")}
}

// whyPending says what keeps a pod from running in another cluster; ok is false if that is not where it should run.
//
//	the pod is              and                                      the cause
//	on a virtual node       its namespace is never offloaded         that
//	                        the provider has drained this cluster    that
//	                        the node is not ready                    what it says
//	                        its status has a reason                  that reason
//	                        a container of it waits there            what that waits for
//	                        its namespace is not ready there         what the NamespaceOffloading says
//	                        an event has a reason                    that reason
//	                        nothing of that                          the provider has not told
//	without a node          its namespace is offloaded, and
//	                        - there is no virtual node               that
//	                        - none is selected                       that
//	                        - those that are selected are not ready  what the first says, or that the provider has drained
//	                                                                 this cluster
//	                        - it can run there alone, and needs a    that volume
//	                          PersistentVolume
//	                        - it does not tolerate virtual nodes     it was made before
//	                        - none of that                           what the scheduler says
//	                        its namespace is not offloaded, or       that
//	                        never, and it asks for a virtual node
func (c *cluster) whyPending(p *corev1.Pod) (t trouble, ok bool) {
	o := &c.offloads
	i := slices.IndexFunc(o.namespaces.items, func(n offloadingv1beta1.NamespaceOffloading) bool { return n.Namespace == p.Namespace })
	var of *offloadingv1beta1.NamespaceOffloading
	never := c.neverOffloaded(p.Namespace)
	if never == "" && i >= 0 && o.namespaces.items[i].DeletionTimestamp == nil && o.namespaces.items[i].Spec.PodOffloadingStrategy != offloadingv1beta1.LocalPodOffloadingStrategy {
		of = &o.namespaces.items[i]
	}
	if p.Spec.NodeName != "" {
		i := slices.IndexFunc(o.virtualNodes.items, func(v offloadingv1beta1.VirtualNode) bool { return v.Name == p.Spec.NodeName })
		if i < 0 {
			return t, false
		}
		if never != "" {
			return trouble{fmt.Sprintf("it is on a virtual node, %s, and %s", p.Spec.NodeName, never),
				fmt.Sprintf("keep such pods off virtual nodes: give the template of their DaemonSet, or of what else creates them, a required node affinity, %s NotIn %s", networkingv1beta1.LabelNodeType, networkingv1beta1.NodeTypeVirtual)}, true
		}
		return c.whyNotThere(p, &o.virtualNodes.items[i], of), true
	}
	scheduled := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
	if scheduled < 0 {
		return t, false // nobody has tried
	}
	switch {
	case never != "" && placement.OnlyVirtual(p):
		return trouble{"it asks for a virtual node, and " + never, "run it in another namespace, or " + notOnlyVirtual}, true
	case of == nil && placement.OnlyVirtual(p):
		return c.notOffloaded(p), true
	case of == nil, reflection.NeedsVolume(&p.Spec) && !onlyThere(p, of): // it stays here
		return t, false
	}
	return c.whyUnscheduled(p, of, p.Status.Conditions[scheduled].Message), true
}

// notOnlyVirtual is how a pod that only a virtual node can take runs here.
var notOnlyVirtual = fmt.Sprintf("let it run in this cluster: take runtime class %s, or %s in nodeSelector or affinity, out of its template",
	offloadingv1beta1.RuntimeClassName, networkingv1beta1.LabelNodeType)

// letRunAnywhere is the command that lets new pods run here and in other clusters, and changes nothing else.
func letRunAnywhere(o *offloadingv1beta1.NamespaceOffloading) string {
	return fmt.Sprintf(`kubectl -n %s patch namespaceoffloading %s --type merge -p '{"spec":{"podOffloadingStrategy":"%s"}}'`,
		o.Namespace, o.Name, offloadingv1beta1.LocalAndRemotePodOffloadingStrategy)
}

// notOffloaded is about a pod for virtual nodes in a namespace that is not for them.
func (c *cluster) notOffloaded(p *corev1.Pod) trouble {
	for i := range c.offloads.namespaces.items {
		o := &c.offloads.namespaces.items[i]
		if o.Namespace == p.Namespace && o.DeletionTimestamp == nil && o.Spec.PodOffloadingStrategy == offloadingv1beta1.LocalPodOffloadingStrategy {
			return trouble{"it asks for a virtual node, and podOffloadingStrategy of its namespace is Local", letRunAnywhere(o) + "; then recreate the pod"}
		}
	}
	return trouble{"it asks for a virtual node, and its namespace is not offloaded", "liqoctl offload namespace " + p.Namespace}
}

// whyUnscheduled is about a pod of an offloaded namespace without a node.
func (c *cluster) whyUnscheduled(p *corev1.Pod, of *offloadingv1beta1.NamespaceOffloading, scheduler string) trouble {
	o := &c.offloads
	if len(o.virtualNodes.items) == 0 {
		return trouble{"its namespace is offloaded, and there is no virtual node",
			"make one: liqoctl peer --remote-kubeconfig FILE; or, of a ResourceSlice (kubectl get rslice -A): liqoctl create virtualnode NAME --remote-cluster-id ID --resource-slice-name SLICE"}
	}
	var selected []string
	for id, conditions := range of.Status.RemoteNamespacesConditions {
		for _, c := range conditions {
			if c.Type == offloadingv1beta1.NamespaceOffloadingRequired && c.Status == corev1.ConditionTrue {
				selected = append(selected, id)
			}
		}
	}
	if len(selected) == 0 {
		return trouble{"clusterSelector of its NamespaceOffloading selects no virtual node", fmt.Sprintf("kubectl -n %s edit namespaceoffloading %s", of.Namespace, of.Name)}
	}
	var first trouble
	var ready *offloadingv1beta1.VirtualNode
	for i := range o.virtualNodes.items {
		v := &o.virtualNodes.items[i]
		if !slices.Contains(selected, string(v.Spec.ClusterID)) {
			continue
		}
		t, bad := c.drained(string(v.Spec.ClusterID))
		if !bad {
			t, bad = c.notReady(v)
		}
		if !bad && ready == nil {
			ready = v
		}
		if bad && first == (trouble{}) {
			first = t
		}
	}
	if ready == nil && first != (trouble{}) {
		return first
	}
	if reflection.NeedsVolume(&p.Spec) {
		t := trouble{"FailedReflection: " + plain(reflection.Refused(&p.Spec)), notOnlyVirtual}
		if of.Spec.PodOffloadingStrategy == offloadingv1beta1.RemotePodOffloadingStrategy {
			t.fix = "let it run in this cluster, too: " + letRunAnywhere(of) + "; then recreate the pod"
		}
		return t
	}
	if !slices.ContainsFunc(p.Spec.Tolerations, toleratesVirtual) && !placement.ByRuntimeClass(p) {
		return trouble{"it does not tolerate virtual nodes: it was made before its namespace was offloaded, or this API server serves no MutatingAdmissionPolicy (Kubernetes 1.36)",
			"recreate it: delete it, if a controller such as a Deployment creates it again; before Kubernetes 1.36, give its template the runtime class " + offloadingv1beta1.RuntimeClassName}
	}
	fix := "end other pods, or lower its requests"
	if ready != nil {
		fix = "end other pods, lower its requests, or ask a provider for more: " + more(ready)
	}
	return trouble{"no node has room for it, here or at a provider: " + scheduler, fix}
}

// more is the command that asks for more resources of a virtual node.
func more(v *offloadingv1beta1.VirtualNode) string {
	if slice := v.Labels[authv1beta1.LabelResourceSliceName]; slice != "" {
		return fmt.Sprintf("kubectl -n %s edit rslice %s", v.Namespace, slice)
	}
	return fmt.Sprintf("liqoctl create resourceslice NAME --remote-cluster-id %s", v.Spec.ClusterID)
}

// onlyThere tells whether a pod of an offloaded namespace can run on virtual nodes alone.
func onlyThere(p *corev1.Pod, of *offloadingv1beta1.NamespaceOffloading) bool {
	return of.Spec.PodOffloadingStrategy == offloadingv1beta1.RemotePodOffloadingStrategy || placement.OnlyVirtual(p)
}

// drained is that a provider has drained this cluster.
func (c *cluster) drained(id string) (t trouble, yes bool) {
	if !slices.ContainsFunc(c.offloads.slices.items, func(s authv1beta1.ResourceSlice) bool { return (&end{id: id}).asks(&s) && s.Drained() }) {
		return t, false
	}
	return trouble{fmt.Sprintf("cluster %s has drained this cluster, and runs no pods for it", id),
		fmt.Sprintf("ask the administrators of cluster %s to end this: liqoctl activate tenant %s", id, cmp.Or(c.Installation.ClusterID, "NAME"))}, true
}

// notReady is that a virtual node is not.
func (c *cluster) notReady(v *offloadingv1beta1.VirtualNode) (t trouble, yes bool) {
	why := c.nodeProblem(v)
	return trouble{fmt.Sprintf("virtual node %s is not ready: %s", v.Name, why), "fix what is named; see the check of the virtual nodes"}, why != ""
}

// toleratesVirtual tells whether a pod with t may run on virtual nodes.
func toleratesVirtual(t corev1.Toleration) bool {
	if t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute {
		return false
	}
	return t.Key == offloadingv1beta1.TaintNotAllowed || t.Key == "" && t.Operator == corev1.TolerationOpExists
}

// remedies are what to do about reasons that a virtual kubelet, or a provider, gives. fill completes them.
var remedies = map[string]string{
	"FailedReflection":  "change the field that is named, or keep the pod in this cluster",
	"OffloadingBackOff": "liqoctl offload namespace NAMESPACE",
	"PodRefused":        "change what is named; docs/offloading.md says what a provider lets through",
	"QuotaExceeded":     "end other pods, lower its requests, or ask cluster PROVIDER for more: MORE",
	"QuotaMissing":      "ask for resources: liqoctl create resourceslice NODE --remote-cluster-id PROVIDER",
	"Cordoned":          "ask the administrators of cluster PROVIDER to undo what they have done: liqoctl uncordon resourceslice SLICE or, if they have cordoned the Tenant, liqoctl uncordon tenant CONSUMER",
	"PodInTheWay":       "ask the administrators of cluster PROVIDER to remove the pod with its name in namespace REMOTE, or rename the pod here",
	"NetworkMissing":    "connect the networks: liqoctl network connect --remote-kubeconfig FILE; or, if the pod needs no API server, annotate its template with ACCESS=disabled",
	"FailedScheduling":  "no node of cluster PROVIDER has room for it: ask its administrators, lower its requests, or let the pod run elsewhere",
}

// fill names in a remedy what it is about: a pod on a virtual node, in an offloaded namespace unless of is nil.
func (c *cluster) fill(remedy string, p *corev1.Pod, v *offloadingv1beta1.VirtualNode, of *offloadingv1beta1.NamespaceOffloading) string {
	remote := "of the pod"
	if of != nil {
		remote = cmp.Or(of.Status.RemoteNamespaceName, remote)
	}
	return strings.NewReplacer(
		"NAMESPACE", p.Namespace, "PROVIDER", string(v.Spec.ClusterID), "CONSUMER", cmp.Or(c.Installation.ClusterID, "NAME"), "NODE", v.Name, "MORE", more(v),
		"SLICE", cmp.Or(v.Labels[authv1beta1.LabelResourceSliceName], v.Name), "REMOTE", remote, "ACCESS", offloadingv1beta1.AnnotationAPIServerSupport,
	).Replace(remedy)
}

// whyNotThere is about a pod on a virtual node.
func (c *cluster) whyNotThere(p *corev1.Pod, v *offloadingv1beta1.VirtualNode, of *offloadingv1beta1.NamespaceOffloading) trouble {
	if t, yes := c.drained(string(v.Spec.ClusterID)); yes {
		return t
	}
	known := func(reason, message string) (trouble, bool) {
		fix, ok := remedies[reason]
		return trouble{fmt.Sprintf("%s: %s", reason, message), c.fill(fix, p, v, of)}, ok
	}
	if t, ok := known(p.Status.Reason, p.Status.Message); ok {
		return t
	}
	if t, bad := c.notReady(v); bad {
		return t
	}
	if of == nil {
		return c.notOffloaded(p)
	}
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != reflection.ReasonRecreating {
			return trouble{fmt.Sprintf("container %s waits at the provider: %s", s.Name, strings.TrimSuffix(w.Reason+": "+w.Message, ": ")), "fix what is named, as for a pod that runs here"}
		}
	}
	for _, condition := range of.Status.RemoteNamespacesConditions[string(v.Spec.ClusterID)] {
		if condition.Type == offloadingv1beta1.NamespaceReady && condition.Status != corev1.ConditionTrue && condition.Reason != offloadingv1beta1.ReasonPodAdmissionMissing {
			return trouble{"its namespace is not ready in cluster " + string(v.Spec.ClusterID) + ": " + condition.Message, "fix what is named, or ask the administrators of cluster " + string(v.Spec.ClusterID)}
		}
	}
	for i := range c.offloads.events.items { // the last first; the status comes before, as it is of now
		if ev := &c.offloads.events.items[i]; isAbout(ev, "Pod", p) {
			if t, ok := known(ev.Reason, ev.Message); ok {
				return t
			}
		}
	}
	return trouble{fmt.Sprintf("cluster %s has not given a reason", v.Spec.ClusterID),
		fmt.Sprintf("ask its administrators to run: kubectl -n %s describe shadowpod %s", cmp.Or(of.Status.RemoteNamespaceName, "NAMESPACE"), p.Name)}
}
