package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Sourced is an object together with the place it was read from.
type Sourced[T any] struct {
	Object *T
	Source Source
}

// Objects is one state of everything that our programs work by. The order within
// a list is that of the files and of the documents in them. Lists of kinds that
// the reader does not use are empty.
type Objects struct {
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
	ExportedServices    []Sourced[networkingv1beta1.ExportedService]
	// FirewallConfigurations are those that gateways apply.
	FirewallConfigurations []Sourced[networkingv1beta1.FirewallConfiguration]
}

// Reader is the program that reads, and what it uses.
type Reader struct {
	// Name is how warnings call the program, as in "the gateway".
	Name string
	// Kinds are those whose objects it gets, as in "InternalFabric". What another
	// program of ours uses it is spared without a warning: the two share files.
	Kinds []string
}

// Decode decodes all documents of all files. With an error, which is of type
// Problems, the objects are incomplete and must not be used. A Reader that names
// a kind without a list in Objects is a mistake of its programmer, and panics.
func (f Files) Decode(by Reader) (objects Objects, warnings Problems, err error) {
	var problems Problems
	c := collector{objects: &objects, reader: by.Name, uses: by.kinds(), seen: make(map[string]Problem)}
	for _, f := range f.files {
		d := newDecoder(f)
		if f.err != nil {
			d.fail(nil, nil, "%s", reason(f.err))
		}
		c.secret = nil
		c.file(d, f.data)
		if c.secret != nil && f.public {
			d.object = headerOf(c.secret).String()
			d.warn(c.secret, nil, "holds a private key and is readable by every user: chmod 600 %s", f.name)
		}
		problems = append(problems, d.problems...)
		warnings = append(warnings, d.warnings...)
	}
	for _, name := range f.ignored {
		warnings = append(warnings, Problem{File: name, Reason: "is ignored: only names that end in .yaml or .yml are read"})
	}
	return objects, warnings, problems.OrNil()
}

// collector collects the objects of all files.
type collector struct {
	objects *Objects
	reader  string
	uses    map[string]bool    // kinds whose objects are kept
	seen    map[string]Problem // where an object with this kind and name stands
	secret  *yaml.Node         // a Secret in the present file that the reader uses
}

// file decodes all documents of one file.
func (c *collector) file(d *decoder, data []byte) {
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
			c.document(d, doc.Content[0], 0)
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
	return p.Masked()
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
func (c *collector) document(d *decoder, n *yaml.Node, depth int) {
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
				c.document(d, item, depth+1)
			}
		}
		return
	}
	c.dispatch(d, n, h)
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
