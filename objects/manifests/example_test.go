package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/objects/manifests"
)

func Example() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	text := "apiVersion: networking.liqo.io/v1beta1\nkind: InternalNode\nmetadata:\n  name: worker-1\nspec: {}\n"
	if err := os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(text), 0o600); err != nil {
		panic(err)
	}

	d := manifests.Directory{Path: dir, Reader: manifests.Reader{Name: "the example", Kinds: []string{"InternalNode"}}}
	r, err := d.Read(manifests.Digest{})
	if err != nil {
		panic(err)
	}
	for _, n := range r.Objects.InternalNodes {
		ref := manifests.RefTo("InternalNode", n, &n.Object.ObjectMeta)
		fmt.Println(ref.Problem(field.NewPath("spec", "interface", "node", "ip"), "is required"))
	}
	// Output: node.yaml:5: InternalNode worker-1: spec.interface.node.ip: is required
}
