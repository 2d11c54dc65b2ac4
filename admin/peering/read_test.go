package peering

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestOwnNetwork(t *testing.T) {
	network := func(typ, name string, cidr networkingv1beta1.CIDR) ipamv1alpha1.Network {
		return ipamv1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name, Labels: map[string]string{ipamv1alpha1.LabelNetworkType: typ}},
			Status:     ipamv1alpha1.NetworkStatus{CIDR: ipamv1alpha1.CIDR(cidr)},
		}
	}
	pod, more, external := network("pod-cidr", "pod-cidr", "10.243.0.0/16"), network("pod-cidr", "pod-cidr-2", "fd00::/48"), network("external-cidr", "external-cidr", "10.70.0.0/16")
	for _, tt := range []struct {
		name     string
		networks []ipamv1alpha1.Network
		want     string
		wantErr  string
	}{
		{name: "one each", networks: []ipamv1alpha1.Network{external, pod}, want: `"10.243.0.0/16" "10.70.0.0/16"`},
		{name: "several", networks: []ipamv1alpha1.Network{pod, external, more}, want: `["10.243.0.0/16","fd00::/48"] "10.70.0.0/16"`},
		{name: "none", networks: []ipamv1alpha1.Network{pod}, wantErr: "there is no Network with the label ipam.liqo.io/network-type=external-cidr in namespace liqo: not ready yet"},
		{name: "one without prefix", networks: []ipamv1alpha1.Network{pod, network("external-cidr", "external-cidr", "")}, wantErr: "the status of Network liqo/external-cidr has no prefix: not ready yet: see 'kubectl -n liqo describe network external-cidr'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ownNetwork("liqo", tt.networks)
			if tt.wantErr != "" {
				if !strings.HasPrefix(errText(err), tt.wantErr) || !errors.Is(err, ErrNotReady) {
					t.Errorf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			p, _ := got.CIDR.Pod.MarshalJSON()
			e, _ := got.CIDR.External.MarshalJSON()
			if s := string(p) + " " + string(e); s != tt.want || err != nil {
				t.Errorf("got %s, %v; want %s", s, err, tt.want)
			}
		})
	}
}

func TestPublicKey(t *testing.T) {
	private := make([]byte, 32)
	private[0] = 1
	other := make([]byte, 32)
	for _, tt := range []struct {
		name    string
		data    map[string][]byte
		wantWhy string
	}{
		{"both", map[string][]byte{"privateKey": private, "publicKey": other}, ""},
		{"the private one alone", map[string][]byte{"privateKey": private}, ""},
		{"a short public key", map[string][]byte{"privateKey": private, "publicKey": other[:31]}, "has a data.publicKey of 31 bytes"},
		{"nothing", nil, "has neither data.publicKey nor a data.privateKey of 32 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, why := publicKey(tt.data)
			if !strings.HasPrefix(why, tt.wantWhy) || (tt.wantWhy == "") != (len(key) == 32) {
				t.Errorf("got %x, %q; want %q", key, why, tt.wantWhy)
			}
		})
	}
}
