package release

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

// Options are what the user says about the installation.
type Options struct {
	// Provider is what the cluster was created with. Empty: detected.
	Provider Provider
	// ClusterID is the name of the cluster among its peers. Empty: that of the
	// values, the one it has, or a generated one.
	ClusterID     string
	ClusterLabels map[string]string
	// PodCIDRs and ServiceCIDRs are what pods and Services have addresses of.
	// Empty: taken from the values, the installation or the cluster.
	PodCIDRs, ServiceCIDRs []netip.Prefix
	ReservedSubnets        []netip.Prefix
	// GlobalLabels and GlobalAnnotations are for all objects.
	GlobalLabels, GlobalAnnotations map[string]string
	Metrics                         bool
	// APIServerURL is by which other clusters reach this one's API server; empty: as the values say.
	APIServerURL string
	// CoreDNS runs the DNS server for Services of other clusters, and makes the CoreDNS of the cluster forward to it.
	CoreDNS bool
	// Values are the user's own, from files and single ones.
	Values Values
	// ResetValues drops the values of the release that is installed. Otherwise they
	// are kept where nothing else is said.
	ResetValues bool
	// SkipValidation takes the prefixes as they are said, also where the cluster has
	// addresses outside of them.
	SkipValidation bool
}

// Decision is what to install, and who says so.
type Decision struct {
	Values         Values
	ClusterID      string
	ClusterIDFrom  string
	Pods, Services Found
	// Notes tell what was decided for the user.
	Notes []string
	// Warnings tell what the user should look at.
	Warnings []string
}

// decide puts together the values: what is known of the provider, of the release
// before, the user's values and flags, and for the rest what the cluster tells.
// The error holds all that the user must correct.
func decide(o Options, f Facts, before Values) (Decision, error) {
	d := decider{options: o, facts: f}
	provider := cmp.Or(o.Provider, f.provider())
	k := known[provider]
	d.Values = merge(k.values, before)
	if k.because != "" && before == nil {
		d.Notes = append(d.Notes, k.because)
	}
	d.Values = merge(d.Values, o.Values)
	d.clusterID()
	d.Pods = d.cidrs(cidrQuestion{
		flag: "--pod-cidr", many: "ipam.podCIDRs", one: "ipam.podCIDR", given: o.PodCIDRs, installed: f.Installed.PodCIDRs,
		what: "the pod CIDR", detect: func() (Found, error) { return detectPods(f, provider) }, outside: f.podOutside,
	})
	d.Services = d.cidrs(cidrQuestion{
		flag: "--service-cidr", many: "ipam.serviceCIDRs", one: "ipam.serviceCIDR", given: o.ServiceCIDRs, installed: f.Installed.ServiceCIDRs,
		what: "the Service CIDR", detect: func() (Found, error) { return detectServices(f, provider) }, outside: f.serviceOutside,
	})
	if len(o.ReservedSubnets) > 0 {
		d.set(list(o.ReservedSubnets), "ipam.reservedSubnets", "--reserved-subnets")
	}
	d.setAll(o.ClusterLabels, "discovery.config.clusterLabels", "--cluster-labels")
	d.setAll(o.GlobalLabels, "common.globalLabels", "--global-labels")
	d.setAll(o.GlobalAnnotations, "common.globalAnnotations", "--global-annotations")
	if o.CoreDNS {
		d.set(true, "clusterDNS.enabled", "--coredns")
	}
	if o.APIServerURL != "" {
		d.set(o.APIServerURL, "apiServer.address", "--api-server-url")
	}
	if o.Metrics {
		d.set(true, "metrics.enabled", "--enable-metrics")
	}
	d.kept(before)
	d.overlaps()
	d.nodes()
	return d.Decision, errors.Join(d.errs...)
}

type decider struct {
	Decision
	options Options
	facts   Facts
	errs    []error
}

func (d *decider) errorf(format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf(format, args...))
}

