package scale

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	amount "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// asker is another cluster that asks this one.
type asker struct {
	*world
	id, namespace string
	as            client.Client // with the rights of a consumer
}

// asker lets a cluster ask, for at most so many slices. Nobody counts here what it deletes.
func (w *world) asker(id, most string) *asker {
	w.t.Helper()
	a := &asker{world: w, id: id, namespace: "liqo-tenant-" + id}
	w.must(w.CreateNamespace(a.namespace, peering(id, networkingv1beta1.LabelTenantNamespace, "true")))
	cfg := w.account(id)
	w.must(w.Client.Create(w.ctx, bound(a.namespace, id, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: id})))
	w.must(w.Client.Create(w.ctx, tenantOf(id, a.namespace)))
	var err error
	a.as, err = client.New(cfg, client.Options{Scheme: w.Client.Scheme()})
	w.must(err)
	q := new(corev1.ResourceQuota)
	until(w.t, "there is the ResourceQuota of "+id, func() error { return w.Get(w.ctx, a.namespace, "liqo-consumer", q) })
	const slices = corev1.ResourceName("count/resourceslices.authentication.liqo.io")
	if most != "" {
		q.Spec.Hard[slices] = amount.MustParse(most)
		w.must(w.Client.Update(w.ctx, q))
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{}}
	for name := range q.Spec.Hard {
		q.Status.Used[name] = amount.MustParse("0")
	}
	w.must(w.Client.Status().Update(w.ctx, q))
	return a
}

// slice is one for which it asks as it should.
func (a *asker) slice(name string) *authv1beta1.ResourceSlice {
	a.t.Helper()
	s, err := copiedSlice(name, a.id, a.namespace, credentialtest.Key(a.t))
	a.must(err)
	return s
}

// latencies asks for one slice after the other until stopped, and returns how long each was waited for.
func (w *world) latencies(create func(i int) *authv1beta1.ResourceSlice, as client.Client) (stop func() []time.Duration) {
	var took []time.Duration
	var failed error
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; failed == nil; i++ {
			select {
			case <-end:
				return
			default:
			}
			var one time.Duration
			if one, failed = w.waited(create(i), as); failed == nil {
				took = append(took, one)
			}
		}
	}()
	return func() []time.Duration {
		close(end)
		<-done
		w.must(failed)
		return took
	}
}

