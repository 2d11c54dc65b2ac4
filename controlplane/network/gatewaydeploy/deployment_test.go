package gatewaydeploy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestDeploymentIsThatOfTheSpec(t *testing.T) {
	f := serverFacts()
	f.Gateway.deployment.Metadata.Labels = map[string]string{"mine": "x", networkingv1beta1.LabelManaged: "false"}
	f.Gateway.deployment.Metadata.Annotations = map[string]string{"note": "y"}
	f.Gateway.deployment.Metadata.Namespace = "kube-system"
	f.Gateway.deployment.Spec.Template.Spec.ServiceAccountName = "default"
	f.Gateway.deployment.Spec.Template.Spec.DeprecatedServiceAccount = "default"
	before := f.Gateway.deployment.DeepCopy()
	d := found[appsv1.Deployment](Build(f).Objects, "gw-a")
	if diff := cmp.Diff(before, f.Gateway.deployment); diff != "" {
		t.Errorf("changes the spec (-before +after):\n%s", diff)
	}
	want := map[string]string{
		"mine": "x", "liqo.io/managed": "true", "liqo.io/remote-cluster-id": "peer",
		"networking.liqo.io/gateway-name": "a", "networking.liqo.io/gateway-namespace": "t",
	}
	if diff := cmp.Diff(want, d.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if d.Annotations["note"] != "y" || d.Namespace != "t" {
		t.Errorf("annotations %v, in namespace %s", d.Annotations, d.Namespace)
	}
	// What the controllers look for in a pod they put there.
	want = map[string]string{
		"networking.liqo.io/active": "true", "networking.liqo.io/component": "gateway",
		"networking.liqo.io/gateway-name": "a", "networking.liqo.io/gateway-namespace": "t",
	}
	if diff := cmp.Diff(want, d.Spec.Template.Labels); diff != "" {
		t.Errorf("labels of pods (-want +got):\n%s", diff)
	}
	pod := d.Spec.Template.Spec
	if pod.ServiceAccountName != "a" || pod.DeprecatedServiceAccount != "" {
		t.Errorf("service account %q, %q", pod.ServiceAccountName, pod.DeprecatedServiceAccount)
	}
	if v := pod.Volumes; v[0].Secret != nil || v[1].Secret == nil || v[1].Secret.SecretName != "gw-a" {
		t.Errorf("volumes %v", v)
	}
}

// A token dies with its account, so pods of the account before are replaced.
func TestPodsGoWithTheirAccount(t *testing.T) {
	f := serverFacts()
	f.Gateway.deployment.Spec.Template.Annotations = map[string]string{"note": "z"}
	pods := func() map[string]string {
		return found[appsv1.Deployment](Build(f).Objects, "gw-a").Spec.Template.Annotations
	}
	want := map[string]string{"note": "z", "networking.liqo.io/service-account-uid": "uid-account"}
	if diff := cmp.Diff(want, pods()); diff != "" {
		t.Errorf("annotations of pods (-want +got):\n%s", diff)
	}
	f.Account = account("another")
	want["networking.liqo.io/service-account-uid"] = "another"
	if diff := cmp.Diff(want, pods()); diff != "" {
		t.Errorf("of another account (-want +got):\n%s", diff)
	}
	f.Account = nil
	p := Build(f)
	if found[appsv1.Deployment](p.Objects, "gw-a") != nil || found[corev1.ServiceAccount](p.Objects, "a") == nil {
		t.Error("without an account: want the account, and no Deployment yet")
	}
	if c := meta.FindStatusCondition(p.Conditions, "Deployed"); c == nil || c.Message != "Deployment gw-a waits for ServiceAccount a" {
		t.Errorf("without an account: %v", c)
	}
}

// A Deployment that Liqo has made keeps its pods, and they go with their account as ours do.
func TestPodsOfLiqoStay(t *testing.T) {
	f := serverFacts()
	const mark = "networking.liqo.io/service-account-uid"
	deployment := func(on, inTemplate map[string]string) *appsv1.Deployment {
		d := new(appsv1.Deployment)
		d.Annotations, d.Spec.Template.Annotations = on, inTemplate
		return d
	}
	applied := map[string]string{"networking.liqo.io/applied-hash": "x"}
	for _, tt := range []struct {
		name                 string
		has                  *appsv1.Deployment
		wantOn, wantTemplate string
	}{
		{"none yet", nil, "", "uid-account"},
		{"Liqo's", deployment(nil, nil), "uid-account", ""},
		{"Liqo's, seen before", deployment(map[string]string{mark: "uid-account", "networking.liqo.io/applied-hash": "x"}, nil), "uid-account", ""},
		{"Liqo's, of another account", deployment(map[string]string{mark: "earlier", "networking.liqo.io/applied-hash": "x"}, nil), "", "uid-account"},
		{"ours", deployment(applied, map[string]string{mark: "uid-account"}), "", "uid-account"},
		{"ours, and somebody has removed the mark", deployment(applied, nil), "", "uid-account"},
	} {
		f.Deployment = tt.has
		d := found[appsv1.Deployment](Build(f).Objects, "gw-a")
		if on, template := d.Annotations[mark], d.Spec.Template.Annotations[mark]; on != tt.wantOn || template != tt.wantTemplate {
			t.Errorf("%s: on the Deployment %q, in its template %q; want %q, %q", tt.name, on, template, tt.wantOn, tt.wantTemplate)
		}
	}
}

func TestVolumeKeepsItsModeAndItems(t *testing.T) {
	f := serverFacts()
	f.Gateway.secretRef = "mine"
	f.Gateway.deployment.Spec.Template.Spec.Volumes[1].Secret = &corev1.SecretVolumeSource{SecretName: "gw-a", DefaultMode: new(int32(0o440))}
	d := found[appsv1.Deployment](Build(f).Objects, "gw-a")
	if s := d.Spec.Template.Spec.Volumes[1].Secret; s.SecretName != "mine" || *s.DefaultMode != 0o440 {
		t.Errorf("got %v", s)
	}
}

func TestStrategyIsSpelledOut(t *testing.T) {
	rolling := fullStrategy(appsv1.DeploymentStrategy{})
	if rolling.Type != "RollingUpdate" || rolling.RollingUpdate.MaxSurge.String() != "25%" || rolling.RollingUpdate.MaxUnavailable.String() != "25%" {
		t.Errorf("none given: %v", rolling)
	}
	if s := fullStrategy(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}); s.RollingUpdate != nil {
		t.Errorf("Recreate: %v", s)
	}
}

