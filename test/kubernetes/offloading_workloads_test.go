package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/lab"
)

// workloadsText is a Job with an init container, which asks the Service web, and a sidecar, which the main container asks;
// and a StatefulSet of two pods. All of them run on the virtual node.
var workloadsText = template.Must(template.New("workloads").Parse(`
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  backoffLimit: 0
  template:
    metadata: {labels: {app: once}}
    spec:
      restartPolicy: Never
      nodeSelector: {liqo.io/type: virtual-node}
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      initContainers:
      - name: init
        image: {{.Image}}
        imagePullPolicy: Never
        command: [web, -get, "http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT)/"]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      - name: sidecar
        image: {{.Image}}
        imagePullPolicy: Never
        restartPolicy: Always
        command: [web, -listen, "127.0.0.1:9090"]
        startupProbe: {exec: {command: [web, -get, "http://127.0.0.1:9090/"]}, periodSeconds: 1, failureThreshold: 60}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      containers:
      - name: main
        image: {{.Image}}
        imagePullPolicy: Never
        command: [web, -get, "http://127.0.0.1:9090/"]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: http, port: {{.Port}}}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      nodeSelector: {liqo.io/type: virtual-node}
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: {{.Image}}
        imagePullPolicy: Never
        ports: [{containerPort: {{.Port}}}]
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        readinessProbe: {httpGet: {path: /, port: {{.Port}}}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`))

// testOffloadedWorkloads has the controllers of a see a Job through, and keep a StatefulSet, whose pods run in b.
func testOffloadedWorkloads(t *testing.T, o *offloaded) {
	var text strings.Builder
	if err := workloadsText.Execute(&text, map[string]any{"Image": webImage, "Port": webPort}); err != nil {
		t.Fatal(err)
	}
	manifest{o.a, offloadedHere, text.String()}.apply(t)
	t.Run("a Job with an init container and a sidecar", func(t *testing.T) {
		o.kubectl(t, o.a, "wait", "--for=condition=complete", "job/once", "-n", offloadedHere, "--timeout="+patience.String())
		var list corev1.PodList
		if err := o.a.Client().List(t.Context(), &list, client.InNamespace(offloadedHere), client.MatchingLabels{"app": "once"}); err != nil || len(list.Items) != 1 {
			t.Fatalf("%d pods of the Job: %v", len(list.Items), err)
		}
		p := &list.Items[0]
		var codes []string
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if s.State.Terminated == nil {
				t.Errorf("container %s has not ended: %+v", s.Name, s.State)
				continue
			}
			codes = append(codes, fmt.Sprint(s.Name, " ", s.State.Terminated.ExitCode))
		}
		// Kubernetes ends a sidecar with SIGTERM, whatever that makes of it.
		if p.Spec.NodeName != virtualNode || p.Status.Phase != corev1.PodSucceeded || len(codes) != 3 || codes[0] != "init 0" || codes[2] != "main 0" {
			t.Errorf("pod %s on %s is %s, %q", p.Name, p.Spec.NodeName, p.Status.Phase, codes)
		}
		if logs := o.kubectl(t, o.a, "logs", "-n", offloadedHere, p.Name, "-c", "init"); !strings.Contains(logs, "web-") {
			t.Errorf("the init container asked a pod of the Deployment, and its log is %q", logs)
		}
		o.kubectl(t, o.a, "delete", "job", "once", "-n", offloadedHere, "--wait=true", "--timeout="+patience.String())
	})
	t.Run("a StatefulSet", func(t *testing.T) {
		o.kubectl(t, o.a, "rollout", "status", "statefulset/db", "-n", offloadedHere, "--timeout="+patience.String())
		uids := map[string]string{}
		check := func() error {
			var pods corev1.PodList
			var made discoveryv1.EndpointSliceList
			if err := o.a.Client().List(t.Context(), &pods, client.InNamespace(offloadedHere), client.MatchingLabels{"app": "db"}); err != nil {
				return err
			}
			if err := o.a.Client().List(t.Context(), &made, client.InNamespace(offloadedHere), client.MatchingLabels{discoveryv1.LabelServiceName: "db"}); err != nil {
				return err
			}
			var want, got []string
			for i := range pods.Items {
				p := &pods.Items[i]
				there, err := o.b.Pod(t.Context(), offloadedThere, p.Name)
				if err != nil {
					return err
				}
				want = append(want, p.Name+" "+o.remote(t, o.a, there.Addr).String())
				uids[p.Name] = string(p.UID)
			}
			for i := range made.Items {
				for _, e := range made.Items[i].Endpoints {
					if e.Hostname != nil && e.Conditions.Ready != nil && *e.Conditions.Ready {
						got = append(got, *e.Hostname+" "+strings.Join(e.Addresses, "+"))
					}
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if len(want) != 2 || !slices.Equal(want, got) {
				return fmt.Errorf("the pods are %q, the endpoints of the Service %q", want, got)
			}
			return nil
		}
		lab.Eventually(t, patience, "both pods are endpoints with names and addresses of their own", check)
		first := uids["db-0"]
		o.kubectl(t, o.a, "delete", "pod", "db-0", "-n", offloadedHere, "--wait=true", "--timeout="+patience.String())
		lab.Eventually(t, patience, "another pod has its name", func() error {
			if err := check(); err != nil {
				return err
			}
			if uids["db-0"] == first {
				return fmt.Errorf("it is still %s", first)
			}
			return nil
		})
		o.kubectl(t, o.a, "delete", "statefulset,service", "db", "-n", offloadedHere, "--wait=true", "--timeout="+patience.String())
		lab.Eventually(t, patience, "no pod of it is left at the provider", func() error {
			if left := o.kubectl(t, o.b, "get", "pods", "-n", offloadedThere, "-l", "app=db", "-o", "name"); left != "" {
				return fmt.Errorf("%s", left)
			}
			return nil
		})
	})
}
