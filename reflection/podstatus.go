package reflection

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/text"
)

// StatusOptions are what the status of a pod depends on beside the pod at the provider.
type StatusOptions struct {
	// Addresses translates the pod's addresses. Without it the pod has none here.
	Addresses Addresses
	// HostIP is the address of the virtual node.
	HostIP netip.Addr
	// Away says why the provider is out of reach; empty: it is not. Pods are not ready then, as for any node: they may run,
	// and nobody here reaches them or knows.
	Away string
	// Ended is the last phase of the pod at the provider, of which nothing is left there; empty: it may come back.
	Ended corev1.PodPhase
	// Reason and Message are why there is no pod at the provider, as [Why] has them; empty: it does not say.
	Reason, Message string
	// Now is when conditions change that the provider says nothing of.
	Now metav1.Time
}

// maxText bounds texts that the provider wrote, in bytes. maxPodIPs is how many addresses a pod has at most.
const maxText, maxPodIPs = 1024, 2

// maxReason bounds words that the provider wrote, in bytes.
const maxReason = 128

// Reasons of conditions and phases that are not the provider's.
const (
	// ReasonRecreating says that the pod at the provider has gone and another one takes its place.
	ReasonRecreating = "OffloadedPodMissing"
	// ReasonAway says that the provider is out of reach.
	ReasonAway = "ProviderUnavailable"
	// ReasonUnknown is what kubelets say of a container whose end nobody has seen.
	ReasonUnknown = "ContainerStatusUnknown"
	// ReasonReadinessGates says that a readiness gate of the pod is not True. They are judged here.
	ReasonReadinessGates = "ReadinessGatesNotReady"
)

// kubeletConditions are the conditions that the kubelet of the provider reports.
var kubeletConditions = []corev1.PodConditionType{
	corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodReadyToStartContainers, corev1.DisruptionTarget,
	corev1.PodResizePending, corev1.PodResizeInProgress,
}

// PodStatus returns the status of a pod as that of its pod at the provider has it; there is nil while there is none.
// A pod that has ended stays as it has ended.
func PodStatus(here, there *corev1.Pod, o StatusOptions) corev1.PodStatus {
	was := here.Status.DeepCopy()
	if was.Phase == corev1.PodSucceeded || was.Phase == corev1.PodFailed {
		return *was
	}
	if there == nil && (o.Ended == corev1.PodSucceeded || o.Ended == corev1.PodFailed) {
		return over(here, was, o)
	}
	// A kubelet ends a pod that is deleted. If it was deleted there alone, the provider makes another one. Of a pod of which no
	// kubelet has told there is nothing to tell yet.
	if there == nil || untold(&there.Status) || here.DeletionTimestamp == nil && there.DeletionTimestamp != nil && (there.Status.Phase == corev1.PodSucceeded || there.Status.Phase == corev1.PodFailed) {
		return missing(was, o)
	}
	now := there.Status.DeepCopy()
	out := corev1.PodStatus{
		ObservedGeneration: here.Generation, QOSClass: was.QOSClass,
		Phase: phase(now.Phase), Reason: cut(now.Reason), Message: cut(now.Message), StartTime: now.StartTime,
		AllocatedResources: heldResources(now.AllocatedResources), Resources: heldRequirements(now.Resources),
		InitContainerStatuses: containers(here.Spec.InitContainers, was.InitContainerStatuses, now.InitContainerStatuses),
		ContainerStatuses:     containers(here.Spec.Containers, was.ContainerStatuses, now.ContainerStatuses),
	}
	out.Conditions = resizePending(conditions(here, was.Conditions, now.Conditions, o), here, there, o.Now)
	if o.HostIP.IsValid() {
		out.HostIP, out.HostIPs = o.HostIP.String(), []corev1.HostIP{{IP: o.HostIP.String()}}
	}
	for _, a := range addressesOf(now) {
		if ip, ok := o.Addresses.Here(a); ok && len(out.PodIPs) < maxPodIPs {
			out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: ip.String()})
		}
	}
	if len(out.PodIPs) > 0 {
		out.PodIP = out.PodIPs[0].IP
	}
	return out
}

// untold tells whether a status is that of a pod that no kubelet has taken on.
func untold(s *corev1.PodStatus) bool {
	return phase(s.Phase) == corev1.PodPending && s.StartTime == nil && s.Reason == "" && len(s.InitContainerStatuses)+len(s.ContainerStatuses) == 0
}

