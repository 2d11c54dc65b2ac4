package gatewaysync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// StatusDir is the folder below the manifests that belongs to the gateway: it
// is written, never read as input.
const StatusDir = "status"

// Sourced is an object together with the place it was read from.
type Sourced[T any] struct {
	Object *T
	Source Source
}

// Objects is one state of everything that the data plane is built from. The
// order within a list is that of the files and of the documents in them.
type Objects struct {
	// NodePort is the UDP port of the node tunnels, which no gateway may ask
	// for; zero when it is not known. It comes from the command line.
	NodePort uint16
	// Cluster is set where the objects come from an API server; nil: from files.
	Cluster *Cluster

	GatewayServers      []Sourced[networkingv1beta1.GatewayServer]
	GatewayClients      []Sourced[networkingv1beta1.GatewayClient]
	Secrets             []Sourced[corev1.Secret]
	PublicKeys          []Sourced[networkingv1beta1.PublicKey]
	Configurations      []Sourced[networkingv1beta1.Configuration]
	InternalFabrics     []Sourced[networkingv1beta1.InternalFabric]
	InternalNodes       []Sourced[networkingv1beta1.InternalNode]
	GeneveTunnels       []Sourced[networkingv1beta1.GeneveTunnel]
	RouteConfigurations []Sourced[networkingv1beta1.RouteConfiguration]
	IPs                 []Sourced[ipamv1alpha1.IP]
	Networks            []Sourced[ipamv1alpha1.Network]
	// FirewallConfigurations are those that gateways apply.
	FirewallConfigurations []Sourced[networkingv1beta1.FirewallConfiguration]
}

// Decode decodes all documents of all files. With an error, which is of type
// Problems, the objects are incomplete and must not be used.
func (f Files) Decode() (objects Objects, warnings Problems, err error) {
	var problems Problems
	r := reader{objects: &objects, seen: make(map[string]Problem)}
	for _, f := range f.files {
		d := newDecoder(f)
		if f.err != nil {
			d.fail(nil, nil, "%s", reason(f.err))
		}
		r.secret = nil
		r.file(d, f.data)
		if r.secret != nil && f.public {
			d.object = headerOf(r.secret).String()
			d.warn(r.secret, nil, "holds a private key and is readable by every user: chmod 600 %s", f.name)
		}
		problems = append(problems, d.problems...)
		warnings = append(warnings, d.warnings...)
	}
	for _, name := range f.ignored {
		warnings = append(warnings, Problem{File: name, Reason: "is ignored: only names that end in .yaml or .yml are read"})
	}
	return objects, warnings, problems.orNil()
}

// Load reads dir and builds what it asks for. Errors are of type Problems.
func Load(dir string) (Desired, error) {
	files, err := ReadFiles(dir)
	if err != nil {
		return Desired{}, err
	}
	return files.Build()
}

// Build decodes the files and builds what they ask for. When there are errors
// of form, the meaning is not judged: its errors would only follow from them.
// Of a refused state only the warnings are there.
func (f Files) Build() (Desired, error) { return f.build(0) }

// build is Build for a gateway whose node tunnels use nodePort.
func (f Files) build(nodePort uint16) (Desired, error) {
	objects, warnings, err := f.Decode()
	if err != nil {
		return Desired{Warnings: warnings}, err
	}
	objects.NodePort = nodePort
	d, err := Build(objects)
	d.Warnings = append(warnings, d.Warnings...)
	return d, err
}

// reader collects the objects of all files.
type reader struct {
	objects *Objects
	seen    map[string]Problem // where an object with this kind and name stands
	secret  *yaml.Node         // a Secret in the present file
}

// file decodes all documents of one file.
func (r *reader) file(d *decoder, data []byte) {
	docs := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return
		}
		d.object = ""
		if err != nil {
			d.problems = append(d.problems, syntaxProblem(d.file, data, err))
			return
		}
		if len(doc.Content) == 1 && doc.Content[0].ShortTag() != "!!null" {
			r.document(d, doc.Content[0], 0)
		}
	}
}

var anchorName = regexp.MustCompile(`unknown anchor '.*?'`)

// syntaxProblem takes the line out of the text of err: the YAML module has no
// other way to tell it. Without one the text stays as it is.
func syntaxProblem(file string, data []byte, err error) Problem {
	p := Problem{File: file, Reason: err.Error()}
	if rest, ok := strings.CutPrefix(p.Reason, "yaml: line "); ok {
		if _, scanErr := fmt.Sscanf(rest, "%d: ", &p.Line); scanErr == nil {
			_, p.Reason, _ = strings.Cut(rest, ": ")
		}
	}
	p.Reason = "not valid YAML: " + strings.TrimPrefix(p.Reason, "yaml: ")
	// The module seldom names the character, and counts a line too few.
	if strings.Contains(p.Reason, "cannot start any token") || strings.Contains(p.Reason, "tab character") {
		lines := bytes.Split(data, []byte("\n"))
		for i := max(0, p.Line-1); i < min(len(lines), p.Line+1); i++ {
			if indented := bytes.TrimLeft(lines[i], " "); bytes.HasPrefix(indented, []byte("\t")) {
				p.Line, p.Reason = i+1, "not valid YAML: a tab in the indentation: use spaces"
				break
			}
		}
	}
	// The name of an anchor is what stands behind an asterisk, whatever that is.
	p.Reason = anchorName.ReplaceAllString(p.Reason, "unknown anchor")
	return p.masked()
}

// header is what tells one kind from another.
type header struct {
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
}

func (h header) String() string {
	switch {
	case h.Name == "" || h.Kind == "":
		return h.Kind
	case h.Namespace == "":
		return h.Kind + " " + h.Name
	}
	return h.Kind + " " + h.Namespace + "/" + h.Name
}

