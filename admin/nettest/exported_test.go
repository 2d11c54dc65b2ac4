package nettest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// sharing are two sites that share Services. The API server of the first answers as an interceptor says.
func sharing(answers interceptor.Funcs) (rome, milan *site) {
	r := &run{report: &Report{}}
	of := func(id, peer string) *site {
		s := &site{run: r, shares: true, inv: Inventory{ID: id, Views: []View{{ID: peer}}}}
		s.Cluster = &access.Cluster{Options: access.Options{LiqoNamespace: "liqo", Origin: "rome.yaml"}, Client: interceptor.NewClient(fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build(), answers)}
		r.sites = append(r.sites, s)
		return s
	}
	return of("rome", "milan"), of("milan", "rome")
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: mcsv1beta1.GroupName, Resource: resource}, "of-rome", nil)
}

func TestExport(t *testing.T) {
	valid := func(ok metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: "Valid", Status: ok, Message: message}
	}
	ready := func(ok metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: "Ready", Status: ok, Message: message}
	}
	noService := []metav1.Condition{valid("False", "There is no Service of-rome"), ready("False", "Nothing is exported")}
	for name, tt := range map[string]struct {
		apply, get error
		status     [][]metav1.Condition // one after the other, and the last one for ever
		exports    bool
		skipped    string
	}{
		"it may not export":               {apply: forbidden("serviceexports"), skipped: "patch serviceexports.multicluster.x-k8s.io in namespace liqo-test-network"},
		"it may not read the export":      {get: forbidden("serviceexports"), skipped: "get serviceexports.multicluster.x-k8s.io in namespace liqo-test-network"},
		"at once":                         {status: [][]metav1.Condition{{ready("True", "")}}, exports: true},
		"the Service is seen later":       {status: [][]metav1.Condition{nil, noService, {valid("True", ""), ready("False", "no peer yet")}, {ready("True", "")}}, exports: true},
		"the Service is never seen":       {status: [][]metav1.Condition{noService}, skipped: "There is no Service of-rome"},
		"the operator lets nobody see it": {status: [][]metav1.Condition{{valid("True", ""), ready("False", "Not to milan")}}, skipped: "Not to milan"},
		"no controller runs":              {status: [][]metav1.Condition{nil}, skipped: "no controller has processed it yet; see that the pods of the controller run in namespace liqo"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to, asked := "", 0
				s, _ := sharing(interceptor.Funcs{
					Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
						u := o.(interface {
							GetKind() string
							GetAnnotations() map[string]string
						})
						if u.GetKind() != mcsv1beta1.ServiceExportKindName {
							return nil
						}
						to = u.GetAnnotations()["liqo.io/export-to"]
						return tt.apply
					},
					Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
						if tt.get == nil {
							o.(*mcsv1beta1.ServiceExport).Status.Conditions = tt.status[min(asked, len(tt.status)-1)]
							asked++
						}
						return tt.get
					},
				})
				err := s.export(t.Context())
				skipped := strings.Join(s.report.Skipped, "\n")
				if err != nil || s.inv.Exports != tt.exports || !strings.Contains(skipped, tt.skipped) || (skipped == "") != tt.exports {
					t.Errorf("exports %v, skipped %q, %v", s.inv.Exports, skipped, err)
				}
				if to != "milan" {
					t.Errorf("exported to %q", to)
				}
			})
		})
	}
}

func TestAwaitImport(t *testing.T) {
	for name, tt := range map[string]struct {
		get      error
		imported bool
		skipped  string
	}{
		"it may not read the import": {forbidden("serviceimports"), false, "get serviceimports.multicluster.x-k8s.io in namespace liqo-test-network"},
		"it never arrives":           {apierrors.NewNotFound(schema.GroupResource{Resource: "serviceimports"}, "of-milan"), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, milan := sharing(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return tt.get
				}})
				err := s.awaitImport(t.Context(), milan)
				known := slices.ContainsFunc(s.inv.Imported, func(i Service) bool { return i.Peer == "milan" && !i.ClusterIP.IsValid() })
				skipped := strings.Join(s.report.Skipped, "\n")
				if err != nil || known != tt.imported || !strings.Contains(skipped, tt.skipped) || (skipped == "") != (tt.skipped == "") {
					t.Errorf("imported %v, skipped %q, %v", s.inv.Imported, skipped, err)
				}
			})
		})
	}
}
