package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// What a gateway of a large cluster costs: 500 nodes with 200 pods each, of
// which 100 a second are replaced, or as many as the API server takes.
func BenchmarkLargeCluster(b *testing.B) {
	const nodes, pods, churn, seconds = 500, 200, 100, 10
	program := filepath.Join(b.TempDir(), "gateway")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	c := controlplanetest.Start(b)
	server, _ := newPeering(b, c)
	server.create(b, server.manifests(objectManifests)...)
	edit(b, server, server.peer, new(networkingv1beta1.Configuration), false, func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR.Pod.List[0] = "10.128.0.0/9"
	})
	edit(b, server, server.peer, new(networkingv1beta1.Configuration), true, func(c *networkingv1beta1.Configuration) {
		c.Status.Conditions[0].ObservedGeneration = c.Generation
	})
	p := &pod{s: server, name: "big", socket: server.socket(b, "big")}
	start := func() {
		p.cmd, p.done = exec.Command(program, server.args(b, "big")...), make(chan struct{})
		p.cmd.Stderr = &p.log
		if err := p.cmd.Start(); err != nil {
			b.Fatal(err)
		}
		go func() {
			p.cmd.Wait()
			close(p.done)
		}()
	}
	defer os.Remove(p.socket)
	routes := func(n int) func(context.Context) error {
		return func(ctx context.Context) error {
			r, err := p.report(ctx)
			if err == nil && len(r.DataPlane.Routes) != n {
				err = fmt.Errorf("%d routes: %v %v", len(r.DataPlane.Routes), r.Sync.Refused, r.Sync.Waiting)
			}
			return err
		}
	}
	start()
	within(b, time.Minute, "one node", routes(1))
	time.Sleep(2 * time.Second)
	small := resident(b, p)
	p.kill()

	node, address := netip.MustParseAddr("10.81.0.2"), netip.MustParseAddr("10.129.0.1")
	tables := make([]*networkingv1beta1.RouteConfiguration, nodes)
	for i := range tables {
		name := fmt.Sprintf("large-%d", i)
		server.create(b, server.manifests(fmt.Sprintf(`
apiVersion: networking.liqo.io/v1beta1
kind: InternalNode
metadata: {name: %[1]s}
spec: {interface: {gateway: {name: liqo.l%[2]d}, node: {ip: %[3]s}}}
status: {nodeIP: {remote: 127.8.%[4]d.%[5]d}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GeneveTunnel
metadata: {name: %[1]s, namespace: $NAMESPACE}
spec: {id: %[2]d, internalFabricRef: {name: $PEER}, internalNodeRef: {name: %[1]s}}`, name, i+100, node, i/250, i%250+1))...)
		t := &networkingv1beta1.RouteConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name + "-gw-node", Namespace: "liqo", Labels: map[string]string{
			networkingv1beta1.LabelRouteCategory: networkingv1beta1.CategoryGateway, networkingv1beta1.LabelRouteSubcategory: networkingv1beta1.SubcategoryFabric,
		}}}
		rule := networkingv1beta1.RoutingRule{IIF: "liqo-tunnel"}
		for range pods {
			rule.Routes = append(rule.Routes, networkingv1beta1.Route{Dst: networkingv1beta1.CIDR(address.String() + "/32"), Gw: networkingv1beta1.Address(node.String())})
			address = address.Next()
		}
		t.Spec.Table.Name, t.Spec.Table.Rules = name, []networkingv1beta1.RoutingRule{rule}
		if err := c.Client.Create(b.Context(), t); err != nil {
			b.Fatal(err)
		}
		tables[i] = t
		node = node.Next()
	}
	for b.Loop() {
		start()
		b.ReportMetric(within(b, time.Minute, "all routes", routes(nodes*pods+1)).Seconds(), "s-to-start")
		time.Sleep(3 * time.Second)
		b.ReportMetric(resident(b, p), "MiB-large")
		b.ReportMetric(small, "MiB-small")
		before, began := cpu(b, p), time.Now()
		changes := 0
		for ; time.Since(began) < seconds*time.Second; changes++ {
			patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/table/rules/0/routes/0/dst", "value": "%s/32"}]`, address)
			address = address.Next()
			if err := c.Client.Patch(b.Context(), tables[changes%nodes].DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
				b.Fatal(err)
			}
			time.Sleep(time.Until(began.Add(time.Duration(changes) * time.Second / churn)))
		}
		took := time.Since(began)
		last := networkingv1beta1.CIDR(address.Prev().String() + "/32")
		lag := within(b, time.Minute, "the last pod", func(ctx context.Context) error {
			r, err := p.report(ctx)
			if err != nil {
				return err
			}
			for _, route := range r.DataPlane.Routes {
				if route.Dst.String() == string(last) {
					return nil
				}
			}
			return fmt.Errorf("no route %s", last)
		})
		b.ReportMetric(float64(changes)/took.Seconds(), "changes/s")
		b.ReportMetric(100*(cpu(b, p)-before)/took.Seconds(), "%CPU")
		b.ReportMetric(lag.Seconds(), "s-lag")
		b.ReportMetric(resident(b, p), "MiB-churned")
		if r, err := p.report(b.Context()); err == nil {
			b.Logf("heap %d MiB, resident %d MiB", r.Memory.Heap>>20, r.Memory.Resident>>20)
		}
		p.kill()
	}
}

// resident is the memory of a process in MiB.
func resident(b *testing.B, p *pod) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}

// cpu is what a process has computed, in seconds.
func cpu(b *testing.B, p *pod) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	const ticks = 100 // USER_HZ
	return (user + system) / ticks
}
