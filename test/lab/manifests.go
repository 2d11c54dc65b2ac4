package lab

import (
	"bytes"
	_ "embed"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/template"
)

//go:embed manifests.yaml.tmpl
var manifestsText string

var manifestsTemplate = template.Must(template.New("manifests").
	Funcs(template.FuncMap{"list": yamlList}).Parse(manifestsText))

// Manifests are what one gateway is configured from: the same objects that a
// cluster would hold.
type Manifests struct {
	// Server says which kind of gateway this is.
	Server bool
	// ClusterID is the own and PeerID the other cluster.
	ClusterID, PeerID string
	// PrivateKey is the gateway's, PeerKey the public key of the other; both in
	// base64. Without PeerKey there is no PublicKey object.
	PrivateKey, PeerKey string
	// Port is where a server listens, or where a client finds the server, at
	// Endpoint.
	Port     int
	Endpoint string
	// FurtherPorts are those of further tunnels.
	FurtherPorts []int
	MTU          int

	// Gateway is the gateway's address on the underlay, Internal the one inside
	// the node tunnels.
	Gateway, Internal netip.Addr
	// Pods and External are the prefixes that both clusters use; Remapped... those
	// by which the peer's are known here. Without RemappedPods the Configuration
	// has no status.
	Pods, External                 []netip.Prefix
	RemappedPods, RemappedExternal []netip.Prefix
	Nodes                          []NodeManifest
	// IPs are hosts that the peer may reach.
	IPs []IPManifest

	// FewFiles has many objects in each file: few are read faster than thousands.
	FewFiles bool
}

// IPManifest makes a host known to the peer.
type IPManifest struct {
	Name string
	// IP is the host's address, Remapped the one of the external CIDR.
	IP, Remapped netip.Addr
	// Masquerade hides the peer's addresses from the host.
	Masquerade bool
}

// NodeManifest is one node as the gateway knows it.
type NodeManifest struct {
	Name     string
	Underlay netip.Addr
	Internal netip.Addr
	VNI      int
	Pods     []netip.Prefix
}

// RemoteCIDRs are all prefixes behind the gateway, as the nodes route them.
func (m *Manifests) RemoteCIDRs() []netip.Prefix {
	return slices.Concat(m.RemappedPods, m.RemappedExternal)
}

// Files renders the manifests: file name to text.
func (m *Manifests) Files() map[string]string {
	var out bytes.Buffer
	if err := manifestsTemplate.Execute(&out, m); err != nil {
		panic(err) // the template is fixed and all fields are plain
	}
	files := map[string]string{}
	for part := range strings.SplitSeq(out.String(), "#--- ") {
		name, text, ok := strings.Cut(part, "\n")
		if text = strings.TrimSpace(text); ok && text != "" {
			files[strings.TrimSpace(name)] = text + "\n"
		}
	}
	if m.FewFiles {
		return together(files)
	}
	return files
}

// together puts the objects of many files into few.
func together(files map[string]string) map[string]string {
	const size = 8 << 20 // half of what a file may have
	few := map[string]string{}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all.WriteString("---\n" + files[name])
		if all.Len() > size {
			few[name] = all.String()
			all.Reset()
		}
	}
	few["rest.yaml"] = all.String()
	return few
}

// yamlList writes prefixes as a YAML flow sequence.
func yamlList(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = `"` + p.String() + `"`
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
