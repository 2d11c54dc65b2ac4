package peering

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// Selector returns the term of a cluster selector that means what text does in kubectl's -l: "region in (eu, us),gpu".
func Selector(text string) (corev1.NodeSelectorTerm, error) {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return corev1.NodeSelectorTerm{}, err
	}
	if len(requirements) == 0 {
		return corev1.NodeSelectorTerm{}, fmt.Errorf("it selects nothing: leave it out to select every cluster")
	}
	operators := map[selection.Operator]corev1.NodeSelectorOperator{
		selection.In: corev1.NodeSelectorOpIn, selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn,
		selection.NotIn: corev1.NodeSelectorOpNotIn, selection.NotEquals: corev1.NodeSelectorOpNotIn,
		selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
		selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
	}
	var term corev1.NodeSelectorTerm
	for _, r := range requirements {
		operator, ok := operators[r.Operator()]
		if !ok {
			return corev1.NodeSelectorTerm{}, fmt.Errorf("operator %q is not supported in a node selector", r.Operator())
		}
		e := corev1.NodeSelectorRequirement{Key: r.Key(), Operator: operator}
		if r.Values().Len() > 0 {
			e.Values = slices.Sorted(maps.Keys(r.Values()))
		}
		term.MatchExpressions = append(term.MatchExpressions, e)
	}
	return term, nil
}

// NewNamespaceOffloading returns what offloads the namespace of m.
func NewNamespaceOffloading(m Metadata, spec offloadingv1beta1.NamespaceOffloadingSpec) *offloadingv1beta1.NamespaceOffloading {
	o := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: offloadingv1beta1.NamespaceOffloadingName, Labels: m.Labels, Annotations: m.Annotations},
		Spec:       spec,
	}
	o.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("NamespaceOffloading"))
	return o
}

// Offload offloads a namespace of a cluster, or changes how it is, and waits until the providers have the namespace. It
// ends with what is offloaded where. That no provider is selected is a warning, as is that new pods stay here all the
// same.
func Offload(ctx context.Context, in *access.Cluster, wanted *offloadingv1beta1.NamespaceOffloading, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e := newEnd(in, &o)
	if err := e.checkOffloading(ctx); err != nil {
		return err
	}
	if err := e.checkNamespace(ctx, wanted.Namespace); err != nil {
		return err
	}
	var p plan
	made := p.add(nil, &step{
		in: in, waiting: "Enabling offloading", done: fmt.Sprintf("Offloading of namespace %q correctly enabled", wanted.Namespace),
		try: func(ctx context.Context) (missing string, err error) { return e.offloadingMade(ctx, wanted) },
	})
	ready := &step{in: in, waiting: "Waiting for the namespace at the providers", detailed: true, clues: e.controllerClues}
	ready.try = func(ctx context.Context) (missing string, err error) {
		live := new(offloadingv1beta1.NamespaceOffloading)
		if err := in.Client.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
			return "", in.Explain("read the NamespaceOffloading", err)
		}
		told, missing, err := offloaded(live)
		if missing == "" && err == nil {
			for _, line := range told {
				ready.note(line.Kind, line.Text)
			}
		}
		return missing, err
	}
	p.add(after(made), ready)
	return p.run(ctx, tell)
}

// checkOffloading fails if the controllers of the cluster do not take part in offloading: every step would wait in vain.
func (e *end) checkOffloading(ctx context.Context) error {
	enabled, err := e.offloads(ctx)
	if err == nil && !enabled {
		err = e.Errorf("offloading is not enabled in cluster %s (there is no ClusterRole %s); nothing was changed; to enable it: %s",
			cmp.Or(e.id, e.Where()), offloadingv1beta1.VirtualKubeletRemoteRole, e.enableOffloading())
	}
	return err
}

// checkNamespace fails for a namespace that is never offloaded. One that the user may not look at is judged by its name;
// the controllers judge it again.
func (e *end) checkNamespace(ctx context.Context, name string) error {
	var ns corev1.Namespace
	if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, &ns); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return e.Explain("read namespace "+name, err)
	}
	if why := reserved.FromOffloading(name, ns.Labels, e.LiqoNamespace); why != "" {
		return e.Errorf("%s; nothing was changed", why)
	}
	return nil
}

// enableOffloading is the command that enables offloading in the cluster. It keeps what else is set.
func (e *end) enableOffloading() string {
	return e.Command("install", "--set", "authentication.enabled=true", "--set", "offloading.enabled=true")
}

