package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/objects/manifests"
)

// FirewallReport says what became of one FirewallConfiguration: its status, in
// the words of the condition Applied of this gateway.
type FirewallReport struct {
	Namespace, Name string
	// Generation is the one that was looked at.
	Generation int64
	Applied    bool
	Reason     FirewallReason
	// Message tells what is not in force and what to write instead.
	Message string
}

// FirewallReason is one word for what became of a FirewallConfiguration.
type FirewallReason string

// The reasons of a FirewallReport.
const (
	// FirewallApplied: every rule is in force.
	FirewallApplied FirewallReason = "Applied"
	// FirewallBuiltIn: the gateway does so by itself and does not read the table.
	FirewallBuiltIn FirewallReason = "BuiltIn"
	// FirewallRefused: something in the table cannot be done here, or is wrong.
	// None of it is in force, but for what was before.
	FirewallRefused FirewallReason = "Refused"
	// FirewallNotSelected: the labels do not say which gateways are meant.
	FirewallNotSelected FirewallReason = "NotSelected"
)

// firewall takes the filter chains that users wrote.
//
//	situation                                       result
//	---------------------------------------------------------------------------
//	for nodes, or for gateways of another peer      nothing: it concerns others
//	labels that select no gateway                   NotSelected
//	made by a controller for what is built in       BuiltIn
//	every rule can be done here                     Applied
//	a rule about an interface liqo.* of no          Applied; it matches nothing until
//	InternalNode                                    there is one, as in a kernel
//	anything that cannot be done, or is wrong       Refused as a whole
//
// A table is not applied in part, because nobody can tell which part its author
// could do without: a drop that is missing lets through what must not pass, and
// without an accept the policy behind it cuts off what must. For the same reason
// the table as it was, if it was in force, stays when a change to it is refused.
// From files the whole state is refused, as for every other mistake.
func (b *builder) firewall() {
	fs := slices.Clone(b.objects.FirewallConfigurations)
	// Chains of equal priority are asked in this order; that of files must not count.
	slices.SortStableFunc(fs, func(x, y manifests.Sourced[networkingv1beta1.FirewallConfiguration]) int {
		return cmp.Or(cmp.Compare(x.Object.Namespace, y.Object.Namespace), cmp.Compare(x.Object.Name, y.Object.Name))
	})
	for _, f := range fs {
		mine, selected := b.selects(f.Object)
		if !mine {
			continue
		}
		report := FirewallReport{Namespace: f.Object.Namespace, Name: f.Object.Name, Generation: f.Object.Generation}
		switch why := builtIn(f.Object); {
		case !selected:
			report.Reason, report.Message = FirewallNotSelected, b.notSelected(f)
		case why != "":
			report.Applied, report.Reason, report.Message = true, FirewallBuiltIn, why
		default:
			b.firewallTable(f, &report)
		}
		b.desired.Firewall = append(b.desired.Firewall, report)
	}
}

// selects tells whether a table concerns this gateway by its labels, and whether
// they say enough. In a directory, which belongs to one gateway, none are needed.
func (b *builder) selects(f *networkingv1beta1.FirewallConfiguration) (mine, selected bool) {
	category := f.Labels[networkingv1beta1.LabelFirewallCategory]
	subcategory := f.Labels[networkingv1beta1.LabelFirewallSubcategory]
	unique, one := f.Labels[networkingv1beta1.LabelFirewallUnique]
	switch {
	case category == networkingv1beta1.CategoryFabric:
		return false, false
	case category == "" && subcategory == "" && !one:
		return true, !b.inCluster()
	case category != networkingv1beta1.CategoryGateway:
		return true, false
	case one:
		return unique == b.desired.Gateway.ClusterID, true
	}
	switch subcategory {
	case networkingv1beta1.SubcategoryAllGateways, networkingv1beta1.SubcategoryFabric, networkingv1beta1.SubcategoryIPMapping:
		return true, true
	}
	return true, false
}

// notSelected warns of labels that select no gateway.
func (b *builder) notSelected(f manifests.Sourced[networkingv1beta1.FirewallConfiguration]) string {
	message := fmt.Sprintf("select no gateway: write %s=%s and, for all gateways, %s=%s or, for this one, %s=%s",
		networkingv1beta1.LabelFirewallCategory, networkingv1beta1.CategoryGateway,
		networkingv1beta1.LabelFirewallSubcategory, networkingv1beta1.SubcategoryAllGateways,
		networkingv1beta1.LabelFirewallUnique, b.desired.Gateway.ClusterID)
	b.warn(manifests.RefTo("FirewallConfiguration", f, &f.Object.ObjectMeta), labelsPath, "%s", message)
	return "the labels " + message
}

