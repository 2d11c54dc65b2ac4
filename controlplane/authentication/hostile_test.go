package authentication_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// consumer is what a consumer can do that does not use our controllers, once milan's Tenant for it has the reason given.
func consumer(t *testing.T, milan *site, reason string) client.Client {
	t.Helper()
	milan.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-rome"}})
	if out, err := milan.Kubectl("create", "rolebinding", "of-rome", "-n", milan.tenant, "--clusterrole=liqo-remote-controlplane", "--serviceaccount=default:of-rome"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	milan.Create(t, &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "rome", Labels: peering("rome")},
		Spec:       authv1beta1.TenantSpec{ClusterID: "rome", AuthzPolicy: authv1beta1.TolerateNoHandshake},
	})
	milan.tenantBecomes("rome", reason)
	c, err := client.New(milan.ServiceAccount("default", "of-rome"), client.Options{Scheme: milan.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// copied is a slice as a consumer writes it, without a request: it is looked at, and denied.
func copied(milan *site, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"class": "default"}}}
	o.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind("ResourceSlice"))
	o.SetNamespace(milan.tenant)
	o.SetName(name)
	o.SetLabels(peering("rome", "liqo.io/replicated", "true", "liqo.io/originID", "rome"))
	return o
}

// heap is how much memory this process holds, with its controllers.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one found had finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHostileConsumer: what a consumer can write costs the provider a bounded amount of memory, ends none of its
// watches, and keeps no namespace from being deleted.
func TestHostileConsumer(t *testing.T) {
	milan := newSite(t, "milan", "rome", "liqo-tenant-rome")
	rome := consumer(t, milan, authv1beta1.ReasonTenantReady)
	ctx := t.Context()
	many := func(n int, format string) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf(format, i)] = "x"
		}
		return m
	}
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		says   string
	}{
		"an amount that the schema lets pass": {func(o *unstructured.Unstructured) {
			o.Object["spec"] = map[string]any{"resources": map[string]any{"cpu": "1e1.5"}}
		}, "must be an amount"},
		"an amount of a million digits": {func(o *unstructured.Unstructured) {
			o.Object["spec"] = map[string]any{"resources": map[string]any{"cpu": strings.Repeat("9", 1_000_000)}}
		}, "64 characters"},
		"thousands of resources": {func(o *unstructured.Unstructured) {
			all := map[string]any{}
			for i := range 5000 {
				all[fmt.Sprintf("example.org/r%d", i)] = "1"
			}
			o.Object["spec"] = map[string]any{"resources": all}
		}, "at most 256"},
		"thousands of labels": {func(o *unstructured.Unstructured) {
			l := many(5000, "l%d")
			maps.Copy(l, o.GetLabels()) // else it is no copy, which is refused as well
			o.SetLabels(l)
		}, "at most 64 labels"},
		"a class of a megabyte": {func(o *unstructured.Unstructured) {
			o.Object["spec"] = map[string]any{"class": strings.Repeat("x", 1<<20)}
		}, "253"},
		"a request of a megabyte": {func(o *unstructured.Unstructured) {
			o.Object["spec"] = map[string]any{"csr": base64.StdEncoding.EncodeToString(make([]byte, 1<<20))}
		}, "16384"},
		"annotations of a megabyte": {func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"a": strings.Repeat("x", 1<<20)})
		}, "annotations"},
		"annotations that Kubernetes lets pass": {func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"a": strings.Repeat("x", 16<<10)})
		}, "16384 characters of annotations"},
		"owners without end": {func(o *unstructured.Unstructured) {
			var owners []metav1.OwnerReference
			for i := range 1000 {
				owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: types.UID(fmt.Sprint(i))})
			}
			o.SetOwnerReferences(owners)
		}, "at most 16 owners"},
		"a finalizer":             {func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.org/never"}) }, "finalizers are for"},
		"a name that is too long": {func(o *unstructured.Unstructured) { o.SetName(strings.Repeat("x", 64)) }, "more than 63 characters"},
		"a name made for a shell": {func(o *unstructured.Unstructured) { o.SetName("a;reboot") }, "a;reboot"},
		"a label made for a terminal": {func(o *unstructured.Unstructured) {
			l := o.GetLabels()
			l["team"] = "\x1b[2J"
			o.SetLabels(l)
		}, "labels"},
	} {
		t.Run(name, func(t *testing.T) {
			// The API server takes policies into force a moment after they were made.
			controlplanetest.Eventually(t, fmt.Sprintf("it is refused: %q", c.says), func(ctx context.Context) error {
				o := copied(milan, "hostile")
				c.change(o)
				err := rome.Create(ctx, o, client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), c.says) {
					return fmt.Errorf("it gets %v", err)
				}
				return nil
			})
		})
	}
	t.Run("a finalizer later", func(t *testing.T) {
		o := copied(milan, "later")
		if err := rome.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		before := o.DeepCopy()
		o.SetFinalizers([]string{"example.org/never"})
		if err := rome.Patch(ctx, o, client.MergeFrom(before)); !apierrors.IsForbidden(err) {
			t.Errorf("%v", err)
		}
	})
	t.Run("what milan asks rome for", func(t *testing.T) { testOwnObjects(t, milan, rome) })
	t.Run("large slices without end", func(t *testing.T) {
		// In place of the controller of quotas, which the test's control plane has not: none are used.
		q := new(corev1.ResourceQuota)
		milan.Read(t, milan.tenant, "liqo-consumer", q)
		q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{}
		for name := range q.Spec.Hard {
			q.Status.Used[name] = resource.MustParse("0")
		}
		if err := milan.Client.Status().Update(ctx, q); err != nil {
			t.Fatal(err)
		}
		const most = 100
		largest := func(name string) *unstructured.Unstructured {
			o := copied(milan, name)
			l := o.GetLabels()
			l["large"] = "true"
			for i := range 64 - len(l) {
				l[fmt.Sprintf("%s/%d", strings.Repeat("a.", 100)+"b", i)] = strings.Repeat("x", 63)
			}
			o.SetLabels(l)
			o.SetAnnotations(map[string]string{"a": strings.Repeat("x", 16<<10-1)})
			all := map[string]any{}
			for i := range 256 {
				all[fmt.Sprintf("%s/r%d", strings.Repeat("a.", 100)+"b", i)] = strings.Repeat("9", 18)
			}
			o.Object["spec"] = map[string]any{"class": "default", "resources": all, "csr": base64.StdEncoding.EncodeToString(make([]byte, 12<<10))}
			return o
		}
		before := heap()
		var refused error
		made := 0
		controlplanetest.Settled(t, "resourceslice-provider", 1, func() { // what somebody still works on counts twice
			// The API server hears of the quota a moment later, and one that is busy may fail to judge by it in time.
			for tried := 0; made <= most && tried < 2*most && (refused == nil || apierrors.IsInternalError(refused)); tried++ {
				if refused = rome.Create(ctx, largest(fmt.Sprintf("s-%d", made))); refused == nil {
					made++
				}
			}
		})
		if made > most || !apierrors.IsForbidden(refused) || !strings.Contains(refused.Error(), "liqo-consumer") {
			t.Errorf("%v after %d slices", refused, made)
		}
		// The last one was created before the others were refused, and the controllers have seen it: they hold all of them.
		milan.sliceBecomes(fmt.Sprintf("s-%d", made-1), authv1beta1.ReasonConsumerInvalid, authv1beta1.ReasonConsumerInvalid)
		if grown := heap() - before; grown > most*(256<<10) {
			t.Errorf("%d slices, as large as they can be, take %d KiB of memory", made, grown>>10)
		} else {
			t.Logf("%d slices take %d KiB of memory", made, grown>>10)
		}
		controlplanetest.Eventually(t, "they are deleted", func(ctx context.Context) error {
			return rome.DeleteAllOf(ctx, copied(milan, ""), client.InNamespace(milan.tenant), client.MatchingLabels{"large": "true"})
		})
	})
	// All the time the controllers have been there for others.
	milan.sliceBecomes("later", authv1beta1.ReasonConsumerInvalid, authv1beta1.ReasonConsumerInvalid)
	t.Run("the namespace can be deleted", func(t *testing.T) {
		milan.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: milan.tenant}})
		milan.Gone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: milan.tenant}})
	})
}

