package access

import (
	"context"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// What 'liqoctl install --adopt' makes of its own while it takes over the network of Liqo, and changes of Liqo's.
const (
	// LabelAdoption is on every object that an adoption or a takeover makes.
	LabelAdoption = "networking.liqo.io/adoption"
	// TakeoverPolicy is the name of the policy, and of its binding, which refuses to Liqo what it writes of the network.
	TakeoverPolicy = "liqo-network.sluice.liqo.io"
	// KeptCRDs is the ConfigMap in which Liqo's CRDs are kept while ours are in their place.
	KeptCRDs = "sluice-liqo-crds"
	// HandedOverKey is the key in the nodeSelector of Liqo's node agent for which there are no nodes.
	HandedOverKey = "networking.liqo.io/handed-over-to-sluice"
	// TrialName is the label of what tries an image; TrialController and TrialFabric are its names.
	TrialName       = "sluice-trial"
	TrialController = TrialName + "-controller"
	TrialFabric     = TrialName + "-fabric"
)

// What our programs are called in a cluster.
const (
	// ControllerName is the Deployment of our controller.
	ControllerName = "liqo-controller"
	// FabricName is the DaemonSet of our node agents.
	FabricName = "liqo-fabric"
	// FabricSuffix ends the name of the namespace of the node agents, after that of the installation.
	FabricSuffix = "-fabric"
)

// takeoverState is what there is of a takeover, each as people know it.
type takeoverState struct {
	// policies are those that refuse something to Liqo, ended its node agents without nodes.
	policies, ended []string
	// others are what is there of it beside that.
	others []string
	// missing are those of our programs that are not there; where there is nothing else they are not looked for.
	missing []string
	// hiddenPolicies counts the policies that the user may not read, hiddenAgents is the same of Liqo's node agents. They are
	// taken to be as after a takeover, so that the rest decides. unknown is why something could not be read.
	hiddenPolicies int
	hiddenAgents   bool
	unknown        error
}

// Interrupted tells what is left of a takeover of Liqo's network, or of the way back, that has not come to its end, and how to
// go on. Empty: there is nothing of one, or Sluice runs the network. What the user may not read is an error only where the rest
// tells of a takeover, but not how it ended.
func (c *Cluster) Interrupted(ctx context.Context) (string, error) {
	s, err := c.takeoverState(ctx)
	what := s.interrupted()
	if err == nil && what == "" && len(s.there()) > 0 {
		err = s.unknown
	}
	if err != nil || what == "" {
		return "", c.Explain("look for an interrupted takeover", err)
	}
	return what + ": '" + c.Command("install", "--adopt") + "' takes the network over, '" + c.Command("uninstall", "--hand-back") + "' gives it back to Liqo", nil
}

// there is what tells of a takeover.
func (s takeoverState) there() []string { return slices.Concat(s.policies, s.ended, s.others) }

// interrupted decides.
func (s takeoverState) interrupted() string {
	there := s.there()
	if len(there) == 0 || len(s.policies)+s.hiddenPolicies == 2 && (len(s.ended) > 0 || s.hiddenAgents) && len(s.missing) == 0 {
		return ""
	}
	what := "the takeover of Liqo's network, or the way back, is under way or was interrupted: there is " + strings.Join(there, ", ")
	if len(s.missing) > 0 {
		what += "; there is no " + strings.Join(s.missing, ", no ")
	}
	if len(s.policies) == 2 && len(s.missing) > 0 {
		what += "; Liqo's controllers may write nothing of the network"
	}
	return what
}

// takeoverState reads it.
func (c *Cluster) takeoverState(ctx context.Context) (s takeoverState, err error) {
	var agents appsv1.DaemonSetList
	if err := c.Client.List(ctx, &agents, client.InNamespace(c.LiqoNamespace)); hidden(err) {
		s.hiddenAgents, s.unknown = true, err
	} else if err != nil {
		return s, err
	}
	for _, d := range agents.Items {
		if _, handedOver := d.Spec.Template.Spec.NodeSelector[HandedOverKey]; handedOver {
			s.ended = append(s.ended, "DaemonSet "+client.ObjectKeyFromObject(&d).String()+" without nodes")
		}
	}
	fabric := c.LiqoNamespace + FabricSuffix
	for _, o := range []struct {
		group, version, kind, namespace, name string
		program                               bool
		to                                    *[]string
	}{
		{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "", TakeoverPolicy, false, &s.policies},
		{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "", TakeoverPolicy, false, &s.policies},
		{"", "v1", "ConfigMap", c.LiqoNamespace, KeptCRDs, false, &s.others},
		{"", "v1", "Pod", c.LiqoNamespace, TrialController, false, &s.others},
		{"apps", "v1", "DaemonSet", fabric, TrialFabric, false, &s.others},
		{"apps", "v1", "Deployment", c.LiqoNamespace, ControllerName, true, &s.missing},
		{"apps", "v1", "DaemonSet", fabric, FabricName, true, &s.missing},
	} {
		if o.program && len(s.there()) == 0 { // then they tell nothing
			continue
		}
		m := new(metav1.PartialObjectMetadata)
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: o.group, Version: o.version, Kind: o.kind})
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, m)
		switch {
		case hidden(err): // the role view, for one, has no policies
			s.unknown = err
			if o.to == &s.policies {
				s.hiddenPolicies++
			}
			continue
		case client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err): // an old cluster knows no such policies
			return s, err
		}
		there := err == nil && (o.program || m.Labels[LabelAdoption] == networkingv1beta1.LabelTrue)
		if there != o.program {
			*o.to = append(*o.to, o.kind+" "+path.Join(o.namespace, o.name))
		}
	}
	return s, nil
}

// hidden tells whether a user who is known may not read something.
func hidden(err error) bool { return apierrors.IsForbidden(err) && !IsAnonymous(err) }
