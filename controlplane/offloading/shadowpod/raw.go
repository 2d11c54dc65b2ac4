package shadowpod

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// maxSpec is how many bytes the spec of a pod may have, maxMetadata how many its labels and annotations. An API server
// takes 1.5 MiB.
const maxSpec, maxMetadata = 128 << 10, 64 << 10

// annotationDropped is on a ShadowPod in the cache whose labels and annotations were too large to keep.
const annotationDropped = "liqo.io/dropped"

// raw is a ShadowPod whose spec is not read.
type raw struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Pod runtime.RawExtension `json:"pod"`
	} `json:"spec"`
	Status offloadingv1beta1.ShadowPodStatus `json:"status"`
}

// DeepCopyObject implements [runtime.Object].
func (r *raw) DeepCopyObject() runtime.Object {
	c := new(raw)
	*c = *r
	c.ObjectMeta = *r.ObjectMeta.DeepCopy()
	r.Spec.Pod.DeepCopyInto(&c.Spec.Pod)
	return c
}

// rawList is a list of them.
type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []raw `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (l *rawList) DeepCopyObject() runtime.Object {
	c := &rawList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: make([]raw, len(l.Items))}
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*raw)
	}
	return c
}

// scheme knows ShadowPods as raw, and what else is cached.
func scheme(base func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(offloadingv1beta1.GroupVersion.WithKind("ShadowPod"), &raw{})
	s.AddKnownTypeWithName(offloadingv1beta1.GroupVersion.WithKind("ShadowPodList"), &rawList{})
	metav1.AddToGroupVersion(s, offloadingv1beta1.GroupVersion)
	return s, base(s)
}

// trim keeps what is read. Of what is too large it keeps that it is.
func trim(o any) (any, error) {
	r, ok := o.(*raw)
	if !ok {
		return o, nil // a tombstone
	}
	kept := &raw{TypeMeta: r.TypeMeta, Spec: r.Spec, Status: r.Status}
	kept.ObjectMeta = metav1.ObjectMeta{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion, DeletionTimestamp: r.DeletionTimestamp,
		Labels: r.Labels, Annotations: r.Annotations,
	}
	if len(r.Spec.Pod.Raw) > maxSpec {
		kept.Spec.Pod.Raw = nil
	}
	if size(r.Labels)+size(r.Annotations) > maxMetadata {
		kept.Labels, kept.Annotations, kept.Spec.Pod.Raw = nil, map[string]string{annotationDropped: "true"}, nil
	}
	return kept, nil
}

func size(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}
