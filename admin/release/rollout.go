package release

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// rollout waits until the programs in the cluster are those of the release, and
// have made what an installation begins with.
func (p *Plan) rollout(ctx context.Context, tell progress.Func) error {
	c := p.cluster
	fabric := c.LiqoNamespace + access.FabricSuffix
	tell = onlyNews(tell)
	if err := (waiter{cluster: c, tell: tell}).until(ctx, "the controller to be ready", "Controller is ready", c.LiqoNamespace, access.ControllerName, p.controllerReady); err != nil {
		return err
	}
	if err := (waiter{cluster: c, tell: tell}).until(ctx, "the cluster's networks to be set up", "Networks correctly set up", c.LiqoNamespace, access.ControllerName, p.networksReady); err != nil {
		return err
	}
	return waiter{cluster: c, tell: tell}.until(ctx, "the node agents to be ready", "Node agents are ready", fabric, access.FabricName, func(ctx context.Context) (string, error) {
		return daemonSetReady(ctx, c, fabric, access.FabricName)
	})
}

// onlyNews leaves out an event that repeats the previous one, as waiting polls again and
// again.
func onlyNews(tell progress.Func) progress.Func {
	var last progress.Event
	return func(e progress.Event) {
		if e != last && tell != nil {
			tell(e)
		}
		last = e
	}
}

// waiter waits and tells.
type waiter struct {
	cluster *access.Cluster
	tell    progress.Func
	advice  string // about a wrong image; empty: correctTag
}

// until polls ready, which says what is missing, until nothing is. An API server that gives no answer is asked
// again. The program is the one whose pods tell more when the time is over.
func (w waiter) until(ctx context.Context, what, done, namespace, program string, ready func(context.Context) (missing string, err error)) error {
	var missing string
	var absent since
	var before eventVersions
	for {
		m, err := ready(ctx)
		if ctx.Err() == nil && access.Unreachable(err) {
			m, err = "the API server gives no answer: "+err.Error(), nil
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			return w.cluster.Explain("wait for "+what, err)
		}
		if err == nil && m == "" {
			if done != "" {
				w.tell.Done(w.cluster.Name, done)
			}
			return nil
		}
		if err == nil {
			missing = m
			w.tell.Waiting(w.cluster.Name, fmt.Sprintf("Waiting for %s: %s", what, m))
		}
		if before == nil {
			before = eventsOf(ctx, w.cluster, namespace).versions()
		}
		pods, _ := podsOf(ctx, w.cluster, namespace, program)
		if t := imageTrouble(pods, cmp.Or(w.advice, correctTag)); absent.lasts(t != "", time.Now()) >= imagePatience {
			w.tell.Failed(w.cluster.Name, "Waiting for "+what)
			return w.cluster.Errorf("%s", t)
		}
		if !access.Pause(ctx, pause) {
			reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if m, err := ready(reading); err == nil && m != "" {
				missing = m
			}
			w.tell.Failed(w.cluster.Name, "Waiting for "+what)
			return w.cluster.Errorf("%w while waiting for %s: %s%s\nRun the same command again to continue.",
				context.Cause(ctx), what, missing, indented(findings(reading, w.cluster, namespace, program, before)))
		}
	}
}

// indented are lines below an error.
func indented(lines []string) string { return strings.Join(append([]string{""}, lines...), "\n  ") }

// controllerReady tells what the controller's Deployment lacks.
func (p *Plan) controllerReady(ctx context.Context) (missing string, err error) {
	var d appsv1.Deployment
	if err := p.cluster.Client.Get(ctx, client.ObjectKey{Namespace: p.cluster.LiqoNamespace, Name: access.ControllerName}, &d); err != nil {
		return "", err
	}
	want, s := *d.Spec.Replicas, d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas < want || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < want {
		old := s.Replicas - s.UpdatedReplicas // which serve until the new ones do
		return fmt.Sprintf("%d of %d pods are up to date and ready%s", max(0, s.AvailableReplicas-old), want, firstTrouble(ctx, p.cluster, d.Namespace, access.ControllerName)), nil
	}
	return "", nil
}

// daemonSetReady tells what a DaemonSet lacks. Nodes that are not ready are not
// waited for: their agents come with them.
func daemonSetReady(ctx context.Context, c *access.Cluster, namespace, name string) (missing string, err error) {
	var d appsv1.DaemonSet
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &d); err != nil {
		return "", err
	}
	away, err := nodesAway(ctx, c)
	if err != nil {
		return "", err
	}
	s := d.Status
	want := s.DesiredNumberScheduled
	if s.ObservedGeneration < d.Generation || s.UpdatedNumberScheduled < want-int32(len(away)) || s.NumberReady < want-int32(len(away)) {
		return fmt.Sprintf("%d of %d pods are up to date and ready%s", min(s.UpdatedNumberScheduled, s.NumberReady), want, firstTrouble(ctx, c, namespace, name)), nil
	}
	return "", nil
}

// nodesAway are the nodes that are not ready.
func nodesAway(ctx context.Context, c *access.Cluster) (names []string, err error) {
	var list corev1.NodeList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	for _, n := range list.Items {
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready && n.Labels[networkingv1beta1.LabelNodeType] != networkingv1beta1.NodeTypeVirtual {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// networksReady tells which of the installation's Networks has no prefix yet,
// and why.
func (p *Plan) networksReady(ctx context.Context) (missing string, err error) {
	if _, err := p.cluster.ID(ctx); err != nil {
		return "no ConfigMap with the cluster ID yet", nil
	}
	var list ipamv1alpha1.NetworkList
	if err := p.cluster.Client.List(ctx, &list, client.InNamespace(p.cluster.LiqoNamespace)); err != nil {
		return "", err
	}
	granted := map[string]bool{}
	for _, n := range list.Items {
		kind := n.Labels[ipamv1alpha1.LabelNetworkType]
		if n.Status.CIDR != "" {
			granted[kind] = true
		} else if reason := notTrue(n.Status.Conditions); reason != "" {
			return fmt.Sprintf("Network %s/%s: %s", n.Namespace, n.Name, reason), nil
		}
	}
	for _, kind := range []string{
		ipamv1alpha1.NetworkTypePodCIDR, ipamv1alpha1.NetworkTypeServiceCIDR, ipamv1alpha1.NetworkTypeExternalCIDR, ipamv1alpha1.NetworkTypeInternalCIDR,
	} {
		if !granted[kind] {
			return fmt.Sprintf("no Network for the %s yet", kind), nil
		}
	}
	return "", nil
}

func notTrue(conditions []metav1.Condition) string {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse })
	if i < 0 {
		return ""
	}
	return conditions[i].Message
}

// firstTrouble is the first thing that keeps a program's pods from being ready.
func firstTrouble(ctx context.Context, c *access.Cluster, namespace, program string) string {
	pods, err := podsOf(ctx, c, namespace, program)
	if err != nil {
		return ""
	}
	for _, p := range pods {
		if t := podTrouble(p); t != "" {
			return ": " + t
		}
	}
	return ""
}

func podsOf(ctx context.Context, c *access.Cluster, namespace, program string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{labelName: program})
	return list.Items, err
}
