package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// exportedManifest is the Service shop/web of a side, with one endpoint.
const exportedManifest = `
apiVersion: networking.liqo.io/v1beta1
kind: ExportedService
metadata: {name: shop.web, namespace: $NAMESPACE, labels: {liqo.io/managed: "true", liqo.io/remote-cluster-id: $PEER}}
spec:
  namespace: shop
  name: web
  type: ClusterSetIP
  exportedAt: "2026-03-01T10:00:00Z"
  ports: [{name: http, protocol: TCP, port: 80}]
  slices: [{addressType: IPv4, ports: [{name: http, protocol: TCP, port: 8080}], endpoints: [{addresses: [10.243.1.2], ready: true, serving: true}]}]`

// imports waits until the ImportedServices of a side are these: name, number of endpoints.
func (s *side) imports(t *testing.T, want string) {
	t.Helper()
	controlplanetest.Eventually(t, "the ImportedServices are "+want, func(ctx context.Context) error {
		var list networkingv1beta1.ImportedServiceList
		if err := s.c.Client.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		var got []string
		for _, i := range list.Items {
			n := 0
			for _, slice := range i.Spec.Slices {
				n += len(slice.Endpoints)
			}
			got = append(got, fmt.Sprintf("%s %d", i.Name, n))
		}
		if text := strings.Join(got, ", "); text != want {
			return fmt.Errorf("they are %q", text)
		}
		return nil
	})
}

// testServices: what one cluster exports is written in the other one, follows its changes, and stays while the peer is away.
func testServices(t *testing.T, c *controlplanetest.Cluster) {
	server, client, a, _ := started(t, c, "--services")
	server.create(t, server.manifests(exportedManifest)...)
	client.imports(t, "shop.web 1")
	var i networkingv1beta1.ImportedService
	ctx := context.Background()
	if err := c.Get(ctx, client.namespace, "shop.web", &i); err != nil {
		t.Fatal(err)
	}
	if i.Labels["liqo.io/remote-cluster-id"] != client.peer || i.Labels["liqo.io/managed"] != "true" || len(i.OwnerReferences) != 1 || i.OwnerReferences[0].Kind != "GatewayClient" ||
		i.Spec.Ports[0].Name != "http" || i.Spec.Slices[0].Endpoints[0].Addresses[0] != "10.243.1.2" || !i.Spec.Slices[0].Endpoints[0].Ready {
		t.Errorf("%+v", i)
	}
	edit(t, client, "shop.web", &i, false, func(i *networkingv1beta1.ImportedService) { i.Annotations = map[string]string{"of": "others"} })
	edit(t, server, "shop.web", new(networkingv1beta1.ExportedService), false, func(e *networkingv1beta1.ExportedService) {
		e.Spec.Slices[0].Endpoints = append(e.Spec.Slices[0].Endpoints, networkingv1beta1.ServiceEndpoint{Addresses: []string{"10.243.1.3"}})
	})
	client.imports(t, "shop.web 2")
	if err := c.Get(ctx, client.namespace, "shop.web", &i); err != nil || i.Annotations["of"] != "others" {
		t.Errorf("what others wrote is %v, %v", i.Annotations, err)
	}

	a.kill()
	e := new(networkingv1beta1.ExportedService)
	if err := c.Get(ctx, server.namespace, "shop.web", e); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the peer is missed", func(ctx context.Context) error { return client.is(ctx, networkingv1beta1.ConnectionError) })
	client.imports(t, "shop.web 2")
	if err := c.Client.Delete(ctx, e); err != nil {
		t.Fatal(err)
	}
	server.start(t, "c", "--services")
	client.imports(t, "")
}

