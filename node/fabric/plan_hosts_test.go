package fabric

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

func TestBuildHosts(t *testing.T) {
	with := func(change func(*ipamv1alpha1.IP)) func(*world) { return func(w *world) { change(w.ip) } }
	const one = "[{10.70.0.5 192.168.1.5}]"
	tests := []struct {
		name   string
		change func(*world)
		want   string
		says   string // in a cluster; from files it is refused if it begins with "ignored"
	}{
		{"one", func(*world) {}, one, ""},
		{"without a wish", with(func(ip *ipamv1alpha1.IP) { ip.Spec.Masquerade = nil }), "[]", ""},
		{"with another wish", with(func(ip *ipamv1alpha1.IP) { ip.Spec.Masquerade = new(false) }), "[]", ""},
		{"out of reach", with(func(ip *ipamv1alpha1.IP) { ip.Labels = map[string]string{ipamv1alpha1.LabelHostUnreachable: "true"} }), "[]", ""},
		{"not granted yet", with(func(ip *ipamv1alpha1.IP) { ip.Status.IP = "" }), "[]", "waiting IP default/printer: status.ip: is not given yet: the address waits"},
		{"a host of a peer", with(func(ip *ipamv1alpha1.IP) { ip.Spec.IP = "10.90.0.1" }), "[]", ""},
		{"no address", with(func(ip *ipamv1alpha1.IP) { ip.Spec.IP = "printer" }), "[]", `ignored IP default/printer: spec.ip: "printer" is not an IP address`},
		{"no other address", with(func(ip *ipamv1alpha1.IP) { ip.Status.IP = "printer" }), "[]", `ignored IP default/printer: status.ip: "printer" is not an IP address`},
		{"two families", with(func(ip *ipamv1alpha1.IP) { ip.Spec.IP = "fd00::5" }), "[]", "ignored IP default/printer: status.ip: 10.70.0.5 cannot stand for fd00::5: the families differ"},
		{"of another Network", with(func(ip *ipamv1alpha1.IP) { ip.Status.IP = "10.99.0.5" }), "[]", "warning IP default/printer: status.ip: 10.99.0.5 lies in no local external CIDR: it is not masqueraded"},
		{"the unknown source", with(func(ip *ipamv1alpha1.IP) { ip.Status.IP = "10.70.0.0" }), "[]",
			"ignored IP default/printer: status.ip: 10.70.0.0 is the first address of the external CIDR, which stands for nodes and hostNetwork pods"},
		{"two of one address", func(w *world) {
			other := w.ip.DeepCopy()
			other.Name, other.Spec.IP = "first", "192.168.1.9"
			w.IPs = sourced(other)
		}, "[{10.70.0.5 192.168.1.9}]", "ignored IP default/printer: status.ip: 10.70.0.5 is the address of IP default/first as well"},
		{"two of one host", func(w *world) {
			other := w.ip.DeepCopy()
			other.Name, other.Status.IP = "first", "10.70.0.9"
			w.IPs = sourced(other)
		}, "[{10.70.0.9 192.168.1.5}]", "ignored IP default/printer: spec.ip: 192.168.1.5 is mapped by IP default/first already"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.change(w)
			want := []string{milanLink, romeLink, strings.Replace(translated, one, tt.want, 1), remoteIP}
			if tt.says != "" {
				want = append(want, tt.says)
			}
			if diff := cmp.Diff(want, lines(Build(w.objects(true), w.Facts))); diff != "" {
				t.Errorf("in a cluster (-want +got):\n%s", diff)
			}
			if reason, bad := strings.CutPrefix(tt.says, "ignored "); bad {
				want = []string{"refused " + reason}
			}
			if diff := cmp.Diff(want, lines(Build(w.objects(false), w.Facts))); diff != "" {
				t.Errorf("from files (-want +got):\n%s", diff)
			}
		})
	}
}
