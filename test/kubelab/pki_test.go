package kubelab

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// An administrator lists the files of several clusters in KUBECONFIG.
func TestKubeconfigsJoin(t *testing.T) {
	dir, rules := t.TempDir(), clientcmd.ClientConfigLoadingRules{}
	for _, cluster := range []string{"rome", "milan"} {
		path := filepath.Join(dir, cluster)
		err := writeKubeconfig(path, cluster, "admin", &rest.Config{
			Host: "https://" + cluster, TLSClientConfig: rest.TLSClientConfig{CertData: []byte("of " + cluster), KeyData: []byte("key")},
		})
		if err != nil {
			t.Fatal(err)
		}
		rules.Precedence = append(rules.Precedence, path)
	}
	for _, cluster := range []string{"rome", "milan"} {
		joined := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&rules, &clientcmd.ConfigOverrides{CurrentContext: cluster})
		config, err := joined.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"https://" + cluster, "of " + cluster}, []string{config.Host, string(config.CertData)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cluster, diff)
		}
	}
}
