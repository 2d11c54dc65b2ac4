package nettest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/peering"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

// prepare creates what is tested and waits until it is ready. What an earlier run left is
// reused.
func (r *run) prepare(ctx context.Context) error {
	if err := r.each(func(s *site) error { return s.startPods(ctx) }); err != nil {
		return err
	}
	if err := r.each(func(s *site) error { return s.waitForPods(ctx) }); err != nil {
		return err
	}
	if err := r.each(func(s *site) error { return s.export(ctx) }); err != nil {
		return err
	}
	return r.each(func(s *site) error { return s.prepareServices(ctx) })
}

func (s *site) startPods(ctx context.Context) error {
	if err := s.readNodes(ctx); err != nil {
		return err
	}
	namespaces := []string{Namespace}
	if !s.Basic {
		namespaces = append(namespaces, HostNamespace)
	}
	for _, ns := range namespaces {
		w := workload{namespace: ns, cluster: s.inv.ID, image: s.image, pull: s.pull, replicas: s.Replicas}
		if err := s.start(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) start(ctx context.Context, w workload) error {
	if err := s.freeNamespace(ctx, w.namespace); err != nil {
		return err
	}
	if err := s.apply(ctx, newNamespace(w.namespace)); err != nil {
		return err
	}
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, w.other())); err != nil {
		return s.Explain("delete what an earlier test left in namespace "+w.namespace, err)
	}
	return s.apply(ctx, w.object())
}

// freeNamespace waits until a namespace that is being deleted is gone, and refuses one that
// this command did not create.
func (s *site) freeNamespace(ctx context.Context, name string) error {
	return s.poll(ctx, "Waiting until namespace "+name+" is gone", func(ctx context.Context) (string, error) {
		var ns corev1.Namespace
		err := s.Client.Get(ctx, types.NamespacedName{Name: name}, &ns)
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil:
			return "", s.Explain("read namespace "+name, err)
		case ns.DeletionTimestamp != nil:
			return "it is being deleted", nil
		case ns.Labels[peering.LabelManagedBy] != peering.FieldOwner:
			return "", s.Errorf("namespace %s exists but was not created by this command: delete it, or label it %s=%s so that it is used", name, peering.LabelManagedBy, peering.FieldOwner)
		}
		return "", nil
	})
}

// apply creates or updates an object.
func (s *site) apply(ctx context.Context, o client.Object) error {
	what := fmt.Sprintf("%s %s", o.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(o))
	o.SetLabels(merged(s.Labels, o.GetLabels()))
	o.SetAnnotations(merged(s.Annotations, o.GetAnnotations()))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return s.Explain("write "+what, err)
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	err = s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(peering.FieldOwner), client.ForceOwnership)
	return s.Explain("write "+what, err)
}

// merged is the user's map with our own entries, which take precedence.
func merged(user, own map[string]string) map[string]string {
	out := maps.Clone(user)
	if out == nil {
		return own
	}
	maps.Copy(out, own)
	return out
}

func (s *site) readNodes(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := s.Client.List(ctx, &nodes); err != nil {
		return s.Explain("list nodes", err)
	}
	for _, n := range nodes.Items {
		if n.Labels["liqo.io/type"] != "virtual-node" {
			s.inv.Nodes = append(s.inv.Nodes, nodeOf(&n))
		}
	}
	slices.SortFunc(s.inv.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

func nodeOf(n *corev1.Node) Node {
	out := Node{Name: n.Name}
	_, out.ControlPlane = n.Labels["node-role.kubernetes.io/control-plane"]
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue // a name
		}
		switch {
		case a.Type == corev1.NodeInternalIP && !out.InternalIP.IsValid():
			out.InternalIP = ip
		case a.Type == corev1.NodeExternalIP && !out.ExternalIP.IsValid():
			out.ExternalIP = ip
		}
	}
	return out
}

