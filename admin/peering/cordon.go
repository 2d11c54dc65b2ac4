package peering

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// Change is what a provider does about what a consumer has.
type Change string

// The changes.
const (
	Cordon   Change = "cordon"   // it gets no more than it has
	Uncordon Change = "uncordon" // it gets what it asks for again
	Drain    Change = "drain"    // it loses what it has
	Activate Change = "activate" // it may ask again after that
)

// done is the past participle.
func (c Change) done() string {
	return map[Change]string{Cordon: "cordoned", Uncordon: "uncordoned", Drain: "drained", Activate: "activated"}[c]
}

// of returns what a change makes of a Tenant, or why the Tenant is left unchanged.
//
//	           Active            Cordoned          Drained
//	cordon     -> Cordoned       stays             stays: it is stricter
//	uncordon   stays             -> Active         stays: activate does it
//	drain      -> Drained        -> Drained        stays
//	activate   stays             stays: uncordon   -> Active
func (c Change) of(now authv1beta1.TenantCondition) (next authv1beta1.TenantCondition, stays string) {
	switch now {
	case authv1beta1.TenantCordoned:
		switch c {
		case Cordon:
			return now, "is already cordoned"
		case Activate:
			return now, "is cordoned, not drained: use 'liqoctl uncordon tenant'"
		}
	case authv1beta1.TenantDrained:
		switch c {
		case Drain:
			return now, "is already drained"
		case Cordon:
			return now, "is drained, which is stricter: run 'liqoctl activate tenant' first"
		case Uncordon:
			return now, "is drained: use 'liqoctl activate tenant'"
		}
	default: // Active, and what an older cluster has left empty
		switch c {
		case Uncordon:
			return now, "is not cordoned"
		case Activate:
			return now, "is already active"
		}
	}
	return map[Change]authv1beta1.TenantCondition{
		Cordon: authv1beta1.TenantCordoned, Uncordon: authv1beta1.TenantActive, Drain: authv1beta1.TenantDrained, Activate: authv1beta1.TenantActive,
	}[c], ""
}

// ChangeTenant changes what the consumer of a Tenant may do, and waits until the controller has seen to it. A Tenant that
// is in another state than the change is for stays as it is: that is a warning, and nobody is asked.
func ChangeTenant(ctx context.Context, provider *access.Cluster, name string, c Change, o Options, tell progress.Func) error {
	t, next, err := tenantFor(ctx, provider, name, c, &o, tell)
	if t != nil && err == nil && o.Confirm != nil {
		if err := o.Confirm(ctx, tenantQuestion(provider, t, c)); err != nil {
			return err
		}
		t, next, err = tenantFor(ctx, provider, name, c, &o, tell) // another one may have changed it meanwhile
	}
	if t == nil || err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, o) // the time that the user takes to answer does not count
	defer cancel()
	e := newEnd(provider, &o)
	before := t.DeepCopy()
	t.Spec.TenantCondition = next
	if err := e.write.Patch(ctx, t, client.MergeFrom(before)); err != nil {
		return provider.Explain("change Tenant "+name, err)
	}
	e.namespace = t.Namespace
	s := &step{
		in: provider, waiting: "Waiting for the controller", done: fmt.Sprintf("Tenant %q %s", name, c.done()), clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			if err := provider.Client.Get(ctx, client.ObjectKeyFromObject(before), t); err != nil {
				return "", provider.Explain("read Tenant "+name, err)
			}
			ready := meta.FindStatusCondition(t.Status.Conditions, authv1beta1.ConditionReady)
			if !t.JudgedByLiqo() && (ready == nil || ready.ObservedGeneration < t.Generation) {
				return "no controller has processed the latest version of Tenant " + name + " yet", nil
			}
			if c == Drain {
				return e.grantsLeft(ctx)
			}
			return "", nil
		},
	}
	return s.runAlone(ctx, tell)
}

// tenantFor is a Tenant that a change is for, and what it makes of it; nil: it stays as it is, and that has been told.
func tenantFor(ctx context.Context, provider *access.Cluster, name string, c Change, o *Options, tell progress.Func) (*authv1beta1.Tenant, authv1beta1.TenantCondition, error) {
	ctx, cancel := withTimeout(ctx, *o)
	defer cancel()
	var list authv1beta1.TenantList
	if err := provider.Client.List(ctx, &list, within(provider)...); err != nil {
		return nil, "", provider.Explain("list Tenants", err)
	}
	t, err := only(provider, "Tenant", name, list.Items)
	if err != nil {
		return nil, "", err
	}
	next, stays := c.of(t.Spec.TenantCondition)
	if stays != "" {
		tell.Warning(provider.Name, fmt.Sprintf("Tenant %q %s", name, stays))
		return nil, "", nil
	}
	return t, next, nil
}

