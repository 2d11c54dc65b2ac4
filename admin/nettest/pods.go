package nettest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/survey"
)

// waitForPods waits for the probers. A policy of the cluster may forbid those on the host
// network: then nodes are not tested.
func (s *site) waitForPods(ctx context.Context) error {
	var err error
	if s.inv.Probers, err = s.probers(ctx, Namespace); err != nil {
		return err
	}
	s.say.Done(s.Name, fmt.Sprintf("%d pods are ready to test", len(s.inv.Probers)))
	if s.Basic {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	if s.inv.Hosts, err = s.probers(limited, HostNamespace); err != nil && ctx.Err() == nil {
		s.skip(s, fmt.Sprintf("nodes are not tested because the pods on the host network are not running: %v", err))
		return nil
	}
	return err
}

// hostTimeout is how long pods on the host network may take once the others are running:
// by then the image has been pulled.
const hostTimeout = 30 * time.Second

// probers waits for the pods in a namespace and returns them in the order of
// their nodes.
func (s *site) probers(ctx context.Context, namespace string) (out []Prober, err error) {
	err = s.poll(ctx, "Waiting for the pods in namespace "+namespace, func(ctx context.Context) (string, error) {
		desired, err := s.desired(ctx, namespace)
		if err != nil {
			return "", err
		}
		var pods corev1.PodList
		if err := s.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{labelName: workloadName}); err != nil {
			return "", s.Explain("list pods in namespace "+namespace, err)
		}
		var missing []string
		out, missing = ready(pods.Items, s.image)
		for _, m := range missing {
			if strings.Contains(m, neverPulled) {
				return "", s.Errorf("%s: %s", namespace, m)
			}
		}
		if n := desired - len(out) - len(missing); n > 0 {
			missing = append(missing, fmt.Sprintf("%d do not exist yet%s", n, s.refusal(ctx, namespace)))
		}
		if desired == 0 {
			missing = append(missing, "no node accepts the pods: all nodes are tainted, or there are none")
		}
		return andMore(missing), nil
	})
	slices.SortFunc(out, func(a, b Prober) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name)) })
	return out, err
}

// desired is how many pods there should be.
func (s *site) desired(ctx context.Context, namespace string) (int, error) {
	if s.Replicas > 0 {
		return int(s.Replicas), nil
	}
	name := types.NamespacedName{Namespace: namespace, Name: workloadName}
	var d appsv1.DaemonSet
	if err := s.Client.Get(ctx, name, &d); err != nil {
		return 0, s.Explain(fmt.Sprintf("read DaemonSet %s", name), err)
	}
	if d.Status.ObservedGeneration != d.Generation {
		return len(s.inv.Nodes), nil
	}
	return int(d.Status.DesiredNumberScheduled), nil
}

// andMore names the first obstacle: usually it is the same for all pods.
func andMore(missing []string) string {
	if len(missing) < 2 {
		return strings.Join(missing, "")
	}
	return fmt.Sprintf("%s; %d more are not ready", missing[0], len(missing)-1)
}

// neverPulled is part of the message for a pod whose image will not arrive however long
// one waits.
const neverPulled = "name another with --image"

// ready returns the pods that are ready, and what delays the others. Pods with another
// image are about to be replaced.
func ready(pods []corev1.Pod, image string) (out []Prober, missing []string) {
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil || len(p.Spec.Containers) == 0 || p.Spec.Containers[0].Image != image {
			continue
		}
		ip, err := netip.ParseAddr(p.Status.PodIP)
		if survey.PodReady(p) && err == nil {
			out = append(out, Prober{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, IP: ip})
			continue
		}
		missing = append(missing, "pod "+p.Name+on(p.Spec.NodeName)+" "+obstacle(p))
	}
	return out, missing
}

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + node
}

// obstacle says in a few words why a pod is not ready.
func obstacle(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		switch w := c.State.Waiting; {
		case w == nil:
		case w.Reason == "ErrImageNeverPull" || w.Reason == "InvalidImageName":
			return fmt.Sprintf("cannot use image %s (%s): load it onto the node, or %s", c.Image, w.Reason, neverPulled)
		case w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff":
			return fmt.Sprintf("cannot pull image %s (%s): check the name and whether the node can reach the registry, or name another image with --image", p.Spec.Containers[0].Image, cmp.Or(cause(w.Message), w.Reason))
		case w.Reason != "ContainerCreating" || w.Message != "":
			return fmt.Sprintf("is waiting: %s %s", w.Reason, firstLine(w.Message))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "is not scheduled: " + firstLine(c.Message)
		}
	}
	return "is starting"
}

// cause is the end of a message that is wrapped in others.
func cause(message string) string {
	parts := strings.Split(firstLine(message), ": ")
	const enough = 60 // characters: the last part alone may be as short as "EOF"
	end := parts[len(parts)-1]
	for i := len(parts) - 2; i >= 0 && len(end) < enough; i-- {
		end = parts[i] + ": " + end
	}
	return end
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// refusal is the latest reason why pods of the namespace are not even created, if there is
// one.
func (s *site) refusal(ctx context.Context, namespace string) string {
	var events corev1.EventList
	if err := s.Client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		return "" // the message does without it
	}
	var newest *corev1.Event
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "FailedCreate" && (newest == nil || survey.EventTime(newest).Before(survey.EventTime(e))) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	return ": " + firstLine(newest.Message)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
