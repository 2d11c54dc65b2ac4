package manifests

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// kinds returns the set of the kinds that the reader uses.
func (r Reader) kinds() map[string]bool {
	set := make(map[string]bool, len(r.Kinds))
	for k, how := range kinds {
		if how.list != nil && slices.Contains(r.Kinds, k.kind) {
			set[k.kind] = true
		}
	}
	for _, name := range r.Kinds {
		if !set[name] {
			panic("manifests: there is no list of objects of kind " + name)
		}
	}
	return set
}

// dispatch decodes an object of a kind that we know and says what happens to
// the others.
func (c *collector) dispatch(d *decoder, n *yaml.Node, h header) {
	group, version, _ := strings.Cut(h.APIVersion, "/")
	k, known := kinds[kindKey{group, h.Kind}]
	served, ours := servedVersions[group]
	mine := c.uses[h.Kind]
	switch {
	case ours && !known:
		d.fail(n, field.NewPath("kind"), "%s has no kind %q", group, h.Kind)
		return
	case !known:
		d.warn(n, nil, "%s %s is not used by %s and ignored%s", h.APIVersion, h.Kind, c.reader, similarKind(group, h.Kind))
		return
	case ours && version == "v1alpha1" && served == "v1beta1":
		// The first edition of the API differs in nothing that stands in these kinds.
		if mine || k.list == nil {
			d.warn(n, field.NewPath("apiVersion"), "%s is an old version, read as %s/%s", h.APIVersion, group, served)
		}
	case ours && version != served:
		d.fail(n, field.NewPath("apiVersion"), "version %q of %s is not known: use %s/%s", version, h.Kind, group, served)
		return
	}
	if h.Name == "" {
		d.fail(n, field.NewPath("metadata", "name"), "is required")
	}
	if first, dup := c.seen[h.String()]; dup {
		d.fail(n, nil, "is already defined in %s", first)
		return
	}
	c.seen[h.String()] = Problem{File: d.file, Line: n.Line}
	if mine {
		k.list(c, d, n)
		return
	}
	k.check(d, n)
	if k.list == nil {
		d.warn(n, nil, "%s does not use objects of kind %s", c.reader, h.Kind)
	}
}

// similarKind guesses what was meant by a kind that we do not know: other letters
// of one that we do, or another spelling of its group.
func similarKind(group, name string) string {
	for k := range kinds {
		if strings.EqualFold(k.kind, name) && (k.group == group || strings.Contains(group, "liqo")) {
			apiVersion := k.group
			if v := servedVersions[k.group]; v != "" {
				apiVersion += "/" + v
			}
			return fmt.Sprintf("; did you mean %s %s?", apiVersion, k.kind)
		}
	}
	return ""
}

// kindKey is a kind in its group; the core group goes by its only version.
type kindKey struct{ group, kind string }

// kind is how one kind is read.
type kind struct {
	// list decodes an object into its list of Objects; nil: no program of ours
	// uses it.
	list func(c *collector, d *decoder, n *yaml.Node)
	// check looks for mistakes in one that the reader does not use.
	check func(d *decoder, n *yaml.Node)
}

const (
	networkingGroup = "networking.liqo.io"
	ipamGroup       = "ipam.liqo.io"
)

// servedVersions are the groups whose kinds are all known here.
var servedVersions = map[string]string{networkingGroup: "v1beta1", ipamGroup: "v1alpha1"}

