package release_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// reservedForSluice is a prefix that Sluice never gives out, and Liqo may.
const reservedForSluice = "198.51.100.0/24"

// toldInterrupted checks what is told of an interrupted takeover; empty: there is none.
func (s *takeoverSite) toldInterrupted(want string) {
	s.t.Helper()
	if got, err := s.access.Interrupted(s.t.Context()); err != nil || !strings.Contains(got, want) || want == "" && got != "" {
		s.t.Errorf("it is told %q, %v, want %q", got, err, want)
	}
}

// refusesAdoption checks that no gateway changes hands while neither Liqo's controllers nor Sluice's would replace it.
func (s *takeoverSite) refusesAdoption() {
	s.t.Helper()
	for _, back := range []bool{false, true} {
		_, err := s.prepare(release.AdoptOptions{All: true, Back: back})
		for _, want := range []string{"nothing was changed", "was interrupted: there is ValidatingAdmissionPolicy", "'liqoctl install --adopt"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				s.t.Errorf("gateways to Liqo's: %t: got %v, want %s", back, err, want)
			}
		}
	}
}

// nothingNoted looks for annotations by which Sluice's controllers know what they have written.
func (s *takeoverSite) nothingNoted() {
	s.t.Helper()
	const format = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.annotations}{"\n"}{end}`
	const kinds = "networks.ipam.liqo.io,ips.ipam.liqo.io,configurations.networking.liqo.io,connections,internalfabrics,internalnodes,genevetunnels," +
		"routeconfigurations,wggatewayservers,wggatewayclients,services,secrets,serviceaccounts,deployments,endpointslices"
	out, err := s.Kubectl("get", kinds, "-A", "-o", format)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "networking.liqo.io/applied-hash") || strings.Contains(line, "networking.liqo.io/service-account-uid") {
			s.t.Errorf("Sluice's note is left on %s", line)
		}
	}
}

// nothingSaid looks whether agents have said something of Liqo's.
func (s *takeoverSite) nothingSaid() {
	s.t.Helper()
	var nodes networkingv1beta1.InternalNodeList
	if err := s.Client.List(s.t.Context(), &nodes); err != nil {
		s.t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if c := meta.FindStatusCondition(n.Status.Conditions, string(networkingv1beta1.ConditionLiqoReplaced)); c != nil {
			s.t.Errorf("before there are agents, node %s says %+v", n.Name, c)
		}
	}
}

// testLeftTrial: what has tried an image is no takeover.
func testLeftTrial(t *testing.T, s *takeoverSite) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "sluice-trial-controller", Labels: map[string]string{"networking.liqo.io/adoption": "true"}},
		Spec: corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "controller", Image: "sluice.local/controller:unknown"}}}}
	if err := s.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	s.toldInterrupted("there is Pod liqo/sluice-trial-controller; ")
	if _, err := s.prepare(release.AdoptOptions{All: true, Back: true}); err != nil {
		t.Errorf("it is in the way of giving gateways back: %v", err)
	}
	if err := s.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// testTerminating: a takeover waits for the end of the agents' namespace, and tells what keeps it.
func testTerminating(t *testing.T, s *takeoverSite) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-fabric", Finalizers: []string{"example.org/kept"}}}
	if err := s.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	o, err := s.takeOver(release.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*controlplanetest.Patience)
	defer cancel()
	kept := false
	_, err = o.Run(ctx, func(e progress.Event) {
		s.tell(e)
		switch {
		case !kept && strings.Contains(e.Text, "Waiting for Namespace liqo-fabric to be made: the former one is being deleted: finalizers [example.org/kept]"):
			kept = true
			controlplanetest.Edit(t, s.Cluster, ns, func(ns *corev1.Namespace) { ns.Finalizers = nil })
		case strings.Contains(e.Text, "to run sluice.local/"):
			cancel()
		}
	})
	if err == nil || !kept || !strings.Contains(err.Error(), "interrupted while trying the images: this run has done 0 of") {
		t.Errorf("told what keeps it: %v, %v", kept, err)
	}
	s.gone("liqo-fabric/sluice-trial")
	s.gone("Namespace /liqo-fabric")
}
