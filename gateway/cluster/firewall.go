package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/objects/mirror"
)

// writeFirewalls tells each FirewallConfiguration what became of it here, and
// takes that back where it is not for this gateway any more.
func (r *reporter) writeFirewalls(ctx context.Context, report control.Report) (wrote bool, err error) {
	if report.Generation == 0 {
		return false, nil // nothing was judged yet
	}
	var errs []error
	for _, s := range r.link.firewalls {
		for _, live := range s.List() {
			want, ok := hostCondition(report, r.link.options.Name, live)
			if !ok {
				continue
			}
			after, err := r.applyFirewall(ctx, live, want)
			switch {
			case apierrors.IsNotFound(err): // deleted since
			case err != nil:
				errs = append(errs, fmt.Errorf("write FirewallConfiguration %s/%s: %s", live.Namespace, live.Name, mirror.PlainError(err)))
			default:
				wrote = true
				s.Wrote(after)
			}
		}
	}
	return wrote, errors.Join(errs...)
}

// hostCondition is what this gateway should say in the status of a table, none
// where it has nothing to say. ok is false when that is what is there.
func hostCondition(report control.Report, host string, live *networkingv1beta1.FirewallConfiguration) (want []networkingv1beta1.HostCondition, ok bool) {
	have := live.Status.Conditions // trimmed to our own
	i := slices.IndexFunc(report.Firewall, func(f control.FirewallReport) bool {
		return f.Namespace == live.Namespace && f.Name == live.Name
	})
	if i < 0 {
		return nil, len(have) > 0
	}
	f := report.Firewall[i]
	if f.Generation != live.Generation {
		return nil, false // judged soon
	}
	c := networkingv1beta1.HostCondition{
		Host: host, Type: networkingv1beta1.HostConditionApplied, Status: metav1.ConditionFalse,
		ObservedGeneration: f.Generation, Reason: string(f.Reason), Message: f.Message,
		LastTransitionTime: metav1.NewTime(report.Time.UTC().Truncate(1e9)),
	}
	if f.Applied {
		c.Status = metav1.ConditionTrue
	}
	if len(have) == 1 {
		if have[0].Status == c.Status {
			c.LastTransitionTime = have[0].LastTransitionTime
		}
		if sameHostCondition(have[0], c) {
			return nil, false
		}
	}
	return []networkingv1beta1.HostCondition{c}, true
}

func sameHostCondition(a, b networkingv1beta1.HostCondition) bool {
	a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}

// applyFirewall writes this gateway's part of a status. Many gateways write into
// the same one, so each owns its entry by server-side apply.
func (r *reporter) applyFirewall(ctx context.Context, live *networkingv1beta1.FirewallConfiguration, own []networkingv1beta1.HostCondition) (*networkingv1beta1.FirewallConfiguration, error) {
	if own == nil {
		own = []networkingv1beta1.HostCondition{} // not null
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": networkingv1beta1.GroupVersion.String(), "kind": "FirewallConfiguration",
		"metadata": map[string]any{"name": live.Name, "namespace": live.Namespace},
		"status":   map[string]any{"conditions": own},
	})
	if err != nil {
		return nil, fmt.Errorf("encode FirewallConfiguration: %w", err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager(r.link.options), Force: &force}
	after := new(networkingv1beta1.FirewallConfiguration)
	err = r.link.networking.Patch(types.ApplyPatchType).Namespace(live.Namespace).Resource("firewallconfigurations").Name(live.Name).
		SubResource("status").VersionedParams(&options, metav1.ParameterCodec).Body(body).Do(ctx).Into(after)
	return after, err
}

// maxFieldManager is an API server's limit.
const maxFieldManager = 128

// fieldManager is the name under which a gateway owns its entries.
func fieldManager(o Options) string {
	name := "sluice-gateway/" + o.Namespace + "/" + o.Name
	if len(name) <= maxFieldManager {
		return name
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return fmt.Sprintf("sluice-gateway/%x", h.Sum64())
}
