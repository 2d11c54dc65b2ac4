package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Labels by which Kubernetes' tools know what belongs together.
const (
	labelPartOf  = "app.kubernetes.io/part-of"
	labelVersion = "app.kubernetes.io/version"
	partOf       = "liqo"
)

// maxUnwellPods is how many pods of one component are worth showing.
const maxUnwellPods = 10

// Kinds of components: the controllers are Deployments, the node agents a DaemonSet.
const (
	kindDeployment = "Deployment"
	kindDaemonSet  = "DaemonSet"
)

// components reads the Deployments and DaemonSets of the installation, and the
// pods of those that are not well.
func (r *reader) components(ctx context.Context) []Component {
	var out []Component
	var selectors []*metav1.LabelSelector
	add := func(m *metav1.ObjectMeta, template *corev1.PodTemplateSpec, selector *metav1.LabelSelector, c Component) {
		_, ofGateway := m.Labels[networkingv1beta1.LabelRemoteClusterID]
		same := func(o Component) bool { return o.Kind == c.Kind && o.Namespace == m.Namespace && o.Name == m.Name }
		if ofGateway || slices.ContainsFunc(out, same) {
			return
		}
		c.Namespace, c.Name = m.Namespace, m.Name
		if m.Namespace == r.cluster.LiqoNamespace {
			c.LiqosProgram = LiqosProgram(m, &template.Spec)
		}
		c.Version = cmp.Or(m.Labels[labelVersion], template.Labels[labelVersion], imageVersion(template.Spec.Containers))
		out, selectors = append(out, c), append(selectors, selector)
	}
	for _, d := range listInstalled[appsv1.Deployment](ctx, r, "Deployment") {
		desired := int32(1)
		if d.Spec.Replicas != nil {
			desired = *d.Spec.Replicas
		}
		add(&d.ObjectMeta, &d.Spec.Template, d.Spec.Selector, Component{
			Kind: kindDeployment, Desired: desired, Ready: d.Status.ReadyReplicas, Updated: d.Status.UpdatedReplicas,
			Outdated: max(d.Status.Replicas-d.Status.UpdatedReplicas, 0),
		})
	}
	for _, d := range listInstalled[appsv1.DaemonSet](ctx, r, "DaemonSet") {
		add(&d.ObjectMeta, &d.Spec.Template, d.Spec.Selector, Component{
			Kind: kindDaemonSet, Desired: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady, Updated: d.Status.UpdatedNumberScheduled,
		})
	}
	for i := range out {
		if !out[i].Healthy() {
			out[i].Pods = r.unreadyPods(ctx, &out[i], selectors[i])
		}
	}
	slices.SortFunc(out, func(a, b Component) int {
		return cmp.Or(strings.Compare(b.Kind, a.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// PodsRefused tells whether an API server refuses the pods of a Deployment.
func PodsRefused(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
	})
}

// Healthy tells whether all pods that there should be are ready, and no others are
// left. A controller that is to have none is not.
func (c *Component) Healthy() bool { return c.Ready >= c.Desired && c.Outdated == 0 && !c.Off() }

// Off tells whether somebody has scaled a controller to zero.
func (c *Component) Off() bool { return c.Kind == kindDeployment && c.Desired == 0 }

// Controller tells whether it is the controller, rather than something beside it.
func (c *Component) Controller() bool {
	return c.Kind == kindDeployment && strings.Contains(c.Name, "controller")
}

// ScaleUp is the command that undoes that a controller was scaled to zero.
func (i *Installation) ScaleUp(c *Component) string {
	replicas := int32(access.DefaultControllerReplicas)
	switch {
	case i.liqos(c):
		replicas = 1
	case c.Controller() && i.ControllerReplicas > 0:
		replicas = i.ControllerReplicas
	}
	return fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=%d", c.Namespace, c.Name, replicas)
}

// Reasons of alerts about components.
const (
	ReasonScaledToZero = "ScaledToZero"
	ReasonPodsNotReady = "PodsNotReady"
	ReasonInterrupted  = "TakeoverInterrupted"
)

// ComponentAlerts are about the installation rather than about a peering: traffic flows, but
// soon nothing follows changes.
func (c *Cluster) ComponentAlerts() (out []Alert) {
	var controller, agents bool
	for i := range c.Installation.Components {
		o := &c.Installation.Components[i]
		if !c.Installation.BesideOurs(o) {
			controller, agents = controller || o.Controller(), agents || o.Kind == kindDaemonSet
		}
		switch {
		case o.Off() && c.Installation.MayBeOff(o):
		case o.Off():
			out = append(out, Alert{Object: o.String(), Reason: ReasonScaledToZero, Warning: true,
				Message: "it is scaled to zero: " + c.Installation.Without(o) + "; undo it with " + c.Installation.ScaleUp(o)})
		case !o.Healthy():
			out = append(out, Alert{Object: o.String(), Reason: ReasonPodsNotReady, Warning: true, Message: o.Readiness()})
		}
	}
	if text := c.Installation.Interrupted; text != "" { // it tells what is missing, too
		return append(out, Alert{Object: "namespace " + c.Installation.Namespace, Reason: ReasonInterrupted, Warning: true, Message: text})
	}
	missing := func(message string) {
		out = append(out, Alert{Object: "namespace " + c.Installation.Namespace, Reason: ReasonMissing, Warning: true, Message: message + "; 'liqoctl install' creates it again"})
	}
	if !controller && !c.Unread(kindDeployment) {
		missing("there is no Deployment of the controller: no change of a peering has any effect, and a gateway pod that is replaced carries nothing")
	}
	if !agents && !c.Unread(kindDaemonSet) {
		missing("there is no DaemonSet of the node agents: the nodes follow no changes, and new nodes have no tunnels to the gateways")
	}
	return out
}

// ComponentNotes are about components that somebody has scaled to zero, who may do so.
func (c *Cluster) ComponentNotes() (notes []string) {
	for i := range c.Installation.Components {
		if o := &c.Installation.Components[i]; o.Off() && c.Installation.MayBeOff(o) {
			notes = append(notes, o.String()+": "+OffNote)
		}
	}
	return notes
}

// OffNote is what is told of such a component.
const OffNote = "somebody has scaled it to zero; it is Liqo's, and the network works without it"

// parts are the programs of Liqo without which its network works.
var parts = []string{liqosMetrics, liqosProxy, liqosTelemetry}

// MayBeOff tells whether a component is Liqo's, and the network works without it. Where ours have taken over the network, its
// IPAM is one, too. Its webhooks are not: they judge what our controllers write.
func (i *Installation) MayBeOff(c *Component) bool {
	return i.liqos(c) && slices.Contains(parts, c.LiqosProgram) || i.BesideOurs(c) && c.LiqosProgram == LiqosIPAM
}

// Maintains tells whether a component is the controller of the network: ours or, where Liqo runs it, Liqo's.
func (i *Installation) Maintains(c *Component) bool { return c.Controller() && !i.BesideOurs(c) }

// Without is what follows while a Deployment has no pods.
func (i *Installation) Without(c *Component) string {
	switch {
	case i.Maintains(c):
		return "no change has any effect, and a gateway pod that is replaced carries nothing"
	case c.LiqosProgram == LiqosControllers:
		return "authentication and offloading stop"
	case i.liqos(c) && c.LiqosProgram == liqosWebhook:
		return "the API server refuses what Liqo's webhooks judge, such as RouteConfigurations and pods in offloaded namespaces"
	}
	return "nothing else does its work"
}

// OfLiqo tells whether the controllers of Liqo run there, and not ours.
func (i *Installation) OfLiqo() bool {
	liqos, ours := controllers(i.Components)
	return liqos && !ours
}

// MayBeOfLiqo is OfLiqo, or that the user may not see whose controllers run.
func (c *Cluster) MayBeOfLiqo() bool {
	liqos, ours := controllers(c.Installation.Components)
	return !ours && (liqos || c.Unread(kindDeployment))
}

// Adopted tells whether both run there: ours have taken over the network of Liqo.
func (i *Installation) Adopted() bool {
	liqos, ours := controllers(i.Components)
	return liqos && ours
}

// controllers tells whose controllers run.
func controllers(components []Component) (liqos, ours bool) {
	for i := range components {
		c := &components[i]
		liqos, ours = liqos || c.LiqosProgram == LiqosControllers, ours || c.Kind == kindDeployment && c.Name == access.ControllerName
	}
	return liqos, ours
}

// BesideOurs tells whether a component is Liqo's where ours have taken over its network.
func (i *Installation) BesideOurs(c *Component) bool {
	return i.Adopted() && c.Name != access.ControllerName && c.Namespace != i.Namespace+access.FabricSuffix
}

// liqos tells whether a component is Liqo's, with or without ours beside it.
func (i *Installation) liqos(c *Component) bool { return i.OfLiqo() || i.BesideOurs(c) }

// SecondAgents is the node agent of Liqo where it runs beside ours; nil: it does not.
func (i *Installation) SecondAgents() *Component {
	ours := slices.ContainsFunc(i.Components, func(c Component) bool { return c.Kind == kindDaemonSet && c.Desired > 0 && !i.BesideOurs(&c) })
	at := slices.IndexFunc(i.Components, func(c Component) bool {
		return c.Kind == kindDaemonSet && c.Desired > 0 && i.BesideOurs(&c) && c.LiqosProgram == LiqosAgents
	})
	if !ours || at < 0 {
		return nil
	}
	return &i.Components[at]
}

// Readiness says how many pods are ready, and whether those are the wanted ones.
func (c *Component) Readiness() string {
	text := fmt.Sprintf("%d of %d pods are ready", c.Ready, c.Desired)
	if c.Outdated > 0 {
		text += fmt.Sprintf(", %d of an earlier version: the roll-out is not over", c.Outdated)
	}
	return text
}

// String names the object: "Deployment liqo/liqo-controller".
func (c *Component) String() string { return c.Kind + " " + c.Namespace + "/" + c.Name }

// listInstalled returns what lies in the namespaces of the installation, and
// elsewhere what is labelled as part of it. Who may not look everywhere gets
// what lies in these namespaces.
func listInstalled[T any](ctx context.Context, r *reader, kind string) []T {
	in := func(namespace string) query { return queryOf(appsv1.SchemeGroupVersion.WithKind(kind), namespace) }
	out := list[T](ctx, r, in(r.cluster.LiqoNamespace))
	everywhere := in("").labelled(labelPartOf, partOf)
	more, err := listErr[T](ctx, r, everywhere)
	if denied(err) {
		return append(out, list[T](ctx, r, in(r.cluster.LiqoNamespace+access.FabricSuffix))...)
	}
	r.add(r.gap(everywhere, err))
	return append(out, more...)
}

// unreadyPods returns the first of a component's pods that are not ready.
func (r *reader) unreadyPods(ctx context.Context, c *Component, s *metav1.LabelSelector) (out []Pod) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		r.miss("the pods of "+c.String(), err)
		return nil
	}
	q := core("Pod", c.Namespace)
	q.options = []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}
	pods := list[corev1.Pod](ctx, r, q)
	for i := range pods {
		if p := podOf(&pods[i]); !p.Ready && len(out) < maxUnwellPods {
			out = append(out, p)
		}
	}
	return out
}

