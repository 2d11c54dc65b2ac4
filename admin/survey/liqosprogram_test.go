package survey

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLiqosProgram(t *testing.T) {
	for _, tt := range []struct {
		name, label, component, image, want string
	}{
		// As Liqo's chart has them.
		{"liqo-controller-manager", "controller-manager", "controller-manager", "ghcr.io/liqotech/liqo-controller-manager:v1.2.0", LiqosControllers},
		{"liqo-ipam", "ipam", "ipam", "ghcr.io/liqotech/ipam:v1.2.0", LiqosIPAM},
		{"liqo-fabric", "fabric", "networking", "ghcr.io/liqotech/fabric:v1.2.0", LiqosAgents},
		{"liqo-webhook", "webhook", "webhook", "ghcr.io/liqotech/webhook:v1.2.0", liqosWebhook},
		{"liqo-metric-agent", "metric-agent", "metrics", "ghcr.io/liqotech/metric-agent:v1.2.0", liqosMetrics},
		{"liqo-proxy", "proxy", "networking", "ghcr.io/liqotech/proxy:v1.2.0", liqosProxy},
		{"liqo-crd-replicator", "crd-replicator", "dispatcher", "ghcr.io/liqotech/crd-replicator:v1.2.0", ""},
		// Neither the name of the chart nor that of the image is needed.
		{"net-controller-manager", "controller-manager", "controller-manager", "mirror:5000/a@sha256:0", LiqosControllers},
		{"x", "", "", "mirror:5000/liqo/liqo-controller-manager-ci@sha256:0", LiqosControllers},
		{"liqo-x", "", "", "ipam", LiqosIPAM},
		{"liqo-x", "y", "z", "mirror/fabric-ci:0123@sha256:0", LiqosAgents},
		// Of others, and ours.
		{"their-controller-manager", "controller-manager", "", "registry.example.org/controller-manager:v1", ""},
		{"their-proxy", "proxy", "proxy", "envoy", ""},
		{"their-proxy", "", "", "registry.example.org/proxy:v1", ""},
		{"their-ipam", "", "", "registry.example.org/ipam/daemon:v1", ""},
		{"liqo-controller", "controller-manager", "controller-manager", "ghcr.io/sluice-net/controller:v1", ""},
		{"liqo-clusterdns", "liqo-clusterdns", "", "", ""},
	} {
		o := metav1.ObjectMeta{Name: tt.name, Labels: map[string]string{"app.kubernetes.io/name": tt.label, "app.kubernetes.io/component": tt.component}}
		if strings.HasPrefix(tt.name, "liqo-") {
			o.Labels["app.kubernetes.io/part-of"] = "liqo"
		}
		if got := LiqosProgram(&o, &corev1.PodSpec{Containers: []corev1.Container{{Image: "sidecar"}, {Image: tt.image}}}); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
