package gatewaydeploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/allow"
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
		if err := allow.Service(&s.Spec, "spec.service.spec"); err != nil {
			f.refuse(p, s, err)
			return
		}
		f.keepNodePorts(p, s)
		p.Objects = append(p.Objects, s)
	case f.Service != nil:
		p.Delete = append(p.Delete, f.Service)
	}
}

// refuse does not make an object that asks for more than may be given, and deletes what
// an earlier spec made of it.
func (f *Facts) refuse(p *Plan, o client.Object, why error) {
	p.Refused = append(p.Refused, refusal{o, why.Error()})
	for _, made := range []client.Object{f.Service, f.MetricsService, f.Monitor} {
		if !reflect.ValueOf(made).IsNil() && made.GetName() == o.GetName() && kindOf(made) == kindOf(o) {
			p.Delete = append(p.Delete, made)
		}
	}
}

func (f *Facts) serviceFrom(name string, t *networkingv1beta1.ServiceTemplate) *corev1.Service {
	s := &corev1.Service{ObjectMeta: f.meta(name, f.Gateway.self()), Spec: *t.Spec.DeepCopy()}
	s.Labels = labels.Merge(t.Metadata.Labels, f.labels())
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
		s := f.serviceFrom(metricsName(g.GetName()), g.metrics.Service)
		if err := allow.Service(&s.Spec, "spec.metrics.service.spec"); err != nil {
			f.refuse(p, s, err)
			return
		}
		p.Objects = append(p.Objects, s)
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
			f.refuse(p, m, err)
			return
		}
		p.Objects = append(p.Objects, m)
	default:
		p.Notes = append(p.Notes, "there is no ServiceMonitor because the cluster does not know the kind: "+
			"install the Prometheus operator, or drop spec.metrics.serviceMonitor")
		p.recheck(recheckKind)
	}
}

// monitor is the ServiceMonitor, and an error if its spec is none that may be made.
func (f *Facts) monitor() (*unstructured.Unstructured, error) {
	t := f.Gateway.metrics.ServiceMonitor
	const path = "spec.metrics.serviceMonitor.spec"
	spec := map[string]any{}
	var wrong error
	if len(t.Spec.Raw) > 0 {
		if err := json.Unmarshal(t.Spec.Raw, &spec); err != nil {
			wrong = fmt.Errorf("%s: %w", path, err)
		}
	}
	if wrong == nil {
		wrong = allow.ServiceMonitor(spec, f.Gateway.GetNamespace(), path)
	}
	meta := f.meta(metricsName(f.Gateway.GetName()), f.Gateway.self())
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(monitorKind)
	u.SetNamespace(meta.Namespace)
	u.SetName(meta.Name)
	u.SetLabels(labels.Merge(t.Metadata.Labels, meta.Labels))
	u.SetAnnotations(t.Metadata.Annotations)
	u.SetOwnerReferences(meta.OwnerReferences)
	return u, wrong
}