// waited is how long a slice takes from its creation to the last condition.
func (w *world) waited(s *authv1beta1.ResourceSlice, as client.Client) (time.Duration, error) {
	start := time.Now()
	if err := as.Create(w.ctx, s); err != nil {
		return 0, err
	}
	for !isAccepted(s) {
		if time.Since(start) > patience {
			return 0, fmt.Errorf("%s: not within %v: %+v", s.Name, patience, s.Status.Conditions)
		}
		time.Sleep(10 * time.Millisecond)
		if err := as.Get(w.ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func (r *report) latency(name string, took []time.Duration) {
	r.row(name, "%v, %v, of %d", quantile(took, 0.5), quantile(took, 1), len(took))
}

// TestHostileConsumer measures what a consumer that means no good costs the cluster that it asks, and another consumer.
func TestHostileConsumer(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	const large, changes = 300, 3000
	w := newAuthenticating(t)
	c := startControllers(t, w.Cluster, withAuthentication)
	hostile, honest := w.asker("hostile", ""), w.asker("honest", "1000000")
	asks := func(when string) func() []time.Duration {
		return w.latencies(func(i int) *authv1beta1.ResourceSlice { return honest.slice(fmt.Sprintf("%s-%d", when, i)) }, honest.as)
	}
	stop := asks("before")
	time.Sleep(10 * time.Second)
	alone := stop()
	before := c.figures(t, collect)

	var made, refused atomic.Int64
	try := func(s *authv1beta1.ResourceSlice) error {
		err := hostile.as.Create(w.ctx, s)
		switch {
		case err == nil:
			made.Add(1)
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err):
			refused.Add(1)
		default:
			return err
		}
		return nil
	}
	stop, start := asks("flood"), time.Now()
	w.many("slices tried", *attempts, func(i int) error { return try(hostile.slice(fmt.Sprintf("s-%d", i))) })
	flood, flooded := time.Since(start), stop()
	after := c.rest(t, func(figures) bool { return true }, collect)
	tried, kept := made.Load()+refused.Load(), made.Load()
	// What comes at the same moment as the last one that is let in may be counted after it.
	if kept > 100 {
		t.Errorf("%d slices were made", kept)
	}

	start = time.Now()
	w.many("slices of a megabyte", large, func(i int) error {
		s := hostile.slice(fmt.Sprintf("l-%d", i))
		s.Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)}
		return try(s)
	})
	megabytes := time.Since(start)

	stop, start = asks("changes"), time.Now()
	w.many("changes", changes, func(i int) error {
		s := &authv1beta1.ResourceSlice{}
		s.Namespace, s.Name = hostile.namespace, "s-"+fmt.Sprint(i%100)
		err := hostile.as.Patch(w.ctx, s, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"resources":{"cpu":"%d"}}}`, i)))
		return client.IgnoreNotFound(err) // which of those tried were made depends
	})
	changed, meanwhile := time.Since(start), stop()
	last := c.rest(t, func(figures) bool { return true }, collect)
	c.stop()

	out := newReport("hostile-consumer-scale", controlPlane, fmt.Sprintf("A consumer that tries to create %d slices, beside one that asks for one after the other", *attempts))
	out.row("slices tried, by 16 at the same time", "%d in %.0f s, %.0f each second", tried, flood.Seconds(), float64(tried)/flood.Seconds())
	out.row("  made, refused", "%d, %d", kept, tried-kept)
	out.row("  CPU time of the controllers", "%.1f s", (after.CPU - before.CPU).Seconds())
	out.row("  writes of the controllers", "%d", after.since(before).writes())
	out.row("  heap after a collection, before and after", "%.0f, %.0f MiB", before.HeapMiB, after.HeapMiB)
	out.row("slices of 1 MiB tried", "%d in %.0f s, none made", large, megabytes.Seconds())
	out.row("changes of what it has", "%d in %.0f s, %.0f each second", changes, changed.Seconds(), changes/changed.Seconds())
	out.row("  CPU time of the controllers", "%.1f s", (last.CPU - after.CPU).Seconds())
	out.row("  writes of the controllers", "%d", last.since(after).writes())
	out.row("heap after a collection, at the end", "%.0f MiB", last.HeapMiB)
	out.row("resident, and its peak", "%.0f, %.0f MiB", last.RSSMiB, last.PeakMiB)
	out.latency("another consumer's slice to accepted, alone: p50, worst", alone)
	out.latency("  while slices are tried", flooded)
	out.latency("  while slices are changed", meanwhile)
	out.done(t)
}

// hostileAnswer is what a provider answers that means no good.
type hostileAnswer struct {
	name   string
	answer http.HandlerFunc
}

// hostileAnswers are those to a consumer with one slice.
func hostileAnswers() []hostileAnswer {
	const head = `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "%sList", "metadata": {%s}, "items": [`
	item := func(n int, status string) string {
		return fmt.Sprintf(`{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "out-%d", "namespace": "liqo-tenant-hostile",
"labels": {"liqo.io/replicated": "true", "liqo.io/originID": %q}}, "status": %s}`, n, clusterID, status)
	}
	kindOf := func(r *http.Request) string {
		if strings.HasSuffix(r.URL.Path, "/renews") {
			return "Renew"
		}
		return "ResourceSlice"
	}
	// Of all that is read, 24 MiB in pages of 4 MiB where a value counts 150 bytes more, what becomes most in memory.
	const pages, page, deep = 6, 3<<20 + 900<<10, 1000
	chain := strings.Repeat(`{"":`, deep) + "0" + strings.Repeat("}", deep) + ","
	most := strings.Repeat(chain, page/((len(`{"":}`)+150)*deep))
	event := []byte(`{"type": "MODIFIED", "object": ` + item(0, "{}") + "}\n")
	return []hostileAnswer{
		{"answers garbage", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				fmt.Fprint(w, "\x1b[2J{{{")
				return
			}
			fmt.Fprintf(w, head+"%s]}", kindOf(r), "", item(0, fmt.Sprintf(`{"resources": {"cpu": "1e1.5"}, "nodeLabels": {"\u001b[2J": "%d"}}`, time.Now().UnixNano())))
		}},
		{"lists as much as is read, and changes all the time", func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if q.Get("watch") != "" {
				for _, err := w.Write(event); err == nil && r.Context().Err() == nil; {
					_, err = w.Write(event)
				}
				return
			}
			var number int
			fmt.Sscan(q.Get("continue"), &number) // the first page has none
			next := ""
			if number+1 < pages {
				next = fmt.Sprintf(`"continue": "%d"`, number+1)
			}
			fmt.Fprintf(w, head+"%s]}", kindOf(r), next, item(number, `{"x": [`+most+`0]}`))
		}},
		{"takes requests and answers none", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"redirects", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }},
	}
}

// TestHostileProvider measures what providers that mean no good cost the cluster that asks them, and another provider.
func TestHostileProvider(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	out := newReport("hostile-provider-scale", controlPlane, fmt.Sprintf("Providers that mean no good, each asked for one slice, for %v, beside one that is asked for one after the other", *attack))
	w, other := newAuthenticating(t), newAuthenticating(t)
	ends := make(chan struct{})
	var granting sync.WaitGroup
	granting.Go(func() {
		for {
			select {
			case <-ends:
				return
			case <-time.After(20 * time.Millisecond):
				if err := other.grant(); err != nil {
					t.Errorf("grant: %v", err)
					return
				}
			}
		}
	})
	defer granting.Wait()
	defer close(ends)
	const namespace = "liqo-tenant-honest"
	for _, where := range []*world{w, other} {
		w.must(where.CreateNamespace(namespace, peering("honest", networkingv1beta1.LabelTenantNamespace, "true")))
	}
	cfg := other.account("consumer")
	w.must(other.Client.Create(w.ctx, bound(namespace, clusterID, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "consumer"})))
	w.must(w.Client.Create(w.ctx, identityFor("honest", namespace, credentialtest.TokenKubeconfig(cfg))))

	round := func(number int, name string) {
		c := startControllers(t, w.Cluster, withAuthentication)
		defer c.stop()
		before := c.rest(t, func(f figures) bool { return f.Reconciled["replication"] > 0 }, collect)
		stop := w.latencies(func(i int) *authv1beta1.ResourceSlice {
			return sentSlice(fmt.Sprintf("of-%d-%d", number, i), "honest", namespace)
		}, w.Client)
		time.Sleep(*attack)
		took, f := stop(), c.figures(t, collect)
		out.line("%s", name)
		out.row("  CPU time of the controllers", "%.1f s", (f.CPU - before.CPU).Seconds())
		out.row("  heap after a collection", "%.0f MiB", f.HeapMiB)
		out.row("  resident, and its peak", "%.0f, %.0f MiB", f.RSSMiB, f.PeakMiB)
		out.latency("  the other's slice to accepted: p50, worst", took)
		w.must(w.Client.DeleteAllOf(w.ctx, new(authv1beta1.ResourceSlice), client.InNamespace(namespace)))
	}
	round(0, "no hostile provider")
	w.must(w.CreateNamespace("liqo-tenant-hostile", peering("hostile", networkingv1beta1.LabelTenantNamespace, "true")))
	w.must(w.Client.Create(w.ctx, sentSlice("out-0", "hostile", "liqo-tenant-hostile")))
	for number, hostile := range hostileAnswers() {
		server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			hostile.answer(rw, r)
		}))
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		kubeconfig := fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: x}}]}`, server.URL, base64.StdEncoding.EncodeToString(ca))
		identity := identityFor("hostile", "liqo-tenant-hostile", kubeconfig)
		w.must(w.Client.Create(w.ctx, identity))
		round(number+1, hostile.name)
		w.must(w.Client.Delete(w.ctx, identity))
		server.CloseClientConnections()
		server.Close()
	}
	out.done(t)
}
