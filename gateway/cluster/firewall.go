package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"

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
			want, ok := hostCondition(report, r.link.options.Name, live, r.fewConditions)
			if !ok {
				continue
			}
			after, err := r.writeFirewall(ctx, live, want)
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
// where it has nothing to say. ok is false when that is what is there. few leaves out
// what Liqo's schema has not.
func hostCondition(report control.Report, host string, live *networkingv1beta1.FirewallConfiguration, few bool) (want []networkingv1beta1.HostCondition, ok bool) {
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
	if few {
		c.ObservedGeneration, c.Reason, c.Message = 0, "", ""
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

// writeFirewall writes this gateway's part of a status, as far as the cluster's schema
// has it.
func (r *reporter) writeFirewall(ctx context.Context, live *networkingv1beta1.FirewallConfiguration, own []networkingv1beta1.HostCondition) (*networkingv1beta1.FirewallConfiguration, error) {
	if !r.fewConditions {
		after, err := r.applyFirewall(ctx, live, own)
		if !undeclared(err) {
			return after, err
		}
		r.fewConditions = true
		r.link.log.Info("the cluster has the FirewallConfiguration of Liqo: statuses say only whether a table is applied")
		for i := range own {
			own[i].ObservedGeneration, own[i].Reason, own[i].Message = 0, "", ""
		}
	}
	return r.replaceFirewall(ctx, live, own)
}

// undeclared tells of an apply with fields that the schema has not, for which API
// servers have no reason but words.
func undeclared(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError && strings.Contains(status.Status().Message, "field not declared in schema")
}

// replaceFirewall is applyFirewall where the conditions are no map: the list is read
// and written as a whole. A conflict with another host's write is an error: the
// Writer tries again.
func (r *reporter) replaceFirewall(ctx context.Context, live *networkingv1beta1.FirewallConfiguration, own []networkingv1beta1.HostCondition) (*networkingv1beta1.FirewallConfiguration, error) {
	now := new(networkingv1beta1.FirewallConfiguration)
	if err := r.link.networking.Get().Namespace(live.Namespace).Resource("firewallconfigurations").Name(live.Name).Do(ctx).Into(now); err != nil {
		return nil, err
	}
	now.Status.Conditions = append(slices.DeleteFunc(now.Status.Conditions, func(c networkingv1beta1.HostCondition) bool {
		return c.Host == r.link.options.Name && c.Type == networkingv1beta1.HostConditionApplied
	}), own...)
	after := new(networkingv1beta1.FirewallConfiguration)
	err := r.link.networking.Put().Namespace(live.Namespace).Resource("firewallconfigurations").Name(live.Name).
		SubResource("status").Body(now).Do(ctx).Into(after)
	return after, err
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