// offloads tells whether offloading is enabled. It says yes to a user who may not look: the step that waits reports the
// truth.
func (e *end) offloads(ctx context.Context) (bool, error) {
	is, _, err := e.hasRole(ctx, offloadingv1beta1.VirtualKubeletRemoteRole)
	return is, err
}

// seesOffloading tells whether this kubeconfig shows if offloading is enabled: that of a peering user does not, nor does
// it show Nodes.
func (e *end) seesOffloading(ctx context.Context) (bool, error) {
	_, seen, err := e.hasRole(ctx, offloadingv1beta1.VirtualKubeletRemoteRole)
	return seen, err
}

// offloaded tells how far the offloading of a namespace is: what is missing, or what it has come to, or why it failed.
//
//	phase                             the outcome
//	of an older version, none         is waited for
//	Ready                             where it is, for each provider
//	NoClusterSelected                 a warning: a provider may come later
//	SomeFailed, AllFailed             an error
//	another, but every provider has   where it is, and a warning: the API server of this cluster cannot make new pods fit
//	the namespace                     for virtual nodes
//	another                           is waited for
func offloaded(o *offloadingv1beta1.NamespaceOffloading) (told []progress.Event, missing string, err error) {
	if o.Status.ObservedGeneration < o.Generation || o.Status.OffloadingPhase == "" {
		return nil, "no controller has processed the latest version of NamespaceOffloading " + o.Namespace + "/" + o.Name + " yet", nil
	}
	var lacking, refused, unselected []string
	for _, id := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
		for _, c := range o.Status.RemoteNamespacesConditions[id] {
			text := fmt.Sprintf("cluster %s: %s", id, c.Message)
			switch {
			case c.Type != offloadingv1beta1.NamespaceReady && c.Status == corev1.ConditionTrue:
			case c.Type != offloadingv1beta1.NamespaceReady:
				unselected = append(unselected, text)
			case c.Status == corev1.ConditionTrue:
				told = append(told, progress.Event{Kind: progress.Done, Text: fmt.Sprintf("Namespace %q is offloaded to cluster %s, as %q", o.Namespace, id, o.Status.RemoteNamespaceName)})
			case c.Reason == offloadingv1beta1.ReasonPodAdmissionMissing:
				told = append(told, progress.Event{Kind: progress.Warning, Text: text})
			case c.Reason == offloadingv1beta1.ReasonCreationLoopBackOff:
				refused = append(refused, text)
			default:
				lacking = append(lacking, text)
			}
		}
	}
	switch o.Status.OffloadingPhase {
	case offloadingv1beta1.OffloadingNoClusterSelected:
		why := "there is no virtual node: create one with 'liqoctl peer' or 'liqoctl create virtualnode'"
		if len(unselected) > 0 {
			why = strings.Join(unselected, "; ")
		}
		return []progress.Event{{Kind: progress.Warning, Text: "Offloading completed, but no cluster was selected: " + why}}, "", nil
	case offloadingv1beta1.OffloadingSomeFailed, offloadingv1beta1.OffloadingAllFailed:
		return nil, "", &complaint{fmt.Sprintf("offloading of namespace %s, %s: %s", o.Namespace, o.Status.OffloadingPhase, strings.Join(append(refused, lacking...), "; "))}
	case offloadingv1beta1.OffloadingTerminating:
		return nil, "the NamespaceOffloading is being deleted", nil
	}
	if len(lacking)+len(refused) > 0 {
		return nil, strings.Join(append(refused, lacking...), "; "), nil
	}
	return append(told, progress.Event{Kind: progress.Done, Text: "Offloading completed successfully"}), "", nil
}

// offloadingMade makes the NamespaceOffloading, or changes the one that is there.
func (e *end) offloadingMade(ctx context.Context, wanted *offloadingv1beta1.NamespaceOffloading) (missing string, err error) {
	err = e.write.Create(ctx, wanted.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return "", e.Explain("create the NamespaceOffloading of "+wanted.Namespace, err)
	}
	live := new(offloadingv1beta1.NamespaceOffloading)
	if err := e.Client.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
		return "", e.Explain("read the NamespaceOffloading of "+wanted.Namespace, err)
	}
	if live.DeletionTimestamp != nil {
		return "an earlier NamespaceOffloading is being deleted", nil
	}
	if equality.Semantic.DeepEqual(live.Spec, wanted.Spec) {
		return "", nil
	}
	before := live.DeepCopy()
	live.Spec = wanted.Spec
	return "", e.Explain("change the NamespaceOffloading of "+wanted.Namespace, e.write.Patch(ctx, live, client.MergeFrom(before)))
}

