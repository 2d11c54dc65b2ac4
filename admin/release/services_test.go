package release_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/release"
)

// testServices: with services.enabled the kinds of the Multi-Cluster Services API are there. What the controllers made of
// them goes with the installation, see testUninstall. CoreDNS forwards the zone of their names as long as that is wanted,
// and nothing else in its configuration changes.
func testServices(t *testing.T, s *site) {
	const theirs = ".:53 {\n    forward . /etc/resolv.conf\n}\n"
	wanted, off := rome(), rome()
	wanted.CoreDNS, wanted.Values = true, release.Values{"services": release.Values{"enabled": true}}
	off.Values = release.Values{"clusterDNS": release.Values{"enabled": false}}
	if _, err := s.prepare(t, "", wanted); err == nil || !strings.Contains(err.Error(), "there is no ConfigMap kube-system/coredns") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("without CoreDNS: %v", err)
	}
	corefile := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Data: map[string]string{"Corefile": theirs}}
	s.Create(t, corefile)
	read := func(name, key string) string {
		t.Helper()
		var m corev1.ConfigMap
		if err := client.IgnoreNotFound(s.Get(t.Context(), "kube-system", name, &m)); err != nil {
			t.Fatal(err)
		}
		return m.Data[key]
	}
	write := func(text string) {
		t.Helper()
		s.Read(t, "kube-system", "coredns", corefile)
		corefile.Data["Corefile"] = text
		if err := s.Client.Update(t.Context(), corefile); err != nil {
			t.Fatal(err)
		}
	}
	s.install(t, wanted)
	var service corev1.Service
	s.Read(t, "liqo", "liqo-clusterdns", &service)
	forwards := "clusterset.local:53 {\n    errors\n    cache 5\n    forward . " + service.Spec.ClusterIP + "\n}\n"
	first := read("coredns", "Corefile")
	if !strings.HasPrefix(first, theirs) || !strings.Contains(first, forwards) {
		t.Errorf("the Corefile is\n%s", first)
	}
	// It stays without being asked for again, and an edit of it is put right.
	write(strings.Replace(first, service.Spec.ClusterIP, "192.0.2.1", 1))
	if r := s.install(t, rome()); !r.Changed || read("coredns", "Corefile") != first {
		t.Errorf("after an edit: %+v\n%s", r, read("coredns", "Corefile"))
	}
	s.install(t, off)
	if got := read("coredns", "Corefile"); got != theirs {
		t.Errorf("turned off, the Corefile is\n%s", got)
	}
	write(theirs + "clusterset.local {\n    forward . 192.0.2.1\n}\n")
	if _, err := s.prepare(t, "", wanted); err == nil || !strings.Contains(err.Error(), "that liqoctl did not add") {
		t.Errorf("beside somebody else's: %v", err)
	}
	// Where the distribution writes the Corefile, what is imported into it changes.
	write(theirs + "import /etc/coredns/custom/*.server\n")
	s.install(t, wanted)
	if got := read("coredns-custom", "sluice.server"); !strings.Contains(got, "clusterset.local:53 {") || strings.Contains(read("coredns", "Corefile"), "clusterset.local:53") {
		t.Errorf("imported is\n%s", got)
	}
	reset := rome()
	reset.ResetValues = true
	s.install(t, reset)
	if got := read("coredns-custom", "sluice.server"); got != "" {
		t.Errorf("turned off, there is\n%s", got)
	}
	for _, name := range []string{"coredns", "coredns-custom"} {
		if err := s.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}); err != nil {
			t.Error(err)
		}
	}
}
