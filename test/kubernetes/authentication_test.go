package kubernetes

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testAuthentication has a ask b for resources: by manifests, and by two operators of whom none is an administrator of
// the other's cluster.
func testAuthentication(t *testing.T, w *world) {
	w.apart(t)
	w.reachable(t)
	// The first after the installation: the quota of the consumer may be made before the clusters count what it limits.
	t.Run("enabled by peer", func(t *testing.T) {
		w.liqoctl(t, append(w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig), "--enable-authentication")...)
		w.asked(t, "liqo-tenant-"+w.b.Name, w.b.Name)
		w.unpeer(t, w.a.Kubeconfig, w.b.Kubeconfig)
	})
	sides := w.pairOfServers(t, 2)
	before := w.objects(t)
	t.Run("declarative", func(t *testing.T) { testDeclaredIdentity(t, w) })
	w.asBefore(t, before)
	t.Run("two operators", func(t *testing.T) { testOperators(t, w, sides) })
	w.asBefore(t, before)
	t.Run("again and again", func(t *testing.T) {
		times := 2
		if *long {
			times = 10
		}
		for range times {
			w.liqoctl(t, w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig)...)
			w.asked(t, "liqo-tenant-"+w.b.Name, w.b.Name)
			w.unpeer(t, w.a.Kubeconfig, w.b.Kubeconfig)
		}
		w.asBefore(t, before)
	})
	if *long {
		t.Run("renewal", func(t *testing.T) { testRenewal(t, w) })
		t.Run("a provider that is away", func(t *testing.T) { testProviderAway(t, w) })
	}
}

// reachable tells both clusters where their API servers are for others, and what else is said: the address that is
// known inside a cluster leads nowhere from outside.
func (w *world) reachable(t *testing.T, more ...string) {
	t.Helper()
	w.altered = true
	w.each(t, func(c *kubelab.Cluster) error {
		_, _, err := w.tryLiqoctl(t.Context(), reachableArgs(c, more...)...)
		return err
	})
}

// reachableArgs is installArgs with the address of the API server.
func reachableArgs(c *kubelab.Cluster, more ...string) []string {
	return installArgs(c, append(slices.Clone(more), "--set", "apiServer.address="+c.Config().Host)...)
}

func (w *world) peerArgs(consumer, provider string) []string {
	return []string{"peer", "--kubeconfig", consumer, "--remote-kubeconfig", provider, "--gw-server-service-type", "NodePort",
		"--gw-server-service-nodeport", nodePort, "--gw-client-address", w.b.Public.String(), "--cpu", "2", "--memory", "4Gi"}
}

func (w *world) unpeer(t *testing.T, consumer, provider string) {
	t.Helper()
	// It may be a clean-up, in which the context of the test is over.
	if _, _, err := w.tryLiqoctl(context.Background(), "unpeer", "--kubeconfig", consumer, "--remote-kubeconfig", provider); err != nil {
		t.Fatal(err)
	}
	if err := w.deleteTenants(); err != nil {
		t.Fatal(err)
	}
}

// createSlice has a ask b for a CPU more.
func (w *world) createSlice(t *testing.T, name string) {
	t.Helper()
	manifest{w.a, "liqo-tenant-" + w.b.Name, fmt.Sprintf(`{apiVersion: authentication.liqo.io/v1beta1, kind: ResourceSlice, spec: {class: default, resources: {cpu: 1}},
metadata: {name: %s, labels: {liqo.io/remote-cluster-id: %[2]s, liqo.io/remoteID: %[2]s, liqo.io/replication: "true"}}}`, name, w.b.Name)}.apply(t)
}

// asked waits until b has granted what a asks for by a slice.
func (w *world) asked(t *testing.T, namespace, slice string) {
	t.Helper()
	lab.Eventually(t, patience, "ResourceSlice "+slice+" is accepted", func() error { return w.accepted(namespace, slice) })
}

