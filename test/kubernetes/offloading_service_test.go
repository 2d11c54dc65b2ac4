package kubernetes

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testOffloadedService has a pod of each cluster reach all pods of the Deployment by its Service, which has an address of
// its own in each.
func testOffloadedService(t *testing.T, o *offloaded) {
	manifest{o.a, offloadedHere, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: http, port: %d, targetPort: %d}]}}`, servicePort, webPort)}.apply(t)
	for _, from := range []struct {
		pod       *corev1.Pod
		at        *kubelab.Cluster
		namespace string
	}{
		{&o.here[0], o.a, offloadedHere}, {o.onVirtual(), o.b, offloadedThere},
	} {
		answered := map[string]bool{}
		lab.Eventually(t, patience, "all pods answer one that runs in "+from.at.Name, func() error {
			ip, err := from.at.Kubectl("get", "service", "web", "-n", from.namespace, "-o", "jsonpath={.spec.clusterIP}")
			if err != nil {
				return err
			}
			out, err := o.a.Kubectl("exec", "-n", offloadedHere, from.pod.Name, "-c", "web", "--", "web", "-get", fmt.Sprintf("http://%s:%d/", ip, servicePort))
			if err != nil {
				return err
			}
			var got answer
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			answered[got.Pod] = true
			for i := range o.here {
				if !answered[o.here[i].Name] {
					return fmt.Errorf("%s has not answered, but %v", o.here[i].Name, answered)
				}
			}
			return nil
		})
		if len(answered) != len(o.here) {
			t.Errorf("%v answer %s", answered, from.pod.Name)
		}
	}
}
