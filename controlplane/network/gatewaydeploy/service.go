package gatewaydeploy

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// monitorKind is the kind by which the Prometheus operator is told what to scrape.
var monitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// service adds the Service of a server. One that cannot expose a gateway is not
// made, and goes if it had another type before.
func (f *Facts) service(p *Plan) {
	g := f.Gateway
	switch {
	case g.service == nil:
	case g.service.Spec.Type != corev1.ServiceTypeExternalName:
		s := f.serviceFrom(serviceName(g.GetName()), g.service)
		f.keepNodePort(p, s)
		p.Objects = append(p.Objects, s)
	case f.Service != nil:
		p.Delete = append(p.Delete, f.Service)
	}
}

func (f *Facts) serviceFrom(name string, t *networkingv1beta1.ServiceTemplate) *corev1.Service {
	s := &corev1.Service{ObjectMeta: f.meta(name, f.Gateway.self()), Spec: *t.Spec.DeepCopy()}
	s.Labels = merged(t.Metadata.Labels, f.labels())
	s.Annotations = maps.Clone(t.Metadata.Annotations)
	return s
}

// wantsMetrics tells whether there is to be a Service for the metrics. Without one
// a ServiceMonitor has nothing to select.
func (g *gateway) wantsMetrics() bool {
	return g.metrics != nil && g.metrics.Enabled && g.metrics.Service != nil
}

func (g *gateway) wantsMonitor() bool { return g.wantsMetrics() && g.metrics.ServiceMonitor != nil }

// metrics adds what exposes the metrics, and deletes what is wanted no more.
func (f *Facts) metrics(p *Plan) {
	g := f.Gateway
	if g.wantsMetrics() {
		p.Objects = append(p.Objects, f.serviceFrom(metricsName(g.GetName()), g.metrics.Service))
	} else if f.MetricsService != nil {
		p.Delete = append(p.Delete, f.MetricsService)
	}
	switch {
	case !g.wantsMonitor():
		if f.Monitor != nil {
			p.Delete = append(p.Delete, f.Monitor)
		}
	case f.Monitors:
		m, err := f.monitor()
		if err != nil {
			p.Notes = append(p.Notes, err.Error())
			return
		}
		p.Objects = append(p.Objects, m)
	default:
		p.Notes = append(p.Notes, "there is no ServiceMonitor because the cluster does not know the kind: "+
			"install the Prometheus operator, or drop spec.metrics.serviceMonitor")
		p.recheck(recheckKind)
	}
}

// monitor is the ServiceMonitor. Its spec is the Prometheus operator's business.
func (f *Facts) monitor() (*unstructured.Unstructured, error) {
	t := f.Gateway.metrics.ServiceMonitor
	spec := map[string]any{}
	if len(t.Spec.Raw) > 0 {
		if err := json.Unmarshal(t.Spec.Raw, &spec); err != nil {
			return nil, fmt.Errorf("spec.metrics.serviceMonitor.spec: %w", err)
		}
	}
	meta := f.meta(metricsName(f.Gateway.GetName()), f.Gateway.self())
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(monitorKind)
	u.SetNamespace(meta.Namespace)
	u.SetName(meta.Name)
	u.SetLabels(merged(t.Metadata.Labels, meta.Labels))
	u.SetAnnotations(t.Metadata.Annotations)
	u.SetOwnerReferences(meta.OwnerReferences)
	return u, nil
}
