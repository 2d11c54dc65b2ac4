package release

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // registers its metrics
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"
)

// TestMetricsExist guards that the dashboard and the alerts ask for metrics that
// the programs have, and by labels that these have.
func TestMetricsExist(t *testing.T) {
	known := programMetrics(t)
	if len(known) < 60 {
		t.Fatalf("%d metrics found in the programs: %v", len(known), slices.Sorted(maps.Keys(known)))
	}
	for where, expressions := range map[string][]string{"dashboard": dashboardExpressions(t), "alerts": alertExpressions(t)} {
		if len(expressions) < 15 {
			t.Errorf("%s: %d expressions", where, len(expressions))
		}
		for _, e := range expressions {
			all := slices.Clone(targetLabels)
			for _, s := range selectors(e) {
				all = append(all, known[s.metric]...)
				labels, ok := known[s.metric]
				if !ok {
					t.Errorf("%s: no program has a metric %s: %s", where, s.metric, e)
				}
				for _, l := range s.labels {
					if !slices.Contains(labels, l) && !slices.Contains(targetLabels, l) {
						t.Errorf("%s: metric %s has no label %s: %s", where, s.metric, l, e)
					}
				}
			}
			for _, m := range grouping.FindAllStringSubmatch(e, -1) {
				for _, l := range strings.Split(m[2], ",") {
					if l = strings.TrimSpace(l); !slices.Contains(all, l) {
						t.Errorf("%s: no metric has the label %s: %s", where, l, e)
					}
				}
			}
		}
	}
}

// targetLabels are those that every metric has where Prometheus finds its targets
// in the cluster.
var targetLabels = []string{"namespace", "pod", "job", "instance"}

// programMetrics are the metrics of the programs with their labels: those in the
// code of the project, and those of the libraries that they register.
func programMetrics(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{"up": nil} // Prometheus' own
	for _, folder := range []string{"../../cmd/gateway", "../../cmd/fabric", "../../controlplane", "../../gateway", "../../node"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					codeMetric(call, known)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	registry, ok := metrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatalf("%T does not tell its metrics", metrics.Registry)
	}
	for _, c := range []prometheus.Collector{registry, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		libraryMetrics(c, known)
	}
	return known
}

// codeMetric notes the metric that a call makes: daemon.Counter and daemon.Gauge
// take its name first and its labels last, prometheus.New...Vec a struct with the
// name and a list of labels.
func codeMetric(call *ast.CallExpr, known map[string][]string) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) < 2 {
		return
	}
	switch of, _ := f.X.(*ast.Ident); {
	case of == nil:
	case of.Name == "daemon" && (f.Sel.Name == "Counter" || f.Sel.Name == "Gauge"):
		known[literal(call.Args[0])] = texts(call.Args[3:])
	case of.Name == "prometheus" && strings.HasSuffix(f.Sel.Name, "Vec"):
		options, ok := call.Args[0].(*ast.CompositeLit)
		labels, is := call.Args[1].(*ast.CompositeLit)
		if !ok || !is {
			return
		}
		for _, e := range options.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "Name" {
				name := literal(kv.Value)
				known[name] = texts(labels.Elts)
				if strings.Contains(f.Sel.Name, "Histogram") {
					known[name+"_bucket"] = append(texts(labels.Elts), "le")
				}
			}
		}
	}
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok {
		if s, err := strconv.Unquote(l.Value); err == nil {
			return s
		}
	}
	return ""
}

func texts(es []ast.Expr) (all []string) {
	for _, e := range es {
		all = append(all, literal(e))
	}
	return all
}

var (
	descriptionName   = regexp.MustCompile(`fqName: "([^"]+)"`)
	descriptionLabels = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
)

// libraryMetrics notes the metrics of a collector. What they are called only their
// descriptions' texts tell.
func libraryMetrics(c prometheus.Collector, known map[string][]string) {
	descriptions := make(chan *prometheus.Desc)
	go func() { c.Describe(descriptions); close(descriptions) }()
	for d := range descriptions {
		name := descriptionName.FindStringSubmatch(d.String())
		labels := descriptionLabels.FindStringSubmatch(d.String())
		if name != nil && labels != nil {
			known[name[1]] = strings.Split(labels[1], ",")
		}
	}
}

func dashboardExpressions(t *testing.T) (es []string) {
	t.Helper()
	var d struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	b, err := os.ReadFile(chartFolder + "/files/dashboard.json")
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			es = append(es, target.Expr)
		}
	}
	return es
}

func alertExpressions(t *testing.T) (es []string) {
	t.Helper()
	var f struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	b, err := os.ReadFile(chartFolder + "/files/alerts.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(b, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			es = append(es, r.Expr)
			if r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %s is incomplete", r.Alert)
			}
		}
	}
	return es
}

// selector is a metric in an expression, with the labels that it is chosen by.
type selector struct {
	metric string
	labels []string
}

var (
	quoted   = regexp.MustCompile(`"[^"]*"`)
	grouping = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	ranges   = regexp.MustCompile(`\[[^]]*\]|\b[0-9]+[smhdwy]\b`)
	name     = regexp.MustCompile(`([A-Za-z_:][A-Za-z0-9_:]*)\s*(\(|\{([^}]*)\})?`)
)

// selectors finds the metrics of an expression of PromQL: the names that are no
// function's, as no parenthesis follows.
func selectors(e string) (found []selector) {
	e = grouping.ReplaceAllString(ranges.ReplaceAllString(quoted.ReplaceAllString(e, `""`), ""), "")
	for _, m := range name.FindAllStringSubmatch(e, -1) {
		if m[2] == "(" || slices.Contains([]string{"and", "or", "unless", "bool", "offset", "group_left", "group_right"}, m[1]) {
			continue
		}
		s := selector{metric: m[1]}
		for _, matcher := range strings.Split(m[3], ",") {
			if label := strings.TrimRight(strings.TrimSuffix(strings.TrimSpace(matcher), `""`), "=~! "); label != "" {
				s.labels = append(s.labels, label)
			}
		}
		found = append(found, s)
	}
	return found
}

func TestSelectors(t *testing.T) {
	got := selectors(`sum by (a, b) (rate(one_total{x=~"y{}", z!="1"}[5m])) / on (a) group_left two > 0.01 unless three offset 30m and absent(up{job="j"} == 1)`)
	var names []string
	for _, s := range got {
		names = append(names, s.metric+"{"+strings.Join(s.labels, ",")+"}")
	}
	if want := "one_total{x,z} two{} three{} up{job}"; strings.Join(names, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(names, " "), want)
	}
}
