package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"
)

// output is -o of a command.
type output struct {
	w       io.Writer
	format  string
	formats []string
	printer *genericclioptions.PrintFlags
}

// Formats of -o. Those for objects are also kubectl's jsonpath=... and
// go-template=....
const (
	formatJSON = "json"
	formatYAML = "yaml"
	formatName = "name"
	formatWide = "wide"
)

// outputFlag adds -o to a command, with the formats that its help names.
func (a *app) outputFlag(cmd *cobra.Command, formats ...string) *output {
	o := &output{w: a.stdout, formats: formats, printer: genericclioptions.NewPrintFlags("")}
	cmd.Flags().VarP(o, "output", "o", "`FORMAT` of the output: "+strings.Join(formats, ", "))
	complete(cmd, "output", formats...)
	return o
}

// Set implements pflag.Value.
func (o *output) Set(format string) error {
	kind, _, _ := strings.Cut(format, "=")
	known := slices.Contains(o.formats, format)
	if slices.Contains(o.formats, formatName) { // objects
		known = known || slices.Contains([]string{"jsonpath", "jsonpath-as-json", "jsonpath-file", "go-template", "go-template-file", "template", "templatefile"}, kind)
	}
	if !known {
		return fmt.Errorf("%q is not one of %s", format, strings.Join(o.formats, ", "))
	}
	o.format = format
	return nil
}

func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (*output) Type() string { return "format" }

// given tells whether the user wants something other than the command's own look.
func (o *output) given() bool { return o.format != "" }

// objects prints objects so that they can be applied as they are: without what a
// cluster made of them.
func (o *output) objects(objs ...client.Object) error {
	plain := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		u, err := plainObject(obj)
		if err != nil {
			return err
		}
		delete(u.Object, "status")
		plain[i] = u
	}
	return o.print(plain, len(plain) == 1)
}

// print prints objects: one alone as itself, others as a list.
func (o *output) print(objs []*unstructured.Unstructured, alone bool) error {
	o.printer.OutputFormat = &o.format
	printer, err := o.printer.ToPrinter()
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if alone {
		return printer.PrintObj(objs[0], o.w)
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}}}
	for _, obj := range objs {
		list.Items = append(list.Items, *obj)
	}
	return printer.PrintObj(list, o.w)
}

// plainObject is an object with its kind and without what nobody reads.
func plainObject(obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme())
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetManagedFields(nil)
	return u, nil
}

// data prints anything that is no object, as JSON or YAML.
func (o *output) data(v any) error {
	var text []byte
	var err error
	switch o.format {
	case formatYAML:
		text, err = yaml.Marshal(v)
	default:
		text, err = json.MarshalIndent(v, "", "  ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("-o %s: %w", o.format, err)
	}
	_, err = o.w.Write(text)
	return err
}

// dashed is a row of a table, with dashes for what is not there.
func dashed(row []string) []string {
	for i := range row {
		row[i] = cmp.Or(row[i], "-")
	}
	return row
}
