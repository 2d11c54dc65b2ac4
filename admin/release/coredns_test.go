package release

import (
	"strings"
	"testing"
)

// corefileOfKubeadm is what kubeadm writes, shortened.
const corefileOfKubeadm = `.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure # clusterset.local is elsewhere
       ttl 30
    }
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    reload
}
`

func TestBlock(t *testing.T) {
	const ours = blockBegin + `
clusterset.local:53 {
    errors
    cache 5
    forward . 10.96.0.53
}
` + blockEnd + "\n"
	for name, tt := range map[string]struct{ in, want, wrong string }{
		"kubeadm":                 {in: corefileOfKubeadm, want: corefileOfKubeadm + ours},
		"nothing":                 {in: "", want: ours},
		"no newline at the end":   {in: "a:53 {\n}", want: "a:53 {\n}\n" + ours},
		"there already":           {in: corefileOfKubeadm + ours, want: corefileOfKubeadm + ours},
		"another address":         {in: corefileOfKubeadm + strings.ReplaceAll(ours, "10.96.0.53", "10.96.0.54"), want: corefileOfKubeadm + ours},
		"others came after":       {in: ours + corefileOfKubeadm, want: corefileOfKubeadm + ours},
		"somebody else's":         {in: corefileOfKubeadm + "dns://ClusterSet.local.:53 {\n forward . 192.0.2.1\n}\n", wrong: "already has a server block for clusterset.local that liqoctl did not add"},
		"somebody else's, a list": {in: "example.org, clusterset.local {\n whoami\n}\n", wrong: "already has a server block for clusterset.local that liqoctl did not add"},
		"somebody else's, no gap": {in: "clusterset.local{\n whoami\n}\n", wrong: "already has a server block for clusterset.local that liqoctl did not add"},
		"cut off":                 {in: corefileOfKubeadm + blockBegin + "\nclusterset.local:53 {", wrong: "somebody has changed the lines"},
		"twice":                   {in: ours + ours, wrong: "somebody has changed the lines"},
	} {
		got, err := withBlock(tt.in, "clusterset.local", "10.96.0.53")
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v, want %s", name, err, tt.wrong)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, tt.want)
		}
		rest, had, err := withoutBlock(got)
		if again, _ := withBlock(rest, "clusterset.local", "10.96.0.53"); !had || err != nil || again != got || strings.Contains(rest, "clusterset.local:53") {
			t.Errorf("%s: taken back: %v %v\n%s", name, had, err, rest)
		}
	}
	if rest, had, err := withoutBlock(corefileOfKubeadm); rest != corefileOfKubeadm || had || err != nil {
		t.Errorf("nothing to take back: %v %v %s", had, err, rest)
	}
}

func TestImportsCustom(t *testing.T) {
	for text, want := range map[string]bool{
		corefileOfKubeadm: false,
		".:53 {\n import /etc/coredns/custom/*.override\n}\nimport /etc/coredns/custom/*.server\n": true, // k3s
		".:53 {\n import custom/*.override\n}\nimport custom/*.server":                             true, // AKS
		"# import custom/*.server\n": false,
	} {
		if got := importsCustom.MatchString(text); got != want {
			t.Errorf("%v for\n%s", got, text)
		}
	}
}