// testOwnObjects: milan may ask rome for resources as well. Its own requests are in the same namespace, and rome neither
// changes them nor adds any: milan's controllers would follow those, up to a virtual node by which its pods run in rome.
func testOwnObjects(t *testing.T, milan *site, rome client.Client) {
	ctx := t.Context()
	object := func(kind, name string, labels map[string]string) *unstructured.Unstructured {
		o := copied(milan, name)
		gv := authv1beta1.GroupVersion
		if kind == "NamespaceMap" {
			gv = offloadingv1beta1.GroupVersion
			o.Object["spec"] = map[string]any{"desiredMapping": map[string]any{"shop": "shop-milan"}}
		}
		o.SetGroupVersionKind(gv.WithKind(kind))
		o.SetLabels(labels)
		return o
	}
	own := peering("rome", "liqo.io/replication", "true", "liqo.io/remoteID", "rome")
	copies := copied(milan, "").GetLabels()
	controlplanetest.Eventually(t, "the policy is in force", func(ctx context.Context) error {
		if err := rome.Create(ctx, object("ResourceSlice", "first", own), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it gets %v", err)
		}
		return nil
	})
	for _, kind := range []string{"ResourceSlice", "Renew", "NamespaceMap"} {
		t.Run(kind, func(t *testing.T) {
			name, theirs := "own-"+strings.ToLower(kind), "copy-"+strings.ToLower(kind)
			milan.Create(t, object(kind, name, own))
			if err := rome.Create(ctx, object(kind, theirs, copies)); err != nil {
				t.Fatal(err)
			}
			patch := func(name, metadata string) func() error {
				return func() error {
					return rome.Patch(ctx, object(kind, name, nil), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {%s}}`, metadata)))
				}
			}
			for what, do := range map[string]func() error{
				"create": func() error { return rome.Create(ctx, object(kind, "another-"+strings.ToLower(kind), own)) },
				"create without origin": func() error {
					return rome.Create(ctx, object(kind, "no-origin", peering("rome", "liqo.io/replicated", "true")))
				},
				"create what is both": func() error {
					return rome.Create(ctx, object(kind, "both", peering("rome", "liqo.io/replicated", "true", "liqo.io/originID", "rome", "liqo.io/replication", "true", "liqo.io/remoteID", "rome")))
				},
				"annotate":  patch(name, `"annotations": {"liqo.io/create-virtual-node": "true"}`),
				"take over": patch(name, `"labels": {"liqo.io/replicated": "true", "liqo.io/originID": "rome"}`),
				"hand over": patch(theirs, `"labels": {"liqo.io/replicated": null, "liqo.io/originID": null, "liqo.io/replication": "true", "liqo.io/remoteID": "rome"}`),
				"delete":    func() error { return rome.Delete(ctx, object(kind, name, nil)) },
				"delete all": func() error {
					return rome.DeleteAllOf(ctx, object(kind, "", nil), client.InNamespace(milan.tenant), client.MatchingLabels{"liqo.io/replication": "true"})
				},
			} {
				if err := do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "copies of its own objects") {
					t.Errorf("%s: %v", what, err)
				}
			}
			milan.Read(t, milan.tenant, name, object(kind, name, nil))
			if err := rome.Delete(ctx, object(kind, theirs, nil)); err != nil {
				t.Errorf("its own copy: %v", err)
			}
		})
	}
}

// TestHostileProvider: the answers of a provider that is no Kubernetes end no watch of the consumer, and its words are
// shown as they are nowhere.
func TestHostileProvider(t *testing.T) {
	rome := newSite(t, "rome", "milan", "liqo-tenant-milan")
	var status atomic.Value // as JSON
	status.Store(`{"resources": {"cpu": "1e1.5"}}`)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case r.Method != http.MethodGet:
			fmt.Fprint(w, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "milan", "namespace": "there"}}`)
		case q.Get("watch") != "":
			fmt.Fprint(w, strings.Repeat(`{"type": "MODIFIED", "object": {"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "milan"}}}`+"\n", 100))
		case strings.HasSuffix(r.URL.Path, "/resourceslices"):
			fmt.Fprintf(w, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSliceList", "metadata": {}, "items": [{"apiVersion": "authentication.liqo.io/v1beta1",
"kind": "ResourceSlice", "metadata": {"name": "milan", "namespace": "there", "labels": {"liqo.io/replicated": "true", "liqo.io/originID": "rome"}}, "status": %s}]}`, status.Load())
		default:
			fmt.Fprint(w, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "RenewList", "metadata": {}, "items": []}`)
		}
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	rome.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rome.tenant, Name: "identity", Labels: peering("milan", "liqo.io/identity-type", "ControlPlane"),
			Annotations: map[string]string{"liqo.io/remote-tenant-namespace": "there"},
		},
		Data: map[string][]byte{"kubeconfig": fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: x}}]}`, server.URL, base64.StdEncoding.EncodeToString(ca))},
	})
	rome.Create(t, slice(rome, "milan", "cpu", "1"))
	rome.event("identity", authv1beta1.ReasonAnswerInvalid, "quantities must match")
	// Its controllers have all watches that they had.
	status.Store(`{"conditions": [{"type": "Authentication", "status": "Denied", "reason": "No"}, {"type": "Resources", "status": "Denied", "reason": "NoMore"}]}`)
	rome.sliceBecomes("milan", "No", "NoMore")
}