// tenantQuestion says what a change of a Tenant does, and how it is undone, for the user who is asked about it.
func tenantQuestion(provider *access.Cluster, t *authv1beta1.Tenant, c Change) []string {
	command := func(c Change) string { return provider.Command(string(c), "tenant", t.Name, "-n", t.Namespace) }
	lines := []string{fmt.Sprintf("Tenant %s in cluster %s:", t.Name, provider.Where())}
	switch id := t.Spec.ClusterID; c {
	case Cordon:
		return append(lines, fmt.Sprintf("  cluster %s gets no more resources and no more pods here; it keeps what it has, and its pods go on running", id),
			"  to undo this: "+command(Uncordon))
	case Drain:
		return append(lines, fmt.Sprintf("  cluster %s loses its resources; the namespaces that it has here are deleted, with its pods and everything else in them", id),
			"  to let it ask for resources again: "+command(Activate))
	}
	return lines
}

// grantsLeft names a slice of a drained consumer that still has something.
func (e *end) grantsLeft(ctx context.Context) (missing string, err error) {
	var list authv1beta1.ResourceSliceList
	if err := e.Client.List(ctx, &list, client.InNamespace(e.namespace), client.MatchingLabels{authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue}); err != nil {
		return "", e.Explain("list ResourceSlices", err)
	}
	for i := range list.Items {
		if s := &list.Items[i]; len(s.Status.Resources) > 0 {
			return fmt.Sprintf("ResourceSlice %s still has its granted resources", s.Name), nil
		}
	}
	return "", nil
}

// ChangeSlice cordons or uncordons one ResourceSlice of a consumer. One that is as it should be stays so: that is a warning,
// and nobody is asked.
func ChangeSlice(ctx context.Context, provider *access.Cluster, name string, c Change, o Options, tell progress.Func) error {
	s, err := sliceFor(ctx, provider, name, c, &o, tell)
	if s != nil && err == nil && o.Confirm != nil {
		if err := o.Confirm(ctx, sliceQuestion(provider, s, c)); err != nil {
			return err
		}
		s, err = sliceFor(ctx, provider, name, c, &o, tell) // another one may have changed it meanwhile
	}
	if s == nil || err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	before := s.DeepCopy()
	if c == Cordon {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, authv1beta1.AnnotationCordon, networkingv1beta1.LabelTrue)
	} else {
		delete(s.Annotations, authv1beta1.AnnotationCordon)
	}
	if err := newEnd(provider, &o).write.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return provider.Explain("change ResourceSlice "+name, err)
	}
	tell.Done(provider.Name, fmt.Sprintf("ResourceSlice %q %s", name, c.done()))
	return nil
}

// sliceFor is a ResourceSlice that a change is for; nil: it stays as it is, and that has been told.
func sliceFor(ctx context.Context, provider *access.Cluster, name string, c Change, o *Options, tell progress.Func) (*authv1beta1.ResourceSlice, error) {
	ctx, cancel := withTimeout(ctx, *o)
	defer cancel()
	var list authv1beta1.ResourceSliceList
	if err := provider.Client.List(ctx, &list, append(within(provider), client.MatchingLabels{authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue})...); err != nil {
		return nil, provider.Explain("list ResourceSlices", err)
	}
	s, err := only(provider, "ResourceSlice of another cluster", name, list.Items)
	if err != nil {
		return nil, err
	}
	if cordoned := s.Cordoned(); cordoned == (c == Cordon) {
		already := "is not cordoned"
		if cordoned {
			already = "is already cordoned"
		}
		tell.Warning(provider.Name, fmt.Sprintf("ResourceSlice %q %s", name, already))
		return nil, nil
	}
	return s, nil
}

// sliceQuestion says what a change of a ResourceSlice does, and how it is undone, for the user who is asked about it.
func sliceQuestion(provider *access.Cluster, s *authv1beta1.ResourceSlice, c Change) []string {
	lines := []string{fmt.Sprintf("ResourceSlice %s of cluster %s in cluster %s:", s.Name, s.Labels[authv1beta1.LabelReplicationOrigin], provider.Where())}
	if c == Cordon {
		lines = append(lines, "  the consumer gets no more resources and no more pods for it; it keeps what it has, and its pods go on running",
			"  to undo this: "+provider.Command(string(Uncordon), "resourceslice", s.Name, "-n", s.Namespace))
	}
	return lines
}

// within is where the user looks: in one namespace, if one was named.
func within(c *access.Cluster) []client.ListOption {
	if c.NamespaceGiven {
		return []client.ListOption{client.InNamespace(c.Namespace)}
	}
	return nil
}

// only returns the one object of a name.
func only[T any, P interface {
	*T
	client.Object
}](c *access.Cluster, kind, name string, items []T) (P, error) {
	var found P
	var names, namespaces []string
	for i := range items {
		o := P(&items[i])
		names = append(names, o.GetName())
		if o.GetName() == name {
			found, namespaces = o, append(namespaces, o.GetNamespace())
		}
	}
	slices.Sort(names)
	switch {
	case len(namespaces) > 1:
		return nil, c.Errorf("there is a %s %q in each of several namespaces, %s: choose one with %s", kind, name, strings.Join(namespaces, ", "), c.Flag("namespace"))
	case found != nil:
		return found, nil
	case len(names) == 0:
		return nil, c.Errorf("there is no %s %q, nor any other", kind, name)
	}
	return nil, c.Errorf("there is no %s %q; existing ones: %s", kind, name, text.Few(slices.Compact(names)))
}
