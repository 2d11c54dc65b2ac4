package shadowpod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation"
	kubernetes "k8s.io/client-go/kubernetes/scheme"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/allow"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/objectname"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/requests"
	"github.com/sluice-net/sluice/reflection"
)

// strict reads a pod as an API server does, and refuses fields that it does not know.
var strict = json.NewSerializerWithOptions(json.DefaultMetaFactory, kubernetes.Scheme, kubernetes.Scheme, json.SerializerOptions{Strict: true})

// specOf is the spec that a ShadowPod asks for, judged.
func specOf(s *raw) (*corev1.PodSpec, error) {
	if s.Annotations[annotationDropped] != "" {
		return nil, fmt.Errorf("metadata: labels and annotations are larger than %d KiB", maxMetadata>>10)
	}
	return read(s.Spec.Pod.Raw)
}

// read judges the spec of a ShadowPod. Its requests are those that the Pod will have, of which the Quota is asked.
func read(spec []byte) (*corev1.PodSpec, error) {
	switch {
	case len(spec) == 0:
		return nil, fmt.Errorf("spec.pod is empty, or larger than %d KiB", maxSpec>>10)
	case len(spec) > maxSpec:
		return nil, fmt.Errorf("spec.pod is larger than %d KiB", maxSpec>>10)
	}
	p := new(corev1.Pod)
	if _, _, err := strict.Decode(slices.Concat([]byte(`{"apiVersion":"v1","kind":"Pod","spec":`), spec, []byte(`}`)), nil, p); err != nil {
		return nil, fmt.Errorf("spec.pod cannot be read: %s", text.Cut(err.Error(), 300))
	}
	if err := allow.Pod(&p.Spec, "spec.pod"); err != nil {
		return nil, err
	}
	requests.Default(&p.Spec)
	return &p.Spec, nil
}

// keptTolerations are the keys of taints that a pod of a consumer may tolerate: those that say how long it stays on a node
// in trouble. With others it could run where the provider lets only its own.
var keptTolerations = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// podOf is the Pod of a ShadowPod.
func podOf(s *raw, spec *corev1.PodSpec, p placement.Consumer, q *offloadingv1beta1.Quota, selector map[string]string) *corev1.Pod {
	spec = spec.DeepCopy()
	// No identity of this cluster.
	spec.AutomountServiceAccountToken = new(false)
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	spec.Tolerations = tolerations(spec.Tolerations)
	if len(selector) > 0 && spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	maps.Copy(spec.NodeSelector, selector)
	l := kept(s.Labels)
	l[networkingv1beta1.LabelRemoteClusterID] = p.ID
	l[offloadingv1beta1.LabelOrigin] = p.ID
	l[offloadingv1beta1.LabelManagedBy] = offloadingv1beta1.ManagedByShadowPod
	l[offloadingv1beta1.LabelCreatorUser] = label(q.Spec.User)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, Labels: l, Annotations: annotations(s),
			OwnerReferences: apply.Controller(s, offloadingv1beta1.GroupVersion.WithKind("ShadowPod")),
		},
		Spec: *spec,
	}
	marks{digest(s), resourcesOf(spec)}.put(pod)
	pod.Annotations[annotationMetadata] = metadataOf(s).String()
	return pod
}

// kept leaves out the labels and annotations by which controllers of this project know things, but those that say what an
// object was reflected from: by these the consumer tells a Pod from that of an earlier pod of the name.
func kept(m map[string]string) map[string]string {
	reflected := []string{offloadingv1beta1.LabelDestination, offloadingv1beta1.LabelNodeName, reflection.AnnotationOriginUID}
	k := map[string]string{}
	for key, v := range m {
		domain, _, _ := strings.Cut(key, "/")
		if ours := domain == "liqo.io" || strings.HasSuffix(domain, ".liqo.io"); !ours || slices.Contains(reflected, key) {
			k[key] = v
		}
	}
	delete(k, corev1.LastAppliedConfigAnnotation)
	return k
}

// networks are the domains of annotations by which network plugins give a pod addresses and networks. What a pod has of
// these is for this cluster to say.
var networks = []string{
	"antrea.io", "cilium.io", "cni.cncf.io", "kube-router.io", "multus-cni.io", "networking.gke.io", "ovn.kubernetes.io", "ovn.org",
	"projectcalico.org", "vpc.amazonaws.com",
}

// annotations are those that a Pod has of its ShadowPod.
func annotations(s *raw) map[string]string {
	k := kept(s.Annotations)
	maps.DeleteFunc(k, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return slices.ContainsFunc(networks, func(n string) bool { return domain == n || strings.HasSuffix(domain, "."+n) })
	})
	return k
}

// label is a user in the form that fits a label.
func label(user string) string { return objectname.Shorten(user, validation.LabelValueMaxLength) }

