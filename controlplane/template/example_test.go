package template_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
)

func ExampleRender() {
	var t map[string]any
	_ = yaml.Unmarshal([]byte(`
metadata:
  name: "{{ .Name }}"
spec:
  port: "{{ .Spec.Endpoint.Port }}"
  ?nodePort: "{{ .Spec.Endpoint.NodePort }}"
  args: ["--mtu={{ .Spec.MTU }}"]
`), &t)
	rendered, err := template.Render(t, template.Vars{
		Name: "server",
		Spec: networkingv1beta1.GatewayServerSpec{MTU: 1340, Endpoint: networkingv1beta1.ServerEndpoint{Port: 51840}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, _ := yaml.Marshal(rendered)
	fmt.Print(string(out))
	// Output:
	// metadata:
	//   name: server
	// spec:
	//   args:
	//   - --mtu=1340
	//   port: 51840
}
