package clusters

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// controllerManifest runs the controller as a pod of its namespace, which admits
// restricted pods only.
const controllerManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-controller, namespace: liqo}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: liqo-controller}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app.kubernetes.io/name: liqo-controller}}
    spec:
      serviceAccountName: liqo-controller
      nodeSelector: {kubernetes.io/hostname: control-plane}
      terminationGracePeriodSeconds: 5
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: controller
        image: sluice/controller:latest
        args: [--cluster-id=%s, --pod-cidr=%s, --service-cidr=%s, --metrics-address=:8080, --health-probe-address=:8081, %s]
        readinessProbe: {httpGet: {path: /readyz, port: 8081}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /healthz, port: 8081}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// startController deploys the controller and waits until it works: everything
// of the installation is there.
func (s *side) startController(t *testing.T, flags ...string) {
	t.Helper()
	// A controller that is killed leaves its Lease to nobody for 15 s.
	flags = append(flags, "--leader-election=false")
	s.Apply(fmt.Sprintf(controllerManifest, s.id, podCIDR, serviceCIDR, strings.Join(flags, ", ")))
	controlplanetest.Eventually(t, "the controller of "+s.id+" is ready", func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := s.Get(ctx, controlplanetest.LiqoNamespace, "liqo-controller", &d); err != nil {
			return err
		}
		if d.Status.ObservedGeneration != d.Generation || d.Status.ReadyReplicas != 1 || d.Status.UpdatedReplicas != 1 {
			return fmt.Errorf("%+v", d.Status)
		}
		return nil
	})
	controlplanetest.Eventually(t, "the installation of "+s.id+" is complete", func(ctx context.Context) error {
		var networks ipamv1alpha1.NetworkList
		if err := s.Client.List(ctx, &networks, client.InNamespace(controlplanetest.LiqoNamespace)); err != nil {
			return err
		}
		granted := 0
		for _, n := range networks.Items {
			if n.Status.CIDR != "" {
				granted++
			}
		}
		if granted != 4 { // of pods, of Services, external and internal
			return fmt.Errorf("%d of %d Networks have their CIDR", granted, len(networks.Items))
		}
		return nil
	})
}

// controllerPod is the name of the controller's pod.
func (s *side) controllerPod(ctx context.Context) (string, error) {
	var list corev1.PodList
	err := s.Client.List(ctx, &list, client.InNamespace(controlplanetest.LiqoNamespace), client.MatchingLabels{"app.kubernetes.io/name": "liqo-controller"})
	if err != nil {
		return "", err
	}
	if len(list.Items) != 1 {
		return "", fmt.Errorf("%d pods of the controller", len(list.Items))
	}
	return list.Items[0].Name, nil
}
