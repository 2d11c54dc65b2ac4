package gatewaydeploy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestServiceIsThatOfTheSpec(t *testing.T) {
	f := serverFacts()
	f.Gateway.service.Metadata = metav1.ObjectMeta{Labels: map[string]string{"mine": "x"}, Annotations: map[string]string{"cloud": "y"}}
	s := found[corev1.Service](Build(f).Objects, "gw-a")
	if s.Labels["mine"] != "x" || s.Labels["liqo.io/managed"] != "true" || s.Annotations["cloud"] != "y" || s.Spec.Ports[0].Port != 51840 {
		t.Errorf("got %v", s)
	}
}

func TestExternalName(t *testing.T) {
	f := serverFacts()
	f.Gateway.service.Spec.Type = corev1.ServiceTypeExternalName
	*f.Gateway.endpoint = &networkingv1beta1.Endpoint{Port: 30742, Addresses: []string{"192.0.2.1"}}
	f.Service = liveService("NodePort")
	p := Build(f)
	if found[corev1.Service](p.Objects, "gw-a") != nil || found[corev1.Service](p.Delete, "gw-a") == nil || p.Endpoint != nil {
		t.Errorf("objects %v, delete %v, endpoint %v", p.Objects, p.Delete, p.Endpoint)
	}
	if got := brief(p, networkingv1beta1.ConditionEndpointReady); got != "False ServiceTypeUnsupported" {
		t.Errorf("EndpointReady is %q", got)
	}
}

func TestMetrics(t *testing.T) {
	const name = "gw-a-metrics"
	full := func() *networkingv1beta1.Metrics {
		return &networkingv1beta1.Metrics{Enabled: true, Service: &networkingv1beta1.ServiceTemplate{}, ServiceMonitor: &networkingv1beta1.ServiceMonitorTemplate{
			Metadata: metav1.ObjectMeta{Labels: map[string]string{"release": "x"}}, Spec: runtime.RawExtension{Raw: []byte(`{"endpoints":[{"port":"gw-metrics"}]}`)}}}
	}
	for _, row := range []struct {
		name                           string
		facts                          func(*Facts)
		service, monitor               bool
		serviceDeleted, monitorDeleted bool
		note                           string
	}{
		{name: "off", facts: func(f *Facts) { f.Gateway.metrics = full(); f.Gateway.metrics.Enabled = false; f.Monitors = true }},
		{name: "on", facts: func(f *Facts) { f.Gateway.metrics = full(); f.Monitors = true }, service: true, monitor: true},
		{name: "on, without the kind", facts: func(f *Facts) { f.Gateway.metrics = full() }, service: true, note: "install the Prometheus operator"},
		{name: "on, with a spec that is none", facts: func(f *Facts) {
			f.Gateway.metrics, f.Monitors = full(), true
			f.Gateway.metrics.ServiceMonitor.Spec.Raw = []byte(`[]`)
		},
			service: true, note: "spec.metrics.serviceMonitor.spec: "},
		{name: "the Service alone", facts: func(f *Facts) {
			f.Gateway.metrics, f.Monitors = full(), true
			f.Gateway.metrics.ServiceMonitor = nil
			f.Monitor = new(unstructured.Unstructured)
		},
			service: true, monitorDeleted: true},
		{name: "switched off", facts: func(f *Facts) {
			f.MetricsService, f.Monitors, f.Monitor = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}, true, new(unstructured.Unstructured)
		},
			serviceDeleted: true, monitorDeleted: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			row.facts(&f)
			if f.Monitor != nil {
				f.Monitor.SetName(name)
			}
			p := Build(f)
			for what, pair := range map[string][2]bool{
				"Service": {found[corev1.Service](p.Objects, name) != nil, row.service}, "ServiceMonitor": {found[unstructured.Unstructured](p.Objects, name) != nil, row.monitor},
				"Service deleted": {found[corev1.Service](p.Delete, name) != nil, row.serviceDeleted}, "ServiceMonitor deleted": {found[unstructured.Unstructured](p.Delete, name) != nil, row.monitorDeleted},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
				}
			}
			if got := strings.TrimSpace(strings.Join(p.Notes, " ") + " " + join(p.Refused)); !strings.Contains(got, row.note) || row.note == "" && got != "" {
				t.Errorf("notes %q, want %q", got, row.note)
			}
			if m := found[unstructured.Unstructured](p.Objects, name); m != nil {
				endpoints, _, _ := unstructured.NestedSlice(m.Object, "spec", "endpoints")
				if m.GetKind() != "ServiceMonitor" || m.GetLabels()["release"] != "x" || len(endpoints) != 1 || len(m.GetOwnerReferences()) != 1 {
					t.Errorf("got %v", m.Object)
				}
			}
		})
	}
}
