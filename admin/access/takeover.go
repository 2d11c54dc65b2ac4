package access

import (
	"context"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
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
	// TrialName begins the names of what tries an image, and is its label.
	TrialName = "sluice-trial"
)

// takeoverState is what there is of a takeover, each as people know it.
type takeoverState struct {
	// policies are those that refuse something to Liqo, ended its node agents without nodes.
	policies, ended []string
	// others are what is there of it beside that.
	others []string
	// missing are those of our programs that are not there.
	missing []string
}

// Interrupted tells what is left of a takeover of Liqo's network, or of the way back, that has not come to its end, and how to
// go on. Empty: there is nothing of one, or Sluice runs the network.
func (c *Cluster) Interrupted(ctx context.Context) (string, error) {
	s, err := c.takeoverState(ctx)
	if err != nil {
		return "", c.Explain("look for an interrupted takeover", err)
	}
	what := s.interrupted()
	if what == "" {
		return "", nil
	}
	return what + ": '" + c.Command("install", "--adopt") + "' takes the network over, '" + c.Command("uninstall", "--hand-back") + "' gives it back to Liqo", nil
}

// interrupted decides.
func (s takeoverState) interrupted() string {
	there := slices.Concat(s.policies, s.ended, s.others)
	if len(there) == 0 || len(s.policies) == 2 && len(s.ended) > 0 && len(s.missing) == 0 {
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
	fabric := c.LiqoNamespace + "-fabric"
	for _, o := range []struct {
		group, version, kind, namespace, name string
		program                               bool
		to                                    *[]string
	}{
		{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "", TakeoverPolicy, false, &s.policies},
		{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "", TakeoverPolicy, false, &s.policies},
		{"", "v1", "ConfigMap", c.LiqoNamespace, KeptCRDs, false, &s.others},
		{"", "v1", "Pod", c.LiqoNamespace, TrialName + "-controller", false, &s.others},
		{"apps", "v1", "DaemonSet", fabric, TrialName + "-fabric", false, &s.others},
		{"apps", "v1", "Deployment", c.LiqoNamespace, "liqo-controller", true, &s.missing},
		{"apps", "v1", "DaemonSet", fabric, "liqo-fabric", true, &s.missing},
	} {
		m := new(metav1.PartialObjectMetadata)
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: o.group, Version: o.version, Kind: o.kind})
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, m)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) { // an old cluster knows no such policies
			return s, err
		}
		there := err == nil && (o.program || m.Labels[LabelAdoption] == networkingv1beta1.LabelTrue)
		if there != o.program {
			*o.to = append(*o.to, o.kind+" "+path.Join(o.namespace, o.name))
		}
	}
	var agents appsv1.DaemonSetList
	if err := c.Client.List(ctx, &agents, client.InNamespace(c.LiqoNamespace)); err != nil {
		return s, err
	}
	for _, d := range agents.Items {
		if _, handedOver := d.Spec.Template.Spec.NodeSelector[HandedOverKey]; handedOver {
			s.ended = append(s.ended, "DaemonSet "+client.ObjectKeyFromObject(&d).String()+" without nodes")
		}
	}
	return s, nil
}
