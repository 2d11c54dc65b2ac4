package survey

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
)

// pageSize is how many objects an API server is asked for at a time.
const pageSize = 500

// reader reads lists and remembers what it could not read.
type reader struct {
	cluster *access.Cluster

	mu     sync.Mutex
	gaps   []Gap
	within string // Cluster.Within
}

// miss notes what could not be read. A nil error is none.
func (r *reader) miss(what string, err error) { r.add(Gap{What: what, Err: err}) }

func (r *reader) add(g Gap) {
	if g.Err == nil {
		return
	}
	g.Err = r.cluster.Explain("read "+g.What, g.Err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, g)
}

// query is a list to read.
type query struct {
	kind schema.GroupVersionKind
	// plural names the objects: "Configurations".
	plural string
	// namespace is where; empty: everywhere, or the kind has none.
	namespace string
	options   []client.ListOption
}

func (q query) String() string {
	if q.namespace == "" {
		return q.plural
	}
	return q.plural + " of namespace " + q.namespace
}

// gap is what is missing when the list cannot be read. Where it was looked for is
// part of the error only.
func (r *reader) gap(q query, err error) Gap {
	return Gap{What: q.plural, Kind: q.kind.Kind, Err: r.cluster.Explain("read "+q.String(), err)}
}

// list returns the objects of a query. What cannot be decoded is left out and
// noted, so that one object that a newer version wrote hides no other.
func list[T any](ctx context.Context, r *reader, q query) []T {
	objects, err := listErr[T](ctx, r, q)
	r.add(r.gap(q, err))
	return objects
}

// listIfServed is list of a kind that installations before this version do not have.
func listIfServed[T any](ctx context.Context, r *reader, q query) []T {
	objects, err := listErr[T](ctx, r, q)
	if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		r.add(r.gap(q, err))
	}
	return objects
}

// listErr is list for those who know what to do when the list cannot be read.
func listErr[T any](ctx context.Context, r *reader, q query) (out []T, err error) {
	err = r.pages(ctx, q, func() client.ObjectList { return new(unstructured.UnstructuredList) }, func(page client.ObjectList) {
		items := page.(*unstructured.UnstructuredList).Items
		for i := range items {
			u := &items[i]
			var o T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
				r.miss(fmt.Sprintf("%s %s", q.kind.Kind, client.ObjectKeyFromObject(u)), fmt.Errorf("it is not what this version understands: %w", err))
				continue
			}
			out = append(out, o)
		}
	})
	return out, err
}

// listNames returns only the metadata of the objects of a query: of large
// objects, or of many, nothing else is transferred.
func listNames(ctx context.Context, r *reader, q query) (out []metav1.PartialObjectMetadata) {
	err := r.pages(ctx, q, func() client.ObjectList { return new(metav1.PartialObjectMetadataList) }, func(page client.ObjectList) {
		out = append(out, page.(*metav1.PartialObjectMetadataList).Items...)
	})
	r.add(r.gap(q, err))
	return out
}

// pages reads a list page by page. A user who may not look everywhere looks in their own namespace.
func (r *reader) pages(ctx context.Context, q query, empty func() client.ObjectList, take func(client.ObjectList)) error {
	list := func(namespace string) error {
		q.namespace = namespace
		return r.pagesIn(ctx, q, empty, take)
	}
	if q.namespace != "" {
		return list(q.namespace)
	}
	within, err := r.cluster.WhereAllowed(list)
	if within != "" && q.kind.Kind == "Configuration" { // each peering has one
		r.mu.Lock()
		defer r.mu.Unlock()
		r.within = within
	}
	return err
}

func (r *reader) pagesIn(ctx context.Context, q query, empty func() client.ObjectList, take func(client.ObjectList)) error {
	for next := ""; ; {
		page := empty()
		page.GetObjectKind().SetGroupVersionKind(q.kind.GroupVersion().WithKind(q.kind.Kind + "List"))
		options := append([]client.ListOption{client.InNamespace(q.namespace), client.Limit(pageSize), client.Continue(next)}, q.options...)
		if err := r.cluster.Client.List(ctx, page, options...); err != nil {
			return err
		}
		take(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// denied tells whether the user may not.
func denied(err error) bool { return apierrors.IsForbidden(err) }