// document decodes one object, or the list of objects that "kubectl get -o
// yaml" prints.
func (r *reader) document(d *decoder, n *yaml.Node, depth int) {
	d.object = ""
	n, ok := d.enter(n, nil, depth)
	if !ok {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, nil, "must be a Kubernetes object, not %s", describe(n))
		return
	}
	h := headerOf(n)
	d.object = h.String()
	if h.APIVersion == "" || h.Kind == "" {
		d.fail(n, nil, "apiVersion and kind are required")
		return
	}
	if h.APIVersion == "v1" && h.Kind == "List" {
		if _, items := child(n, "items"); items != nil && items.Kind == yaml.SequenceNode {
			for _, item := range items.Content {
				r.document(d, item, depth+1)
			}
		}
		return
	}
	r.dispatch(d, n, h)
}

func headerOf(n *yaml.Node) (h header) {
	text := func(n *yaml.Node, key string) string {
		_, v := child(n, key)
		if v != nil && v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		if v == nil || v.Kind != yaml.ScalarNode || v.ShortTag() != "!!str" {
			return ""
		}
		return v.Value
	}
	h.APIVersion, h.Kind = text(n, "apiVersion"), text(n, "kind")
	if _, meta := child(n, "metadata"); meta != nil { // an alias is too rare to name the object by
		h.Namespace, h.Name = text(meta, "namespace"), text(meta, "name")
	}
	return h
}

// dispatch decodes an object of a kind that we know and says what happens to
// the others.
func (r *reader) dispatch(d *decoder, n *yaml.Node, h header) {
	group, version, _ := strings.Cut(h.APIVersion, "/")
	k, known := kinds[kindKey{group, h.Kind}]
	served, ours := servedVersions[group]
	switch {
	case ours && !known:
		d.fail(n, field.NewPath("kind"), "%s has no kind %q", group, h.Kind)
		return
	case !known:
		d.warn(n, nil, "%s %s is not used by the gateway and ignored%s", h.APIVersion, h.Kind, similarKind(group, h.Kind))
		return
	case ours && version == "v1alpha1" && served == "v1beta1":
		// The first edition of the API differs in nothing that stands in these kinds.
		d.warn(n, field.NewPath("apiVersion"), "%s is an old version, read as %s/%s", h.APIVersion, group, served)
	case ours && version != served:
		d.fail(n, field.NewPath("apiVersion"), "version %q of %s is not known: use %s/%s", version, h.Kind, group, served)
		return
	}
	if h.Name == "" {
		d.fail(n, field.NewPath("metadata", "name"), "is required")
	}
	if first, dup := r.seen[h.String()]; dup {
		d.fail(n, nil, "is already defined in %s", first)
		return
	}
	r.seen[h.String()] = Problem{File: d.file, Line: n.Line}
	k.decode(r, d, n)
	if !k.used {
		d.warn(n, nil, "the gateway does not use objects of kind %s", h.Kind)
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

// kind is how one kind is decoded and whether that has an effect.
type kind struct {
	used   bool
	decode func(r *reader, d *decoder, n *yaml.Node)
}

const (
	networkingGroup = "networking.liqo.io"
	ipamGroup       = "ipam.liqo.io"
)

// servedVersions are the groups whose kinds are all known here.
var servedVersions = map[string]string{networkingGroup: "v1beta1", ipamGroup: "v1alpha1"}

var kinds = map[kindKey]kind{
	{"v1", "Secret"}: {used: true, decode: func(r *reader, d *decoder, n *yaml.Node) {
		if s := add(d, n, &r.objects.Secrets); s != nil {
			r.secret = n
			mergeStringData(s)
		}
	}},

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
	{ipamGroup, "IP"}:      keep(func(o *Objects) *[]Sourced[ipamv1alpha1.IP] { return &o.IPs }),
	{ipamGroup, "Network"}: keep(func(o *Objects) *[]Sourced[ipamv1alpha1.Network] { return &o.Networks }),

	{networkingGroup, "Connection"}:              {decode: checkConnection},
	{networkingGroup, "WgGatewayServer"}:         drop[networkingv1beta1.WgGatewayServer](),
	{networkingGroup, "WgGatewayClient"}:         drop[networkingv1beta1.WgGatewayClient](),
	{networkingGroup, "WgGatewayServerTemplate"}: drop[networkingv1beta1.WgGatewayServerTemplate](),
	{networkingGroup, "WgGatewayClientTemplate"}: drop[networkingv1beta1.WgGatewayClientTemplate](),
}

// keep makes a kind whose objects go into a list.
func keep[T any](list func(*Objects) *[]Sourced[T]) kind {
	return kind{used: true, decode: func(r *reader, d *decoder, n *yaml.Node) {
		add(d, n, list(r.objects))
	}}
}

// drop makes a kind that is checked, as a typo in it is still a typo, but has
// no effect.
func drop[T any]() kind {
	return kind{decode: func(_ *reader, d *decoder, n *yaml.Node) {
		d.value(n, reflect.ValueOf(new(T)).Elem(), nil, 0)
	}}
}

// checkConnection is drop for the one unused kind that people write by hand: its
// type is one of two words.
func checkConnection(_ *reader, d *decoder, n *yaml.Node) {
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

// ref names an object in a problem.
type ref struct {
	kind   string
	meta   *metav1.ObjectMeta
	source Source
}

func (r ref) problem(path *field.Path, format string, args ...any) Problem {
	h := header{Kind: r.kind, Namespace: r.meta.Namespace, Name: r.meta.Name}
	p := Problem{File: r.source.File, Line: r.source.Line(path), Object: h.String(), Reason: fmt.Sprintf(format, args...)}
	if path != nil {
		p.Field = path.String()
	}
	return p.masked()
}