// prepareServices creates the Services for the peers, whose pods are known by now, and the
// address for the outside host.
func (s *site) prepareServices(ctx context.Context) error {
	if s.ExternalIP {
		if err := s.prepareExternalIP(ctx); err != nil {
			return err
		}
	}
	t := corev1.ServiceTypeClusterIP
	switch {
	case s.LoadBalancer:
		t = corev1.ServiceTypeLoadBalancer
	case s.PodNodePort || s.ExternalNodePort:
		t = corev1.ServiceTypeNodePort
	case s.Basic:
		return nil
	}
	for _, peer := range s.peersOf(s) {
		if err := s.prepareService(ctx, peer, t); err != nil {
			return err
		}
		if s.shares && peer.inv.Exports {
			if err := s.awaitImport(ctx, peer); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) prepareService(ctx context.Context, peer *site, t corev1.ServiceType) error {
	var addresses []netip.Addr
	for _, p := range peer.inv.Probers {
		if a := peering.Translate(s.inv.view(peer.inv.ID).Pod, p.IP); a.IsValid() {
			addresses = append(addresses, a)
		}
	}
	if err := errors.Join(s.apply(ctx, newService(peer.inv.ID, t)), s.apply(ctx, newEndpoints(peer.inv.ID, addresses))); err != nil {
		return err
	}
	name := types.NamespacedName{Namespace: Namespace, Name: serviceName(peer.inv.ID)}
	var live corev1.Service
	waited := time.Now()
	err := s.poll(ctx, fmt.Sprintf("Waiting for Service %s", name), func(ctx context.Context) (string, error) {
		if err := s.Client.Get(ctx, name, &live); err != nil {
			return "", s.Explain(fmt.Sprintf("read Service %s", name), err)
		}
		if s.LoadBalancer && len(live.Status.LoadBalancer.Ingress) == 0 && time.Since(waited) < balancerTimeout {
			return "no load balancer has assigned an address yet", nil
		}
		return "", nil
	})
	s.inv.Services = append(s.inv.Services, serviceOf(peer.inv.ID, &live))
	return err
}

// balancerTimeout is how long a cloud may take to provide a load balancer. Without one, the
// checks that need it fail and the others run.
const balancerTimeout = 90 * time.Second

func serviceOf(peer string, o *corev1.Service) Service {
	out := Service{Peer: peer}
	out.ClusterIP, _ = netip.ParseAddr(o.Spec.ClusterIP) // none: not valid
	for _, p := range o.Spec.Ports {
		out.NodePort = uint16(p.NodePort)
	}
	for _, in := range o.Status.LoadBalancer.Ingress {
		out.Balancer = cmp.Or(in.IP, in.Hostname)
	}
	return out
}

func (s *site) prepareExternalIP(ctx context.Context) error {
	wanted := newExternalIP(s.Internet)
	name := client.ObjectKeyFromObject(wanted)
	var live ipamv1alpha1.IP
	// spec.ip cannot be changed: an object with another one must be deleted first.
	if err := s.Client.Get(ctx, name, &live); err == nil && live.Spec.IP != wanted.Spec.IP {
		if err := s.Client.Delete(ctx, &live); err != nil {
			return s.Explain(fmt.Sprintf("delete IP %s", name), err)
		}
	}
	return s.poll(ctx, fmt.Sprintf("Waiting for IP %s", name), func(ctx context.Context) (string, error) {
		if err := s.apply(ctx, newExternalIP(s.Internet)); err != nil && !apierrors.IsInvalid(err) { // the old one, which is being deleted
			return "", err
		}
		if err := s.Client.Get(ctx, name, &live); err != nil {
			return "", s.Explain(fmt.Sprintf("read IP %s", name), err)
		}
		if live.DeletionTimestamp != nil || live.Status.IP == "" {
			return "the controllers have not assigned an address yet", nil
		}
		var err error
		s.inv.ExternalIP, err = netip.ParseAddr(string(live.Status.IP))
		return "", err
	})
}

// poll calls check until nothing is missing, and meanwhile reports what is missing. If ctx
// ends first, the error says what was still missing.
func (s *site) poll(ctx context.Context, what string, check func(context.Context) (missing string, err error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for last := ""; ; {
		missing, err := check(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && missing == "" {
			return nil
		}
		if missing != "" && missing != last {
			last = missing
			s.say.Waiting(s.Name, what+": "+missing)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return s.Errorf("%s: interrupted: %w", lowerFirst(what), ctx.Err())
			}
			return s.Errorf("%s: %s", lowerFirst(what), cmp.Or(last, "no answer")) // late adds that the time is up
		case <-tick.C:
		}
	}
}

// pollInterval is short to a person and long to an API server.
const pollInterval = 500 * time.Millisecond
