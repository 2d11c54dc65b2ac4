package fabric

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// Reporter is where a node says how it is: the status of its InternalNode.
type Reporter interface {
	// Report takes the newest state and writes what is worth it, now or soon: it
	// does not wait for a network. The error is why the last state may not be
	// written.
	Report(Report) error
	// Close returns when the last state is written, or cannot be.
	Close()
}

// Report is what a node tells about itself.
type Report struct {
	Time time.Time
	// Node is the InternalNode as it was read.
	Node *networkingv1beta1.InternalNode
	// NodeIP is what the gateways should expect.
	NodeIP networkingv1beta1.NodeIP
	// Conditions are those that the agent knows, without times and generation.
	Conditions []metav1.Condition
}

// Status is what the status should be, and whether that differs from what it is.
func (r Report) Status(is networkingv1beta1.InternalNodeStatus) (want networkingv1beta1.InternalNodeStatus, differs bool) {
	want = networkingv1beta1.InternalNodeStatus{NodeIP: r.NodeIP, Conditions: slices.Clone(is.Conditions)}
	for _, c := range r.Conditions {
		c.ObservedGeneration, c.LastTransitionTime = r.Node.Generation, metav1.NewTime(r.Time.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&want.Conditions, c)
	}
	return want, !equality.Semantic.DeepEqual(want, is)
}

// report tells how things are. That it cannot be told is logged once.
func (r *Runner) report(now time.Time) {
	if r.plan.Node == nil {
		return // there is nothing to write into
	}
	err := r.reporter.Report(Report{Time: now, Node: r.plan.Node, NodeIP: r.plan.NodeIP, Conditions: r.conditions()})
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != r.reported && err != nil {
		r.log.Warn("the status of the InternalNode is not kept up to date", "error", err)
	}
	r.reported = text
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.ReportError = text
}

// maxMessage keeps a condition readable; a schema allows 32768 bytes.
const maxMessage = 2000

// conditions says how the newest objects are in force. Nil: there were none yet.
func (r *Runner) conditions() []metav1.Condition {
	r.mu.Lock()
	refused := r.state.Refused
	r.mu.Unlock()
	if !r.planned && len(refused) == 0 && r.noKind == nil {
		return nil // nothing is known yet
	}
	tunnels := tunnelsReady(r.plan, r.failures, r.noKind, refused, r.detours, r.hints)
	if r.liqo.contested {
		tunnels.Message = text.Cut(besideLiqo+"; "+tunnels.Message, maxMessage)
	}
	all := []metav1.Condition{
		tunnels,
		translationReady(r.plan, r.failures[aboutTranslation], r.actual.Translation),
	}
	if r.liqo.looked {
		all = append(all, r.liqo.replaced())
	}
	return all
}

func condition(t networkingv1beta1.ConditionType, reason networkingv1beta1.ConditionReason, message string) metav1.Condition {
	c := metav1.Condition{Type: string(t), Status: metav1.ConditionFalse, Reason: string(reason), Message: message}
	// The reason of what is well is called as the condition itself.
	if c.Reason == c.Type {
		c.Status = metav1.ConditionTrue
	}
	c.Message = text.Cut(c.Message, maxMessage)
	return c
}

