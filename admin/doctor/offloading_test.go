package doctor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/reserved"
	"github.com/sluice-net/sluice/reflection"
)

// virtualNode gives rome the virtual node north, for milan. Where it is not ready, why says so.
func (w *world) virtualNode(why string) *offloadingv1beta1.VirtualNode {
	v := offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "north"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}
	status := offloadingv1beta1.VirtualNodeRunning
	if why != "" {
		status = offloadingv1beta1.VirtualNodeCreating
	}
	v.Status.Conditions = []offloadingv1beta1.VirtualNodeCondition{
		{Type: offloadingv1beta1.VirtualNodeVirtualKubelet, Status: offloadingv1beta1.VirtualNodeRunning}, {Type: offloadingv1beta1.VirtualNodeNode, Status: status, Message: why},
	}
	w.rome.offloads.virtualNodes.items = append(w.rome.offloads.virtualNodes.items, v)
	return &w.rome.offloads.virtualNodes.items[len(w.rome.offloads.virtualNodes.items)-1]
}

// slice has rome ask milan for resources and a virtual node.
func (w *world) slice() {
	w.rome.offloads.slices.items = []authv1beta1.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{
		Namespace: "liqo-tenant-milan", Name: "north", Annotations: map[string]string{authv1beta1.AnnotationCreateVirtualNode: "true"},
		Labels: map[string]string{authv1beta1.LabelReplicationDestination: "milan", authv1beta1.LabelReplication: networkingv1beta1.LabelTrue},
	}}}
	w.rome.events.items = append(w.rome.events.items, event("liqo-tenant-milan", "ResourceSlice", "north", "VirtualNodeWaiting", "the provider denies Resources: cordoned"))
}

// offload offloads a namespace of rome to milan.
func (w *world) offload(namespace string) *offloadingv1beta1.NamespaceOffloading {
	o := offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading"}}
	o.Status.RemoteNamespaceName = namespace + "-rome"
	o.Status.RemoteNamespacesConditions = map[string]offloadingv1beta1.RemoteNamespaceConditions{"milan": {
		{Type: offloadingv1beta1.NamespaceOffloadingRequired, Status: corev1.ConditionTrue}, {Type: offloadingv1beta1.NamespaceReady, Status: corev1.ConditionTrue},
	}}
	w.rome.offloads.namespaces.items = append(w.rome.offloads.namespaces.items, o)
	return &w.rome.offloads.namespaces.items[len(w.rome.offloads.namespaces.items)-1]
}

// pending gives rome a pod of the namespace shop that waits: on a node, or for one.
func (w *world) pending(name, node string) *corev1.Pod {
	p := pod("shop", name, node)
	p.UID = "of this pod"
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if node == "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
	}
	p.Spec.Tolerations = []corev1.Toleration{{Key: offloadingv1beta1.TaintNotAllowed, Operator: corev1.TolerationOpExists}}
	w.rome.offloads.pods.items = append(w.rome.offloads.pods.items, p)
	return &w.rome.offloads.pods.items[len(w.rome.offloads.pods.items)-1]
}

