package nettest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// identify finds out which clusters these are and how they address each other.
// Nothing is changed before it has succeeded.
func (r *run) identify(ctx context.Context) error {
	uids := make(map[types.UID]*site)
	if err := r.each(func(s *site) (err error) { s.inv.ID, err = s.ID(ctx); return err }); err != nil {
		return err
	}
	if err := r.each(func(s *site) error { return s.identify(ctx) }); err != nil {
		return err
	}
	for _, s := range r.sites {
		uid, err := s.UID(ctx)
		if err != nil {
			return err
		}
		if other := uids[uid]; other != nil {
			return fmt.Errorf("%s and %s are the same cluster, %s: name a different one with --remote-kubeconfig or --remote-context", other.Name, s.Name, s.inv.ID)
		}
		uids[uid] = s
	}
	return r.arePeered()
}

// arePeered requires that the first cluster is peered with all others.
func (r *run) arePeered() error {
	first := r.sites[0]
	for i, s := range r.sites {
		if i == 0 {
			continue
		}
		for _, pair := range [][2]*site{{first, s}, {s, first}} {
			if pair[0].inv.view(pair[1].inv.ID) == nil {
				return pair[0].Errorf("cluster %s has no Configuration for cluster %s, so they are not connected: run 'liqoctl network connect' first, or 'liqoctl network status' to see the existing peerings",
					pair[0].inv.ID, pair[1].inv.ID)
			}
		}
		r.say.Done("", fmt.Sprintf("Testing the network between clusters %s and %s", first.inv.ID, s.inv.ID))
	}
	return nil
}

// identify reads how one cluster addresses the others.
func (s *site) identify(ctx context.Context) error {
	if err := s.Require(ctx, s.rights()...); err != nil {
		return err
	}
	var list networkingv1beta1.ConfigurationList
	if err := s.Client.List(ctx, &list); err != nil {
		return s.Explain("list Configurations", err)
	}
	for i := range list.Items {
		of := list.Items[i].Labels[networkingv1beta1.LabelRemoteClusterID]
		if !slices.ContainsFunc(s.sites, func(o *site) bool { return o != s && o.inv.ID == of }) {
			continue // a peer that is not tested
		}
		v, err := viewOf(&list.Items[i])
		if err != nil {
			return s.Errorf("%w", err)
		}
		s.inv.Views = append(s.inv.Views, v)
	}
	return s.readInstallation(ctx)
}

// rights are what a test needs. Without those to share Services it skips the checks of these.
func (s *site) rights() []access.Permission {
	need := []access.Permission{
		{Verb: "list", Group: networkingv1beta1.GroupVersion.Group, Resource: "configurations"},
		{Verb: "list", Resource: "nodes"},
		{Verb: "patch", Resource: "namespaces"},
		{Verb: "patch", Group: "apps", Resource: "daemonsets", Namespace: Namespace},
		{Verb: "list", Resource: "pods", Namespace: Namespace},
		{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: Namespace},
	}
	if !s.Basic {
		need = append(need, access.Permission{Verb: "patch", Resource: "services", Namespace: Namespace},
			access.Permission{Verb: "patch", Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: Namespace})
	}
	return need
}

// readInstallation finds the image of the prober, and whether nodes hide pod addresses.
func (s *site) readInstallation(ctx context.Context) error {
	s.image = s.Image
	var deployments appsv1.DeploymentList
	if err := s.Client.List(ctx, &deployments, client.InNamespace(s.LiqoNamespace)); err != nil {
		return s.Explain("list Deployments in "+s.LiqoNamespace, err)
	}
	for i := range deployments.Items {
		spec := &deployments.Items[i].Spec.Template.Spec
		for _, c := range spec.Containers {
			if image := besides(c.Image); image != "" {
				s.image, s.pull = cmp.Or(s.image, image), spec.ImagePullSecrets
				s.shares = s.shares || sharesServices(spec)
			}
		}
	}
	if s.image == "" {
		return s.Errorf("the prober's image cannot be derived from the image of a controller in namespace %s: name it with --image", s.LiqoNamespace)
	}
	var agents appsv1.DaemonSetList
	for _, namespace := range []string{s.LiqoNamespace, s.LiqoNamespace + access.FabricSuffix} {
		if err := s.Client.List(ctx, &agents, client.InNamespace(namespace), client.MatchingLabels{labelName: access.FabricName}); err != nil {
			return s.Explain("list DaemonSets in "+namespace, err)
		}
		for i := range agents.Items {
			s.inv.HidesPods = s.inv.HidesPods || hidesPods(&agents.Items[i].Spec.Template.Spec)
		}
	}
	return nil
}

// besides returns the prober's image that goes with an image of the controller: same
// registry, same tag.
func besides(controller string) string {
	repository, _, _ := strings.Cut(controller, "@")
	tag := ""
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:i], repository[i:]
	}
	base, found := strings.CutSuffix(repository, "controller")
	if !found || base != "" && !strings.HasSuffix(base, "/") {
		return ""
	}
	return base + "prober" + tag
}

// hidesPods reads the arguments of the node agent.
func hidesPods(p *corev1.PodSpec) bool {
	for _, c := range p.Containers {
		for _, a := range c.Args {
			if a == "--full-masquerade" || a == "--full-masquerade=true" {
				return true
			}
		}
	}
	return false
}