// set takes the value of a flag. A flag that contradicts the user's values is an
// error: it is not clear which of the two is meant.
func (d *decider) set(v any, path, flag string) {
	if said := at(d.options.Values, path); said != nil && fmt.Sprint(said) != fmt.Sprint(v) {
		d.errorf("%s %v contradicts the value %s %v: drop one of them", flag, v, path, said)
	}
	d.Values = merge(d.Values, value(v, path))
}

// setAll is set for labels. Those of the values stay.
func (d *decider) setAll(m map[string]string, path, flag string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		labels, _ := at(d.options.Values, path).(map[string]any)
		if said, ok := labels[k]; ok && said != m[k] {
			d.errorf("%s %s=%s contradicts the value %s, which says %v: drop one of them", flag, k, m[k], path, said)
		}
		d.Values = merge(d.Values, value(Values{k: m[k]}, path)) // a label may have dots
	}
}

// kept tells which values are still those of the release before. What is told of
// anyway, and what the cluster was found to be, is left out.
func (d *decider) kept(before Values) {
	var texts []string
	said, now := byPath(d.options.Values), byPath(d.Values)
	leaves(before, "", func(path string, v any) {
		_, again := said[path]
		told := slices.Contains([]string{"discovery.config.clusterID", "ipam.podCIDR", "ipam.podCIDRs", "ipam.serviceCIDR", "ipam.serviceCIDRs"}, path)
		if !told && !Empty(v) && !again && reflect.DeepEqual(now[path], v) {
			texts = append(texts, fmt.Sprintf("%s=%v", path, v))
		}
	})
	if len(texts) > 0 {
		d.Notes = append(d.Notes, "Kept from the installed release (--reset-values drops it): "+strings.Join(texts, ", "))
	}
}

func (d *decider) clusterID() {
	const path = "discovery.config.clusterID"
	have := d.facts.Installed.ClusterID
	from := "from the values"
	if id := d.options.ClusterID; id != "" {
		d.set(id, path, "--cluster-id")
		from = "as given"
	}
	d.ClusterID, d.ClusterIDFrom = textAt(d.Values, path), from
	switch {
	case d.ClusterID == "" && have != "":
		d.ClusterID, d.ClusterIDFrom = have, "as before"
	case d.ClusterID == "":
		d.ClusterID, d.ClusterIDFrom = suggestID(d.facts.UID), "generated; to choose another, use --cluster-id now: it cannot be changed after the installation"
	case len(validation.IsDNS1123Label(d.ClusterID)) > 0: // the ID is part of names
		d.errorf("the cluster ID %q is not valid: use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends", d.ClusterID)
	case have != "" && have != d.ClusterID:
		d.errorf("this cluster is known to its peers as %q and cannot become %q: leave out --cluster-id, or uninstall first", have, d.ClusterID)
	}
	d.Values = merge(d.Values, value(d.ClusterID, path))
}

// cidrQuestion is what is asked about the prefixes of pods, and of Services.
type cidrQuestion struct {
	what, flag       string
	many, one        string // paths of the values
	given, installed []netip.Prefix
	detect           func() (Found, error)
	outside          func([]netip.Prefix) string // whom the prefixes do not cover
}

// cidrs answers a question. What is in the way of an answer is an error of the decision.
func (d *decider) cidrs(q cidrQuestion) Found {
	found, err := d.answer(q)
	if err != nil {
		d.errs = append(d.errs, err)
	}
	return found
}

