package virtualnode_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/virtualnode"
)

func TestFromSlice(t *testing.T) {
	slice := func(change func(*authv1beta1.ResourceSlice)) *authv1beta1.ResourceSlice {
		s := &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "milan", UID: "u", Labels: map[string]string{"liqo.io/remoteID": "milan-id"}},
			Status: authv1beta1.ResourceSliceStatus{
				Conditions: []authv1beta1.ResourceSliceCondition{
					{Type: authv1beta1.SliceAuthentication, Status: authv1beta1.SliceAccepted}, {Type: authv1beta1.SliceResources, Status: authv1beta1.SliceAccepted},
				},
				Resources:      corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("-1Gi"), "no name": resource.MustParse("1")},
				NodeSelector:   map[string]string{"pool": "rome"},
				StorageClasses: []authv1beta1.StorageClass{{StorageClassName: "fast", Default: true}, {StorageClassName: "\x1b[31m"}},
				IngressClasses: append(slices.Repeat([]authv1beta1.IngressClass{{IngressClassName: "nginx"}}, 64), authv1beta1.IngressClass{IngressClassName: "beyond", Default: true}),
				LoadBalancerClasses: []authv1beta1.LoadBalancerClass{
					{LoadBalancerClassName: "no name", Default: true}, {LoadBalancerClassName: "example.org/internal", Default: true},
				},
				NodeLabels: map[string]string{
					"region": "eu", "topology.kubernetes.io/zone": "a", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/hostname": "cp-1", "liqo.io/type": "x",
					"liqo.io/remote-cluster-id": "paris", "bad value": "x", "long": strings.Repeat("x", 64),
				},
			},
		}
		if change != nil {
			change(s)
		}
		return s
	}
	secret := func(change func(*corev1.Secret)) []corev1.Secret {
		o := corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "kubeconfig", Labels: map[string]string{"liqo.io/identity-type": "ResourceSlice", "liqo.io/resourceslice-name": "milan"}},
			Data:       map[string][]byte{"kubeconfig": []byte("x")},
		}
		if change != nil {
			change(&o)
		}
		return []corev1.Secret{o}
	}
	for _, tt := range []struct {
		name    string
		slice   *authv1beta1.ResourceSlice
		secrets []corev1.Secret
		missing string
	}{
		{"everything is there", slice(nil), secret(nil), ""},
		{"no answer", slice(func(s *authv1beta1.ResourceSlice) { s.Status.Conditions = nil }), secret(nil), "the condition Authentication is missing"},
		{"half an answer", slice(func(s *authv1beta1.ResourceSlice) { s.Status.Conditions = s.Status.Conditions[:1] }), secret(nil), "the condition Resources is missing"},
		{"denied", slice(func(s *authv1beta1.ResourceSlice) {
			s.Status.Conditions[1] = authv1beta1.ResourceSliceCondition{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceDenied, Message: "too much"}
		}), secret(nil), "the provider denies Resources: too much"},
		{"no Secret", slice(nil), nil, "liqo.io/resourceslice-name=milan"},
		{"a Secret of another slice", slice(nil), secret(func(o *corev1.Secret) { o.Labels["liqo.io/resourceslice-name"] = "other" }), "no Secret"},
		{"a Secret of the controllers", slice(nil), secret(func(o *corev1.Secret) { o.Labels["liqo.io/identity-type"] = "ControlPlane" }), "no Secret"},
		{"an empty Secret", slice(nil), secret(func(o *corev1.Secret) { o.Data = nil }), "no Secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, missing := virtualnode.FromSlice(tt.slice, tt.secrets)
			if (v == nil) != (tt.missing != "") || !strings.Contains(missing, tt.missing) {
				t.Fatalf("%v, %q", v, missing)
			}
			if v == nil {
				return
			}
			want := offloadingv1beta1.VirtualNodeSpec{
				ClusterID: "milan-id", CreateNode: new(true), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig"},
				ResourceQuota:   corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"cpu": resource.MustParse("4")}},
				Labels:          map[string]string{"region": "eu", "topology.kubernetes.io/zone": "a"},
				OffloadingPatch: &offloadingv1beta1.OffloadingPatch{NodeSelector: map[string]string{"pool": "rome"}},
				StorageClasses:  []offloadingv1beta1.StorageClass{{StorageClassName: "fast", Default: true}},
				IngressClasses:  slices.Repeat([]offloadingv1beta1.IngressClass{{IngressClassName: "nginx"}}, 64),

				LoadBalancerClasses: []offloadingv1beta1.LoadBalancerClass{{LoadBalancerClassName: "example.org/internal", Default: true}},
			}
			if diff := cmp.Diff(want, v.Spec); diff != "" || v.Name != "milan" || v.Namespace != "tenant" || !metav1.IsControlledBy(v, tt.slice) {
				t.Errorf("%+v; spec (-want +got)\n%s", v.ObjectMeta, diff)
			}
		})
	}
}