func TestWhyPending(t *testing.T) {
	for _, tt := range []struct {
		name       string
		breaks     func(*world) *corev1.Pod
		cause, fix string // "": it is none of ours
	}{
		{"on a node of this cluster", func(w *world) *corev1.Pod { w.virtualNode(""); w.offload("shop"); return w.pending("a", "worker-1") }, "", ""},
		{"in a namespace that is not offloaded", func(w *world) *corev1.Pod { w.virtualNode(""); return w.pending("a", "") }, "", ""},
		{"in a namespace whose pods stay here", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop").Spec.PodOffloadingStrategy = offloadingv1beta1.LocalPodOffloadingStrategy
			return w.pending("a", "")
		}, "", ""},
		{"that nobody has tried to schedule", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "")
			p.Status.Conditions = nil
			return p
		}, "", ""},
		{"no virtual node", func(w *world) *corev1.Pod { w.offload("shop"); return w.pending("a", "") }, "there is no virtual node", "liqoctl peer"},
		{"none is selected", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop").Status.RemoteNamespacesConditions["milan"][0].Status = corev1.ConditionFalse
			return w.pending("a", "")
		}, "clusterSelector of its NamespaceOffloading selects no virtual node", "kubectl -n shop edit namespaceoffloading offloading"},
		{"the selected one is not ready", func(w *world) *corev1.Pod {
			w.virtualNode("the network is not connected")
			w.offload("shop")
			return w.pending("a", "")
		}, "virtual node north is not ready: the network is not connected", "virtual nodes"},
		{"made before", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "")
			p.Spec.Tolerations = nil
			return p
		}, "it was made before its namespace was offloaded", "recreate it: delete it"},
		{"too large", func(w *world) *corev1.Pod { w.virtualNode(""); w.offload("shop"); return w.pending("a", "") }, "no node has room for it, here or at a provider: 0/3 nodes are available", "ask a provider for more: liqoctl create resourceslice NAME --remote-cluster-id milan"},
		{"too large for a node of a slice", func(w *world) *corev1.Pod {
			w.virtualNode("").Labels = map[string]string{authv1beta1.LabelResourceSliceName: "cpus"}
			w.offload("shop")
			return w.pending("a", "")
		}, "no node has room for it", "ask a provider for more: kubectl -n liqo-tenant-milan edit rslice cpus"},
		{"with a claim, and only for virtual nodes", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop").Spec.PodOffloadingStrategy = offloadingv1beta1.RemotePodOffloadingStrategy
			p := w.pending("a", "")
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			return p
		}, "spec.volumes[0] (data) needs a PersistentVolume, which is not offloaded", `kubectl -n shop patch namespaceoffloading offloading --type merge -p '{"spec":{"podOffloadingStrategy":"LocalAndRemote"}}'`},
		{"with a claim, which keeps it here", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "")
			p.Spec.Tolerations = nil // it gets none
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			return p
		}, "", ""},
		{"with a claim of its own, of runtime class liqo", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "")
			p.Spec.RuntimeClassName = new("liqo")
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: new(corev1.EphemeralVolumeSource)}}}
			return p
		}, "spec.volumes[0] (data) needs a PersistentVolume", "take runtime class liqo, or liqo.io/type in nodeSelector or affinity, out of its template"},
		{"which the provider has drained", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			w.denied(authv1beta1.ReasonTenantDrained, "the provider has drained cluster rome")
			p := w.pending("a", "north")
			p.Status.Reason, p.Status.Message = "QuotaMissing", "there is no Quota"
			return p
		}, "cluster milan has drained this cluster", "liqoctl activate tenant rome"},
		{"without a node, which the provider has drained", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			w.denied(authv1beta1.ReasonTenantDrained, "the provider has drained cluster rome")
			return w.pending("a", "")
		}, "cluster milan has drained this cluster", "liqoctl activate tenant rome"},
		{"for which only a virtual node will do, by affinity, and its namespace is not offloaded", func(w *world) *corev1.Pod {
			p := w.pending("a", "")
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: networkingv1beta1.LabelNodeType, Operator: corev1.NodeSelectorOpIn, Values: []string{networkingv1beta1.NodeTypeVirtual}},
				}}},
			}}}
			return p
		}, "its namespace is not offloaded", "liqoctl offload namespace shop"},
		{"of runtime class liqo, in a namespace whose pods stay here", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop").Spec.PodOffloadingStrategy = offloadingv1beta1.LocalPodOffloadingStrategy
			p := w.pending("a", "")
			p.Spec.RuntimeClassName = new("liqo")
			return p
		}, "podOffloadingStrategy of its namespace is Local", "kubectl -n shop patch namespaceoffloading offloading"},
		{"of runtime class liqo, and its namespace is not offloaded", func(w *world) *corev1.Pod {
			w.virtualNode("")
			p := w.pending("a", "")
			p.Spec.RuntimeClassName = new("liqo")
			return p
		}, "its namespace is not offloaded", "liqoctl offload namespace shop"},
		{"on a virtual node, and its namespace is not offloaded", func(w *world) *corev1.Pod {
			w.virtualNode("")
			p := w.pending("a", "north")
			p.Status.Reason, p.Status.Message = "OffloadingBackOff", "its namespace is not offloaded"
			return p
		}, "OffloadingBackOff: its namespace is not offloaded", "liqoctl offload namespace shop"},
		{"with a field that cannot work there", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			p.Status.Reason, p.Status.Message = "FailedReflection", "spec.hostNetwork: not there"
			return p
		}, "FailedReflection: spec.hostNetwork: not there", "change the field"},
		{"on a virtual node that is not ready", func(w *world) *corev1.Pod {
			w.virtualNode("the API server of cluster milan does not answer")
			w.offload("shop")
			return w.pending("a", "north")
		}, "virtual node north is not ready: the API server", "virtual nodes"},
		{"refused at the provider; an event of the pod before and a newer one that means nothing", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			before, refused, nothing := event("shop", "Pod", "a", "QuotaExceeded", "cpu"), event("shop", "Pod", "a", "PodRefused", "spec.pod.hostname"), event("shop", "Pod", "a", "Scheduled", "")
			before.InvolvedObject.UID, refused.InvolvedObject.UID = "of another", p.UID
			w.rome.offloads.events.items = []corev1.Event{before, nothing, refused}
			return p
		}, "PodRefused: spec.pod.hostname", "change what is named"},
		{"an image that cannot be pulled", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			return p
		}, "container web waits at the provider: ImagePullBackOff", "fix what is named"},
		{"an image that cannot be pulled, and that was refused before", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			w.rome.offloads.events.items = []corev1.Event{event("shop", "Pod", "a", "QuotaExceeded", "cpu")}
			return p
		}, "container web waits at the provider: ImagePullBackOff", "fix what is named"},
		{"lost, and not made again", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			p.Status.Reason, p.Status.Message = "QuotaExceeded", "cpu"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "QuotaExceeded", Message: "cpu"}}}}
			return p
		}, "QuotaExceeded: cpu", "ask cluster milan for more"},
		{"lost, and not made again, as an event alone says", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reflection.ReasonRecreating}}}}
			w.rome.offloads.events.items = []corev1.Event{event("shop", "Pod", "a", "QuotaMissing", "nothing is granted")}
			return p
		}, "QuotaMissing", "liqoctl create resourceslice north --remote-cluster-id milan"},
		{"its namespace cannot be made", func(w *world) *corev1.Pod {
			w.virtualNode("")
			c := &w.offload("shop").Status.RemoteNamespacesConditions["milan"][1]
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, offloadingv1beta1.ReasonCreationLoopBackOff, "it is in the way"
			return w.pending("a", "north")
		}, "its namespace is not ready in cluster milan: it is in the way", "ask the administrators"},
		{"the slice is cordoned", func(w *world) *corev1.Pod {
			w.virtualNode("").Labels = map[string]string{authv1beta1.LabelResourceSliceName: "cpus"}
			w.offload("shop")
			p := w.pending("a", "north")
			w.rome.offloads.events.items = []corev1.Event{event("shop", "Pod", "a", "Cordoned", "the provider has cordoned ResourceSlice cpus of cluster rome or its Tenant")}
			return p
		}, "Cordoned: the provider has cordoned ResourceSlice cpus of cluster rome or its Tenant", "ask the administrators of cluster milan to undo what they have done: " +
			"liqoctl uncordon resourceslice cpus or, if they have cordoned the Tenant, liqoctl uncordon tenant rome"},
		{"nothing is granted", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			w.rome.offloads.events.items = []corev1.Event{event("shop", "Pod", "a", "QuotaMissing", "nothing is granted")}
			return p
		}, "QuotaMissing", "liqoctl create resourceslice north --remote-cluster-id milan"},
		{"another pod has its name there", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			w.rome.offloads.events.items = []corev1.Event{event("shop", "Pod", "a", "PodInTheWay", "it was not made for this one")}
			return p
		}, "PodInTheWay", "ask the administrators of cluster milan to remove the pod with its name in namespace shop-rome"},
		{"its API server cannot be reached", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("shop")
			p := w.pending("a", "north")
			w.rome.offloads.events.items = []corev1.Event{event("shop", "Pod", "a", "NetworkMissing", "there is no network")}
			return p
		}, "NetworkMissing: there is no network", "liqo.io/api-server-support=disabled"},
		{"in a namespace that is never offloaded", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.offload("kube-system").Status.RemoteNamespacesConditions["milan"][0].Status = corev1.ConditionFalse
			p := w.pending("a", "")
			p.Namespace = "kube-system"
			return p
		}, "", ""},
		{"in a namespace that is never offloaded, and only for virtual nodes", func(w *world) *corev1.Pod {
			w.virtualNode("")
			p := w.pending("a", "")
			p.Namespace, p.Spec.RuntimeClassName = "liqo-tenant-milan", new("liqo")
			return p
		}, "it asks for a virtual node, and namespace liqo-tenant-milan is never offloaded", "run it in another namespace, or let it run in this cluster"},
		{"of a DaemonSet, in a namespace that is never offloaded by its label", func(w *world) *corev1.Pod {
			w.virtualNode("")
			w.rome.namespaces.items = append(w.rome.namespaces.items, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-milan", Labels: map[string]string{networkingv1beta1.LabelTenantNamespace: "true"}}})
			p := w.pending("a", "north")
			p.Namespace, p.Status.Reason = "of-milan", "OffloadingBackOff"
			return p
		}, "it is on a virtual node, north, and namespace of-milan is never offloaded", "keep such pods off virtual nodes: give the template of their DaemonSet, or of what else creates them, a required node affinity, liqo.io/type NotIn virtual-node"},
		{"nobody knows", func(w *world) *corev1.Pod { w.virtualNode(""); w.offload("shop"); return w.pending("a", "north") },
			"cluster milan has not given a reason", "kubectl -n shop-rome describe shadowpod a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			p := tt.breaks(w)
			got, ok := w.rome.whyPending(p)
			if ok != (tt.cause != "") || !strings.Contains(got.cause, tt.cause) || !strings.Contains(got.fix, tt.fix) {
				t.Errorf("%v %+v", ok, got)
			}
		})
	}
}

