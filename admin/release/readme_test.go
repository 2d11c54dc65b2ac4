package release

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const readmeHead = `<!-- Generated from values.yaml and values.schema.json by ` + "`make generate`" + `. -->

# Chart of Sluice

` + "`liqoctl install`" + ` installs this chart. It contains the chart, detects the settings of the cluster, applies the CRDs, and
waits until everything works. You can also use Helm itself, which sees the release that liqoctl creates:

` + "```" + `
kubectl apply --server-side --force-conflicts -f crds
kubectl create namespace liqo
kubectl label namespace liqo pod-security.kubernetes.io/enforce=restricted
helm upgrade --install sluice . --namespace liqo --set discovery.config.clusterID=rome --set ipam.podCIDR=10.244.0.0/16
` + "```" + `

deploy/manifests has the same as plain manifests, with the defaults. files/dashboard.json is a dashboard to import into
Grafana, files/alerts.yaml a file with alerts for Prometheus.

## Values

| Value | Type | Default | |
|---|---|---|---|
`

const readmeIgnored = `
## Values of Liqo's chart that do nothing here

They are accepted, so that a values file for Liqo keeps working; liqoctl lists the ones that it does not use. All other
values that are not named here are rejected.

| Value | Why |
|---|---|
`

// readme is the README.md of the chart.
func readme(t *testing.T, c *Chart) string {
	t.Helper()
	s, err := c.schema()
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(chartFolder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	leaf := leavesOf(s, "")
	var b, ignored strings.Builder
	b.WriteString(readmeHead)
	for _, path := range documentedInOrder(string(values)) {
		n := leaf[path]
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", path, s.typeOf(n), inJSON(t, n.Default), cell(n.Description))
	}
	for _, path := range slices.Sorted(maps.Keys(leaf)) {
		if n := leaf[path]; n.Ignored != "" {
			fmt.Fprintf(&ignored, "| `%s` | %s |\n", path, cell(n.Ignored))
		}
	}
	return b.String() + readmeIgnored + ignored.String()
}

// typeOf is the type of a value in a word.
func (s schemaNode) typeOf(n schemaNode) string {
	if n.Ref != "" {
		n = s.Defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
	}
	if several, ok := n.Type.([]any); ok {
		var names []string
		for _, t := range several {
			names = append(names, fmt.Sprint(t))
		}
		return strings.Join(names, " or ")
	}
	return fmt.Sprint(n.Type)
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// cell is a text in a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// documentedInOrder are the paths of the documented values as they follow each
// other in values.yaml.
func documentedInOrder(text string) []string {
	found := documentedValues(text)
	var path, paths []string
	for line := range strings.Lines(text) {
		if m := valueLine.FindStringSubmatch(line); m != nil {
			path = append(path[:min(len(m[1])/2, len(path))], m[2])
			if p := strings.Join(path, "."); found[p] != "" {
				paths = append(paths, p)
			}
		}
	}
	return paths
}
