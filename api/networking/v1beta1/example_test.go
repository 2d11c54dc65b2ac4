package v1beta1_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/networking/v1beta1"
)

func Example() {
	var c v1beta1.Configuration
	err := yaml.UnmarshalStrict([]byte(`
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  name: dry-paper
  labels: {liqo.io/remote-cluster-id: dry-paper}
spec:
  remote:
    cidr: {pod: 10.243.0.0/16, external: [10.70.0.0/16]}
`), &c)
	if err != nil {
		fmt.Println(err)
		return
	}
	pods, err := c.Spec.Remote.CIDR.Pod.Prefixes()
	fmt.Println(c.Labels[v1beta1.LabelRemoteClusterID], pods, err)
	// Output: dry-paper [10.243.0.0/16] <nil>
}