// over is the status of a pod that has ended while nobody looked, and of which the provider has kept nothing but the phase.
// How its containers ended is known where it was told before.
func over(here *corev1.Pod, was *corev1.PodStatus, o StatusOptions) corev1.PodStatus {
	was.Phase, was.ObservedGeneration = o.Ended, here.Generation
	reason, code := "PodFailed", int32(137) // as a kubelet has it
	if o.Ended == corev1.PodSucceeded {
		reason, code = "PodCompleted", 0
	}
	terminated := func(spec []corev1.Container, list []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
		for i := range spec {
			c := corev1.ContainerStatus{Name: spec[i].Name, Image: spec[i].Image}
			if j := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); j >= 0 {
				c = list[j]
			}
			if c.State.Terminated == nil {
				end := &corev1.ContainerStateTerminated{
					ExitCode: code, Reason: ReasonUnknown, Message: "the pod ended at the provider, which has not kept how", FinishedAt: o.Now, ContainerID: c.ContainerID,
				}
				if r := c.State.Running; r != nil {
					end.StartedAt = r.StartedAt
				}
				c.State = corev1.ContainerState{Terminated: end}
			}
			c.Ready, c.Started = false, new(false)
			out = append(out, c)
		}
		return out
	}
	was.InitContainerStatuses = terminated(here.Spec.InitContainers, was.InitContainerStatuses)
	was.ContainerStatuses = terminated(here.Spec.Containers, was.ContainerStatuses)
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		was.Conditions = set(was.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, ObservedGeneration: here.Generation}, o.Now)
	}
	return *was
}

// Why returns the reason and the message with which a ShadowPod says that there is no pod, as they are shown: the provider's
// text is cut, and has no control characters.
func Why(reason, message string) (string, string) {
	return text.Printable(reason, maxReason), text.Printable(message, maxText)
}

// missing is the status of a pod that has none at the provider. It has run perhaps, and runs no more.
func missing(was *corev1.PodStatus, o StatusOptions) corev1.PodStatus {
	was.Reason, was.Message = o.Reason, o.Message
	if len(was.ContainerStatuses) == 0 && was.Phase != corev1.PodRunning {
		was.Phase = corev1.PodPending
		return *was
	}
	reason := cmp.Or(o.Reason, ReasonRecreating)
	was.Phase = corev1.PodPending
	was.PodIP, was.PodIPs = "", nil
	was.Conditions = slices.DeleteFunc(was.Conditions, func(c corev1.PodCondition) bool { // the next one is made with these resources
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
	})
	for _, list := range [][]corev1.ContainerStatus{was.InitContainerStatuses, was.ContainerStatuses} {
		for i := range list {
			list[i].Ready, list[i].Started = false, new(false)
			list[i].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: o.Message}}
		}
	}
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		was.Conditions = set(was.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: ReasonRecreating}, o.Now)
	}
	return *was
}

