package release

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// handedOverKey is the key in the nodeSelector of Liqo's node agent for which there are no nodes.
const handedOverKey = access.HandedOverKey

// Values of the chart by which it works beside Liqo's.
const (
	pathAdoption = "adoption.enabled"
	pathTables   = "adoption.liqoTables"
)

// takeoverFacts are what a takeover depends on.
type takeoverFacts struct {
	namespace string // Liqo's
	// programs are Liqo's Deployments in its namespace, agents its DaemonSets.
	programs []appsv1.Deployment
	agents   []appsv1.DaemonSet
	// adoptFacts are about the gateways.
	adoptFacts
	networks  []ipamv1alpha1.Network
	ips       []ipamv1alpha1.IP
	fabrics   []networkingv1beta1.InternalFabric
	firewalls []networkingv1beta1.FirewallConfiguration
	routes    []networkingv1beta1.RouteConfiguration
	// live are the CRDs of the cluster that are of the network, wanted those of this program, by name.
	live, wanted map[string]apiextensionsv1.CustomResourceDefinition
	// objects are those of the CRDs of which live has fields that wanted lacks.
	objects map[string][]unstructured.Unstructured
	// tables are those that an earlier takeover named.
	tables []string
}

// takeoverPlan is what follows from the facts.
type takeoverPlan struct {
	// agent is Liqo's DaemonSet.
	agent *appsv1.DaemonSet
	// accounts are the names of the service accounts of Liqo's controllers; manager is that of its controller manager.
	accounts []string
	manager  string
	// values are what the cluster tells about the chart's.
	values Values
	// originals are the CRDs that ours take the place of, added the names of those that only this project has.
	originals []apiextensionsv1.CustomResourceDefinition
	added     []string
	warnings  []string
}

// knownLiqo matches the versions of Liqo whose objects are understood.
var knownLiqo = regexp.MustCompile(`^v?1\.[0-2]\.\d+`)

// plan decides. The error names all that is in the way. If unknown, any version of Liqo will do.
func (f takeoverFacts) plan(unknown bool) (p takeoverPlan, err error) {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	p.agent = f.agent()
	if p.agent == nil {
		add("there is no DaemonSet of Liqo's node agent in namespace %s: Liqo does not run a network here that could be taken over", f.namespace)
	}
	if f.program(survey.LiqosIPAM) == nil {
		add("there is no Deployment of Liqo's IPAM in namespace %s: where another program gives out the addresses, they cannot be taken over", f.namespace)
	}
	manager := f.program(survey.LiqosControllers)
	if manager == nil {
		add("there is no Deployment of Liqo's controller manager in namespace %s", f.namespace)
	} else if v := imageTag(manager.Spec.Template.Spec); !knownLiqo.MatchString(v) {
		text := fmt.Sprintf("the version of Liqo here is %q, and this program knows 1.0 to 1.2", v)
		if unknown {
			p.warnings = append(p.warnings, text)
		} else {
			add("%s: if you are sure that its objects are the same, add --skip-validation", text)
		}
	}
	for i := range f.programs {
		d := &f.programs[i]
		// Liqo's proxy has none of its own, and asks for nothing. Who has the same writes nothing of the network, either.
		account := cmp.Or(d.Spec.Template.Spec.ServiceAccountName, d.Spec.Template.Spec.DeprecatedServiceAccount, "default")
		if d == manager {
			p.manager = account
			if account == "default" {
				add("Deployment %s has no service account of its own, so nothing tells its requests from those of others", client.ObjectKeyFromObject(d))
			}
		}
		p.accounts = append(p.accounts, account)
	}
	slices.Sort(p.accounts)
	p.accounts = slices.Compact(p.accounts)
	errs = append(errs, f.gatewaysAdopted()...)
	errs = append(errs, f.addressesClear()...)
	tables, tableErrs := f.tablesOnNodes()
	errs = append(errs, tableErrs...)
	p.values = f.values(tables)
	for _, name := range slices.Sorted(maps.Keys(f.live)) {
		live, ours := f.live[name], f.wanted[name]
		if isApplied(&live) {
			continue // by an earlier takeover
		}
		if ours.Name == "" {
			add("CRD %s is none that this program knows: use a newer liqoctl", name)
			continue
		}
		p.originals = append(p.originals, live)
		if lost := usedFields(f.objects[name], lostFields(&live, &ours)); len(lost) > 0 {
			add("CRD %s of Liqo has fields that this program does not know, and objects would lose them (%s): use a newer liqoctl", name, text.Few(lost))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.wanted)) {
		if _, there := f.live[name]; !there && apply.OfNetwork(f.wanted[name].Spec.Group) {
			p.added = append(p.added, name)
		}
	}
	return p, errors.Join(errs...)
}

