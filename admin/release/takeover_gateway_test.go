package release_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testLiqosTemplate: while Sluice runs the network, Liqo's own 'network connect' makes gateways of Liqo's templates. They get no
// pod of Liqo's, and their condition has the command that helps.
func testLiqosTemplate(t *testing.T, s *takeoverSite) {
	before := s.network()
	refused := func(namespace, name string) {
		t.Helper()
		controlplanetest.Eventually(t, "the template of "+name+" is refused", func(ctx context.Context) error {
			var g networkingv1beta1.GatewayServer
			if err := s.Get(ctx, namespace, name, &g); err != nil {
				return err
			}
			c := meta.FindStatusCondition(g.Status.Conditions, string(networkingv1beta1.ConditionTemplateRendered))
			if c == nil || c.Reason != string(networkingv1beta1.ReasonTemplateOfLiqo) || !strings.Contains(c.Message, "'liqoctl network adopt "+name+"'") {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	milan := &networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}}
	controlplanetest.Edit(t, s.Cluster, milan, func(g *networkingv1beta1.GatewayServer) { g.Spec.ServerTemplateRef.Name = "wireguard-server" })
	refused("liqo-tenant-milan", "milan")
	s.same("a gateway that was Sluice's is replaced", before)
	s.adopt(release.AdoptOptions{Peers: []string{"milan"}})
	s.carries("milan", 1)

	s.Apply(`{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, metadata: {name: bergen, namespace: liqo-tenant-oslo, labels: {liqo.io/remote-cluster-id: bergen}},
		spec: {endpoint: {port: 51840, serviceType: ClusterIP}, serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: wireguard-server, namespace: liqo}}}`)
	refused("liqo-tenant-oslo", "bergen")
	if err := s.Get(t.Context(), "liqo-tenant-oslo", "gw-bergen", new(appsv1.Deployment)); !apierrors.IsNotFound(err) {
		t.Errorf("Liqo's gateway runs under Sluice's controllers: %v", err)
	}
	if _, err := s.prepare(release.AdoptOptions{All: true, Back: true}); err == nil || !strings.Contains(err.Error(), "give the network back first, with 'liqoctl uninstall --hand-back'") {
		t.Errorf("gateways would become Liqo's: %v", err)
	}
	a, err := s.prepare(release.AdoptOptions{Peers: []string{"bergen"}})
	if err != nil {
		t.Fatal(err)
	}
	replaced := release.AdoptionStep{Verb: "replace", Object: "Deployment liqo-tenant-oslo/gw-bergen", Detail: "by Sluice's controllers: traffic stops until its new pod is ready"}
	if !slices.Contains(a.Steps, replaced) {
		t.Errorf("no step %+v among %+v", replaced, a.Steps)
	}
	err = a.Run(t.Context(), func(e progress.Event) {
		s.tell(e)
		if e.Kind == progress.Done { // the trial
			a.GiveUpAfter(time.Millisecond)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "GatewayServer liqo-tenant-oslo/bergen keeps template sluice-wireguard-server.liqo-tenant-oslo.bergen: Sluice runs the network") {
		t.Errorf("a gateway goes back to a template that is refused: %v", err)
	}
	s.adopt(release.AdoptOptions{Peers: []string{"bergen"}})
	controlplanetest.Eventually(t, "the gateway is Sluice's", func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := s.Get(ctx, "liqo-tenant-oslo", "gw-bergen", &d); err != nil || len(d.Spec.Template.Spec.Containers) != 1 || d.Status.AvailableReplicas != 1 {
			return fmt.Errorf("%+v, %v", d.Status, err)
		}
		return nil
	})
	if _, err := s.handBack(); err != nil {
		t.Errorf("Liqo cannot go on with it: %v", err)
	}
	if _, err := s.Kubectl("delete", "-n=liqo-tenant-oslo", "gatewayserver", "bergen"); err != nil {
		t.Fatal(err)
	}
	s.adopt(release.AdoptOptions{All: true}) // deletes the copy of the template
	s.gone("bergen")
	s.same("something of the network is not as it was", before)
}

// testServed: of gateways that Liqo's template was copied for, what their conditions say holds for the newest generation. Who
// connects waits for that.
func testServed(t *testing.T, s *takeoverSite) {
	var server networkingv1beta1.GatewayServer
	var dialling networkingv1beta1.GatewayClient
	for _, g := range []struct {
		client.Object
		name       string
		conditions *[]metav1.Condition
	}{{&server, "milan", &server.Status.Conditions}, {&dialling, "oslo", &dialling.Status.Conditions}} {
		controlplanetest.Eventually(t, "what is said of gateway "+g.name+" is of now", func(ctx context.Context) error {
			if err := s.Get(ctx, "liqo-tenant-"+g.name, g.name, g.Object); err != nil {
				return err
			}
			for _, about := range []networkingv1beta1.ConditionType{networkingv1beta1.ConditionTemplateRendered, networkingv1beta1.ConditionKeysReady, networkingv1beta1.ConditionDeployed} {
				if c := meta.FindStatusCondition(*g.conditions, string(about)); c == nil || c.ObservedGeneration != g.GetGeneration() {
					return fmt.Errorf("generation %d: %s %+v", g.GetGeneration(), about, c)
				}
			}
			return nil
		})
	}
}

// testLiqosFinalizers: an IP of an offloaded pod may have finalizers of Liqo's from before. It can be changed with them, but
// gets no more, which nobody would remove.
func testLiqosFinalizers(t *testing.T, s *takeoverSite) {
	var web ipamv1alpha1.IP
	s.Read(t, "liqo", "web", &web)
	if len(web.Finalizers) == 0 {
		t.Fatal("the IP has no finalizers of Liqo's")
	}
	for _, tt := range []struct {
		what       string
		finalizers []string
		allowed    bool
	}{
		{"those that it has", web.Finalizers, true},
		{"none", nil, true},
		{"one more", append(slices.Clone(web.Finalizers), "ipmapping-nat-controller.liqo.io/finalizer"), false},
		{"another one", []string{"ipmapping-nat-controller.liqo.io/finalizer"}, false},
	} {
		o := web.DeepCopy()
		o.Finalizers, o.Labels["changed"] = tt.finalizers, "true"
		if err := s.writer().Update(t.Context(), o, client.DryRunAll); apierrors.IsForbidden(err) == tt.allowed || tt.allowed && err != nil {
			t.Errorf("an IP with %s: %v", tt.what, err)
		}
	}
}