// set puts a condition in place of the one of its type. The time stays if the status does.
func set(list []corev1.PodCondition, c corev1.PodCondition, now metav1.Time) []corev1.PodCondition {
	c.LastTransitionTime = now
	i := slices.IndexFunc(list, func(o corev1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		return append(list, c)
	}
	if list[i].Status == c.Status {
		c.LastTransitionTime = list[i].LastTransitionTime
	}
	list[i] = c
	return list
}

func phase(p corev1.PodPhase) corev1.PodPhase {
	switch p {
	case corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed:
		return p
	}
	return corev1.PodPending
}

// conditions are those that others keep here, and those that a kubelet keeps, as the provider's does.
func conditions(here *corev1.Pod, was, now []corev1.PodCondition, o StatusOptions) (out []corev1.PodCondition) {
	for _, c := range was {
		if !slices.Contains(kubeletConditions, c.Type) {
			out = append(out, c)
		}
	}
	for _, t := range kubeletConditions {
		i := slices.IndexFunc(now, func(c corev1.PodCondition) bool { return c.Type == t })
		if i < 0 {
			continue
		}
		c := corev1.PodCondition{
			Type: t, Status: conditionStatus(now[i].Status), Reason: cut(now[i].Reason), Message: cut(now[i].Message),
			LastTransitionTime: now[i].LastTransitionTime, ObservedGeneration: here.Generation,
		}
		if reason, message := unready(here, was, o.Away); t == corev1.PodReady && c.Status == corev1.ConditionTrue && reason != "" {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
			c.LastTransitionTime = o.Now
			if j := slices.IndexFunc(was, func(had corev1.PodCondition) bool { return had.Type == t }); j >= 0 && was[j].Status == c.Status {
				c.LastTransitionTime = was[j].LastTransitionTime
			}
		}
		out = append(out, c)
	}
	return out
}

// resizePending adds the condition that a kubelet has while a pod waits for resources, where the provider has not asked its
// kubelet yet: its Quota has no room.
func resizePending(list []corev1.PodCondition, here, there *corev1.Pod, now metav1.Time) []corev1.PodCondition {
	asked := slices.ContainsFunc(list, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
	})
	if asked || !strings.HasSuffix(there.Annotations[AnnotationFollowed], SuffixResizing) {
		return list
	}
	c := corev1.PodCondition{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, ObservedGeneration: here.Generation,
		LastTransitionTime: now, Message: "the provider has not given the pod these resources yet: its Events say why",
	}
	if i := slices.IndexFunc(here.Status.Conditions, func(had corev1.PodCondition) bool { return had.Type == c.Type && had.Status == c.Status }); i >= 0 {
		c.LastTransitionTime = here.Status.Conditions[i].LastTransitionTime
	}
	return append(list, c)
}

// unready says why a pod is not ready here that is ready at the provider; empty: it is.
func unready(here *corev1.Pod, conditions []corev1.PodCondition, away string) (reason, message string) {
	if away != "" {
		return ReasonAway, cut(away)
	}
	if gate := unmet(here.Spec.ReadinessGates, conditions); gate != "" {
		return ReasonReadinessGates, "the readiness gate " + gate + " is not True"
	}
	return "", ""
}

// unmet is the first readiness gate whose condition is not True; empty: none. Gates are conditions that controllers of
// the consumer set on the pod here.
func unmet(gates []corev1.PodReadinessGate, conditions []corev1.PodCondition) string {
	for _, g := range gates {
		if !slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		}) {
			return string(g.ConditionType)
		}
	}
	return ""
}

func conditionStatus(s corev1.ConditionStatus) corev1.ConditionStatus {
	if s == corev1.ConditionTrue || s == corev1.ConditionFalse {
		return s
	}
	return corev1.ConditionUnknown
}

// containers takes over the statuses of containers that the pod has, in the order of its spec.
func containers(spec []corev1.Container, was, now []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	of := func(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		return nil
	}
	for i := range spec {
		s := of(now, spec[i].Name)
		if s == nil {
			// That of a pod that another one takes the place of, which has no containers yet. Its count goes on.
			if w := of(was, spec[i].Name); w != nil {
				w.Ready, w.Started, w.State = false, new(false), corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: ReasonRecreating}}
				out = append(out, *w)
			}
			continue
		}
		c := heldContainer(s)
		if w := of(was, c.Name); w != nil {
			c.RestartCount = restarts(w, &c)
		}
		out = append(out, c)
	}
	return out
}

// restarts counts those of all pods that have stood for the pod at the provider, each of which begins with zero: the
// count never falls, and another container than before is one more.
func restarts(was, now *corev1.ContainerStatus) int32 {
	least := was.RestartCount
	if was.ContainerID != "" && was.ContainerID != now.ContainerID {
		least++
	}
	return max(least, now.RestartCount)
}

func state(s corev1.ContainerState) corev1.ContainerState {
	if w := s.Waiting; w != nil {
		w.Reason, w.Message = cut(w.Reason), cut(w.Message)
	}
	if t := s.Terminated; t != nil {
		t.Reason, t.Message, t.ContainerID = cut(t.Reason), cut(t.Message), cut(t.ContainerID)
	}
	return s
}

func addressesOf(s *corev1.PodStatus) (out []netip.Addr) {
	texts := []string{s.PodIP}
	if len(s.PodIPs) > 0 {
		texts = texts[:0]
		for _, ip := range s.PodIPs {
			texts = append(texts, ip.IP)
		}
	}
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil && a.Zone() == "" {
			out = append(out, a)
		}
	}
	return out
}

// cut shortens what the provider wrote.
func cut(s string) string { return text.Cut(s, maxText) }
