package nettest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/peering"
)

// importTimeout is how long clusters may take to share a Service, which they do in a second. Then the checks that need it
// fail and the others run.
const importTimeout = 30 * time.Second

// exportedName is the name of the Service that a cluster exports.
func exportedName(cluster string) string { return "of-" + peering.GatewayName(cluster) }

// newExported returns a Service of the probers of a cluster, and its export.
func newExported(cluster string) []client.Object {
	return []client.Object{
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metaOf(Namespace, exportedName(cluster)),
			Spec: corev1.ServiceSpec{Selector: map[string]string{labelName: workloadName}, Ports: servicePorts()},
		},
		&mcsv1beta1.ServiceExport{
			TypeMeta:   metav1.TypeMeta{APIVersion: mcsv1beta1.SchemeGroupVersion.String(), Kind: mcsv1beta1.ServiceExportKindName},
			ObjectMeta: metaOf(Namespace, exportedName(cluster)),
		},
	}
}

// sharesServices tells whether a controller with these arguments shares Services with other clusters.
func sharesServices(p *corev1.PodSpec) bool {
	return slices.ContainsFunc(p.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Args, func(a string) bool { return a == "--services" || a == "--services=true" })
	})
}

// export exports the Service of a cluster that shares Services, and waits for what the controller says of it.
func (s *site) export(ctx context.Context) error {
	if !s.shares || s.Basic || !slices.ContainsFunc(s.peersOf(s), func(p *site) bool { return p.shares }) {
		return nil
	}
	for _, o := range newExported(s.inv.ID) {
		if err := s.apply(ctx, o); err != nil {
			return err
		}
	}
	name := types.NamespacedName{Namespace: Namespace, Name: exportedName(s.inv.ID)}
	return s.poll(ctx, fmt.Sprintf("Waiting for ServiceExport %s", name), func(ctx context.Context) (string, error) {
		var live mcsv1beta1.ServiceExport
		if err := s.Client.Get(ctx, name, &live); err != nil {
			return "", s.Explain(fmt.Sprintf("read ServiceExport %s", name), err)
		}
		c := meta.FindStatusCondition(live.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		switch {
		case c == nil:
			return "no controller has processed it yet", nil
		case c.Status != metav1.ConditionTrue:
			s.skip(s, "exported Services are not tested: "+c.Message)
		default:
			s.inv.Exports = true
		}
		return "", nil
	})
}

// awaitImport waits for the Service that a peer exports.
func (s *site) awaitImport(ctx context.Context, peer *site) error {
	name := types.NamespacedName{Namespace: Namespace, Name: exportedName(peer.inv.ID)}
	out, waited := Service{Peer: peer.inv.ID}, time.Now()
	err := s.poll(ctx, fmt.Sprintf("Waiting for ServiceImport %s", name), func(ctx context.Context) (string, error) {
		var live mcsv1beta1.ServiceImport
		err := s.Client.Get(ctx, name, &live)
		if err != nil && !apierrors.IsNotFound(err) {
			return "", s.Explain(fmt.Sprintf("read ServiceImport %s", name), err)
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
	s.inv.Imported = append(s.inv.Imported, out)
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