func TestElection(t *testing.T) {
	container := func(args ...string) func(*Facts) {
		return func(f *Facts) { f.Gateway.deployment.Spec.Template.Spec.Containers[0].Args = args }
	}
	for _, row := range []struct {
		name  string
		facts func(*Facts)
		want  bool
	}{
		{"one replica", func(*Facts) {}, false},
		{"two replicas", func(f *Facts) { f.Gateway.deployment.Spec.Replicas = new(int32(2)) }, true},
		{"none given", func(f *Facts) { f.Gateway.deployment.Spec.Replicas = nil }, false},
		{"scaled by somebody else", func(f *Facts) {
			f.Gateway.deployment.Spec.Replicas = nil
			f.Deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(3))}}
		}, true},
		{"the flag", container("--name=a", "--leader-election"), true},
		{"the flag with a value", container("--leader-election=true"), true},
		{"the flag switched off", container("--leader-election=false"), false},
		{"a longer flag", container("--leader-election-lease-duration=15s"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			row.facts(&f)
			p := Build(f)
			if got := found[coordinationv1.Lease](p.Objects, "a.t.server.connections.liqo.io") != nil; got != row.want {
				t.Errorf("Lease: %v, want %v", got, row.want)
			}
			// Of replicas that elect, none starts as the leader.
			d := found[appsv1.Deployment](p.Objects, "gw-a")
			if _, marked := d.Spec.Template.Labels[networkingv1beta1.LabelActive]; marked == row.want {
				t.Errorf("pods start as active: %v", marked)
			}
		})
	}
}

func TestMarkStaysWhereTheDeploymentSelectsByIt(t *testing.T) {
	for _, s := range []*metav1.LabelSelector{
		{MatchLabels: map[string]string{networkingv1beta1.LabelActive: "true"}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: networkingv1beta1.LabelActive, Operator: metav1.LabelSelectorOpExists}}},
	} {
		f := serverFacts()
		f.Gateway.deployment.Spec.Replicas = new(int32(2))
		f.Gateway.deployment.Spec.Selector = s
		f.Lease = heldBy("p")
		f.Pods = []corev1.Pod{pod("p", "n"), pod("q", "n", "active")}
		p := Build(f)
		if len(p.Label)+len(p.Unlabel) > 0 {
			t.Errorf("%v: moves the mark", s)
		}
		if d := found[appsv1.Deployment](p.Objects, "gw-a"); d.Spec.Template.Labels[networkingv1beta1.LabelActive] != "true" {
			t.Errorf("%v: pods lose it", s)
		}
	}
}

func TestDeployed(t *testing.T) {
	condition := func(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: kind, Status: status, Message: message}
	}
	for _, row := range []struct {
		name   string
		status *appsv1.DeploymentStatus
		want   string
		says   string
	}{
		{"not made yet", nil, "False DeploymentNotReady", "does not exist yet"},
		{"just made", &appsv1.DeploymentStatus{}, "False DeploymentNotReady", "has no ready pod yet"},
		{"ready", &appsv1.DeploymentStatus{ReadyReplicas: 1}, "True DeploymentReady", "has a ready pod"},
		{"not available", &appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			condition("Available", "False", "no minimum availability"), condition("Progressing", "True", "x"),
		}}, "False DeploymentNotReady", "Deployment gw-a has no ready pod yet"},
		{"pods refused", &appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			condition("Available", "False", "no minimum availability"), condition("ReplicaFailure", "True", "violates PodSecurity"),
		}}, "False DeploymentNotReady", "Deployment gw-a: violates PodSecurity"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			if row.status != nil {
				f.Deployment = &appsv1.Deployment{Status: *row.status}
			}
			p := Build(f)
			if got := brief(p, networkingv1beta1.ConditionDeployed); got != row.want {
				t.Errorf("Deployed is %q, want %q", got, row.want)
			}
			if got := message(p, networkingv1beta1.ConditionDeployed); !strings.Contains(got, row.says) {
				t.Errorf("message %q, want %q in it", got, row.says)
			}
		})
	}
	f := serverFacts()
	f.Deployment, f.Gateway.deployment.Spec.Replicas = new(appsv1.Deployment), new(int32(0))
	if got := message(Build(f), networkingv1beta1.ConditionDeployed); !strings.Contains(got, "set spec.deployment.spec.replicas") {
		t.Errorf("no replicas: %q", got)
	}
}