// choose picks the Quota that a ShadowPod takes from: that of the user that its label names, that of the ResourceSlice
// that its node is called after, or the only one. Whichever it is, it is the consumer's, and its sum holds.
func choose(s *raw, quotas []offloadingv1beta1.Quota) *offloadingv1beta1.Quota {
	node := s.Labels[offloadingv1beta1.LabelNodeName]
	user := s.Labels[offloadingv1beta1.LabelCreatorUser]
	for _, is := range []func(*offloadingv1beta1.Quota) bool{
		func(q *offloadingv1beta1.Quota) bool { return user != "" && label(q.Spec.User) == user },
		func(q *offloadingv1beta1.Quota) bool {
			c := metav1.GetControllerOf(q)
			return c != nil && node != "" && c.Name == node
		},
		func(*offloadingv1beta1.Quota) bool { return len(quotas) == 1 },
	} {
		if i := slices.IndexFunc(quotas, func(q offloadingv1beta1.Quota) bool { return is(&q) }); i >= 0 {
			return &quotas[i]
		}
	}
	return nil
}

// live leaves out the Quotas that are about to go: the garbage collector may take its time for one whose ResourceSlice is
// gone.
func live(quotas []offloadingv1beta1.Quota, of []authv1beta1.ResourceSlice) []offloadingv1beta1.Quota {
	return slices.DeleteFunc(quotas, func(q offloadingv1beta1.Quota) bool {
		owner := metav1.GetControllerOf(&q)
		return !q.DeletionTimestamp.IsZero() || owner != nil && owner.Kind == "ResourceSlice" &&
			!slices.ContainsFunc(of, func(s authv1beta1.ResourceSlice) bool { return s.UID == owner.UID && s.DeletionTimestamp.IsZero() })
	})
}

// closed says why a consumer gets no more of a Quota, however much room it has; empty: it does. nil: there is no Quota.
func closed(q *offloadingv1beta1.Quota, consumer string) (reason, why string) {
	switch {
	case q == nil:
		return reasonNoQuota, "cluster " + consumer + " has been granted no resources that this pod could take: it needs a ResourceSlice that is accepted, of the name of the virtual node"
	case q.Spec.Cordoned != nil && *q.Spec.Cordoned:
		return reasonCordoned, "the provider has cordoned " + grantOf(q, consumer) + " or its Tenant: it gets no more pods or resources"
	}
	return "", ""
}

// grantOf names what a Quota was made of, in the words of the commands of both clusters. A Quota does not tell whether the
// ResourceSlice is cordoned or its Tenant, and one without an owner names its user.
func grantOf(q *offloadingv1beta1.Quota, consumer string) string {
	if owner := metav1.GetControllerOf(q); owner != nil {
		return fmt.Sprintf("ResourceSlice %s of cluster %s", owner.Name, consumer)
	}
	return "user " + q.Spec.User
}

// stated says which container does not state what the Quota's enforcement wants; empty: all do.
func stated(spec *corev1.PodSpec, e offloadingv1beta1.LimitsEnforcement) string {
	if e != offloadingv1beta1.SoftLimitsEnforcement && e != offloadingv1beta1.HardLimitsEnforcement {
		return ""
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			if !requested && limited {
				request, requested = limit, true // as an API server has it
			}
			switch {
			case !requested:
				return fmt.Sprintf("container %s declares no request of %s, which the provider requires", c.Name, name)
			case e == offloadingv1beta1.HardLimitsEnforcement && (!limited || limit.Cmp(request) != 0):
				return fmt.Sprintf("container %s declares no limit of %s equal to the request, which the provider requires", c.Name, name)
			}
		}
	}
	return ""
}

// phaseOf is the phase of a ShadowPod that has a Pod. A kubelet ends a Pod that is deleted, as a drain does: that is no end
// of the ShadowPod, which gets another one. What has ended stays so.
func phaseOf(s *raw, p *corev1.Pod) corev1.PodPhase {
	switch {
	case ended(s.Status.Phase):
		return s.Status.Phase
	case !p.DeletionTimestamp.IsZero() && ended(p.Status.Phase):
		return corev1.PodPending
	}
	return p.Status.Phase
}

// phaseAfter is how long to wait before a first phase is told; zero: nothing. Pods that come together get nodes and run first.
// A Pod is made by the clock of an API server. By one that is ahead its age is not known, and could grow only when that is
// reached: it is told of at once.
func phaseAfter(s *raw, p *corev1.Pod) time.Duration {
	age := time.Since(p.CreationTimestamp.Time)
	if s.Status.Phase != "" || ended(p.Status.Phase) || age < 0 {
		return 0
	}
	return max(0, starting-age)
}

// ended tells whether a phase is the last one.
func ended(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }
