package fabric

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/node/hostnet"
)

func TestChooseKind(t *testing.T) {
	supported := func(kinds ...hostnet.Kind) (out []hostnet.KindSupport) {
		for _, k := range hostnet.Kinds {
			s := hostnet.KindSupport{Kind: k, Reason: "the kernel has none"}
			for _, have := range kinds {
				if have == k {
					s = hostnet.KindSupport{Kind: k, OK: true}
				}
			}
			out = append(out, s)
		}
		return out
	}
	all := supported(hostnet.Kinds...)
	tests := []struct {
		name      string
		want      string
		supported []hostnet.KindSupport
		failed    map[hostnet.Kind]string
		inForce   hostnet.Kind
		kind      hostnet.Kind
		reason    string
		err       string
	}{
		{"everything can be had", "auto", all, nil, "", "geneve", "the best kind, and it can be had", ""},
		{"no flag", "", all, nil, "", "geneve", "the best kind, and it can be had", ""},
		{"no geneve", "auto", supported("vxlan", "tun"), nil, "", "vxlan", "no geneve: the kernel has none", ""},
		{"neither", "auto", supported("tun"), nil, "", "tun", "no geneve: the kernel has none; no vxlan: the kernel has none", ""},
		{"nothing", "auto", supported(), nil, "", "", "no geneve: the kernel has none; no vxlan: the kernel has none; no tun: the kernel has none",
			"no kind of link can be had here: no geneve: the kernel has none; no vxlan: the kernel has none; no tun: the kernel has none"},
		{"nobody has looked", "auto", nil, nil, "", "", "no geneve: it was not looked for; no vxlan: it was not looked for; no tun: it was not looked for",
			"no kind of link can be had here: no geneve: it was not looked for; no vxlan: it was not looked for; no tun: it was not looked for"},
		{"a flag", "tun", all, nil, "geneve", "tun", "asked for by --link=tun", ""},
		{"a flag for what cannot be had", "geneve", supported("vxlan"), nil, "vxlan", "", "--link=geneve asks for links of kind geneve, which cannot be had here: the kernel has none",
			"--link=geneve asks for links of kind geneve, which cannot be had here: the kernel has none; mend that, or use --link=auto"},
		{"one that failed", "auto", all, map[hostnet.Kind]string{"geneve": "busy"}, "", "vxlan", "no geneve: busy", ""},
		{"one that failed, with a flag", "geneve", all, map[hostnet.Kind]string{"geneve": "busy"}, "", "geneve", "asked for by --link=geneve", ""},
		{"links of a kernel kind", "auto", all, nil, "vxlan", "vxlan", "the links that are there are of this kind: another one would interrupt them", ""},
		{"links of the best kind", "auto", all, nil, "geneve", "geneve", "the best kind, and it can be had", ""},
		{"links of a kind that is gone", "auto", supported("geneve"), nil, "vxlan", "geneve", "the best kind, and it can be had", ""},
		{"TUN devices", "auto", all, nil, "tun", "geneve", "the best kind, and it can be had", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := chooseKind(tt.want, tt.supported, tt.failed, tt.inForce)
			got := []string{string(c.Kind), c.Reason, errorText(err)}
			if diff := cmp.Diff([]string{string(tt.kind), tt.reason, tt.err}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if forced := tt.want != "" && tt.want != "auto"; c.Forced != forced {
				t.Errorf("forced is %v", c.Forced)
			}
		})
	}
}
