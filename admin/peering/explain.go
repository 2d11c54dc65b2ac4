package peering

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// maxEvents is how many events are worth reading.
const maxEvents = 5

// explain says what the evidence shows, and what to do about it: first the obstacles, then
// the latest events, then the next step. What has been said is not repeated.
func (v *evidence) explain(told string) []string {
	x := explanation{told: []string{told}}
	for i := range v.Installation {
		x.installed(&v.Installation[i])
	}
	for _, o := range v.Objects {
		x.object(o)
	}
	for i := range v.Deployments {
		x.deployment(&v.Deployments[i])
	}
	for i := range v.Pods {
		x.pod(&v.Pods[i])
	}
	x.events(slices.DeleteFunc(slices.Clone(v.Events), v.besideThePoint), v.Now)
	return append(x.lines, x.next()...)
}

// explanation is what is told.
type explanation struct {
	lines []string
	// told holds every message, so that none is told twice: the condition of a
	// gateway repeats what its Deployment says.
	told []string
	// signs are the words by which the next step is found.
	signs []string
}

// say adds a line unless its message has been told.
func (x *explanation) say(about, sign, message string) {
	x.signs = append(x.signs, sign, message)
	message = strings.TrimSuffix(strings.TrimSpace(message), ".")
	if message != "" && slices.ContainsFunc(x.told, func(t string) bool { return saysTheSame(t, message) }) {
		return
	}
	x.told = append(x.told, message)
	line := about
	for _, part := range []string{sign, message} {
		if part != "" {
			line += ": " + part
		}
	}
	x.lines = append(x.lines, line)
}

// saysTheSame tells whether one message is in the other, if it is long enough for
// that to mean something.
func saysTheSame(told, message string) bool {
	const sentence = 30
	return strings.Contains(told, message) || len(told) >= sentence && strings.Contains(message, told)
}

// installed reports a Deployment of the installation without a ready pod.
func (x *explanation) installed(d *appsv1.Deployment) {
	if d.Status.ReadyReplicas > 0 || d.Spec.Replicas != nil && *d.Spec.Replicas == 0 && !isController(d) {
		return
	}
	x.say(fmt.Sprintf("Deployment %s/%s has no ready pod", d.Namespace, d.Name), "", notAvailable(d))
	if isController(d) {
		x.signs = append(x.signs, signNoController)
	}
}

const signNoController = "no controller"

func isController(d *appsv1.Deployment) bool { return strings.Contains(d.Name, "controller") }

// object reports the conditions that are not as they should be.
func (x *explanation) object(o judged) {
	notDeployed := slices.ContainsFunc(o.Conditions, func(c metav1.Condition) bool {
		return c.Type == string(networkingv1beta1.ConditionDeployed) && c.Status != metav1.ConditionTrue
	})
	for _, c := range o.Conditions {
		follows := notDeployed && c.Reason == string(networkingv1beta1.ReasonWaitingForGatewayPod)
		if c.Status != metav1.ConditionTrue && !follows {
			x.say(fmt.Sprintf("%s: %s is %s", o.Name, c.Type, c.Status), c.Reason, c.Message)
		}
	}
}

func (x *explanation) deployment(d *appsv1.Deployment) {
	if message := notAvailable(d); d.Status.ReadyReplicas == 0 && message != "" {
		x.say(fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name), "", message)
	}
}

// notAvailable is why a Deployment has no pod. That a pod was refused is the best explanation.
func notAvailable(d *appsv1.Deployment) string {
	for _, t := range []appsv1.DeploymentConditionType{appsv1.DeploymentReplicaFailure, appsv1.DeploymentProgressing, appsv1.DeploymentAvailable} {
		bad := corev1.ConditionFalse
		if t == appsv1.DeploymentReplicaFailure {
			bad = corev1.ConditionTrue
		}
		for _, c := range d.Status.Conditions {
			if c.Type == t && c.Status == bad {
				return c.Message
			}
		}
	}
	return ""
}

// pod tells why a pod is not ready.
func (x *explanation) pod(p *corev1.Pod) {
	about := "Pod " + p.Namespace + "/" + p.Name
	if p.DeletionTimestamp != nil {
		x.say(about, "", "is terminating")
		return
	}
	ready := false
	for _, c := range p.Status.Conditions {
		ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			x.say(about, c.Reason, c.Message)
			return
		}
	}
	if ready {
		return
	}
	before := len(x.signs)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		x.container(about, s)
	}
	if len(x.signs) == before {
		x.say(about, string(p.Status.Phase), cmp.Or(p.Status.Message, "not ready"))
	}
}