// answer answers by flag, value, installation or detection, in this order. What
// is installed cannot be changed.
func (d *decider) answer(q cidrQuestion) (Found, error) {
	said, err := cidrsAt(d.options.Values, q.many, q.one)
	if err != nil {
		return Found{}, err
	}
	found := Found{said, "from the values"}
	if len(q.given) > 0 {
		if said != nil && !slices.Equal(said, q.given) {
			return Found{}, fmt.Errorf("%s %s contradicts the value %s %s: drop one of them", q.flag, join(q.given), q.one, join(said))
		}
		found = Found{q.given, "as given"}
	}
	switch {
	case len(found.Prefixes) > 0 && len(q.installed) > 0 && !slices.Equal(sorted(found.Prefixes), q.installed):
		return found, fmt.Errorf("%s is %s in this installation and cannot become %s: leave out %s, or uninstall first", q.what, join(q.installed), join(found.Prefixes), q.flag)
	case len(found.Prefixes) > 0:
		if who := q.outside(found.Prefixes); who != "" && !d.options.SkipValidation {
			return found, fmt.Errorf("%s is not %s, because %s: correct %s; if you are sure, add --skip-validation", q.what, join(found.Prefixes), who, q.flag)
		}
	case len(q.installed) > 0:
		found = Found{q.installed, "as before"}
	default:
		if found, err = q.detect(); err != nil {
			return found, err
		}
	}
	// The other of the two forms may stand in the release before.
	d.Values = merge(d.Values, merge(value([]any{}, q.many), value("", q.one)))
	d.Values = merge(d.Values, cidrValue(found.Prefixes, q.many, q.one))
	return found, nil
}

func sorted(ps []netip.Prefix) []netip.Prefix {
	return slices.SortedFunc(slices.Values(ps), netip.Prefix.Compare)
}

// overlaps finds prefixes that share addresses: each must belong to one use.
func (d *decider) overlaps() {
	type use struct {
		what   string
		prefix netip.Prefix
	}
	var uses []use
	for _, p := range d.Pods.Prefixes {
		uses = append(uses, use{"the pod CIDR", p})
	}
	for _, p := range d.Services.Prefixes {
		uses = append(uses, use{"the Service CIDR", p})
	}
	for _, own := range []use{{"ipam.externalCIDR", d.facts.Installed.ExternalCIDR}, {"ipam.internalCIDR", d.facts.Installed.InternalCIDR}} {
		ps, err := cidrsAt(d.Values, own.what+"s", own.what)
		if err != nil {
			d.errs = append(d.errs, err)
		}
		for _, p := range ps {
			uses = append(uses, use{own.what, p})
			if own.prefix.IsValid() && own.prefix != p.Masked() {
				d.errorf("%s is %s in this installation and cannot become %s: uninstall first", own.what, own.prefix, p)
			}
		}
	}
	slices.SortFunc(uses, func(a, b use) int { return strings.Compare(a.what, b.what) })
	for i, a := range uses {
		for _, b := range uses[:i] {
			if a.prefix.Overlaps(b.prefix) {
				d.errorf("%s %s overlaps %s %s: an address must belong to only one of them", b.what, b.prefix, a.what, a.prefix)
			}
		}
	}
}

// nodes warns where a prefix that stands for a peer's could one day cover the
// addresses of nodes.
func (d *decider) nodes() {
	pools, err := cidrsAt(d.Values, "ipam.pools", "")
	if err != nil {
		d.errs = append(d.errs, err)
	}
	if len(pools) == 0 {
		pools = cidr.DefaultPools() // as the controller does
	}
	reserved, err := cidrsAt(d.Values, "ipam.reservedSubnets", "")
	if err != nil {
		d.errs = append(d.errs, err)
	}
	taken := slices.Concat(reserved, d.Pods.Prefixes, d.Services.Prefixes)
	subnets := map[netip.Prefix]bool{}
	for _, n := range d.facts.Nodes {
		for _, a := range n.Addresses {
			if within(pools, a) && !within(taken, a) {
				subnets[cidr.NetworkOf(a)] = true
			}
		}
	}
	if len(subnets) > 0 {
		d.Warnings = append(d.Warnings, fmt.Sprintf("the nodes have addresses in the pools from which prefixes for peers are taken: reserve their networks, for example with --reserved-subnets %s",
			join(slices.SortedFunc(maps.Keys(subnets), netip.Prefix.Compare))))
	}
}

func within(ps []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}
