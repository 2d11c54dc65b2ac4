package nettest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// importTimeout is how long clusters may take to share a Service, which they do in a second. Then the checks that need it
// are skipped, or fail if the peer says that it is exported, and the others run.
const importTimeout = 30 * time.Second

// exportedName is the name of the Service that a cluster exports.
func exportedName(cluster string) string { return "of-" + peering.GatewayName(cluster) }

// newExported returns a Service of the probers of a cluster, and its export to these peers alone.
func newExported(cluster string, peers []string) []client.Object {
	export := metaOf(Namespace, exportedName(cluster))
	export.Annotations = map[string]string{networkingv1beta1.AnnotationExportTo: strings.Join(peers, ",")}
	return []client.Object{
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metaOf(Namespace, exportedName(cluster)),
			Spec: corev1.ServiceSpec{Selector: map[string]string{labelName: workloadName}, Ports: servicePorts()},
		},
		&mcsv1beta1.ServiceExport{
			TypeMeta:   metav1.TypeMeta{APIVersion: mcsv1beta1.SchemeGroupVersion.String(), Kind: mcsv1beta1.ServiceExportKindName},
			ObjectMeta: export,
		},
	}
}

// sharesServices tells whether a controller with these arguments shares Services with other clusters.
func sharesServices(p *corev1.PodSpec) bool {
	return slices.ContainsFunc(p.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Args, func(a string) bool { return a == "--services" || a == "--services=true" })
	})
}

// toShare is a right that only the checks of exported Services need: without it they are skipped.
func toShare(verb, resource string) access.Permission {
	return access.Permission{Verb: verb, Group: mcsv1beta1.GroupName, Resource: resource, Namespace: Namespace}
}

// skipForbidden notes that exported Services are not tested, if err says that the user may not do what p allows. Other errors
// are returned.
func (s *site) skipForbidden(p access.Permission, err error) (skipped bool, _ error) {
	if !apierrors.IsForbidden(err) || access.IsAnonymous(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false, err
	}
	s.skip(s, fmt.Sprintf("exported Services are not tested: the user of %s lacks the right %q", s.Origin, p))
	return true, nil
}

// export exports the Service of a cluster that shares Services to the peers that do, and waits for what the controller says
// of it.
func (s *site) export(ctx context.Context) error {
	if !s.shares || s.Basic {
		return nil
	}
	var peers []string
	for _, p := range s.peersOf(s) {
		if p.shares {
			peers = append(peers, p.inv.ID)
		}
	}
	if len(peers) == 0 {
		return nil
	}
	for _, o := range newExported(s.inv.ID, peers) {
		if err := s.apply(ctx, o); err != nil {
			if _, ok := o.(*mcsv1beta1.ServiceExport); !ok {
				return err
			}
			_, err = s.skipForbidden(toShare("patch", "serviceexports"), err)
			return err
		}
	}
	name, began := types.NamespacedName{Namespace: Namespace, Name: exportedName(s.inv.ID)}, time.Now()
	return s.poll(ctx, fmt.Sprintf("Waiting for ServiceExport %s", name), func(ctx context.Context) (string, error) {
		var live mcsv1beta1.ServiceExport
		if err := s.Client.Get(ctx, name, &live); err != nil {
			_, err = s.skipForbidden(toShare("get", "serviceexports"), s.Explain(fmt.Sprintf("read ServiceExport %s", name), err))
			return "", err
		}
		missing := notExported(live.Status.Conditions)
		s.inv.Exports = missing == ""
		if missing == "" || time.Since(began) < importTimeout {
			return missing, nil
		}
		s.skip(s, fmt.Sprintf("exported Services are not tested: ServiceExport %s after %v: %s; see that the pods of the controller run in namespace %s, and 'liqoctl network doctor'",
			name, importTimeout, missing, s.LiqoNamespace))
		return "", nil
	})
}

// notExported says why a ServiceExport with these conditions is not exported; empty: it is. Any reason may pass: the
// controller may not have seen the Service or the peering yet.
func notExported(conditions []metav1.Condition) string {
	valid := meta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionValid))
	ready := meta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionReady))
	switch {
	case ready == nil:
		return "no controller has processed it yet"
	case ready.Status == metav1.ConditionTrue:
		return ""
	case valid != nil && valid.Status != metav1.ConditionTrue:
		return cmp.Or(valid.Message, valid.Reason, "it is not valid")
	default:
		return cmp.Or(ready.Message, ready.Reason, "it is not ready")
	}
}

// awaitImport waits for the Service that a peer exports.
func (s *site) awaitImport(ctx context.Context, peer *site) error {
	name := types.NamespacedName{Namespace: Namespace, Name: exportedName(peer.inv.ID)}
	out, waited, skipped := Service{Peer: peer.inv.ID}, time.Now(), false
	err := s.poll(ctx, fmt.Sprintf("Waiting for ServiceImport %s", name), func(ctx context.Context) (string, error) {
		var live mcsv1beta1.ServiceImport
		err := s.Client.Get(ctx, name, &live)
		if err != nil && !apierrors.IsNotFound(err) {
			skipped, err = s.skipForbidden(toShare("get", "serviceimports"), s.Explain(fmt.Sprintf("read ServiceImport %s", name), err))
			return "", err
		}
		if len(live.Spec.IPs) > 0 {
			out.ClusterIP, _ = netip.ParseAddr(live.Spec.IPs[0]) // none: not valid
			return "", nil
		}
		if time.Since(waited) > importTimeout {
			return "", nil
		}
		return "it has no address yet", nil
	})
	if !skipped {
		s.inv.Imported = append(s.inv.Imported, out)
	}
	return err
}

// podToExported plans checks of the Services that peers export.
func (p *planner) podToExported(from *Inventory) (checks []Check) {
	for _, peer := range p.peers(from) {
		i := slices.IndexFunc(from.Imported, func(s Service) bool { return s.Peer == peer.ID })
		if i < 0 {
			continue
		}
		for _, pod := range from.Probers {
			c := toService(PodToExported, from, peer, pod, &from.Imported[i])
			c.To.Name = peer.ID + ": exported Service"
			if c.URL == "" {
				c.Missing = "the Service that the peer exports has not arrived: see 'liqoctl get services -o wide' and 'liqoctl network doctor'"
			}
			checks = append(checks, c)
		}
	}
	return checks
}
