package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/nettest"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// shop is the namespace of the Service that a exports, back that of b's, which is about the servers of the others.
	shop = "shop"
	// servicePort is not that of the pods.
	servicePort = 80
)

// shopText is a Service whose pods end as those of careful people do: they answer for a while after their end was told.
const shopText = `
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: datagrams, port: 80, protocol: UDP, targetPort: 8080}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 20
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: IMAGE
        imagePullPolicy: Never
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        lifecycle: {preStop: {sleep: {seconds: 15}}} # longer than a busy machine takes to tell the other cluster
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// askerText is a pod that asks by names. It has a ServiceAccount of its own, since that of a new namespace takes a moment.
const askerText = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: asker, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: asker, namespace: shop}
spec:
  serviceAccountName: asker
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: web
    image: IMAGE
    imagePullPolicy: Never
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// testServices has each cluster use a Service of the other one by its name, while what is behind it changes.
func testServices(t *testing.T, w *world) {
	w.connect(t)
	w.install(t, "--set", "services.enabled=true", "--set", "services.alias=true", "--coredns")
	s := &sharing{world: w}
	s.atHome(t, strings.ReplaceAll(shopText, "IMAGE", webImage), strings.Split(shopText, "---")[0]+"---"+strings.ReplaceAll(askerText, "IMAGE", webImage))
	w.kubectl(t, w.a, "rollout", "status", "-n", shop, "deployment/web", "--timeout="+patience.String())
	start := time.Now()
	w.liqoctl(t, "export", "service", "web", "-n", shop, "--timeout", patience.String(), "--kubeconfig", w.a.Kubeconfig)
	s.follows(t, 2)
	t.Logf("%s has the Service of %s after %v", w.b.Name, w.a.Name, time.Since(start).Round(10*time.Millisecond))
	part := func(t *testing.T, name string, run func(*testing.T, *sharing)) {
		t.Run(name, func(t *testing.T) { run(t, s) })
	}
	t.Run("at the same time", func(t *testing.T) {
		t.Run("a shop with failover", func(t *testing.T) { // which waits for most of its time
			t.Parallel()
			testShop(t, s)
		})
		t.Run("kinds and changes", func(t *testing.T) {
			t.Parallel()
			part(t, "by name", testServiceNames)
			part(t, "kinds", testServiceKinds)
			t.Run("while all pods are replaced", func(t *testing.T) { // which go on for a while before they end
				t.Run("rolling update", func(t *testing.T) {
					t.Parallel()
					testServiceRollout(t, s)
				})
				t.Run("other Services", func(t *testing.T) {
					t.Parallel()
					part(t, "the other way", testServiceBack)
					part(t, "network test", testServiceNetwork)
				})
			})
		})
	})
	part(t, "gateways killed", testServiceGateways)
	t.Run("peering cut and back", func(t *testing.T) {
		if !*long {
			t.Skip("SKIPPED: endpoints are held for half a minute: -kubernetes.long")
		}
		testServiceCut(t, s)
	})
	part(t, "unexported", testServiceUnexported)
}

// sharing is two clusters that use Services of each other.
type sharing struct{ *world }

// atHome applies manifests of the namespace shop in a and in b, which goes in the end.
func (s *sharing) atHome(t *testing.T, inA, inB string) {
	t.Helper()
	t.Cleanup(func() {
		if err := onBoth(s.world, func(c *kubelab.Cluster) error { return deleteNamespace(c, shop) }); err != nil {
			t.Error(err)
		}
	})
	manifest{s.a, "", inA}.apply(t)
	manifest{s.b, "", inB}.apply(t)
}

// address is that of a Service that is imported, which has one.
func address(ctx context.Context, c *kubelab.Cluster, namespace, name string) (at netip.AddrPort, err error) {
	all, err := addresses(ctx, c, namespace, name)
	if len(all) != 1 {
		return at, fmt.Errorf("its addresses are %s (%w)", all, err)
	}
	return netip.AddrPortFrom(all[0], servicePort), err
}

// addresses are those of a Service that is imported.
func addresses(ctx context.Context, c *kubelab.Cluster, namespace, name string) (all []netip.Addr, err error) {
	in := new(mcsv1beta1.ServiceImport)
	if err := c.Client().Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, in); err != nil {
		return nil, err
	}
	for _, ip := range in.Spec.IPs {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// ready are the addresses of the ready endpoints that b has of shop/web.
func (s *sharing) ready(ctx context.Context) ([]string, error) { return s.endpoints(ctx, "web") }

// endpoints are the addresses of the ready endpoints that b has of a Service in the namespace shop, without those of the alias.
func (s *sharing) endpoints(ctx context.Context, service string) (all []string, err error) {
	in := new(mcsv1beta1.ServiceImport)
	if err := s.b.Client().Get(ctx, types.NamespacedName{Namespace: shop, Name: service}, in); err != nil {
		return nil, err
	}
	var found discoveryv1.EndpointSliceList
	err = s.b.Client().List(ctx, &found, client.InNamespace(shop),
		client.MatchingLabels{discoveryv1.LabelServiceName: in.Annotations["multicluster.kubernetes.io/derived-service"]})
	for _, sl := range found.Items {
		for _, e := range sl.Endpoints {
			if *e.Conditions.Ready {
				all = append(all, e.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return all, err
}

// follows waits until b has exactly the ready pods that a has of shop/web, so many, by the addresses that they have there.
// Those that end are none of them.
func (s *sharing) follows(t *testing.T, n int) {
	t.Helper()
	lab.Eventually(t, patience, fmt.Sprintf("%s has the %d endpoints of %s", s.b.Name, n, s.a.Name), func() error {
		pods, err := lastingPods(t.Context(), s.a, shop, map[string]string{"app": "web"}, n)
		if err != nil {
			return err
		}
		var want []string
		for _, p := range pods {
			want = append(want, s.remote(t, s.b, p.Addr).String())
		}
		slices.Sort(want)
		if got, err := s.ready(t.Context()); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("they are %q, want %q (%w)", got, want, err)
		}
		return nil
	})
}

// testServiceNames asks by the name of the cluster set, and at the address of the Service that has the name itself.
func testServiceNames(t *testing.T, s *sharing) {
	for _, url := range []string{
		"http://web.shop.svc.clusterset.local/", "http://web.shop/", "udp://web.shop.svc.clusterset.local:80", "udp://web.shop:80",
	} {
		lab.Eventually(t, patience, url+" answers", func() error {
			out, err := s.b.Kubectl("exec", "-n", shop, "asker", "--", "web", "-get", url)
			if err == nil && !strings.Contains(out, `"pod":"web-`) {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	}
	told := "" // by all servers: one of them may not have been asked yet
	for _, pod := range strings.Fields(s.kubectl(t, s.b, "get", "pods", "-n", "liqo", "-o", "name")) {
		if strings.HasPrefix(pod, "pod/liqo-clusterdns-") {
			told += s.kubectl(t, s.b, "exec", "-n", "liqo", pod, "--", "clusterdns", "status")
		}
	}
	if !strings.Contains(told, "clusterset.local: ") || !strings.Contains(told, "NOERROR") {
		t.Errorf("clusterdns status:\n%s", told)
	}
	alias, err := netip.ParseAddr(s.kubectl(t, s.b, "get", "service", "web", "-n", shop, "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range s.clients(t, s.b, 2) {
		lab.Eventually(t, patience, "the alias answers on "+from.Node.Name, func() error {
			a, err := getAt(t.Context(), from, netip.AddrPortFrom(alias, servicePort))
			if err == nil && !strings.HasPrefix(a.Pod, "web-") {
				err = fmt.Errorf("it is %+v", a)
			}
			return err
		})
	}
	if out, _ := s.liqoctl(t, "get", "services", "-n", shop, "--kubeconfig", s.b.Kubeconfig); !strings.Contains(out, " 2/2 ") {
		t.Errorf("liqoctl get services:\n%s", out)
	}
}