// imageVersion is the tag of the first container's image.
func imageVersion(containers []corev1.Container) string {
	if len(containers) == 0 {
		return ""
	}
	image, digest, _ := strings.Cut(containers[0].Image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}
	if len(digest) > 19 { // sha256: and what tells two apart
		return digest[:19]
	}
	return digest
}

// podOf is what is told of a pod.
func podOf(p *corev1.Pod) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, IP: p.Status.PodIP, Created: p.CreationTimestamp.Time,
		Version: cmp.Or(p.Labels[labelVersion], imageVersion(p.Spec.Containers)),
		Active:  p.Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue, OfLiqo: OfLiqo(&p.Spec),
	}
	for _, c := range p.Status.ContainerStatuses {
		out.Restarts += c.RestartCount
	}
	if out.Ready = PodReady(p) && p.DeletionTimestamp.IsZero(); !out.Ready {
		out.Reason = podReason(p)
	}
	return out
}

// PodReady tells whether the kubelet of a pod says that it is ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// podReason says why a pod is not ready, in the words of the one who keeps it
// from being.
func podReason(p *corev1.Pod) string {
	switch {
	case !p.DeletionTimestamp.IsZero():
		return "is being deleted"
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return strings.ToLower(string(p.Status.Phase)) + because(p.Status.Reason, p.Status.Message)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "no node takes it" + because(c.Reason, c.Message)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil {
			return fmt.Sprintf("container %s waits%s%s", c.Name, because(w.Reason, w.Message), lastEnd(c))
		}
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("container %s ended with %d%s", c.Name, t.ExitCode, because(t.Reason, t.Message))
		}
		if !c.Ready && c.State.Running != nil {
			return fmt.Sprintf("container %s runs and is not ready%s", c.Name, lastEnd(c))
		}
	}
	return phaseOnly(p) + because(p.Status.Reason, p.Status.Message)
}

// phaseOnly is what podReason says where the status of a pod has no reason.
func phaseOnly(p *corev1.Pod) string { return "phase " + cmp.Or(string(p.Status.Phase), "Unknown") }

// lastEnd tells of an end before, which often is the reason.
func lastEnd(c corev1.ContainerStatus) string {
	t := c.LastTerminationState.Terminated
	if t == nil {
		return ""
	}
	return fmt.Sprintf("; it ended before with %d%s", t.ExitCode, because(t.Reason, ""))
}

func because(reason, message string) string {
	text := reason
	if message != "" && message != reason {
		text = strings.TrimPrefix(text+": "+message, ": ")
	}
	if text == "" {
		return ""
	}
	return " (" + strings.Join(strings.Fields(text), " ") + ")"
}
