package v1beta1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/source"
)

// admission is one thing that somebody may write.
type admission struct {
	name string
	// base is one of bases, and set changes it: a path such as spec.ports[0], and
	// a value in JSON; null removes.
	base string
	set  map[string]string
	// then is a second write, an update: of the status, if its paths are of that. What is judged is the last write.
	then map[string]string
	// refused is in the message of the refusal; empty: it is accepted.
	refused string
}

// TestAdmission writes to a real API server.
func TestAdmission(t *testing.T) {
	c := controlplanetest.Start(t)
	// A second time is what an upgrade does.
	if err := c.Install(deploy.CRDs()); err != nil {
		t.Fatal(err)
	}
	c.ApplyManifest(t, "validation.yaml")
	c.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: liqo-clusterid-configmap, namespace: liqo}\ndata: {CLUSTER_ID: here}\n")
	policiesInForce(t, c)
	t.Run("manifests", func(t *testing.T) { acceptManifests(t, c) })
	t.Run("edits", func(t *testing.T) {
		for _, a := range slices.Concat(admissions, tableAdmissions, offloadingAdmissions, peeringAdmissions) {
			t.Run(a.base+" "+a.name, func(t *testing.T) { a.check(t, c.Client) })
		}
	})
	t.Run("defaults", func(t *testing.T) { checkDefaults(t, c.Client) })
	t.Run("a large table", func(t *testing.T) { acceptLargeTables(t, c.Client) })
	t.Run("columns", func(t *testing.T) { checkColumns(t, c) })
}

// policiesInForce waits until the API server judges by the policies, which it
// reads after they are written.
func policiesInForce(t *testing.T, c *controlplanetest.Cluster) {
	t.Helper()
	for _, a := range slices.Concat(admissions, tableAdmissions) {
		if !strings.Contains(a.refused, policy) || a.then != nil {
			continue
		}
		controlplanetest.Eventually(t, "the policy for "+a.base+" is in force", func(ctx context.Context) error {
			if err := c.Client.Create(ctx, a.object(t, a.set), client.DryRunAll); err == nil {
				return fmt.Errorf("%s was accepted", a.name)
			}
			return nil
		})
	}
}

func (a admission) check(t *testing.T, c client.Client) {
	ctx := context.Background()
	o := a.object(t, a.set)
	var err error
	if a.then == nil {
		err = c.Create(ctx, o, client.DryRunAll)
	} else {
		if err := c.Create(ctx, o); err != nil {
			t.Fatalf("before the update: %v", err)
		}
		defer func() {
			if err := c.Delete(ctx, o); err != nil {
				t.Error(err)
			}
		}()
		u := o.DeepCopy()
		edit(t, u.Object, a.then)
		if slices.ContainsFunc(slices.Collect(maps.Keys(a.then)), func(path string) bool { return strings.HasPrefix(path, "status") }) {
			err = c.Status().Update(ctx, u)
		} else {
			err = c.Update(ctx, u)
		}
	}
	switch {
	case a.refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case a.refused != "" && err == nil:
		t.Error("accepted")
	case a.refused != "" && !apierrors.IsInvalid(err):
		t.Errorf("refused for another reason: %v", err)
	case a.refused != "" && !strings.Contains(err.Error(), strings.TrimPrefix(a.refused, policy)):
		t.Errorf("refused with %v\nwant in it: %s", err, a.refused)
	}
}

func (a admission) object(t *testing.T, set map[string]string) *unstructured.Unstructured {
	t.Helper()
	o := parse(t, bases[a.base])
	edit(t, o.Object, set)
	return o
}

func parse(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	u := new(unstructured.Unstructured)
	if err := u.UnmarshalJSON(b); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	return u
}

// edit changes the values at paths such as spec.chains[0].name. An index behind
// the end of a list appends.
func edit(t *testing.T, object map[string]any, set map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(set)) { // status before status.role
		text := set[path]
		var value any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		steps := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) })
		put(t, object, steps, integers(value))
	}
}

// put sets or, for nil, removes what lies at the end of the steps.
func put(t *testing.T, at any, steps []string, value any) any {
	t.Helper()
	if len(steps) == 0 {
		return value
	}
	switch at := at.(type) {
	case map[string]any:
		if v := put(t, at[steps[0]], steps[1:], value); v == nil {
			delete(at, steps[0])
		} else {
			at[steps[0]] = v
		}
		return at
	case []any:
		i, err := strconv.Atoi(steps[0])
		if err != nil {
			t.Fatalf("%s is no index", steps[0])
		}
		if i == len(at) {
			return append(at, put(t, nil, steps[1:], value))
		}
		if at[i] = put(t, at[i], steps[1:], value); at[i] == nil {
			return slices.Delete(at, i, i+1)
		}
		return at
	}
	return put(t, map[string]any{}, steps, value)
}

// integers makes numbers what unstructured objects may hold.
func integers(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			f, _ := v.Float64() // a number it is
			return f
		}
		return n
	case map[string]any:
		for k := range v {
			v[k] = integers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	}
	return v
}

// acceptManifests applies every manifest of the repository and of the
// specification, with the strictness of kubectl.
func acceptManifests(t *testing.T, c *controlplanetest.Cluster) {
	root := source.Root()
	var files []string
	for _, pattern := range []string{"api/*/*/testdata/*.yaml", "gateway/control/testdata/server/*.y*ml", "deploy/manifests/gateway-templates.yaml"} {
		fs, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(fs) == 0 {
			t.Fatalf("%s: %v, %v", pattern, fs, err)
		}
		files = append(files, fs...)
	}
	docs := map[string][]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		docs[filepath.Base(f)] = strings.Split(string(b), "\n---\n")
	}
	for file, text := range documents(t) {
		for _, b := range yamlBlocks(text, strings.HasSuffix(file, ".md")) {
			// Parts of manifests, and kinds of other groups, are not for this server.
			if doc, _, ours := manifest(t, b); ours && strings.Contains(b, "apiVersion:") {
				docs[file] = append(docs[file], doc)
			}
		}
	}
	n := 0
	for file, ds := range docs {
		var texts []string
		for _, doc := range ds {
			for _, o := range items(t, parse(t, doc)) {
				if o.GetName() == "" {
					continue // a part of a manifest
				}
				if o.GetNamespace() != "" {
					o.SetNamespace("default")
				}
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, string(text))
			}
		}
		n += len(texts)
		if _, err := c.KubectlInput(strings.Join(texts, "\n---\n"), "create", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	t.Logf("%d manifests", n)
}

// items are the objects of a list, or the one object.
func items(t *testing.T, u *unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	if !u.IsList() {
		return []*unstructured.Unstructured{u}
	}
	var os []*unstructured.Unstructured
	if err := u.EachListItem(func(o runtime.Object) error {
		os = append(os, o.(*unstructured.Unstructured))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return os
}
