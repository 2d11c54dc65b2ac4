package peering

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// NewServiceExport is what exports the Service of its name to the clusters of these IDs; nil: to all peers. With
// preferLocal, connections stay in this cluster while it has ready endpoints.
func NewServiceExport(m Metadata, to []string, preferLocal bool) *mcsv1beta1.ServiceExport {
	e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations}}
	e.SetGroupVersionKind(mcsv1beta1.SchemeGroupVersion.WithKind(mcsv1beta1.ServiceExportKindName))
	if to != nil {
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, networkingv1beta1.AnnotationExportTo, strings.Join(to, ","))
	}
	if preferLocal {
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, networkingv1beta1.AnnotationPreferLocal, networkingv1beta1.LabelTrue)
	}
	return e
}

// Export exports a Service, and waits until peers can be told of it.
func Export(ctx context.Context, in *access.Cluster, wanted *mcsv1beta1.ServiceExport, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e := newEnd(in, &o)
	what := fmt.Sprintf("Service %s in namespace %s", wanted.Name, wanted.Namespace)
	var p plan
	made := p.add(nil, &step{
		in: in, waiting: "Exporting the Service", done: "ServiceExport correctly ensured",
		try: func(ctx context.Context) (missing string, err error) { return e.exportMade(ctx, wanted) },
	})
	ready := &step{in: in, waiting: "Waiting for the controller", detailed: true, clues: e.controllerClues}
	ready.try = func(ctx context.Context) (missing string, err error) {
		live := new(mcsv1beta1.ServiceExport)
		if err := in.Client.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
			return "", in.Explain("read the ServiceExport", err)
		}
		if err := e.serviceThere(ctx, wanted); err != nil {
			return "", err
		}
		read := meta.FindStatusCondition(live.Status.Conditions, string(networkingv1beta1.ConditionOptionsRead)) // not of earlier versions
		valid := meta.FindStatusCondition(live.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
		exported := meta.FindStatusCondition(live.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		switch {
		case valid == nil || exported == nil:
			return "no controller has processed the ServiceExport yet: is services.enabled set in this cluster?", nil
		case read != nil && read.Message != networkingv1beta1.ExportOptions(live.Annotations):
			return "the controller has not processed the change yet", nil
		case valid.Status != metav1.ConditionTrue && valid.Reason == string(mcsv1beta1.ServiceExportReasonInvalidServiceType):
			return "", in.Errorf("%s: %s; the ServiceExport stays: 'liqoctl unexport service %s -n %s' takes it back", what, valid.Message, wanted.Name, wanted.Namespace)
		case valid.Status != metav1.ConditionTrue:
			return what + ": " + valid.Message, nil // the Service may come
		case exported.Status != metav1.ConditionTrue:
			ready.note(progress.Warning, exported.Message)
		default:
			ready.note(progress.Done, exported.Message)
		}
		return "", nil
	}
	p.add(after(made), ready)
	return p.run(ctx, tell)
}

// serviceThere is an error where there is no Service to export, nor an imported one to pass on. The
// API allows a ServiceExport to be there first, but whoever gives the command hardly means that.
func (e *end) serviceThere(ctx context.Context, export *mcsv1beta1.ServiceExport) error {
	get := func(o client.Object) error { return e.Client.Get(ctx, client.ObjectKeyFromObject(export), o) }
	if !apierrors.IsNotFound(get(new(corev1.Service))) {
		return nil // the controller reads it, not we
	}
	// Most who export may not read imports, or have none.
	if err := get(new(mcsv1beta1.ServiceImport)); apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return e.Errorf("there is no Service %s in namespace %s: the ServiceExport stays, and exports the Service once there is one; 'liqoctl unexport service %[1]s -n %[2]s' takes it back",
			export.Name, export.Namespace)
	}
	return nil
}

// exportMade makes a ServiceExport, or has one that is there export to the same clusters.
func (e *end) exportMade(ctx context.Context, wanted *mcsv1beta1.ServiceExport) (missing string, err error) {
	switch err := e.write.Create(ctx, wanted.DeepCopy()); {
	case meta.IsNoMatchError(err):
		return "", e.Errorf("cluster %s does not know the kind ServiceExport; nothing was changed; to enable it: %s",
			e.Where(), e.Command("install", "--set", "services.enabled=true"))
	case !apierrors.IsAlreadyExists(err):
		return "", e.Explain("create the ServiceExport "+wanted.Name, err)
	}
	live := new(mcsv1beta1.ServiceExport)
	if err := e.Client.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
		return "", e.Explain("read the ServiceExport "+wanted.Name, err)
	}
	if live.DeletionTimestamp != nil {
		return "an earlier ServiceExport is being deleted", nil
	}
	before := live.DeepCopy()
	for _, of := range []string{networkingv1beta1.AnnotationExportTo, networkingv1beta1.AnnotationPreferLocal} {
		delete(live.Annotations, of)
		if value, asked := wanted.Annotations[of]; asked {
			metav1.SetMetaDataAnnotation(&live.ObjectMeta, of, value)
		}
	}
	if equality.Semantic.DeepEqual(before, live) {
		return "", nil
	}
	return "", e.Explain("change the ServiceExport "+wanted.Name, e.write.Patch(ctx, live, client.MergeFrom(before)))
}

// Unexport withdraws the export of a Service.
func Unexport(ctx context.Context, in *access.Cluster, name types.NamespacedName, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e := newEnd(in, &o)
	object := NewServiceExport(Metadata{Namespace: name.Namespace, Name: name.Name}, nil, false)
	what := fmt.Sprintf("Service %s in namespace %s", name.Name, name.Namespace)
	s := &step{in: in, waiting: "Withdrawing the export", done: what + " was not exported"}
	s.try = func(ctx context.Context) (missing string, err error) {
		err = e.write.Delete(ctx, object.DeepCopy())
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			return "", nil
		case err == nil:
			s.done = what + " is no longer exported"
		}
		return "the ServiceExport is being deleted", e.Explain("delete the ServiceExport "+name.Name, err)
	}
	if err := s.runAlone(ctx, tell); err != nil {
		return err
	}
	// ExposeService is another way to the Service. It is a hint: if the IP may not be read, it is left out.
	var ip ipamv1alpha1.IP
	if e.Client.Get(ctx, name, &ip) == nil && ip.Labels[LabelManagedBy] == FieldOwner {
		tell.Warning(in.Name, fmt.Sprintf("%[1]s is still exposed to peers by 'liqoctl expose service': 'kubectl -n %[2]s delete ip %[3]s' ends that; in the peers, delete the Service that leads to it",
			what, name.Namespace, name.Name))
	}
	return nil
}
