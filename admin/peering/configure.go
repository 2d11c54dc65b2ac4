package peering

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// identity tells that the preflight found out who the cluster is.
func (e *end) identity() *step {
	return &step{in: e.Cluster, done: "Cluster identity correctly retrieved"}
}

// readNetwork reads the CIDRs that the cluster uses itself.
func (e *end) readNetwork() *step {
	return &step{
		in: e.Cluster, waiting: "Retrieving network configuration", done: "Network configuration correctly retrieved",
		try: func(ctx context.Context) (missing string, err error) {
			e.network, err = LocalNetwork(ctx, e.Cluster)
			if errors.Is(err, ErrNotReady) {
				return err.Error(), nil
			}
			if err == nil {
				err = e.spell(ctx)
			}
			return "", err
		},
		clues: e.controllerClues,
	}
}

// spell writes the CIDRs of the cluster as lists where Liqo runs at either end: its CRD and its tools know nothing else.
// Elsewhere one stands as a string, as in the documents.
func (e *end) spell(ctx context.Context) error {
	for _, x := range []*end{e, e.peer} {
		liqo, err := LiqoRuns(ctx, x.Cluster)
		if err != nil {
			return err
		}
		if liqo {
			e.lists = true
			e.network.AsLists()
		}
	}
	return nil
}

// configure tells the cluster the network of its peer.
func (e *end) configure() *step {
	s := &step{in: e.Cluster, waiting: "Setting up network configuration", done: "Network configuration correctly set up"}
	s.try = func(ctx context.Context) (missing string, err error) {
		if err := e.ensureNamespace(ctx); err != nil {
			return "", err
		}
		var live networkingv1beta1.Configuration
		name := e.named(e.configuration())
		switch err := e.Client.Get(ctx, name, &live); {
		case apierrors.IsNotFound(err):
			wanted := NewConfiguration(e.metadata(name.Name), e.peer.network)
			return "", e.Explain("create Configuration "+name.String(), e.write.Create(ctx, wanted))
		case err != nil:
			return "", e.Explain("read Configuration "+name.String(), err)
		case live.DeletionTimestamp != nil:
			return "Configuration " + name.String() + " is being deleted", nil
		}
		before, same := live.DeepCopy(), sameNetwork(live.Spec.Remote, e.peer.network)
		lists := e.peer.lists && live.Spec.AsLists()
		if same && !lists {
			return "", nil
		}
		if !same {
			live.Spec.Remote = e.peer.network
		}
		if err := e.write.Patch(ctx, &live, client.MergeFrom(before)); err != nil {
			return "", e.Explain("change Configuration "+name.String(), err)
		}
		if same {
			s.note(progress.Done, fmt.Sprintf("Configuration %s has its CIDRs as lists now: Liqo reads nothing else", name))
			return "", nil
		}
		e.corrected = true
		s.note(progress.Warning, fmt.Sprintf("Configuration %s had CIDRs other than those of cluster %s: corrected", name, e.peer.id))
		return "", nil
	}
	return s
}

// ensureNamespace makes the tenant namespace if it is not there. One that is
// there is used as it is.
func (e *end) ensureNamespace(ctx context.Context) error {
	if e.namespaceFound() != nil {
		return nil
	}
	liqo, err := e.liqo(ctx, e.Cluster)
	if err != nil {
		return err
	}
	err = e.write.Create(ctx, NewTenantNamespace(e.metadata(e.namespace), liqo))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return e.Explain("create namespace "+e.namespace, err)
}

// sameNetwork compares CIDRs, in whatever shape and order they are written.
func sameNetwork(a, b networkingv1beta1.ClusterConfig) bool {
	return sameCIDRs(a.CIDR.Pod, b.CIDR.Pod) && sameCIDRs(a.CIDR.External, b.CIDR.External)
}

func sameCIDRs(a, b networkingv1beta1.CIDRs) bool {
	as, errA := a.Prefixes()
	bs, errB := b.Prefixes()
	if errA != nil || errB != nil || len(as) != len(bs) {
		return false
	}
	return !slices.ContainsFunc(as, func(p netip.Prefix) bool { return !slices.Contains(bs, p) })
}

// remapped waits until the cluster knows by which CIDRs it reaches its peer.
func (e *end) remapped() *step {
	s := &step{in: e.Cluster, waiting: "Waiting for Configuration to be applied", done: "Configuration applied successfully", clues: e.configurationClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		var c networkingv1beta1.Configuration
		name := e.named(e.configuration())
		if err := e.Client.Get(ctx, name, &c); err != nil {
			return "", e.Explain("read Configuration "+name.String(), err)
		}
		missing, err = configurationMissing(&c)
		if missing == "" && err == nil && e.corrected && c.Status.Remote != nil {
			// How they were remapped while the Configuration was wrong is no longer known.
			e.corrected = false
			s.note(progress.Warning, fmt.Sprintf("Pods of cluster %s are now reached as %s, its external addresses as %s: check whether anything still uses other addresses",
				e.peer.id, text.Join(c.Status.Remote.CIDR.Pod.List, " and "), text.Join(c.Status.Remote.CIDR.External.List, " and ")))
		}
		return missing, err
	}
	return s
}

// configurationMissing is what a Configuration waits for.
func configurationMissing(c *networkingv1beta1.Configuration) (missing string, err error) {
	what := fmt.Sprintf("Configuration %s/%s", c.Namespace, c.Name)
	cond := meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionNetworkCIDRsConfigured))
	switch {
	case cond == nil && c.Status.Remote != nil: // by controllers that know no conditions
		return "", nil
	case cond == nil:
		return what + " has no status: no controller has processed it yet", nil
	case cond.ObservedGeneration < c.Generation:
		return what + ": no controller has processed its latest version yet", nil
	case cond.Status == metav1.ConditionTrue:
		return "", nil
	}
	text := what + ": " + cond.Message
	switch networkingv1beta1.ConditionReason(cond.Reason) {
	case networkingv1beta1.ReasonInvalidConfiguration, networkingv1beta1.ReasonDuplicateConfiguration, networkingv1beta1.ReasonNetworkRefused:
		return "", &complaint{text}
	}
	return text, nil
}

// initialized tells that the cluster knows its peer's network.
func (e *end) initialized() *step { return &step{in: e.Cluster, done: "Network correctly initialized"} }
