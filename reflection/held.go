package reflection

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// What a consumer holds of the objects of a provider is what it reads of them, and each part has a bound: the provider
// could write anything there, as large as its API server takes it.
const (
	// maxContainers is how many statuses of containers of one pod are held, and of each list.
	maxContainers = 128
	// maxResources is how many resources of one container, or of a pod, are held.
	maxResources = 32
	// maxMark is how many bytes a label or an annotation may have: a UID, a hash, a name, a time.
	maxMark = 256
)

// heldLabels and heldAnnotations are those of reflected objects that are read.
var (
	heldLabels = []string{
		offloadingv1beta1.LabelOrigin, offloadingv1beta1.LabelDestination, offloadingv1beta1.LabelNodeName, offloadingv1beta1.LabelServiceAccountName,
	}
	heldAnnotations = []string{
		AnnotationOriginUID, AnnotationHash, AnnotationFollowed, offloadingv1beta1.AnnotationServiceAccountPodName, offloadingv1beta1.AnnotationServiceAccountPodUID,
		offloadingv1beta1.AnnotationServiceAccountExpiration, offloadingv1beta1.AnnotationSkipReflection, offloadingv1beta1.AnnotationAllowReflection,
	}
)

// HeldMetadata returns what is read of the metadata of an object at the provider.
func HeldMetadata(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), DeletionTimestamp: o.GetDeletionTimestamp(),
		Labels: marked(o.GetLabels(), heldLabels), Annotations: marked(o.GetAnnotations(), heldAnnotations),
	}
}

func marked(m map[string]string, keys []string) (out map[string]string) {
	for _, key := range keys {
		if v, ok := m[key]; ok && len(v) <= maxMark {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = v
		}
	}
	return out
}

// HeldPod returns what is read of a pod at the provider: [PodStatus] makes the same of it as of the pod.
func HeldPod(p *corev1.Pod) *corev1.Pod {
	s := &p.Status
	out := &corev1.Pod{TypeMeta: p.TypeMeta, ObjectMeta: HeldMetadata(p), Status: corev1.PodStatus{
		Phase: phase(s.Phase), Reason: cut(s.Reason), Message: cut(s.Message), StartTime: s.StartTime,
		AllocatedResources: heldResources(s.AllocatedResources), Resources: heldRequirements(s.Resources),
		InitContainerStatuses: heldContainers(s.InitContainerStatuses), ContainerStatuses: heldContainers(s.ContainerStatuses),
	}}
	for _, t := range kubeletConditions {
		if i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == t }); i >= 0 {
			c := s.Conditions[i]
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{
				Type: t, Status: conditionStatus(c.Status), Reason: cut(c.Reason), Message: cut(c.Message), LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	for _, a := range addressesOf(s) {
		if len(out.Status.PodIPs) < maxPodIPs {
			out.Status.PodIPs = append(out.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
	}
	return out
}

func heldContainers(list []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	for i := range list[:min(len(list), maxContainers)] {
		out = append(out, heldContainer(&list[i]))
	}
	return out
}

// heldContainer is what a consumer takes over of the status of a container.
func heldContainer(s *corev1.ContainerStatus) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: cut(s.Name), Ready: s.Ready, Started: s.Started, Image: cut(s.Image), ImageID: cut(s.ImageID), ContainerID: cut(s.ContainerID),
		State: state(s.State), LastTerminationState: state(s.LastTerminationState), RestartCount: max(s.RestartCount, 0),
		AllocatedResources: heldResources(s.AllocatedResources), Resources: heldRequirements(s.Resources),
	}
}

// heldRequirements are requests and limits, each unless it is too long; nil stays nil.
func heldRequirements(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Limits: heldResources(r.Limits), Requests: heldResources(r.Requests)}
}

// heldResources is a list, unless it is too long.
func heldResources(l corev1.ResourceList) corev1.ResourceList {
	if len(l) > maxResources {
		return nil
	}
	return l
}

// HeldEvent returns what is read of an Event of the provider: [Event] makes the same of it.
func HeldEvent(e *corev1.Event) *corev1.Event {
	out := &corev1.Event{
		TypeMeta: e.TypeMeta, ObjectMeta: HeldMetadata(e), Type: cut(e.Type), Reason: cut(e.Reason), Message: cut(e.Message),
		InvolvedObject: corev1.ObjectReference{Kind: cut(e.InvolvedObject.Kind), Name: cut(e.InvolvedObject.Name), UID: e.InvolvedObject.UID},
		Source:         corev1.EventSource{Component: cut(e.Source.Component)}, ReportingController: cut(e.ReportingController),
		FirstTimestamp: e.FirstTimestamp, LastTimestamp: e.LastTimestamp, Count: e.Count, EventTime: e.EventTime,
	}
	if s := e.Series; s != nil {
		out.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return out
}