// program is the Deployment of one of Liqo's programs; nil: there is none.
func (f takeoverFacts) program(name string) *appsv1.Deployment {
	for i := range f.programs {
		if d := &f.programs[i]; survey.LiqosProgram(&d.ObjectMeta, &d.Spec.Template.Spec) == name {
			return d
		}
	}
	return nil
}

func (f takeoverFacts) agent() *appsv1.DaemonSet {
	for i := range f.agents {
		if d := &f.agents[i]; survey.LiqosProgram(&d.ObjectMeta, &d.Spec.Template.Spec) == survey.LiqosAgents {
			return d
		}
	}
	return nil
}

// imageTag is the version of the first container's image.
func imageTag(pod corev1.PodSpec) string {
	if len(pod.Containers) == 0 {
		return ""
	}
	image, _, _ := strings.Cut(pod.Containers[0].Image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tag
}

// gatewaysAdopted tells which gateways are not ours yet: our controllers could not run Liqo's as it needs to be run.
func (f takeoverFacts) gatewaysAdopted() (errs []error) {
	for _, g := range f.gateways {
		t := f.templates[g.ref]
		switch {
		case t == nil:
			errs = append(errs, fmt.Errorf("%s: there is no %s", g.named(), g.ref))
		case !isOurs(t):
			errs = append(errs, fmt.Errorf("%s is Liqo's: hand it over first, with 'liqoctl network adopt --all'", g.named()))
		case noteOn(t) != "":
			errs = append(errs, fmt.Errorf("the handover of %s is not completed: repeat 'liqoctl network adopt %s'", g.named(), g.peer))
		}
	}
	return errs
}

// addressesClear tells what our controllers would give another address or name than Liqo's.
func (f takeoverFacts) addressesClear() (errs []error) {
	for i := range f.networks {
		n := &f.networks[i]
		a, err := netip.ParsePrefix(string(n.Status.CIDR))
		if err != nil || n.Labels[ipamv1alpha1.LabelNetworkType] == ipamv1alpha1.NetworkTypeReserved {
			continue // it has none yet, or may share those of others
		}
		for j := range f.networks[:i] {
			o := &f.networks[j]
			b, err := netip.ParsePrefix(string(o.Status.CIDR))
			if err == nil && a.Overlaps(b) && o.Labels[ipamv1alpha1.LabelNetworkType] != ipamv1alpha1.NetworkTypeReserved {
				errs = append(errs, fmt.Errorf("%s of Network %s overlaps %s of Network %s, so one would get another prefix: delete one of them",
					a, client.ObjectKeyFromObject(n), b, client.ObjectKeyFromObject(o)))
			}
		}
	}
	byAddress := map[ipamv1alpha1.Address]string{}
	for i := range f.ips {
		ip := &f.ips[i]
		if ip.Status.IP == "" {
			continue
		}
		name := client.ObjectKeyFromObject(ip).String()
		if other := byAddress[ip.Status.IP]; other != "" {
			errs = append(errs, fmt.Errorf("IP %s and IP %s both have the address %s: delete one of them", name, other, ip.Status.IP))
		}
		byAddress[ip.Status.IP] = name
	}
	for i := range f.fabrics {
		fabric := &f.fabrics[i]
		if id := fabric.Labels[networkingv1beta1.LabelRemoteClusterID]; fabric.Name != id {
			errs = append(errs, fmt.Errorf("InternalFabric %s is not named after its cluster, %q, as those of Liqo 1.0 and later are: delete it, and Liqo makes it again",
				client.ObjectKeyFromObject(fabric), id))
		}
	}
	return errs
}

// tableName is how Liqo names tables: after objects. It must not pass for an argument.
var tableName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// othersTables are names of tables of nftables that are of others, whoever made an object with such a name.
var othersTables = []string{"filter", "nat", "mangle", "raw", "security", "kube-proxy", "firewalld", "cilium", "calico", "libvirt_network", "sluice-fabric"}

// routesSuffix ends the name of the routing table that Liqo's agents keep for an InternalFabric. Ours find it by that.
const routesSuffix = "-node-gw"

// tablesOnNodes are the names of the nftables tables that Liqo's agents have made. What users have made for nodes would be
// lost.
func (f takeoverFacts) tablesOnNodes() (names []string, errs []error) {
	names = slices.Clone(f.tables)
	liqos := func(o client.Object, kind, table string, known bool) bool {
		what := kind + " " + client.ObjectKeyFromObject(o).String()
		switch {
		case o.GetAnnotations()[annotationReleaseName] != "":
			errs = append(errs, fmt.Errorf("%s is of the Helm release %s, and Sluice's node agents would not apply it: turn it off there (Liqo's has it for networking.notrack.enabled)",
				what, o.GetAnnotations()[annotationReleaseName]))
			return false
		case o.GetLabels()[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue && len(o.GetOwnerReferences()) == 0:
			errs = append(errs, fmt.Errorf("%s was made by somebody for the nodes, and Sluice's node agents would not apply it: delete it first", what))
			return false
		case !known:
			errs = append(errs, fmt.Errorf("%s has a table %q, which is none of Liqo's: delete it first", what, table))
		}
		return known
	}
	for i := range f.firewalls {
		o, table := &f.firewalls[i], f.firewalls[i].Spec.Table.Name
		if o.Labels[networkingv1beta1.LabelFirewallCategory] == networkingv1beta1.CategoryFabric &&
			liqos(o, "FirewallConfiguration", table, tableName.MatchString(table) && !slices.Contains(othersTables, table)) {
			names = append(names, table)
		}
	}
	for i := range f.routes {
		o, table := &f.routes[i], f.routes[i].Spec.Table.Name
		if o.Labels[networkingv1beta1.LabelRouteCategory] == networkingv1beta1.CategoryFabric {
			liqos(o, "RouteConfiguration", table, slices.ContainsFunc(f.fabrics, func(f networkingv1beta1.InternalFabric) bool { return f.Name+routesSuffix == table }))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), errs
}

// values are what Liqo's programs and objects tell about the chart.
func (f takeoverFacts) values(tables []string) Values {
	names := make([]any, len(tables))
	for i, t := range tables {
		names[i] = t
	}
	v := merge(value(true, pathAdoption), value(names, pathTables))
	if agent := f.agent(); agent != nil {
		if port, err := strconv.Atoi(argumentOf(agent.Spec.Template.Spec, "geneve-port")); err == nil && port > 0 {
			v = merge(v, value(port, "networking.genevePort"))
		}
	}
	if ipam := f.program(survey.LiqosIPAM); ipam != nil {
		for _, c := range ipam.Spec.Template.Spec.Containers {
			if pools := argument(slices.Concat(c.Command, c.Args), "pools"); len(pools) > 0 {
				v = merge(v, value(list(pools), "ipam.pools"))
			}
		}
	}
	if f.fullMasquerade() {
		v = merge(v, value(true, "networking.fabric.config.fullMasquerade"))
	}
	return v
}

// argumentOf is what the containers of a pod are given for a flag; empty: nothing.
func argumentOf(pod corev1.PodSpec, name string) (value string) {
	for _, c := range pod.Containers {
		for _, a := range slices.Concat(c.Command, c.Args) {
			if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
				value = v
			}
		}
	}
	return value
}

// bypassSuffix ends the name of the table by which Liqo keeps addresses of pods from being hidden.
const bypassSuffix = "-masquerade-bypass"

// fullMasquerade tells whether Liqo hides the addresses of pods. Its controller manager is told so; where it is not, its tables
// keep none of the pods' own prefixes.
func (f takeoverFacts) fullMasquerade() bool {
	if manager := f.program(survey.LiqosControllers); manager != nil {
		if said := argumentOf(manager.Spec.Template.Spec, "fabric-full-masquerade-enabled"); said != "" {
			return said == "true"
		}
	}
	own := map[string]bool{}
	for _, n := range f.networks {
		if n.Namespace == f.namespace && n.Labels[ipamv1alpha1.LabelNetworkType] == ipamv1alpha1.NetworkTypePodCIDR {
			own[string(n.Status.CIDR)] = true
		}
	}
	bypasses, kept := 0, 0
	for i := range f.firewalls {
		o := &f.firewalls[i]
		if !strings.HasSuffix(o.Name, bypassSuffix) || strings.HasSuffix(o.Name, "-gw"+bypassSuffix) {
			continue
		}
		for _, chain := range o.Spec.Table.Chains {
			for _, rule := range chain.Rules.NATRules {
				bypasses++
				if own[rule.To] {
					kept++
				}
			}
		}
	}
	return bypasses > 0 && kept == 0
}