// tunnelsReady is the condition TunnelsReady. Of several reasons it has the one
// that is to be dealt with first.
func tunnelsReady(p Plan, f failures, noKind error, refused, detours, hints manifests.Problems) metav1.Condition {
	const kind = networkingv1beta1.ConditionTunnelsReady
	f = f.ofTunnels()
	failed := strings.Join(f.lines(), "; ")
	for _, err := range f {
		if errors.Is(err, hostnet.ErrNotPermitted) {
			return condition(kind, networkingv1beta1.ReasonNotPermitted, failed)
		}
	}
	switch {
	case noKind != nil:
		return condition(kind, networkingv1beta1.ReasonLinkKindUnavailable, noKind.Error())
	case len(refused) > 0:
		return condition(kind, networkingv1beta1.ReasonTunnelRefused, "what was in force stays: "+refused.Condensed().Error())
	case failed != "":
		return condition(kind, networkingv1beta1.ReasonTunnelRefused, failed)
	case len(detours) > 0:
		return condition(kind, networkingv1beta1.ReasonTrafficDiverted, oneLine(detours))
	case len(p.Ignored) > 0:
		return condition(kind, networkingv1beta1.ReasonTunnelRefused, "in force but for: "+p.Ignored.Condensed().Error())
	case len(p.Unreachable) > 0:
		return condition(kind, networkingv1beta1.ReasonGatewayUnreachable, p.Unreachable.Condensed().Error())
	}
	message := "There is no gateway to reach"
	if n := len(p.Desired.Links) + len(p.Desired.Keep); n > 0 {
		message = fmt.Sprintf("Tunnels in place: %d", n)
	}
	if len(hints) > 0 {
		message += "; packets do not pass: " + oneLine(hints)
	}
	if len(p.Unrouted) > 0 {
		message += "; nothing leads into: " + oneLine(p.Unrouted.Condensed())
	}
	if len(p.Waiting) > 0 {
		message += "; waiting: " + p.Waiting.Condensed().Error()
	}
	return condition(kind, networkingv1beta1.ReasonTunnelsReady, message)
}

func oneLine(ps manifests.Problems) string { return strings.ReplaceAll(ps.Error(), "\n", "; ") }

// translationReady is the condition AddressTranslationReady.
func translationReady(p Plan, failed error, is hostnet.TranslationState) metav1.Condition {
	const kind = networkingv1beta1.ConditionAddressTranslationReady
	switch {
	case !is.Available:
		return condition(kind, networkingv1beta1.ReasonNFTablesUnavailable, is.Reason)
	case failed != nil:
		return condition(kind, networkingv1beta1.ReasonTranslationRefused, failed.Error())
	case len(p.Untranslated) > 0:
		return condition(kind, networkingv1beta1.ReasonTranslationRefused, p.Untranslated.Error())
	case len(p.HostsIgnored) > 0:
		return condition(kind, networkingv1beta1.ReasonTranslationRefused, "in force but for: "+p.HostsIgnored.Condensed().Error())
	}
	message := "Addresses are kept and given as they should be"
	if len(p.OtherFamily) > 0 {
		message += "; but " + oneLine(p.OtherFamily)
	}
	return condition(kind, networkingv1beta1.ReasonAddressTranslationReady, message)
}

// mergeConditions keeps the times of what has not changed.
func mergeConditions(is, want []metav1.Condition) []metav1.Condition {
	is = slices.Clone(is) // State may have given it away
	for _, c := range want {
		meta.SetStatusCondition(&is, c)
	}
	return is
}

// StatusFile is where the InternalNode of a node is kept, below
// manifests.StatusDir.
const StatusFile = "internalnode.yaml"

// directoryReporter keeps the InternalNode in a file. It can be put among the
// manifests of the gateways as it is.
type directoryReporter struct {
	dir string
	is  *networkingv1beta1.InternalNodeStatus // nil: not read yet
}

// Report implements Reporter.
func (d *directoryReporter) Report(r Report) error {
	if d.is == nil {
		var old networkingv1beta1.InternalNode
		d.is = new(networkingv1beta1.InternalNodeStatus)
		if manifests.ReadStatus(d.dir, StatusFile, &old) == nil && old.Name == r.Node.Name { // of no use: a new one
			d.is = &old.Status
		}
	}
	want, _ := r.Status(*d.is)
	n := networkingv1beta1.InternalNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: "InternalNode"},
		ObjectMeta: metav1.ObjectMeta{Name: r.Node.Name, Labels: r.Node.Labels},
		Spec:       r.Node.Spec, Status: want,
	}
	if _, err := manifests.UpdateStatus(d.dir, StatusFile, n); err != nil {
		return fmt.Errorf("write the InternalNode: %w", err)
	}
	d.is = &want
	return nil
}

// Close implements Reporter: Report has written everything.
func (d *directoryReporter) Close() {}