var kinds = map[kindKey]kind{
	{"v1", "Secret"}: {
		list: func(c *collector, d *decoder, n *yaml.Node) {
			if s := add(d, n, &c.objects.Secrets); s != nil {
				c.secret = n
				mergeStringData(s)
			}
		},
		check: func(*decoder, *yaml.Node) {}, // who has no use for keys makes no copy of them
	},

	{networkingGroup, "GatewayServer"}:      keep(func(o *Objects) *[]Sourced[networkingv1beta1.GatewayServer] { return &o.GatewayServers }),
	{networkingGroup, "GatewayClient"}:      keep(func(o *Objects) *[]Sourced[networkingv1beta1.GatewayClient] { return &o.GatewayClients }),
	{networkingGroup, "PublicKey"}:          keep(func(o *Objects) *[]Sourced[networkingv1beta1.PublicKey] { return &o.PublicKeys }),
	{networkingGroup, "Configuration"}:      keep(func(o *Objects) *[]Sourced[networkingv1beta1.Configuration] { return &o.Configurations }),
	{networkingGroup, "InternalFabric"}:     keep(func(o *Objects) *[]Sourced[networkingv1beta1.InternalFabric] { return &o.InternalFabrics }),
	{networkingGroup, "InternalNode"}:       keep(func(o *Objects) *[]Sourced[networkingv1beta1.InternalNode] { return &o.InternalNodes }),
	{networkingGroup, "GeneveTunnel"}:       keep(func(o *Objects) *[]Sourced[networkingv1beta1.GeneveTunnel] { return &o.GeneveTunnels }),
	{networkingGroup, "RouteConfiguration"}: keep(func(o *Objects) *[]Sourced[networkingv1beta1.RouteConfiguration] { return &o.RouteConfigurations }),
	{networkingGroup, "FirewallConfiguration"}: keep(func(o *Objects) *[]Sourced[networkingv1beta1.FirewallConfiguration] {
		return &o.FirewallConfigurations
	}),
	{networkingGroup, "ExportedService"}: keep(func(o *Objects) *[]Sourced[networkingv1beta1.ExportedService] { return &o.ExportedServices }),
	{ipamGroup, "IP"}:                    keep(func(o *Objects) *[]Sourced[ipamv1alpha1.IP] { return &o.IPs }),
	{ipamGroup, "Network"}:               keep(func(o *Objects) *[]Sourced[ipamv1alpha1.Network] { return &o.Networks }),

	{networkingGroup, "Connection"}:              {check: checkConnection},
	{networkingGroup, "ImportedService"}:         drop[networkingv1beta1.ImportedService](),
	{networkingGroup, "WgGatewayServer"}:         drop[networkingv1beta1.WgGatewayServer](),
	{networkingGroup, "WgGatewayClient"}:         drop[networkingv1beta1.WgGatewayClient](),
	{networkingGroup, "WgGatewayServerTemplate"}: drop[networkingv1beta1.WgGatewayServerTemplate](),
	{networkingGroup, "WgGatewayClientTemplate"}: drop[networkingv1beta1.WgGatewayClientTemplate](),
}

// keep makes a kind whose objects go into a list.
func keep[T any](list func(*Objects) *[]Sourced[T]) kind {
	return kind{
		list:  func(c *collector, d *decoder, n *yaml.Node) { add(d, n, list(c.objects)) },
		check: check[T],
	}
}

// drop makes a kind that has no effect.
func drop[T any]() kind { return kind{check: check[T]} }

// check decodes n for the sake of its mistakes.
func check[T any](d *decoder, n *yaml.Node) {
	d.value(n, reflect.ValueOf(new(T)).Elem(), nil, 0)
}

// checkConnection is check for the one unused kind that people write by hand: its
// type is one of two words.
func checkConnection(d *decoder, n *yaml.Node) {
	var c networkingv1beta1.Connection
	d.value(n, reflect.ValueOf(&c).Elem(), nil, 0)
	switch t := c.Spec.Type; t {
	case "", networkingv1beta1.ConnectionServer, networkingv1beta1.ConnectionClient:
	default:
		path := field.NewPath("spec", "type")
		at := yaml.Node{Line: Source{node: n}.Line(path)}
		d.fail(&at, path, "%q is none of Server, Client", t)
	}
}

// add decodes n and appends it to list.
func add[T any](d *decoder, n *yaml.Node, list *[]Sourced[T]) *T {
	object := new(T)
	d.value(n, reflect.ValueOf(object).Elem(), nil, 0)
	*list = append(*list, Sourced[T]{Object: object, Source: Source{File: d.file, node: n}})
	return object
}

// mergeStringData does what the API server does on write.
func mergeStringData(s *corev1.Secret) {
	for k, v := range s.StringData {
		if s.Data == nil {
			s.Data = make(map[string][]byte)
		}
		s.Data[k] = []byte(v)
	}
}