func TestOffloadedNamespaces(t *testing.T) {
	const cannot = "namespace shop-rome of the cluster cannot be created: it has another one of that name"
	refused := func(w *world, phase offloadingv1beta1.OffloadingPhase, ids ...string) {
		s := &w.offload("shop").Status
		s.OffloadingPhase = phase
		for _, id := range ids {
			s.RemoteNamespacesConditions[id] = offloadingv1beta1.RemoteNamespaceConditions{
				{Type: offloadingv1beta1.NamespaceOffloadingRequired, Status: corev1.ConditionTrue},
				{Type: offloadingv1beta1.NamespaceReady, Status: corev1.ConditionFalse, Reason: offloadingv1beta1.ReasonCreationLoopBackOff, Message: cannot},
			}
		}
	}
	const another = "or choose another name: liqoctl unoffload namespace shop; liqoctl offload namespace shop --namespace-mapping-strategy SelectedName --remote-namespace-name NAME"
	for _, tt := range []struct {
		name   string
		breaks func(*world)
		want   Finding
	}{
		{"none", func(*world) {}, pass("no offloaded namespaces")},
		{"one that is well", func(w *world) { w.offload("shop") }, pass("no provider refuses an offloaded namespace")},
		{"that may not be read", func(w *world) { w.rome.offloads.namespaces.err = errMayNot }, skip("%s", plain(errMayNot))},
		{"that is being deleted", func(w *world) {
			refused(w, offloadingv1beta1.OffloadingAllFailed, "milan")
			w.rome.offloads.namespaces.items[0].DeletionTimestamp = new(metav1.Now())
		}, pass("no provider refuses an offloaded namespace")},
		{"refused by one", func(w *world) { refused(w, offloadingv1beta1.OffloadingSomeFailed, "naples") },
			fail("it is SomeFailed: not every provider has the namespace for its pods").on("NamespaceOffloading shop/offloading").because("cluster naples: %s", cannot).
				fix("ask the administrators of cluster naples why namespace shop-rome cannot be created, %s", another)},
		{"refused by all", func(w *world) { refused(w, offloadingv1beta1.OffloadingAllFailed, "milan", "naples") },
			fail("it is AllFailed: not every provider has the namespace for its pods").on("NamespaceOffloading shop/offloading").because("cluster milan: %s; cluster naples: %[1]s", cannot).
				fix("ask the administrators of cluster milan, naples why namespace shop-rome cannot be created, %s", another)},
		{"refused by one that has drained this cluster", func(w *world) {
			refused(w, offloadingv1beta1.OffloadingAllFailed, "milan")
			w.denied(authv1beta1.ReasonTenantDrained, "the provider has drained cluster rome")
		}, fail("it is AllFailed: not every provider has the namespace for its pods").on("NamespaceOffloading shop/offloading").
			because("cluster milan has drained this cluster, and runs no pods for it").fix("ask the administrators of cluster milan to end this: liqoctl activate tenant rome")},
		{"that is never offloaded", func(w *world) { w.offload("kube-system") },
			warn("it has no effect").on("NamespaceOffloading kube-system/offloading").because("%s", reserved.FromOffloading("kube-system", nil, "liqo")).
				fix("kubectl -n kube-system delete namespaceoffloading offloading")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.breaks(w)
			if diff := cmp.Diff([]Finding{tt.want}, offloadedNamespaces(w.rome), cmp.AllowUnexported(Finding{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
