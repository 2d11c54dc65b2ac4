package sluice_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-net/sluice"

// goPackage is what this test needs of `go list -json`.
type goPackage struct {
	ImportPath   string
	Doc          string
	Imports      []string
	Deps         []string
	GoFiles      []string
	TestImports  []string
	XTestImports []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,Deps,GoFiles,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var ps []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

// rule says what a package, or one below it when it ends in "/...", may not
// import. Patterns of ours are relative to the module; forbidden ones match a
// package and everything below it.
type rule struct {
	pkg       string
	forbidden []string
	reason    string
}

// linked rules hold for everything a package links, the others for what its
// own files import.
var importRules = struct{ direct, linked []rule }{
	direct: []rule{
		{"nat/packet", []string{"net", "log", "log/slog"}, "a view over bytes does no I/O and logs nothing"},
		{"dataplane/capture", []string{module + "/dataplane", module + "/tunnel", module + "/geneve"}, "a capture sees packets and knows nothing else"},
		{"objects/...", []string{module + "/gateway", module + "/node", module + "/controlplane", module + "/admin", module + "/dataplane"}, "where objects come from knows nobody who uses them"},
		{"gateway/...", []string{module + "/node", module + "/controlplane", module + "/admin"}, "what runs in a gateway is not what runs elsewhere"},
		{"node/...", []string{module + "/gateway", module + "/controlplane", module + "/admin"}, "what runs on a node is not what runs elsewhere"},
		{"virtualkubelet", []string{module + "/gateway", module + "/node", module + "/admin", module + "/dataplane"}, "what runs in a virtual kubelet is not what runs elsewhere"},
		{"clusterdns", []string{module + "/gateway", module + "/node", module + "/controlplane", module + "/admin", module + "/dataplane"}, "the DNS server knows objects and messages"},
		{"node/hostnet", []string{module, "k8s.io", "sigs.k8s.io"}, "the host's network knows links and routes, not why they are wanted"},
		{"controlplane/...", []string{module + "/gateway", module + "/node", module + "/admin", module + "/objects"}, "the controllers know objects, not the programs that read them"},
		{"controlplane/objectname", []string{module, "k8s.io", "sigs.k8s.io"}, "names are made of text: usable without a cluster"},
		{"controlplane/template", []string{module, "sigs.k8s.io/controller-runtime"}, "rendering reads nothing"},
		{"controlplane/apply", []string{module + "/controlplane"}, "writing knows whose an object is, and nothing else of the reconcilers"},
		{"admin/...", []string{module + "/gateway", module + "/node"}, "what is done to clusters asks gateways and agents, and does not contain them"},
		{"admin/...", []string{"github.com/spf13/cobra", "golang.org/x/term"}, "what is done to clusters knows no terminal"},
		{"admin/progress", []string{module, "k8s.io"}, "who tells and who shows share nothing else"},
		{"admin/access", []string{module + "/admin"}, "reaching a cluster knows nobody who does it"},
		{"pcapng", []string{module, "k8s.io"}, "a file format knows nothing of ours"},
	},
	linked: []rule{
		{"geneve", []string{"k8s.io"}, "the packet path knows no Kubernetes"},
		{"nat/...", []string{"k8s.io"}, "the packet path knows no Kubernetes"},
		{"underlay", []string{"k8s.io"}, "the packet path knows no Kubernetes"},
		{"tunnel", []string{"k8s.io", "gvisor.dev"}, "the packet path knows no Kubernetes"},
		{"dataplane/...", []string{"k8s.io", "sigs.k8s.io", module + "/api", module + "/controlplane", "github.com/prometheus"}, "the packet path knows no Kubernetes and no metrics library"},
		{"node/tunlink", []string{"k8s.io", "github.com/prometheus"}, "the packet path knows no Kubernetes and no metrics library"},
		{"controlplane/...", []string{module + "/underlay", module + "/dataplane", module + "/tunnel", "gvisor.dev", "golang.zx2c4.com"}, "the controllers do not link the data plane"},
		{"cmd/gateway", []string{"sigs.k8s.io/controller-runtime"}, "the gateway stays small: informers are enough"},
		{"cmd/fabric", []string{"sigs.k8s.io/controller-runtime", "gvisor.dev", "golang.zx2c4.com/wireguard/device", module + "/tunnel", module + "/gateway"}, "the node agent is small: no gateway in it"},
		{"virtualkubelet", []string{"sigs.k8s.io/controller-runtime", "gvisor.dev", "golang.zx2c4.com"}, "one process for each peer stays small: informers are enough"},
		{"cmd/liqoctl", []string{module + "/underlay", module + "/dataplane", module + "/tunnel", "gvisor.dev", "golang.zx2c4.com"}, "the command line carries no packets: it asks gateways"},
		{"cmd/liqoctl", []string{module + "/controlplane/manager"}, "the command line runs no controllers"},
		{"cmd/clusterdns", []string{"sigs.k8s.io/controller-runtime", "gvisor.dev", "golang.zx2c4.com"}, "it answers many and stays small: informers are enough"},
		{"cmd/prober", []string{"k8s.io", "sigs.k8s.io", "gvisor.dev"}, "an image of a few megabytes"},
	},
}

// owners lists packages of others that exactly these packages of ours import: what can be replaced in one place.
var owners = map[string][]string{
	"golang.zx2c4.com/wireguard/device": {"tunnel"},                       // sessions
	"golang.zx2c4.com/wireguard/conn":   {"tunnel"},                       // what the device sends by
	"gvisor.dev/gvisor":                 {"dataplane/netstack"},           // a stack of 1 MB, for the gateway's own connections
	"github.com/mdlayher/netlink":       {"node/hostnet"},                 // what writes to a kernel is one package
	"github.com/google/nftables":        {"node/hostnet"},                 // likewise
	"helm.sh/helm":                      {"admin/release"},                // a third of liqoctl
	"github.com/miekg/dns":              {"clusterdns", "cmd/clusterdns"}, // DNS messages are read where they arrive
	"golang.org/x/term":                 {"cmd/liqoctl/console"},          // one package knows what a terminal is
	"github.com/spf13/cobra":            {"cmd/liqoctl"},                  // the only program with commands in commands
}

// allowed lists all that these packages import beside the standard library. A package
// below the last element of a pattern that ends in "/..." is meant too, and what is
// listed stands for what is below it.
var allowed = []struct {
	pkg     string
	imports []string
	reason  string
}{
	{"geneve", nil, "a codec: bytes and values, no I/O"},
	{"nat/packet", nil, "a view over bytes"},
	{"nat", []string{module + "/nat/packet"}, "translation knows packets and no transport"},
	{"tunnel", []string{module + "/underlay", "golang.org/x/sys", "golang.zx2c4.com/wireguard"}, "WireGuard over any socket"},
	{"underlay", []string{"golang.org/x/sys"}, "a socket knows nothing of what it carries"},
	{"dataplane/neighbor", []string{module + "/nat/packet"}, "frames, ARP and ND as bytes and values: no I/O"},
	{"dataplane/filter", []string{module + "/nat/packet"}, "rules and packets, nothing else"},
	{"dataplane/health", nil, "a protocol over any net.PacketConn"},
	{"dataplane/plpmtu", nil, "a search that is told everything, the time included"},
	{"dataplane/netstack", []string{module + "/nat/packet", "gvisor.dev/gvisor"}, "gVisor, and nothing of how it is used"},
	{"reflection", []string{module + "/api", "k8s.io/api", "k8s.io/apimachinery"}, "objects to objects: usable without a cluster"},
	{"api/...", []string{"k8s.io/api", "k8s.io/apimachinery", module + "/api/text"}, "types are shared by everything and depend on nothing"},
	{"test/packettest", nil, "an oracle shares no code with what it judges"},
	{"controlplane/cidr", nil, "the allocator is arithmetic: usable without a cluster"},
}

// banned is imported nowhere, in tests neither.
var banned = map[string]string{
	"github.com/stretchr/testify": "the standard library and go-cmp say the same with fewer words",
	"github.com/sirupsen/logrus":  "log/slog",
}

// reconcilersBelow hold one package for each reconciler. They are independent: what
// one leaves to another goes through an API server. Only controlplane/manager knows
// them all.
var reconcilersBelow = []string{"controlplane/authentication", "controlplane/network", "controlplane/offloading", "controlplane/services"}

// shared are packages below these that reconcilers have in common: no reconcilers themselves.
var shared = []string{
	"controlplane/authentication/credentials", "controlplane/authentication/identify", "controlplane/authentication/issue",
	"controlplane/offloading/placement", "controlplane/services/description",
}

// testSupport is imported by tests, by bench and by test stands only.
var testSupport = []string{
	"test", "cmd/internal/daemontest",
	"bench", // what it leaves out a product must have
}

func TestImportRules(t *testing.T) {
	for _, p := range listPackages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, r := range importRules.direct {
			checkRule(t, r, rel, p.Imports)
		}
		for _, r := range importRules.linked {
			checkRule(t, r, rel, p.Deps)
		}
		for _, r := range allowed {
			base, all := strings.CutSuffix(r.pkg, "/...")
			if rel != base && !(all && below(rel, base)) {
				continue
			}
			for _, imp := range p.Imports {
				if !isStandard(imp) && !slices.ContainsFunc(r.imports, func(a string) bool { return below(imp, a) }) {
					t.Errorf("%s imports %s, which is not among what it may: %s", rel, imp, r.reason)
				}
			}
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for b, reason := range banned {
				if below(imp, b) {
					t.Errorf("%s imports %s: %s", rel, imp, reason)
				}
			}
		}
		for dep, by := range owners {
			if slices.Contains(by, rel) {
				continue
			}
			for _, imp := range p.Imports {
				if below(imp, dep) {
					t.Errorf("%s imports %s, which only %v may", rel, imp, by)
				}
			}
		}
		for _, imp := range p.Imports {
			imp := strings.TrimPrefix(imp, module+"/")
			if isTestSupport(imp) && !isTestSupport(rel) {
				t.Errorf("%s imports %s, which is for tests and bench only", rel, imp)
			}
			if isReconciler(imp) && isReconciler(rel) {
				t.Errorf("%s imports %s: reconcilers are independent", rel, imp)
			}
		}
		if strings.HasPrefix(rel, "cmd/") {
			continue
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, module+"/cmd/") {
				t.Errorf("%s imports %s: what is below cmd is imported by commands only", rel, imp)
			}
		}
	}
}