// Unoffloading says what Unoffload does to some namespaces, for the user who is asked about it; nothing: none is offloaded.
func Unoffloading(ctx context.Context, in *access.Cluster, namespaces []string) (lines []string, err error) {
	for _, name := range namespaces {
		o := new(offloadingv1beta1.NamespaceOffloading)
		err := in.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: offloadingv1beta1.NamespaceOffloadingName}, o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, in.Explain("read the NamespaceOffloading of "+name, err)
		}
		lines = append(lines, fmt.Sprintf("Namespace %s in cluster %s stays, and is no longer offloaded:", name, in.Where()))
		lines = append(lines, unoffloading(o)...)
	}
	return lines, nil
}

// unoffloading says what goes with a NamespaceOffloading. A namespace that a provider has in the way is none of it.
func unoffloading(o *offloadingv1beta1.NamespaceOffloading) (lines []string) {
	for _, id := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
		if slices.ContainsFunc(o.Status.RemoteNamespacesConditions[id], func(c offloadingv1beta1.RemoteNamespaceCondition) bool {
			return c.Type == offloadingv1beta1.NamespaceReady && c.Reason != offloadingv1beta1.ReasonCreationLoopBackOff
		}) {
			lines = append(lines, fmt.Sprintf("  cluster %s deletes its namespace %s, with everything in it", id, o.Status.RemoteNamespaceName))
		}
	}
	if len(lines) == 0 {
		return []string{"  no other cluster has a namespace for it"}
	}
	return append(lines, "  pods that run there end; their controllers, such as Deployments, create new ones, which run in this cluster only")
}

// Unoffload ends the offloading of a namespace, and waits until no provider has it any more. One that is not offloaded is
// no error.
func Unoffload(ctx context.Context, in *access.Cluster, namespace string, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e := newEnd(in, &o)
	object := NewNamespaceOffloading(Metadata{Namespace: namespace}, offloadingv1beta1.NamespaceOffloadingSpec{})
	var p plan
	removed := p.add(nil, &step{
		in: in, waiting: "Disabling offloading", done: fmt.Sprintf("Offloading of namespace %q correctly disabled", namespace),
		try: func(ctx context.Context) (missing string, err error) {
			err = e.write.Delete(ctx, object.DeepCopy())
			if apierrors.IsNotFound(err) {
				return "", nil
			}
			return "the NamespaceOffloading is being deleted", e.Explain("delete the NamespaceOffloading of "+namespace, err)
		},
	})
	p.add(after(removed), &step{
		in: in, waiting: "Waiting for the providers", detailed: true, done: "Unoffloading completed successfully", clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			var requests offloadingv1beta1.NamespaceMapList
			if err := in.Client.List(ctx, &requests, client.MatchingLabels{authv1beta1.LabelReplication: networkingv1beta1.LabelTrue}); err != nil {
				return "", in.Explain("list NamespaceMaps", err)
			}
			return mappedStill(requests.Items, namespace), nil
		},
	})
	if err := p.run(ctx, tell); err != nil {
		return err
	}
	var waiting corev1.PodList
	// Who may not look at pods is told nothing of them: what was asked for is done.
	if in.Client.List(ctx, &waiting, client.InNamespace(namespace), client.MatchingFields{"status.phase": string(corev1.PodPending), "spec.nodeName": ""}) == nil {
		if text := stranded(waiting.Items); text != "" {
			tell.Warning(in.Name, text)
		}
	}
	return nil
}

// stranded tells of the pods without a node that only a virtual node could take; empty: there are none.
func stranded(waiting []corev1.Pod) string {
	waiting = slices.DeleteFunc(waiting, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil || !placement.OnlyVirtual(&p) })
	if len(waiting) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of the namespace's pods stay Pending, as only a virtual node could take them, such as Pod %s: delete those that a controller makes again; "+
		"where that asks for virtual nodes, too, take runtime class %s, or %s in nodeSelector or affinity, out of its template",
		len(waiting), waiting[0].Name, offloadingv1beta1.RuntimeClassName, networkingv1beta1.LabelNodeType)
}

// mappedStill names a provider that has, or is asked for, a namespace.
func mappedStill(requests []offloadingv1beta1.NamespaceMap, namespace string) string {
	for _, m := range requests {
		if m.Labels[authv1beta1.LabelReplicationOrigin] != "" {
			continue // another cluster asks for it
		}
		_, asked := m.Spec.DesiredMapping[namespace]
		_, there := m.Status.CurrentMapping[namespace]
		if asked || there {
			return fmt.Sprintf("cluster %s has not removed its namespace yet", m.Name)
		}
	}
	return ""
}
