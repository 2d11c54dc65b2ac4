package survey

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestShare(t *testing.T) {
	meta := func(namespace, name, cluster string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"liqo.io/remote-cluster-id": cluster}}
	}
	is := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: message}
	}
	slice := func(of string, ready ...bool) discoveryv1.EndpointSlice {
		s := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{
			"kubernetes.io/service-name": of, "multicluster.kubernetes.io/service-name": "web",
		}}}
		for _, r := range ready {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &r}})
		}
		return s
	}
	web := networkingv1beta1.ServiceDescription{Namespace: "shop", Name: "web"}
	f := serviceFacts{
		exports: []mcsv1beta1.ServiceExport{
			{ObjectMeta: meta("shop", "web", ""), Status: mcsv1beta1.ServiceExportStatus{Conditions: []metav1.Condition{
				is("Valid", "True", ""), is("Ready", "True", "Exported to rome; Not to naples: why; 2 endpoints are left out"), is("Conflict", "True", "ports differ"),
			}}},
			{ObjectMeta: meta("bank", "db", ""), Status: mcsv1beta1.ServiceExportStatus{Conditions: []metav1.Condition{is("Valid", "False", "no Service"), is("Ready", "False", "see Valid")}}},
			{ObjectMeta: meta("bank", "new", "")},
		},
		imports: []mcsv1beta1.ServiceImport{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"multicluster.kubernetes.io/derived-service": "derived-x"}},
			Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.96.0.9"}},
			Status:     mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "rome"}, {Cluster: "milan"}}},
		}},
		exported: []networkingv1beta1.ExportedService{{ObjectMeta: meta("t", "shop.web", "turin"), Spec: web}, {ObjectMeta: meta("t", "shop.web", "rome"), Spec: web}},
		imported: []networkingv1beta1.ImportedService{
			{ObjectMeta: meta("t", "shop.web", "rome"), Spec: web, Status: networkingv1beta1.ImportedServiceStatus{Conditions: []metav1.Condition{is("Accepted", "True", "Part of it; no endpoint is ready: the network is down")}}},
			{ObjectMeta: meta("t", "nowhere.web", "rome"), Spec: networkingv1beta1.ServiceDescription{Namespace: "nowhere", Name: "web"},
				Status: networkingv1beta1.ImportedServiceStatus{Conditions: []metav1.Condition{is("Accepted", "False", "no namespace")}}},
			{ObjectMeta: meta("t", "other.web", "rome"), Spec: networkingv1beta1.ServiceDescription{Namespace: "other", Name: "web"},
				Status: networkingv1beta1.ImportedServiceStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: "False", Reason: "TooManyNamespaces", Message: "no more"}}}},
		},
		slices: []discoveryv1.EndpointSlice{slice("derived-x", true, false), slice("derived-x", true), slice("web", true, true, true)},
	}
	want := []SharedService{
		{Namespace: "bank", Name: "db", Exported: true, Problems: []string{"no Service"}},
		{Namespace: "bank", Name: "new", Exported: true, Problems: []string{"no controller has looked at the ServiceExport yet"}},
		{Namespace: "nowhere", Name: "web", Problems: []string{"from cluster rome: no namespace"}},
		{Namespace: "other", Name: "web", Problems: []string{"from cluster rome: no more"}, Missed: true},
		{Namespace: "shop", Name: "web", Type: "ClusterSetIP", Exported: true, To: []string{"rome", "turin"}, From: []string{"milan", "rome"},
			IPs: []string{"10.96.0.9"}, Ready: 2, Endpoints: 3, Problems: []string{"ports differ"},
			Notes: []string{"Not to naples: why; 2 endpoints are left out", "from cluster rome: no endpoint is ready: the network is down"}},
	}
	if diff := cmp.Diff(want, f.share()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAliasThatCannotBe: a Service without the alias that its namespace asks for has a problem.
func TestAliasThatCannotBe(t *testing.T) {
	in := mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	in.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}, {Type: "Alias", Status: "False", Message: "the name is taken"}}
	f := serviceFacts{imports: []mcsv1beta1.ServiceImport{in}}
	if got := f.share(); len(got) != 1 || !slices.Equal(got[0].Problems, []string{"the name is taken"}) {
		t.Errorf("got %+v", got)
	}
}