func TestBuild(t *testing.T) {
	ready := &appsv1.Deployment{Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
	failing := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "quota exceeded"}}}}
	for _, tt := range []struct {
		name          string
		tenant        bool
		virtual, left int
		deployment    *appsv1.Deployment
		objects       int
		status        offloadingv1beta1.VirtualNodeConditionStatus
		says          string
	}{
		{"no VirtualNode", true, 0, 0, nil, 0, "", ""},
		{"the first", true, 1, 0, nil, 5, offloadingv1beta1.VirtualNodeCreating, "no pod"},
		{"its pod is ready", true, 1, 1, ready, 5, offloadingv1beta1.VirtualNodeRunning, "ready"},
		{"its pod is refused", true, 1, 0, failing, 5, offloadingv1beta1.VirtualNodeCreating, "quota exceeded"},
		{"a Node is left, and which Secrets there were is not known", true, 0, 1, ready, 4, offloadingv1beta1.VirtualNodeRunning, ""},
		{"another namespace", false, 1, 0, nil, 0, offloadingv1beta1.VirtualNodeNone, "is not the tenant namespace of cluster milan"},
		{"no namespace any more", false, 0, 1, ready, 0, offloadingv1beta1.VirtualNodeNone, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects, remove, c := virtualnode.Build(virtualnode.Facts{
				Own: "rome", Peer: "milan", Namespace: "tenant", Tenant: tt.tenant, LiqoNamespace: "liqo", Template: &offloadingv1beta1.VkOptionsTemplateSpec{ContainerImage: "image"},
				VirtualNodes: tt.virtual, Nodes: tt.left, Deployment: tt.deployment,
			})
			if len(objects) != tt.objects || remove != (tt.objects == 0) || c.Status != tt.status || !strings.Contains(c.Message, tt.says) {
				t.Errorf("%d objects, %+v", len(objects), c)
			}
		})
	}
}

// TestReflectionTypes: what a template says of kinds becomes arguments.
func TestReflectionTypes(t *testing.T) {
	objects, _, _ := virtualnode.Build(virtualnode.Facts{
		Own: "rome", Peer: "milan", Namespace: "tenant", Tenant: true, LiqoNamespace: "liqo", VirtualNodes: 1,
		Template: &offloadingv1beta1.VkOptionsTemplateSpec{ContainerImage: "image", ExtraArgs: []string{"--log-level=debug"}, ReflectorsConfig: map[string]offloadingv1beta1.ReflectorConfig{
			"secret": {NumWorkers: 3, Type: offloadingv1beta1.AllowList}, "ingress": {Type: offloadingv1beta1.DenyList}, "configmap": {NumWorkers: 1},
			"event": {NumWorkers: 1, Type: offloadingv1beta1.CustomLiqo}, "pod": {NumWorkers: 10, Type: offloadingv1beta1.CustomLiqo},
		}},
	})
	for _, o := range objects {
		if d, is := o.(*appsv1.Deployment); is {
			want := []string{
				"--cluster-id=rome", "--peer-id=milan", "--tenant-namespace=tenant", "--namespace=liqo",
				"--ingress-reflection-type=None", "--secret-reflection-type=AllowList", "--log-level=debug",
			}
			if diff := cmp.Diff(want, d.Spec.Template.Spec.Containers[0].Args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			return
		}
	}
	t.Error("no Deployment")
}

// TestBuildWithoutTemplate guards that a process goes on while the installation is being changed.
func TestBuildWithoutTemplate(t *testing.T) {
	objects, remove, c := virtualnode.Build(virtualnode.Facts{Peer: "milan", Namespace: "tenant", Tenant: true, LiqoNamespace: "liqo", VirtualNodes: 1})
	if len(objects) > 0 || remove || c.Status != offloadingv1beta1.VirtualNodeNone || c.Reason != virtualnode.ReasonTemplateMissing {
		t.Errorf("%d objects, removed %v, %+v", len(objects), remove, c)
	}
}

// TestRights guards what a process may read beside what the chart's role says.
func TestRights(t *testing.T) {
	f := virtualnode.Facts{
		Own: "rome", Peer: "milan", Namespace: "tenant", Tenant: true, LiqoNamespace: "liqo", VirtualNodes: 1,
		Template: &offloadingv1beta1.VkOptionsTemplateSpec{ContainerImage: "image"}, Offloaded: []string{"shop"},
	}
	secrets := func() (names []string, ruled bool) {
		objects, _, _ := virtualnode.Build(f)
		for _, o := range objects {
			role, ok := o.(*rbacv1.Role)
			if !ok {
				continue
			}
			if role.Namespace != "tenant" {
				t.Errorf("a role in %s", role.Namespace)
			}
			for _, r := range role.Rules {
				if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Resources, "*") {
					names, ruled = append(names, r.ResourceNames...), true
				}
			}
		}
		return names, ruled
	}
	if names, ruled := secrets(); ruled {
		t.Errorf("without a kubeconfig it may read the Secrets %q", names)
	}
	f.Kubeconfigs = []string{"slice"}
	if names, _ := secrets(); !slices.Equal(names, []string{"slice"}) {
		t.Errorf("it may read the Secrets %q", names)
	}
	b := f.Bindings()
	if len(b) != 1 || b[0].Namespace != "shop" || b[0].RoleRef.Name != "liqo-virtual-kubelet-offloaded" || b[0].Subjects[0].Namespace != "tenant" {
		t.Errorf("%+v", b)
	}
}