func (x *explanation) container(pod string, s corev1.ContainerStatus) {
	about := pod + ", container " + s.Name
	if s.RestartCount > 0 {
		about += fmt.Sprintf(", restarted %d times", s.RestartCount)
	}
	if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		x.say(about, w.Reason, w.Message)
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil && t.ExitCode != 0 {
			x.say(about, fmt.Sprintf("ended with exit code %d", t.ExitCode), cmp.Or(strings.TrimSpace(t.Message), t.Reason))
			break
		}
	}
}

// besideThePoint tells whether an event explains nothing: one of an object that has been replaced, one of what has passed,
// or one that every pod of the cluster has.
//
//	about          beside the point
//	a Pod          there are others instead; it has started since; MissingClusterDNS
//	a ReplicaSet   it could not make a pod, and its Deployment says nothing of that any more
//	another        there is one of its name with another UID
func (v *evidence) besideThePoint(e corev1.Event) bool {
	about := e.InvolvedObject
	another := func(uid types.UID) bool { return about.UID != "" && about.UID != uid }
	switch about.Kind {
	case "Pod":
		i := slices.IndexFunc(v.Pods, func(p corev1.Pod) bool { return p.Name == about.Name && !another(p.UID) })
		passed := i >= 0 && slices.ContainsFunc(v.Pods[i].Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Running != nil && survey.EventTime(&e).Before(c.State.Running.StartedAt.Time)
		})
		return i < 0 && len(v.Pods) > 0 || passed || e.Reason == "MissingClusterDNS"
	case "ReplicaSet":
		return e.Reason == "FailedCreate" && len(v.Deployments) > 0 && !slices.ContainsFunc(v.Deployments, func(d appsv1.Deployment) bool { return survey.PodsRefused(&d) })
	}
	return slices.ContainsFunc(v.Objects, func(o judged) bool {
		return o.Name == about.Kind+" "+about.Namespace+"/"+about.Name && another(o.UID)
	})
}

// events reports the latest warnings. The events are sorted.
func (x *explanation) events(events []corev1.Event, now time.Time) {
	n := 0
	for i := range events {
		e := &events[i]
		if e.Type != corev1.EventTypeWarning || n == maxEvents {
			continue
		}
		lines := len(x.lines)
		x.say(fmt.Sprintf("Event of %s %s, %v ago", e.InvolvedObject.Kind, e.InvolvedObject.Name, age(now, survey.EventTime(e))), e.Reason, e.Message)
		n += len(x.lines) - lines
	}
}

// age is how long ago something was; clocks differ, so it is never negative.
func age(now, then time.Time) time.Duration {
	return max(0, now.Sub(then).Round(time.Second))
}

// remedies are next steps, chosen by words in what was seen: the first that matches is printed.
var remedies = []struct {
	signs []string
	step  string
}{
	{[]string{signNoController}, "get the controller running first: nothing happens without it"},
	{[]string{"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"},
		"the node cannot pull the image: check its name in the template, its pull secret, and whether the nodes can reach the registry"},
	{[]string{"PodSecurity", "violates"}, "the namespace does not admit the pod: use a template whose pods need no privileges, or change the label pod-security.kubernetes.io/enforce of the namespace"},
	{[]string{"exceeded quota"}, "raise the quota of the namespace, or lower the requests in the template"},
	{[]string{"Unschedulable", "FailedScheduling"}, "make room on a node, or change requests, node selector or tolerations in the template"},
	{[]string{"CrashLoopBackOff", "ended with exit code"}, "read the log of the pod with 'kubectl logs'"},
	{[]string{"WaitingForLoadBalancer"}, "the cluster does not assign addresses to Services of type LoadBalancer: use --gw-server-service-type NodePort, or install a provider such as MetalLB"},
	{[]string{"provided port"}, "choose another --gw-server-service-nodeport, or 0 for any free port"},
	{[]string{"NoHandshake", "EndpointNotFound"}, "check that the client's nodes can reach the address and UDP port of the server (firewalls, security groups, NAT), or name others with --gw-client-address and --gw-client-port; run 'liqoctl network doctor' for a closer look"},
}

// next is what to do.
func (x *explanation) next() []string {
	if len(x.signs) == 0 {
		return []string{"Next: run 'liqoctl network doctor' for a closer look"}
	}
	for _, r := range remedies {
		for _, sign := range r.signs {
			if slices.ContainsFunc(x.signs, func(s string) bool { return strings.Contains(s, sign) }) {
				return []string{"Next: " + r.step}
			}
		}
	}
	return []string{"Next: fix the problems above; run 'liqoctl network doctor' for a closer look"}
}
