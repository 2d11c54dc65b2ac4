package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// SharedService is a Service that this cluster exports, imports, or both. Its JSON form is what scripts read: fields are
// added, not renamed.
type SharedService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Type is ClusterSetIP or Headless; empty: there is no ServiceImport.
	Type mcsv1beta1.ServiceImportType `json:"type,omitempty"`
	// Exported tells whether this cluster exports it, To to which clusters.
	Exported bool     `json:"exported"`
	To       []string `json:"to,omitempty"`
	// From are the clusters whose endpoints it has here, this one among them.
	From []string `json:"from,omitempty"`
	// IPs are the addresses by which pods of this cluster reach it.
	IPs []string `json:"ips,omitempty"`
	// Ready is how many of its endpoints are ready, of Endpoints.
	Ready     int `json:"ready"`
	Endpoints int `json:"endpoints"`
	// Problems say what is not as asked for.
	Problems []string `json:"problems,omitempty"`
	// Missed tells that this cluster should import the Service, by what its administrator asks for, and cannot.
	Missed bool `json:"-"`
	// Notes say what else there is to know: what is left out, to whom it is not told, why no endpoint is ready.
	Notes []string `json:"notes,omitempty"`
}

// serviceFacts are the objects that tell what Services clusters share.
type serviceFacts struct {
	exports  []mcsv1beta1.ServiceExport
	imports  []mcsv1beta1.ServiceImport
	exported []networkingv1beta1.ExportedService
	imported []networkingv1beta1.ImportedService
	slices   []discoveryv1.EndpointSlice
}

// SharedServices returns the Services that this cluster exports and imports, of one namespace or, if that is empty, of all,
// sorted. Served is false where the API server lacks the kinds for it.
func SharedServices(ctx context.Context, c *access.Cluster, namespace string) (shared []SharedService, served bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var (
		exports  mcsv1beta1.ServiceExportList
		imports  mcsv1beta1.ServiceImportList
		exported networkingv1beta1.ExportedServiceList
		imported networkingv1beta1.ImportedServiceList
		found    discoveryv1.EndpointSliceList
	)
	for _, l := range []struct {
		what string
		into client.ObjectList
		o    []client.ListOption
		// who uses one namespace may not look into those of the peerings
		optional bool
	}{
		{"ServiceExports", &exports, []client.ListOption{client.InNamespace(namespace)}, false},
		{"ServiceImports", &imports, []client.ListOption{client.InNamespace(namespace)}, false},
		{"EndpointSlices", &found, []client.ListOption{client.InNamespace(namespace), client.HasLabels{mcsv1beta1.LabelServiceName}}, false},
		{"ExportedServices", &exported, nil, true},
		{"ImportedServices", &imported, nil, true},
	} {
		switch err := c.Client.List(ctx, l.into, l.o...); {
		case meta.IsNoMatchError(err):
			return nil, false, nil
		case err != nil && !(l.optional && apierrors.IsForbidden(err)):
			return nil, true, c.Explain("list "+l.what, err)
		}
	}
	f := serviceFacts{exports.Items, imports.Items, exported.Items, imported.Items, found.Items}
	shared = f.share()
	if namespace != "" {
		shared = slices.DeleteFunc(shared, func(s SharedService) bool { return s.Namespace != namespace })
	}
	return shared, true, nil
}

// note adds what the controllers say beside that all is well: their messages begin with that, and the rest is behind a semicolon.
func (s *SharedService) note(from string, c *metav1.Condition) {
	if c == nil || c.Status != metav1.ConditionTrue {
		return
	}
	if _, more, some := strings.Cut(c.Message, "; "); some {
		s.Notes = append(s.Notes, from+more)
	}
}

// share joins what is known of each Service.
func (f *serviceFacts) share() []SharedService {
	all := map[client.ObjectKey]*SharedService{}
	of := func(namespace, name string) *SharedService {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		if all[key] == nil {
			all[key] = &SharedService{Namespace: namespace, Name: name}
		}
		return all[key]
	}
	for i := range f.exports {
		e := &f.exports[i]
		s := of(e.Namespace, e.Name)
		s.Exported = true
		for kind, well := range map[mcsv1beta1.ServiceExportConditionType]metav1.ConditionStatus{
			mcsv1beta1.ServiceExportConditionValid: metav1.ConditionTrue, mcsv1beta1.ServiceExportConditionReady: metav1.ConditionTrue,
			mcsv1beta1.ServiceExportConditionConflict: metav1.ConditionFalse,
		} {
			c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
			if kind == mcsv1beta1.ServiceExportConditionReady {
				s.note("", c)
			}
			if c != nil && c.Status != well && !(kind == mcsv1beta1.ServiceExportConditionReady && !meta.IsStatusConditionTrue(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))) {
				s.Problems = append(s.Problems, c.Message)
			}
		}
		if len(e.Status.Conditions) == 0 {
			s.Problems = append(s.Problems, "no controller has looked at the ServiceExport yet")
		}
	}
	for i := range f.exported {
		e := &f.exported[i]
		s := of(e.Spec.Namespace, e.Spec.Name)
		s.To = append(s.To, e.Labels[networkingv1beta1.LabelRemoteClusterID])
	}
	derived := map[client.ObjectKey]bool{}
	for i := range f.imports {
		in := &f.imports[i]
		s := of(in.Namespace, in.Name)
		s.Type, s.IPs = in.Spec.Type, in.Spec.IPs
		for _, c := range in.Status.Clusters {
			s.From = append(s.From, c.Cluster)
		}
		for _, kind := range []string{string(mcsv1beta1.ServiceImportConditionReady), string(networkingv1beta1.ConditionAlias)} {
			if c := meta.FindStatusCondition(in.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
				s.Problems = append(s.Problems, c.Message)
			}
		}
		derived[client.ObjectKey{Namespace: in.Namespace, Name: in.Annotations["multicluster.kubernetes.io/derived-service"]}] = true
	}
	for i := range f.imported {
		in := &f.imported[i]
		c := meta.FindStatusCondition(in.Status.Conditions, string(networkingv1beta1.ConditionAccepted))
		if c != nil && c.Status == metav1.ConditionTrue {
			of(in.Spec.Namespace, in.Spec.Name).note(fmt.Sprintf("from cluster %s: ", in.Labels[networkingv1beta1.LabelRemoteClusterID]), c)
			continue
		}
		s, why := of(in.Spec.Namespace, in.Spec.Name), "no controller has looked at it yet"
		if c != nil {
			why = c.Message
			s.Missed = s.Missed || c.Reason == string(networkingv1beta1.ReasonTooManyNamespaces) || c.Reason == string(networkingv1beta1.ReasonNameTaken)
		}
		s.Problems = append(s.Problems, fmt.Sprintf("from cluster %s: %s", in.Labels[networkingv1beta1.LabelRemoteClusterID], why))
	}
	for i := range f.slices {
		sl := &f.slices[i]
		if !derived[client.ObjectKey{Namespace: sl.Namespace, Name: sl.Labels[discoveryv1.LabelServiceName]}] {
			continue // of an alias: they are the same
		}
		s := of(sl.Namespace, sl.Labels[mcsv1beta1.LabelServiceName])
		for _, e := range sl.Endpoints {
			s.Endpoints++
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				s.Ready++
			}
		}
	}
	out := []SharedService{}
	for _, s := range all {
		slices.Sort(s.To)
		slices.Sort(s.From)
		slices.Sort(s.Problems)
		slices.Sort(s.Notes)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b SharedService) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
