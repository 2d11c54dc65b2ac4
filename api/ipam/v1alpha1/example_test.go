package v1alpha1_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

func Example() {
	var n v1alpha1.Network
	err := yaml.UnmarshalStrict([]byte(`
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: external-cidr}
spec: {cidr: 10.70.0.0/16, preAllocated: 1}
`), &n)
	if err != nil {
		fmt.Println(err)
		return
	}
	prefix, err := n.Spec.CIDR.Prefix()
	fmt.Println(n.Name, prefix, err)
	// Output: external-cidr 10.70.0.0/16 <nil>
}