// builtIn recognizes the tables that controllers make for a kernel gateway, and
// says why this one needs none. They are recognized by name and by content: no
// filter rule that a user added is taken for one of theirs.
func builtIn(f *networkingv1beta1.FirewallConfiguration) string {
	t := &f.Spec.Table
	nat := onlyNAT(t)
	switch {
	case nat && (t.Name == "remap-podcidr" || t.Name == "remap-externalcidr"):
		return "the gateway remaps CIDRs as the Configuration says and does not read this table"
	case nat && f.Labels[networkingv1beta1.LabelFirewallSubcategory] == networkingv1beta1.SubcategoryIPMapping &&
		strings.HasSuffix(f.Name, "-remap-ipmapping-gw"):
		return "the gateway translates the addresses of IP objects as they say and does not read this table"
	case t.Name == "service-nodeport-routing" && onlyActions(t, networkingv1beta1.ActionCtMark, networkingv1beta1.ActionMetaMarkFromCtMark):
		return "the gateway remembers by itself which node a connection came from and does not read this table"
	case t.Name == "mss-clamping" && onlyActions(t, networkingv1beta1.ActionTCPMSSClamp):
		return "the gateway lowers the MSS of every connection to what fits its MTU and does not read this table"
	case t.Name == "liqo-notrack-geneve" && onlyActions(t, networkingv1beta1.ActionNoTrack):
		return "the gateway tracks no node tunnels and does not read this table"
	}
	return ""
}

// onlyNAT tells whether a table translates addresses and does nothing else.
func onlyNAT(t *networkingv1beta1.FirewallTable) bool {
	return !slices.ContainsFunc(t.Chains, func(c networkingv1beta1.FirewallChain) bool {
		return c.Type != networkingv1beta1.ChainNAT || c.Policy != networkingv1beta1.PolicyAccept || len(c.Rules.FilterRules) > 0
	})
}

// onlyActions tells whether a table consists of filter rules with these actions.
// A segment size must be that of the MTU.
func onlyActions(t *networkingv1beta1.FirewallTable, actions ...networkingv1beta1.FilterAction) bool {
	return !slices.ContainsFunc(t.Chains, func(c networkingv1beta1.FirewallChain) bool {
		return c.Type != networkingv1beta1.ChainFilter || c.Policy != networkingv1beta1.PolicyAccept ||
			slices.ContainsFunc(c.Rules.FilterRules, func(r networkingv1beta1.FilterRule) bool {
				return !slices.Contains(actions, r.Action) ||
					r.Action == networkingv1beta1.ActionTCPMSSClamp && cmp.Or(r.Value, "0") != "0"
			})
	})
}

// firewallTable applies one table or refuses it.
func (b *builder) firewallTable(f manifests.Sourced[networkingv1beta1.FirewallConfiguration], report *FirewallReport) {
	name := f.Object.Name
	if f.Object.Namespace != "" {
		name = f.Object.Namespace + "/" + name
	}
	t := tableBuilder{
		ref: manifests.RefTo("FirewallConfiguration", f, &f.Object.ObjectMeta), source: f.Source, name: name,
		nodes: b.byLink, table: &f.Object.Spec.Table,
	}
	t.build()
	chains := &b.desired.DataPlane.Filter.Chains
	if len(t.problems) > 0 {
		for _, p := range t.problems {
			b.exclude(p)
		}
		kept := b.chainsInForce(name)
		*chains = append(*chains, kept...)
		report.Reason, report.Message = FirewallRefused, "nothing of this table is in force: "
		if len(kept) > 0 {
			report.Message = "the table as it was before stays in force: "
		}
		report.Message += summary(t.problems)
		return
	}
	*chains = append(*chains, t.chains...)
	report.Applied, report.Reason, report.Message = true, FirewallApplied, "every rule is in force"
	if len(t.notes) > 0 {
		report.Message += "; " + summary(t.notes)
		b.warnings = append(b.warnings, t.notes...)
	}
}

// chainsInForce returns the chains of a table that the data plane has now.
func (b *builder) chainsInForce(table string) (chains []filter.Chain) {
	if b.inCluster() {
		for _, c := range b.objects.Cluster.InForce.Filter.Chains {
			if c.Table == table {
				chains = append(chains, c)
			}
		}
	}
	return chains
}

// maxReasons is how many problems of one table are worth reading.
const maxReasons = 5

// summary is the first few problems on one line, for a message that stands next to
// the object itself.
func summary(ps manifests.Problems) string {
	var texts []string
	for _, p := range ps[:min(len(ps), maxReasons)] {
		texts = append(texts, p.Field+" "+p.Reason)
	}
	if more := len(ps) - maxReasons; more > 0 {
		texts = append(texts, fmt.Sprintf("and %s more", plural(more, "problem")))
	}
	return strings.Join(texts, "; ")
}
