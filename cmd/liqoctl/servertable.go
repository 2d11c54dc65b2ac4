package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
)

const (
	// pageSize is how many objects the API server sends at a time.
	pageSize = "500"
	asTable  = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// serverTable is a table as the API server prints objects: with the columns that
// their CRD names, which are those that kubectl shows.
type serverTable struct {
	definitions []metav1.TableColumnDefinition
	rows        []metav1.TableRow
}

// list reads the objects of a namespace; empty: of all.
func (t *serverTable) list(ctx context.Context, in *access.Cluster, k *kind, namespace string, selector labels.Selector) error {
	for next, more := "", true; more; more = next != "" {
		var err error
		next, err = t.add(in.Clientset.Discovery().RESTClient().Get().AbsPath(k.path(namespace)).SetHeader("Accept", asTable).
			Param("labelSelector", selector.String()).Param("limit", pageSize).Param("continue", next).Do(ctx))
		if err != nil {
			return explainTable(in, "list "+k.titles(), err)
		}
	}
	return nil
}

// get reads one object.
func (t *serverTable) get(ctx context.Context, in *access.Cluster, k *kind, key client.ObjectKey) error {
	_, err := t.add(in.Clientset.Discovery().RESTClient().Get().AbsPath(k.path(key.Namespace), key.Name).SetHeader("Accept", asTable).Do(ctx))
	if apierrors.IsNotFound(err) && statusDetails(err).Name == key.Name { // the object, not its kind
		return in.Errorf("%s does not exist: 'liqoctl get %s -A' lists all of them", k.of(key), k.plural)
	}
	if err != nil {
		return explainTable(in, "read "+k.of(key), err)
	}
	return nil
}

// add adds what the API server answered. More, where it is not empty, asks for
// the rest.
func (t *serverTable) add(answer rest.Result) (more string, err error) {
	if err := answer.Error(); err != nil {
		return "", err
	}
	raw, err := answer.Raw()
	if err != nil {
		return "", err
	}
	var page metav1.Table
	if err := json.Unmarshal(raw, &page); err != nil {
		return "", err
	}
	t.definitions, t.rows = page.ColumnDefinitions, append(t.rows, page.Rows...)
	return page.Continue, nil
}

func explainTable(in *access.Cluster, doing string, err error) error {
	if apierrors.IsNotFound(err) { // there is no such path
		return in.Errorf("%s: the cluster does not know this kind: its CRDs are missing or old; run 'liqoctl install' of this version", doing)
	}
	return in.Explain(doing, err)
}

// columns are header and rows, with the namespaces, or with those columns that are
// otherwise left out.
func (t *serverTable) columns(namespaces, wide bool) (header []string, rows [][]string) {
	var shown []int
	if namespaces {
		header = append(header, "NAMESPACE")
	}
	for i, d := range t.definitions {
		if d.Priority == 0 || wide {
			shown = append(shown, i)
			header = append(header, strings.ToUpper(d.Name))
		}
	}
	for _, r := range t.rows {
		var row []string
		if namespaces {
			row = append(row, namespaceOf(r))
		}
		for _, i := range shown {
			row = append(row, cellText(r, i))
		}
		rows = append(rows, row)
	}
	return header, rows
}

func cellText(r metav1.TableRow, i int) string {
	if i >= len(r.Cells) || r.Cells[i] == nil {
		return ""
	}
	return fmt.Sprint(r.Cells[i])
}

// namespaceOf reads the metadata that come with a row.
func namespaceOf(r metav1.TableRow) string {
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.Object.Raw, &o); err != nil {
		return ""
	}
	return o.Namespace
}
