package survey

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/access"
)

// Programs of Liqo, as its chart calls them.
const (
	LiqosControllers = "controller-manager"
	LiqosIPAM        = "ipam"
	LiqosAgents      = "fabric"

	liqosWebhook   = "webhook"
	liqosMetrics   = "metric-agent"
	liqosProxy     = "proxy"
	liqosTelemetry = "telemetry"
)

// liqosPrograms are those that it matters to know: name and component as in the chart's labels, and the name of the image.
var liqosPrograms = []struct{ name, component, image string }{
	{LiqosControllers, "controller-manager", "liqo-controller-manager"},
	{LiqosIPAM, "ipam", "ipam"},
	{LiqosAgents, "networking", "fabric"},
	{liqosWebhook, "webhook", "webhook"},
	{liqosMetrics, "metrics", "metric-agent"},
	{liqosProxy, "networking", "proxy"},
	{liqosTelemetry, "telemetry", "telemetry"},
}

// LiqosProgram tells which of these a Deployment or DaemonSet in Liqo's namespace runs: by the labels of the chart, or else by
// an image, as names depend on its values. Empty: another one. Our controller is none, though it has the labels
// by which Liqo's own liqoctl finds Liqo's.
func LiqosProgram(o *metav1.ObjectMeta, pod *corev1.PodSpec) string {
	if o.Name == access.ControllerName {
		return ""
	}
	for _, p := range liqosPrograms {
		// The other images have names that somebody else's may have.
		known := p.name == LiqosControllers || o.Labels["app.kubernetes.io/part-of"] == "liqo"
		if o.Labels["app.kubernetes.io/name"] == p.name && o.Labels["app.kubernetes.io/component"] == p.component ||
			known && slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool { return imageName(c.Image) == p.image }) {
			return p.name
		}
	}
	return ""
}

// imageName is the name of an image in its repository. Builds of Liqo that are no releases add to it.
func imageName(image string) string {
	name := path.Base(image)
	if end := strings.IndexAny(name, ":@"); end >= 0 {
		name = name[:end]
	}
	return strings.TrimSuffix(name, "-ci")
}
