package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// keptCRDs is the ConfigMap in which Liqo's CRDs are kept while ours are in their place.
const keptCRDs = access.KeptCRDs

// crdSuffix ends its keys.
const crdSuffix = ".json.gz"

// isApplied tells whether a CRD is ours: liqoctl has applied it, and nobody has put another in its place.
func isApplied(d *apiextensionsv1.CustomResourceDefinition) bool {
	_, applied := d.Annotations[AnnotationVersion]
	sum, summed := d.Annotations[annotationFields]
	return applied && (!summed || sum == sumOfFields(d))
}

// forget removes our annotations, which whoever applied a CRD of Liqo's in the place of ours may have left.
func forget(annotations map[string]string) {
	delete(annotations, AnnotationVersion)
	delete(annotations, annotationFields)
}

// readKept are the CRDs that are kept, by name.
func readKept(ctx context.Context, c *access.Cluster) (map[string]apiextensionsv1.CustomResourceDefinition, error) {
	var m corev1.ConfigMap
	switch err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.LiqoNamespace, Name: keptCRDs}, &m); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, c.Explain("read ConfigMap "+keptCRDs, err)
	case m.Labels[labelAdoption] != networkingv1beta1.LabelTrue:
		return nil, c.Errorf("ConfigMap %s/%s exists, and was not made by this command: rename or delete it", m.Namespace, m.Name)
	}
	kept := map[string]apiextensionsv1.CustomResourceDefinition{}
	for key, packed := range m.BinaryData {
		d, err := unpackCRD(packed)
		if err == nil && (key != d.Name+crdSuffix || !apply.OfNetwork(d.Spec.Group)) {
			err = fmt.Errorf("it holds %q", d.Name)
		}
		if err != nil {
			return nil, c.Errorf("ConfigMap %s/%s, key %s: %w: put the CRDs of your version of Liqo in place, with 'kubectl replace', and delete the key", m.Namespace, m.Name, key, err)
		}
		kept[d.Name] = d
	}
	return kept, nil
}

// keep adds CRDs to those that are kept. Of one that is kept already the newer is Liqo's: its release may be another by now.
func keep(ctx context.Context, c *access.Cluster, originals []apiextensionsv1.CustomResourceDefinition) error {
	kept, err := readKept(ctx, c)
	if err != nil || len(originals) == 0 {
		return err
	}
	m := &corev1.ConfigMap{ObjectMeta: adoptionMeta(keptCRDs), BinaryData: map[string][]byte{}}
	m.Namespace = c.LiqoNamespace
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for _, d := range slices.Concat(slices.Collect(maps.Values(kept)), originals) { // the later ones win
		if m.BinaryData[d.Name+crdSuffix], err = packCRD(d); err != nil {
			return err
		}
	}
	return forceApply(ctx, c, m)
}

// packCRD is a CRD as it is kept: what somebody said of it.
func packCRD(d apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	said := apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Labels: d.Labels, Annotations: maps.Clone(d.Annotations)}, Spec: d.Spec,
	}
	delete(said.Annotations, corev1.LastAppliedConfigAnnotation) // which says all of it once more
	forget(said.Annotations)
	text, err := json.Marshal(said)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// maxCRD bounds what a CRD that is kept may unpack to.
const maxCRD = 8 << 20

func unpackCRD(packed []byte) (d apiextensionsv1.CustomResourceDefinition, err error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return d, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxCRD))
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(text, &d)
}

// putBack makes the CRDs of the network Liqo's again. One that is Liqo's already stays: it may be of a newer version.
func (h *HandBack) putBack(ctx context.Context) error {
	var served []apiextensionsv1.CustomResourceDefinition
	for _, name := range slices.Sorted(maps.Keys(h.kept)) {
		want := h.kept[name]
		var live apiextensionsv1.CustomResourceDefinition
		switch err := h.cluster.Client.Get(ctx, client.ObjectKey{Name: name}, &live); {
		case apierrors.IsNotFound(err):
			live = *want.DeepCopy()
			if err := h.cluster.Client.Create(ctx, &live, fieldOwner); err != nil {
				return h.cluster.Explain("create CRD "+name, err)
			}
		case err != nil:
			return h.cluster.Explain("read CRD "+name, err)
		default:
			before := live.DeepCopy()
			if isApplied(&live) {
				live.Spec, live.Labels, live.Annotations = want.Spec, want.Labels, want.Annotations
			}
			forget(live.Annotations)
			if equality.Semantic.DeepEqual(before, &live) {
				break
			}
			if err := h.cluster.Client.Update(ctx, &live, fieldOwner); err != nil {
				return h.cluster.Explain("put back CRD "+name, err)
			}
		}
		d, err := established(ctx, h.cluster, name)
		if err != nil {
			return err
		}
		served = append(served, d)
	}
	return discovered(ctx, h.cluster, served)
}
