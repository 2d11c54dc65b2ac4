package survey

import (
	"fmt"
	"slices"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// ReasonCIDRMismatch is that of an Alert about two ends that contradict each other.
const ReasonCIDRMismatch = "CIDRMismatch"

// Compare adds to the status of a peer what its end of the peering shows to be wrong:
// other CIDRs or another key than this end was told. Where only one end is known, other
// is nil.
func (s *Status) Compare(p, other *Peer) {
	if other == nil {
		return
	}
	if g := other.Gateway; g != nil && p.Gateway != nil {
		fault, compared := p.KeyMismatch(g.PublicKey(g.Report), g.Keys)
		if refused := p.HandshakeFault(p.Gateway.Report); compared && refused != nil {
			// What one end alone makes of handshakes: here the keys are known.
			a := refused.alert(p.Gateway)
			s.Alerts = slices.DeleteFunc(s.Alerts, func(o StatusAlert) bool { return o.Object == a.Object && o.Message == a.Message })
		}
		if fault != nil {
			a := fault.alert(p.Gateway)
			s.Health = Unhealthy
			s.Alerts = append(s.Alerts, StatusAlert{severityError, a.Object, a.Reason, a.Message, a.Idle})
		}
	}
	if p.Configuration == nil || other.Configuration == nil || other.Configuration.Spec.Local == nil {
		return
	}
	told, actual := p.Configuration.Spec.Remote.CIDR, other.Configuration.Spec.Local.CIDR
	for _, part := range []struct {
		what   string
		told   []networkingv1beta1.CIDR
		actual []networkingv1beta1.CIDR
	}{{"pods", told.Pod.List, actual.Pod.List}, {"external addresses", told.External.List, actual.External.List}} {
		if len(part.actual) == 0 || slices.Equal(part.told, part.actual) {
			continue
		}
		s.Health = Unhealthy
		s.Alerts = append(s.Alerts, StatusAlert{
			Severity: severityError, Object: "Configuration " + p.Configuration.Namespace + "/" + p.Configuration.Name, Reason: ReasonCIDRMismatch,
			Message: fmt.Sprintf("it says that the %s of %s are %s, and there they are %s: run 'liqoctl network connect' again, or correct spec.remote",
				part.what, p, cidrTexts(part.told), cidrTexts(part.actual)),
		})
	}
}

func cidrTexts(cidrs []networkingv1beta1.CIDR) string {
	if len(cidrs) == 0 {
		return "none"
	}
	return text.Join(cidrs, ", ")
}
