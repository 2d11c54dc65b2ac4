package survey

import (
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
)

// IsLiqosController tells whether a Deployment is that of Liqo's controllers: by the labels of its chart, or else by its image,
// as its name depends on the values of the chart. Ours has the same labels, by which Liqo's own liqoctl finds it.
func IsLiqosController(d appsv1.Deployment) bool {
	const name = "controller-manager"
	if d.Name == access.ControllerName {
		return false
	}
	return d.Labels["app.kubernetes.io/name"] == name && d.Labels["app.kubernetes.io/component"] == name ||
		slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return strings.HasPrefix(path.Base(c.Image), "liqo-"+name)
		})
}