// statefulText is a headless Service, whose pods have names.
const statefulText = `
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: http, port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: IMAGE
        imagePullPolicy: Never
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// stickyText is a Service that remembers its clients.
const stickyText = `
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: shop}
spec: {selector: {app: web}, sessionAffinity: ClientIP, ports: [{name: http, port: 80, targetPort: 8080}]}
`

// export has a export a Service of the namespace shop until the test ends.
func (s *sharing) export(t *testing.T, name, text string) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := s.a.Kubectl("delete", "service,serviceexport,statefulset", name, "-n", shop, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	manifest{s.a, "", strings.ReplaceAll(text, "IMAGE", webImage)}.apply(t)
	s.liqoctl(t, "export", "service", name, "-n", shop, "--timeout", patience.String(), "--kubeconfig", s.a.Kubeconfig)
}

// testServiceKinds has b use Services of a of other kinds: one of SCTP, pods of a StatefulSet by their names, and one with session affinity.
func testServiceKinds(t *testing.T, s *sharing) {
	t.Run("SCTP", func(t *testing.T) {
		t.Parallel()
		testSCTP(t, s)
	})
	t.Run("StatefulSet", func(t *testing.T) {
		t.Parallel()
		s.export(t, "db", statefulText)
		for _, pod := range []string{"db-0", "db-1"} {
			url := fmt.Sprintf("http://%s.%s.db.shop.svc.clusterset.local:8080/", pod, s.a.Name)
			lab.Eventually(t, patience, url+" answers", func() error {
				out, err := s.b.Kubectl("exec", "-n", shop, "asker", "--", "web", "-get", url)
				if err == nil && !strings.Contains(out, `"pod":"`+pod+`"`) {
					err = fmt.Errorf("it says %q", out)
				}
				return err
			})
		}
	})
	t.Run("session affinity", func(t *testing.T) {
		t.Parallel()
		s.export(t, "sticky", stickyText)
		var at netip.AddrPort
		lab.Eventually(t, patience, s.b.Name+" has both endpoints of it", func() (err error) {
			if at, err = address(t.Context(), s.b, shop, "sticky"); err != nil {
				return err
			}
			if all, err := s.endpoints(t.Context(), "sticky"); err != nil || len(all) != 2 {
				return fmt.Errorf("%q (%w)", all, err)
			}
			return nil
		})
		from := s.clients(t, s.b, 2)[0]
		var first string
		lab.Eventually(t, patience, "it answers", func() error {
			a, err := getAt(t.Context(), from, at)
			first = a.Pod
			return err
		})
		for range 20 { // by chance, one in a million
			a, err := getAt(t.Context(), from, at)
			if err != nil || a.Pod != first {
				t.Fatalf("%s answers, then %s (%v)", first, a.Pod, err)
			}
		}
	})
}

// testServiceBack has a use a Service of b.
func testServiceBack(t *testing.T, s *sharing) {
	s.servers(t, s.b, 2)
	clients := s.clients(t, s.a, 2)
	s.kubectl(t, s.b, "expose", "deployment", "web", "-n", appNamespace, "--name=back", fmt.Sprint("--port=", servicePort), fmt.Sprint("--target-port=", webPort))
	t.Cleanup(func() {
		if _, err := s.b.Kubectl("delete", "service,serviceexport", "back", "-n", appNamespace); err != nil {
			t.Error(err)
		}
	})
	s.liqoctl(t, "export", "service", "back", "-n", appNamespace, "--timeout", patience.String(), "--kubeconfig", s.b.Kubeconfig)
	for _, from := range clients {
		lab.Eventually(t, patience, from.Node.Name+" reaches it", func() error {
			at, err := address(t.Context(), s.a, appNamespace, "back")
			if err != nil {
				return err
			}
			a, err := getAt(t.Context(), from, at)
			if err == nil && !strings.HasPrefix(a.Node, s.b.Name) {
				err = fmt.Errorf("it is %+v", a)
			}
			return err
		})
	}
}

// testServiceNetwork has liqoctl test the network, and with it Services that both clusters export.
func testServiceNetwork(t *testing.T, s *sharing) {
	report, err := s.networkTest(t, s.both("test", "network", "--rm", "--internet-address", "")...)
	for _, o := range report.Outcomes {
		if !o.OK {
			t.Errorf("%s: %s -> %s at %s: %s", o.Kind, o.From.Name, o.To.Name, o.URL, o.Error)
		}
	}
	if good := outcomes(report, true); err != nil || good[nettest.PodToExported] != 4 {
		t.Errorf("%v, %v", good, err)
	}
}

// replaceAll replaces all pods of shop/web in a cluster, so many, and returns when the old ones are gone.
func (w *world) replaceAll(t *testing.T, c *kubelab.Cluster, n int) {
	t.Helper()
	w.kubectl(t, c, "rollout", "restart", "-n", shop, "deployment/web")
	w.kubectl(t, c, "rollout", "status", "-n", shop, "deployment/web", "--timeout="+patience.String())
	lab.Eventually(t, patience, "the old pods are gone", func() error {
		_, err := runningPods(t.Context(), c, shop, map[string]string{"app": "web"}, n)
		return err
	})
}

// testServiceRollout replaces all pods behind the Service while it is used: no request fails.
func testServiceRollout(t *testing.T, s *sharing) {
	l := s.load(t)
	l.heardFrom(t, 2)
	start := time.Now()
	s.replaceAll(t, s.a, 2)
	done := time.Now()
	s.follows(t, 2)
	l.heardFrom(t, 4)
	answers, failures := l.end()
	t.Logf("the rollout took %v, after which the endpoints were those of the new pods after %v: answers %v", done.Sub(start).Round(10*time.Millisecond), time.Since(done).Round(10*time.Millisecond), answers)
	if len(failures) > 0 {
		t.Errorf("%d requests failed, the first: %v", len(failures), failures[0])
	}
}

// testServiceGateways kills the gateways: the endpoints stay, requests are answered again, and news come.
func testServiceGateways(t *testing.T, s *sharing) {
	for i, c := range []*kubelab.Cluster{s.a, s.b} {
		l := s.load(t)
		l.heardFrom(t, 1)
		kill(t, leads(t, c))
		s.kubectl(t, s.a, "scale", "-n", shop, "deployment/web", fmt.Sprint("--replicas=", 3-i))
		start := time.Now()
		if i == 0 {
			s.follows(t, 3)
			l.heardFrom(t, 3)
		} else {
			s.follows(t, 2)
		}
		_, failures := l.end()
		t.Logf("gateway of %s: the endpoints are those that they should be after %v, %d requests failed", c.Name, time.Since(start).Round(10*time.Millisecond), len(failures))
	}
}

// testServiceCut takes the network between the clusters away: after a while no endpoint is ready. With it they come back.
func testServiceCut(t *testing.T, s *sharing) {
	before, err := s.ready(t.Context())
	if err != nil || len(before) == 0 {
		t.Fatal(before, err)
	}
	t.Cleanup(s.Mend)
	start := time.Now()
	s.Isolate()
	lab.Eventually(t, 2*patience, "no endpoint is ready", func() error {
		now, err := s.ready(t.Context())
		if err == nil && len(now) > 0 {
			err = fmt.Errorf("%q are", now)
		}
		return err
	})
	t.Logf("no endpoint is ready after %v", time.Since(start).Round(10*time.Millisecond))
	start = time.Now()
	s.Mend()
	s.follows(t, len(before))
	t.Logf("they are ready again after %v", time.Since(start).Round(10*time.Millisecond))
	s.load(t).heardFrom(t, len(before))
}

// testServiceUnexported takes the export back: what was made of it is gone, and so is its address.
func testServiceUnexported(t *testing.T, s *sharing) {
	from := s.clients(t, s.b, 2)[0]
	at, err := address(t.Context(), s.b, shop, "web")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	s.liqoctl(t, "unexport", "service", "web", "-n", shop, "--timeout", patience.String(), "--kubeconfig", s.a.Kubeconfig)
	lab.Eventually(t, patience, "nothing of the Service is left", func() error {
		var slices discoveryv1.EndpointSliceList
		err := s.b.Client().Get(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, new(mcsv1beta1.ServiceImport))
		if err == nil {
			return errors.New("the ServiceImport is there")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		if err := s.b.Client().List(t.Context(), &slices, client.InNamespace(shop)); err != nil || len(slices.Items) > 0 {
			return fmt.Errorf("%d EndpointSlices are there (%w)", len(slices.Items), err)
		}
		if out, err := s.b.Kubectl("get", "services", "-n", shop, "-o", "name"); err != nil || out != "" {
			return fmt.Errorf("there is %q (%w)", out, err)
		}
		if a, err := getAt(t.Context(), from, at); err == nil {
			return fmt.Errorf("it is reached: %+v", a)
		}
		return nil
	})
	t.Logf("it is gone after %v", time.Since(start).Round(10*time.Millisecond))
}
