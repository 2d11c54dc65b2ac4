package peering

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestUnexport: the user reads whether there was an export, and which other way to the Service stays.
func TestUnexport(t *testing.T) {
	export := NewServiceExport(Metadata{Namespace: "app", Name: "web"}, nil, false)
	in := &access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(export).Build()}
	var told []string
	for i := range 3 {
		if i == 2 {
			if err := in.Client.Create(t.Context(), newIP(Metadata{Namespace: "app", Name: "web"}, "10.96.0.7")); err != nil {
				t.Fatal(err)
			}
		}
		err := Unexport(t.Context(), in, types.NamespacedName{Namespace: "app", Name: "web"}, Options{}, func(e progress.Event) {
			if e.Kind == progress.Done || e.Kind == progress.Warning {
				told = append(told, e.Text)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"Service web in namespace app is no longer exported", "Service web in namespace app was not exported", "Service web in namespace app was not exported",
		"Service web in namespace app is still exposed to peers by 'liqoctl expose service': 'kubectl -n app delete ip web' ends that; in the peers, delete the Service that leads to it",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what the user reads (-want +got)\n%s", diff)
	}
	var left mcsv1beta1.ServiceExportList
	if err := in.Client.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v, %v", left.Items, err)
	}
}

// TestExportOfImported: a Service that is imported is exported, too, as a hub does.
func TestExportOfImported(t *testing.T) {
	m := metav1.ObjectMeta{Namespace: "app", Name: "web"}
	wanted := NewServiceExport(Metadata{Namespace: m.Namespace, Name: m.Name}, nil, false)
	export := wanted.DeepCopy()
	for _, of := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
		meta.SetStatusCondition(&export.Status.Conditions, metav1.Condition{Type: string(of), Status: metav1.ConditionTrue, Reason: "Exported", Message: "Exported to milan"})
	}
	in := &access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(export, &mcsv1beta1.ServiceImport{ObjectMeta: m}).Build()}
	if err := Export(t.Context(), in, wanted, Options{}, func(progress.Event) {}); err != nil {
		t.Error(err)
	}
	if err := in.Client.Delete(t.Context(), &mcsv1beta1.ServiceImport{ObjectMeta: m}); err != nil {
		t.Fatal(err)
	}
	imports := schema.GroupResource{Group: mcsv1beta1.GroupName, Resource: "serviceimports"}
	without := in.Client
	for name, refusal := range map[string]error{
		"without it": nil, "which the user may not read": apierrors.NewForbidden(imports, m.Name, nil),
		"whose kind is not there": &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: mcsv1beta1.GroupName, Kind: "ServiceImport"}},
	} {
		in.Client = interceptor.NewClient(without, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, is := o.(*mcsv1beta1.ServiceImport); is && refusal != nil {
					return refusal
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		if err := Export(t.Context(), in, wanted, Options{}, func(progress.Event) {}); err == nil || !strings.Contains(err.Error(), "no Service web in namespace app") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestExportChanged: what the user reads is about the clusters that they named now, and not about those of before.
func TestExportChanged(t *testing.T) {
	const before, after = "Exported to rome", "The annotation names no cluster that this one is connected to"
	conditions := func(e *mcsv1beta1.ServiceExport, valid, message string) {
		for _, of := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
			meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{Type: string(of), Status: metav1.ConditionTrue, Reason: valid, Message: message})
		}
		meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{
			Type: string(networkingv1beta1.ConditionOptionsRead), Status: metav1.ConditionTrue, Reason: "Read", Message: networkingv1beta1.ExportOptions(e.Annotations),
		})
	}
	export := NewServiceExport(Metadata{Namespace: "app", Name: "web"}, nil, false)
	conditions(export, "Valid", before)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web"}}
	c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(export, service).WithStatusSubresource(export).Build()
	reads := 0
	in := &access.Cluster{Client: interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if e, is := o.(*mcsv1beta1.ServiceExport); is && err == nil && e.Annotations[networkingv1beta1.AnnotationExportTo] == "turin" {
				if reads++; reads == 2 { // the controller comes after the first look at it
					conditions(e, "Valid", after)
					return c.Status().Update(ctx, e.DeepCopy())
				}
			}
			return err
		},
	})}
	var told []string
	err := Export(t.Context(), in, NewServiceExport(Metadata{Namespace: "app", Name: "web"}, []string{"turin"}, false), Options{}, func(e progress.Event) {
		if strings.Contains(e.Text, before) || strings.Contains(e.Text, after) {
			told = append(told, e.Text)
		}
	})
	if diff := cmp.Diff([]string{after}, told); diff != "" || err != nil || reads < 2 {
		t.Errorf("after %d reads: %v (-want +got)\n%s", reads, err, diff)
	}
}

// TestExportOfAName: nothing will ever be exported of an ExternalName, so nobody waits for it.
func TestExportOfAName(t *testing.T) {
	export := NewServiceExport(Metadata{Namespace: "app", Name: "web"}, nil, false)
	for _, of := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
		meta.SetStatusCondition(&export.Status.Conditions, metav1.Condition{
			Type: string(of), Status: metav1.ConditionFalse, Reason: string(mcsv1beta1.ServiceExportReasonInvalidServiceType), Message: "A Service of type ExternalName has no endpoints to export",
		})
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web"}}
	in := &access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(export, service).Build()}
	err := Export(t.Context(), in, NewServiceExport(Metadata{Namespace: "app", Name: "web"}, nil, false), Options{}, func(progress.Event) {})
	if err == nil || !strings.Contains(err.Error(), "no endpoints to export") || !strings.Contains(err.Error(), "liqoctl unexport service web -n app") || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