func (w *world) accepted(namespace, slice string) error {
	got, err := w.a.Kubectl("get", "resourceslices.authentication.liqo.io", slice, "-n", namespace, "-o", "jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}\n{end}")
	if err == nil && (!strings.Contains(got, "Authentication=Accepted") || !strings.Contains(got, "Resources=Accepted")) {
		events, _ := w.a.Kubectl("events", "-n", namespace) // for the message
		err = fmt.Errorf("it says %q\n%s", got, events)
	}
	return err
}

// objects names all objects of both clusters that do not come and go by themselves.
func (w *world) objects(t *testing.T) []string {
	t.Helper()
	names, err := w.tryObjects()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func (w *world) tryObjects() (names []string, err error) {
	fleeting := []string{"events", "leases", "endpointslices", "endpoints", "replicasets", "pods", "componentstatuses", "controllerrevisions"}
	var mu sync.Mutex
	err = onBoth(w, func(c *kubelab.Cluster) error {
		kinds, err := c.Kubectl("api-resources", "--verbs=list", "-o", "name")
		if err != nil {
			return err
		}
		all := slices.DeleteFunc(strings.Fields(kinds), func(kind string) bool {
			plural, _, _ := strings.Cut(kind, ".")
			return slices.Contains(fleeting, plural)
		})
		out, err := c.Kubectl("get", strings.Join(all, ","), "-A", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}")
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(line)
			switch {
			case line == "Secret liqo/authentication-keys": // by which a cluster proves who it is, to whichever provider
			case strings.HasPrefix(line, "Secret liqo/sh.helm.release"): // each installation adds one
			case strings.HasPrefix(line, "CertificateSigningRequest /virtual-kubelet-"): // which Kubernetes removes after an hour
			default:
				names = append(names, c.Name+": "+line)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// asBefore waits until there are the same objects as before.
func (w *world) asBefore(t *testing.T, before []string) {
	t.Helper()
	lab.Eventually(t, patience, "both clusters have the objects that they had", func() error {
		now, err := w.tryObjects()
		if diff := cmp.Diff(before, now); err == nil && diff != "" {
			err = errors.New("(-before +after):\n" + diff)
		}
		return err
	})
}

// testDeclaredIdentity applies the manifests of the document in its order, and in others.
func testDeclaredIdentity(t *testing.T, w *world) {
	d := document.Read(t, document.Declarative)
	const user = "rome-at-milan"
	kubeconfig, err := w.b.KubeconfigFor(user, "", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	values := []string{
		"CONSUMER_CLUSTER_ID", w.a.Name, "PROVIDER_CLUSTER_ID", w.b.Name, "CONSUMER_TENANT_NAMESPACE", consumerNamespace,
		"PROVIDER_TENANT_NAMESPACE", providerNamespace, "USER_COMMON_NAME", user, "VIRTUAL_NODE_NAME", "milan-node",
		"BASE64_KUBECONFIG_USER", base64.StdEncoding.EncodeToString(text),
	}
	namespaces := []manifest{
		{w.b, "", d.Block(t, []string{"kind: Namespace", "LOCAL_TENANT_NAMESPACE"}, "REMOTE_CLUSTER_ID", w.a.Name, "LOCAL_TENANT_NAMESPACE", providerNamespace)},
		{w.a, "", d.Block(t, []string{"kind: Namespace", "LOCAL_TENANT_NAMESPACE"}, "REMOTE_CLUSTER_ID", w.b.Name, "LOCAL_TENANT_NAMESPACE", consumerNamespace)},
	}
	objects := []manifest{
		{w.b, "", d.Block(t, []string{"kind: RoleBinding", "USER_COMMON_NAME"}, values...)},
		{w.b, "", d.Block(t, []string{"kind: Tenant", "TolerateNoHandshake"}, values...)},
		{w.a, "", d.Block(t, []string{"kind: Secret", "BASE64_KUBECONFIG_USER"}, values...)},
		{w.a, "", d.Block(t, []string{"kind: ResourceSlice", "VIRTUAL_NODE_NAME"}, values...)},
	}
	orders := 2
	if *long {
		orders = 20
	}
	for i := range orders {
		seed := rand.Uint64()
		order := slices.Clone(objects)
		if i > 0 {
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		if !t.Run(fmt.Sprintf("order %d", i), func(t *testing.T) {
			t.Logf("seed %#x", seed)
			defer func() {
				if err := w.deleteTenants(); err != nil {
					t.Error(err)
				}
			}()
			for _, m := range slices.Concat(namespaces, order) {
				m.apply(t)
			}
			w.asked(t, consumerNamespace, "milan-node")
			lab.Eventually(t, patience, "the consumer shows its provider", func() error {
				got, err := w.a.Kubectl("get", "fc", w.b.Name, "-o", "jsonpath={.status.role}")
				if err == nil && got != "Provider" {
					err = fmt.Errorf("its role is %q", got)
				}
				return err
			})
		}) {
			return // one failure says enough
		}
	}
}

// testOperators peers with the kubeconfigs that each of two operators has made for the other one.
func testOperators(t *testing.T, w *world, sides [2]*side) {
	dir := t.TempDir()
	kubeconfig := func(in *kubelab.Cluster, of string) string {
		text, _ := w.liqoctl(t, "generate", "peering-user", "--kubeconfig", in.Kubeconfig, "--consumer-cluster-id", of)
		path := filepath.Join(dir, in.Name+".kubeconfig")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	inA, inB := kubeconfig(w.a, w.b.Name), kubeconfig(w.b, w.a.Name)
	for _, who := range []struct{ name, consumer string }{{"the consumer's administrator", w.a.Kubeconfig}, {"nobody's administrator", inA}} {
		t.Run(who.name, func(t *testing.T) {
			w.liqoctl(t, w.peerArgs(who.consumer, inB)...)
			w.asked(t, "liqo-tenant-"+w.b.Name, w.b.Name)
			w.talk(t, sides)
			text, _, err := w.tryLiqoctl(t.Context(), "network", "doctor", "--kubeconfig", who.consumer, "--remote-kubeconfig", inB)
			if who.consumer == w.a.Kubeconfig {
				if err != nil || !regexp.MustCompile(`(?m)^ping through the tunnel +ok +ok$`).MatchString(text) {
					t.Errorf("the doctor says (%v)\n%s", err, text)
				}
			} else if n := strings.Count(text, "FAILED "); n > strings.Count(text, "FAILED  virtual nodes (local)") {
				// Who could not see that offloading is not enabled has asked for a virtual node.
				t.Errorf("the doctor finds %d faults\n%s", n, text)
			}
			if !strings.Contains(text, "sees only namespace liqo-tenant-"+w.a.Name) {
				t.Errorf("the doctor does not say what the user sees\n%s", text)
			}
			w.liqoctl(t, "unpeer", "--kubeconfig", who.consumer, "--remote-kubeconfig", inB)
		})
	}
	for c, of := range map[*kubelab.Cluster]string{w.a: w.b.Name, w.b: w.a.Name} {
		w.liqoctl(t, "delete", "peering-user", "--kubeconfig", c.Kubeconfig, "--consumer-cluster-id", of)
	}
	if _, _, err := w.tryLiqoctl(t.Context(), w.peerArgs(w.a.Kubeconfig, inB)...); err == nil {
		t.Error("a user that was deleted peers")
	}
	if err := w.deleteTenants(); err != nil {
		t.Error(err)
	}
}

// testRenewal uses the identities of a, that of its controllers and that of a ResourceSlice, all the time while their
// certificates, of ten minutes, are replaced twice, until those of the beginning have expired: no request fails.
func testRenewal(t *testing.T, w *world) {
	const life, pause = 10 * time.Minute, 200 * time.Millisecond
	w.reachable(t, "--set", "authentication.certificateLifetime="+life.String())
	w.liqoctl(t, append(w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig), "--networking-disabled")...)
	t.Cleanup(func() { w.unpeer(t, w.a.Kubeconfig, w.b.Kubeconfig) })
	namespace := "liqo-tenant-" + w.b.Name
	users := []*identityUser{
		{key: client.ObjectKey{Namespace: namespace, Name: "kubeconfig-controlplane-" + w.b.Name}},
		{key: client.ObjectKey{Namespace: namespace, Name: "kubeconfig-resourceslice-" + w.b.Name}},
	}
	for _, u := range users {
		lab.Eventually(t, patience, "identity "+u.key.Name+" is there", func() error { return w.a.Client().Get(t.Context(), u.key, new(corev1.Secret)) })
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	asked, start := 0, time.Now()
	for over := false; !over; <-tick.C {
		over = time.Since(start) > life
		for _, u := range users {
			if err := u.ask(t.Context(), w, start); err != nil {
				t.Fatalf("request %d by the identity of %s, after %v, renewed after %v: %v", asked, u.key.Name, time.Since(start), u.renewed, err)
			}
			over = over && len(u.renewed) >= 2
			asked++
		}
		if time.Since(start) > 2*life {
			t.Fatalf("renewed after %v and %v, %d requests", users[0].renewed, users[1].renewed, asked)
		}
	}
	addFigures(t, "Identities with certificates of ten minutes, in permanent use", fmt.Sprintf(`By a program that reads the Secret each time: %d requests in %v, of which none failed.

| identity | certificates replaced, after the first request |
|---|---|
| %s | %v |
| %s | %v |`, asked, time.Since(start).Round(time.Second), users[0].key.Name, users[0].renewed, users[1].key.Name, users[1].renewed))
	// The controllers, too, have the certificates of now: what they had at first has expired.
	w.createSlice(t, "later")
	w.asked(t, namespace, "later")
	for _, u := range users {
		if events := w.kubectl(t, w.a, "get", "events.events.k8s.io", "-n", namespace, "--field-selector=type=Warning,regarding.name="+u.key.Name, "-o", "name"); events != "" {
			t.Errorf("warnings about the identity: %s", events)
		}
	}
}

// identityUser is a program in a that uses an identity at b, and reads its Secret each time.
type identityUser struct {
	key        client.ObjectKey
	kubeconfig []byte
	client     client.Client
	renewed    []time.Duration // how long after the start
}

// ask asks who it is.
func (u *identityUser) ask(ctx context.Context, w *world, start time.Time) error {
	var s corev1.Secret
	if err := w.a.Client().Get(ctx, u.key, &s); err != nil {
		return err
	}
	if now := s.Data["kubeconfig"]; !bytes.Equal(now, u.kubeconfig) {
		if u.kubeconfig != nil {
			u.renewed = append(u.renewed, time.Since(start).Round(time.Second))
		}
		u.kubeconfig = now
		c, err := clientcmd.RESTConfigFromKubeConfig(now)
		if err != nil {
			return err
		}
		c.Dial = w.b.Config().Dial
		if u.client, err = client.New(c, client.Options{Scheme: w.b.Client().Scheme()}); err != nil {
			return err
		}
	}
	return u.client.Create(ctx, &authenticationv1.SelfSubjectReview{})
}

// testProviderAway has the provider's API server away for five minutes, in which the consumer asks for more, and for
// less.
func testProviderAway(t *testing.T, w *world) {
	w.liqoctl(t, append(w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig), "--networking-disabled")...)
	t.Cleanup(func() { w.unpeer(t, w.a.Kubeconfig, w.b.Kubeconfig) })
	namespace := "liqo-tenant-" + w.b.Name
	w.createSlice(t, "goes")
	w.asked(t, namespace, "goes")
	w.b.StopAPIServer()
	start := sync.OnceFunc(w.b.StartAPIServer)
	t.Cleanup(start)
	w.createSlice(t, "comes")
	w.kubectl(t, w.a, "delete", "resourceslices.authentication.liqo.io", "goes", "-n", namespace)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	<-ctx.Done()
	if got := w.kubectl(t, w.a, "get", "resourceslices.authentication.liqo.io", "-n", namespace, "-o", "name"); strings.Count(got, "\n") != 1 {
		t.Errorf("the consumer has %s", got)
	}
	start()
	w.asked(t, namespace, "comes")
	lab.Eventually(t, patience, "the provider has what is asked for", func() error {
		got, err := w.b.Kubectl("get", "resourceslices.authentication.liqo.io", "-n", "liqo-tenant-"+w.a.Name, "-o", "jsonpath={.items[*].metadata.name}")
		if err == nil && got != "comes "+w.b.Name {
			err = fmt.Errorf("it has %q", got)
		}
		return err
	})
}