// testServicesWithoutRights: under the role of a version without the kinds, a gateway does everything else.
func testServicesWithoutRights(t *testing.T, c *controlplanetest.Cluster) {
	server, client := newPeering(t, c)
	for _, s := range []*side{server, client} {
		s.create(t, s.manifests(objectManifests)...)
	}
	edit(t, client, "gw-gw", new(rbacv1.Role), false, func(r *rbacv1.Role) {
		for i := range r.Rules {
			r.Rules[i].Resources = slices.DeleteFunc(r.Rules[i].Resources, func(of string) bool { return of == "exportedservices" })
		}
		r.Rules = slices.DeleteFunc(r.Rules, func(of rbacv1.PolicyRule) bool { return slices.Contains(of.Resources, "importedservices") })
	})
	server.start(t, "a", "--services")
	b := client.start(t, "b", "--services")
	untilConnected(t, server, client)
	controlplanetest.Eventually(t, "it says so", func(context.Context) error {
		if !strings.Contains(b.log.String(), "no Services are exchanged with the peer") {
			return fmt.Errorf("the log is\n%s", b.log.String())
		}
		return nil
	})
}

// TestWritesImportedServices: outside clusters what the peer offers is in a file, and what it no longer offers is not.
func TestWritesImportedServices(t *testing.T) {
	defer goleak.VerifyNone(t)
	f, err := dataplanetest.NewFabric(dataplanetest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, dir := services.New(services.Options{Network: f.A.Gateway, Logger: slog.New(slog.DiscardHandler)}), t.TempDir()
	b := newFiledServices(f.B.Gateway, dir, slog.New(slog.DiscardHandler))
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{a.Run, b.Run} {
		running.Go(func() { _ = run(ctx) }) // nil, always
	}
	defer func() {
		cancel()
		running.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	b.Offer(nil)
	lists := func(want ...string) {
		t.Helper()
		controlplanetest.Eventually(t, fmt.Sprintf("the file lists %q", want), func(context.Context) error {
			var list networkingv1beta1.ImportedServiceList
			if err := manifests.ReadStatus(dir, manifests.ServicesFile, &list); err != nil {
				return err
			}
			var got []string
			for _, i := range list.Items {
				got = append(got, i.Name+" "+i.Spec.Slices[0].Endpoints[0].Addresses[0])
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("it lists %q", got)
			}
			return nil
		})
	}
	web := new(networkingv1beta1.ExportedService)
	if err := yaml.Unmarshal([]byte(exportedManifest), web); err != nil {
		t.Fatal(err)
	}
	a.Offer([]*networkingv1beta1.ExportedService{web})
	lists("shop.web 10.243.1.2")
	a.Offer(nil)
	lists()
}

// TestServesExportedServices: outside clusters the Services that the peer is told of are among the manifests.
func TestServesExportedServices(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := newWorkspace(t)
	write := func(docs ...string) {
		text := strings.NewReplacer("$NAMESPACE", "tenant", "$PEER", "milan").Replace(strings.Join(docs, "\n---"))
		path := filepath.Join(w.dir, "exported.yaml")
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	write(exportedManifest)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finished := make(chan int, 1)
	go func() { finished <- run(ctx, append(w.args, "--services"), &w.stdout, &w.stderr) }()
	shows := func(want string) {
		t.Helper()
		controlplanetest.Eventually(t, "the status says "+want, func(ctx context.Context) error {
			var text bytes.Buffer
			if code := run(ctx, []string{"status", "--admin-socket", w.socket}, &text, &text); code != 0 || !strings.Contains(text.String(), want) {
				return fmt.Errorf("it says\n%s", &text)
			}
			return nil
		})
	}
	shows("1 exported, which the peer does not listen to; 0 of the peer, not heard now")
	write(exportedManifest, strings.NewReplacer("shop.web", "shop.db", "name: web", "name: db").Replace(exportedManifest))
	shows("2 exported,")
	cancel()
	if code := <-finished; code != 0 {
		t.Errorf("exit code %d: %s", code, &w.stderr)
	}
}

func TestServicesFilePause(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 20 * time.Millisecond: time.Second, 100 * time.Millisecond: 5 * time.Second, time.Second: 50 * time.Second, time.Hour: time.Minute,
	} {
		if got := servicesFilePause(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
