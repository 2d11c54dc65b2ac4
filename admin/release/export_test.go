package release

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
)

// Interrupt makes the release one whose upgrade began some time ago, by a program
// that is gone.
func Interrupt(c *access.Cluster, ago time.Duration) error {
	h, err := newHelm(c)
	if err != nil {
		return err
	}
	last, err := h.last()
	if err != nil {
		return err
	}
	last.Info.Status, last.Info.LastDeployed = common.StatusPendingUpgrade, time.Now().Add(-ago)
	return h.config.Releases.Update(last)
}

// Rollback makes the release what it was before, as Helm's own command does.
func Rollback(c *access.Cluster) error {
	h, err := newHelm(c)
	if err != nil {
		return err
	}
	r := action.NewRollback(h.config)
	r.WaitStrategy, r.ForceConflicts, r.ServerSideApply = kube.HookOnlyStrategy, true, "auto"
	return r.Run(Name)
}

// ServiceRange is what the API server tells of its Services by a refusal.
func ServiceRange(ctx context.Context, c *access.Cluster) ([]netip.Prefix, error) {
	g := gatherer{Cluster: c}
	err := g.askRange(ctx)
	return serviceRange(g.facts), err
}

// Unpeer names the commands that remove peerings with these objects.
func Unpeer(peerings ...string) string { return (&Removal{Peerings: peerings}).unpeer() }

// LeftWithin is how long agents may take to remove what is Liqo's.
func LeftWithin(d time.Duration) { leftWithin = d }

// GiveUpAfter bounds the waits that begin from now on.
func (a *Adoption) GiveUpAfter(d time.Duration) { a.timeout = d }

// TrialPods are the pods of all trials.
func TrialPods(openShift bool) (pods []corev1.Pod, err error) {
	chart, err := Embedded(Build{})
	if err != nil {
		return nil, err
	}
	v := merge(withRequired(value(openShift, "openshiftConfig.enabled")), Values{
		"pullPolicy": "Always", "imagePullSecrets": []any{map[string]any{"name": "pull"}}, "common": Values{"nodeSelector": Values{"kind": "edge"}},
	})
	p := Plan{cluster: &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}}}
	p.Values = v
	if p.manifests, err = chart.manifests(v, "liqo"); err != nil {
		return nil, err
	}
	trials, _, err := p.trials()
	if err != nil {
		return nil, err
	}
	for _, o := range trials {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
		switch o := o.(type) {
		case *corev1.Pod:
			pod.Spec = o.Spec
		case *appsv1.DaemonSet:
			pod.Spec = o.Spec.Template.Spec
		}
		pods = append(pods, pod)
	}
	templates, err := chart.gatewayTemplates(v, "liqo")
	if err != nil {
		return nil, err
	}
	for kind, u := range templates {
		h := &handover{make: []client.Object{u}}
		h.name, h.vars = client.ObjectKey{Namespace: "liqo", Name: strings.ToLower(kind)}, template.Vars{Name: "milan", Namespace: "liqo", ClusterID: "milan", SecretName: "keys"}
		h.vars.Spec = networkingv1beta1.GatewayServerSpec{MTU: 1340, Endpoint: networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeNodePort}}
		if strings.Contains(kind, "Client") {
			h.vars.Spec = networkingv1beta1.GatewayClientSpec{MTU: 1340}
		}
		pod, err := trialPod(h)
		if err != nil {
			return nil, err
		}
		pods = append(pods, *pod)
	}
	return pods, nil
}