// isReconciler tells whether a package holds a reconciler.
func isReconciler(rel string) bool {
	return slices.ContainsFunc(reconcilersBelow, func(s string) bool { return rel != s && below(rel, s) && !slices.Contains(shared, rel) })
}

func isTestSupport(rel string) bool {
	return slices.ContainsFunc(testSupport, func(s string) bool { return below(rel, s) })
}

func checkRule(t *testing.T, r rule, rel string, imports []string) {
	t.Helper()
	if base, all := strings.CutSuffix(r.pkg, "/..."); rel != r.pkg && (!all || !below(rel, base)) {
		return
	}
	for _, imp := range imports {
		for _, f := range r.forbidden {
			if f == module && imp == module+"/"+rel {
				continue
			}
			if f == "net" || strings.HasPrefix(f, "log") { // a prefix would catch net/netip
				if imp == f {
					t.Errorf("%s imports %s: %s", rel, imp, r.reason)
				}
				continue
			}
			if below(imp, f) && !(r.pkg == rel && strings.HasPrefix(imp, module+"/"+rel+"/")) {
				t.Errorf("%s imports %s: %s", rel, imp, r.reason)
			}
		}
	}
}

// isStandard tells whether a package is of the standard library: its path begins with
// no domain.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// below tells whether import path p is base or lies below it.
func below(p, base string) bool { return p == base || strings.HasPrefix(p, base+"/") }

// TestPackageComments demands one package comment of every package.
func TestPackageComments(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}
