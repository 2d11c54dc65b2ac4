package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// virtualNode is the node of a that stands for b.
	virtualNode = "milan-node"
	tarImage    = images.DefaultRegistry + "/tar:" + tag
	// offloadedHere and offloadedThere are what the offloaded namespace is called in a and in b.
	offloadedHere, offloadedThere = "shop", "shop-rome"
)

// offloadedText is a Deployment of web servers, one on each node of a, the virtual one included.
var offloadedText = template.Must(template.New("offloaded").Parse(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: web}}}
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: {{.Image}}
        imagePullPolicy: Never
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        ports: [{containerPort: {{.Port}}}]
        resources: {requests: {cpu: 10m, memory: 16Mi}}
        readinessProbe: {httpGet: {path: /, port: {{.Port}}}, periodSeconds: 1}
      - name: files
        image: {{.Tar}}
        imagePullPolicy: Never
        stdin: true
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
        volumeMounts: [{name: files, mountPath: /files}]
      volumes: [{name: files, emptyDir: {}}]
`))

// testOffloading has pods of a run in b, by the manifests of the document.
func testOffloading(t *testing.T, w *world) {
	w.apart(t)
	w.reachable(t, "--set", "authentication.enabled=true", "--set", "offloading.enabled=true")
	w.renewSooner(t, w.a)
	before := w.objects(t)
	w.liqoctl(t, append(w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig), "--create-resource-slice=false")...)
	d := document.Read(t, document.Declarative)
	tenant := "liqo-tenant-" + w.b.Name
	manifest{w.a, "", d.Block(t, []string{"kind: ResourceSlice", "VIRTUAL_NODE_NAME"},
		"PROVIDER_CLUSTER_ID", w.b.Name, "CONSUMER_TENANT_NAMESPACE", tenant, "VIRTUAL_NODE_NAME", virtualNode)}.apply(t)
	w.asked(t, tenant, virtualNode)
	o := &offloaded{world: w, tenant: tenant}
	defer o.explain(t)
	start := time.Now()
	lab.Eventually(t, patience, "the virtual node is ready", func() error { return o.nodeIs(corev1.ConditionTrue) })
	t.Logf("the virtual node is ready after %v", time.Since(start).Round(10*time.Millisecond))
	w.kubectl(t, w.a, "create", "namespace", offloadedHere)
	w.kubectl(t, w.a, "label", "namespace", offloadedHere, "pod-security.kubernetes.io/enforce=restricted")
	manifest{w.a, "", d.Block(t, []string{"kind: NamespaceOffloading", "NAMESPACE_NAME_TO_OFFLOAD"}, "NAMESPACE_NAME_TO_OFFLOAD", offloadedHere)}.apply(t)
	lab.Eventually(t, patience, "the namespace is offloaded", func() error {
		got, err := w.a.Kubectl("get", "namespaceoffloadings.offloading.liqo.io", "offloading", "-n", offloadedHere, "-o", "jsonpath={.status.offloadingPhase}")
		if err == nil && got != "Ready" {
			err = fmt.Errorf("its phase is %q", got)
		}
		return err
	})
	var text strings.Builder
	if err := offloadedText.Execute(&text, map[string]any{"Image": webImage, "Tar": tarImage, "Port": webPort}); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	manifest{w.a, offloadedHere, text.String()}.apply(t)
	o.wait(t)
	t.Logf("the Deployment is split after %v", time.Since(start).Round(10*time.Millisecond))

	for _, part := range []struct {
		name string
		only *bool // with this flag; nil: always
		run  func(*testing.T, *offloaded)
	}{
		{"pods reach each other", nil, testOffloadedTraffic},
		{"a Service in both directions", nil, testOffloadedService},
		{"kubectl", nil, testOffloadedKubectl},
		{"kubectl top", nil, testOffloadedTop},
		{"kubectl top with metrics-servers", long, testOffloadedMetricsServers},
		{"liqoctl get pods", nil, testOffloadedView},
		{"cordoned", nil, testOffloadedCordoned},
		{"refused", nil, testOffloadedRefused},
		{"changes", nil, testOffloadedChanges},
		{"resized in place", nil, testOffloadedResized},
		{"the API server of its cluster", nil, testOffloadedAPIClient},
		{"a Job and a StatefulSet", nil, testOffloadedWorkloads},
		{"deleted", nil, testOffloadedDeleted},
		{"over quota", nil, testOffloadedQuota},
		{"changes while clusters are apart", long, testOffloadedChangesApart},
		{"apart for two minutes", long, testOffloadedApart(2 * time.Minute)},
		{"apart for ten minutes", long, testOffloadedApart(10 * time.Minute)},
		{"apart for an hour", hours, testOffloadedApart(time.Hour)},
		{"its Tenant is drained", nil, testOffloadedTenantDrained},
		{"drained", nil, testOffloadedDrained},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.only != nil && !*part.only {
				t.Skip("SKIPPED: this waits for minutes or an hour: -kubernetes.long, -kubernetes.hours")
			}
			part.run(t, o)
		})
	}
	t.Run("nothing is left", func(t *testing.T) {
		w.kubectl(t, w.a, "delete", "namespace", offloadedHere, "--wait=true", "--timeout="+patience.String())
		w.unpeer(t, w.a.Kubeconfig, w.b.Kubeconfig)
		w.asBefore(t, before)
	})
}

// renewSooner has virtual kubelets renew the leases of their nodes sooner: these clusters take a node for lost sooner than
// others do.
func (w *world) renewSooner(t *testing.T, c *kubelab.Cluster) {
	t.Helper()
	w.kubectl(t, c, "patch", "vkoptionstemplates.offloading.liqo.io", "virtual-kubelet-default", "-n", "liqo", "--type=merge", "-p", `{"spec":{"extraArgs":["--node-lease-duration=8s"]}}`)
}

// offloaded is the Deployment of which one pod runs in b.
type offloaded struct {
	*world
	tenant string
	// here are its pods in a, of which the last is that on the virtual node, and there is the one in b.
	here  []corev1.Pod
	there *kubelab.Pod
}

// nodeIs tells whether the virtual node has a condition Ready of this status.
func (o *offloaded) nodeIs(want corev1.ConditionStatus) error {
	var n corev1.Node
	if err := o.a.Client().Get(context.Background(), client.ObjectKey{Name: virtualNode}, &n); err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == want {
			return nil
		}
	}
	return fmt.Errorf("its conditions are %+v", n.Status.Conditions)
}

// wait waits until three pods are ready, of which one runs in b.
func (o *offloaded) wait(t *testing.T) {
	t.Helper()
	lab.Eventually(t, patience, "three pods are ready, one of them in "+o.b.Name, func() error { return o.check(t.Context()) })
}

func (o *offloaded) check(ctx context.Context) error {
	var list corev1.PodList
	if err := o.a.Client().List(ctx, &list, client.InNamespace(offloadedHere), client.MatchingLabels{"app": "web"}); err != nil {
		return err
	}
	var said []string
	remote := 0
	for i := range list.Items {
		p := &list.Items[i]
		if !ready(p) {
			said = append(said, fmt.Sprintf("pod %s on %q is %s: %s %s", p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.Status.Message))
		}
		if p.Spec.NodeName == virtualNode {
			remote++
		}
	}
	if len(list.Items) != 3 || remote != 1 || len(said) > 0 {
		return fmt.Errorf("there are %d pods, %d of them on the virtual node: %q", len(list.Items), remote, said)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return strings.Compare(fmt.Sprint(a.Spec.NodeName == virtualNode, a.Name), fmt.Sprint(b.Spec.NodeName == virtualNode, b.Name))
	})
	there, err := o.b.Pod(ctx, offloadedThere, list.Items[2].Name)
	if err != nil {
		return err
	}
	o.here, o.there = list.Items, there
	return nil
}

// onVirtual is the pod of a that runs in b.
func (o *offloaded) onVirtual() *corev1.Pod { return &o.here[2] }

// explain logs what is there of offloading when the test has failed.
func (o *offloaded) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, c := range []*kubelab.Cluster{o.a, o.b} {
		out, err := c.Kubectl("get", "resourceslices.authentication.liqo.io,virtualnodes,namespaceoffloadings,namespacemaps,quotas,shadowpods,nodes,certificatesigningrequests", "-A", "-o", "wide")
		t.Logf("--- %s (%v)\n%s", c.Name, err, out)
		events, _ := c.Kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
		t.Logf("--- events of %s\n%s", c.Name, events)
	}
	logs, err := o.a.Kubectl("logs", "-n", o.tenant, "deployment/virtual-kubelet", "--tail=60")
	t.Logf("--- the virtual kubelet (%v)\n%s", err, logs)
	for _, c := range []*kubelab.Cluster{o.a, o.b} {
		logs, err := c.Kubectl("logs", "-n", "liqo", "-l", "app.kubernetes.io/component=controller", "--prefix", "--tail=60")
		t.Logf("--- the controller of %s (%v)\n%s", c.Name, err, logs)
	}
}

// testOffloadedTraffic has pods of both clusters reach each other by the addresses that a tells, and knows them by these.
func testOffloadedTraffic(t *testing.T, o *offloaded) {
	want := o.remote(t, o.a, o.there.Addr).String()
	p := o.onVirtual()
	if p.Status.PodIP != want || len(p.Status.PodIPs) != 1 || p.Status.PodIPs[0].IP != want {
		t.Errorf("the pod has the address %s, %v; it must be %s, which %s is called here", p.Status.PodIP, p.Status.PodIPs, want, o.there.Addr)
	}
	local := &side{Cluster: o.a}
	for i := range o.here[:2] {
		pod, err := o.a.Pod(t.Context(), offloadedHere, o.here[i].Name)
		if err != nil {
			t.Fatal(err)
		}
		local.pods = append(local.pods, pod)
	}
	o.talk(t, [2]*side{local, {Cluster: o.b, pods: []*kubelab.Pod{o.there}}})
}

// testOffloadedChanges changes what Kubernetes lets one change of a pod.
func testOffloadedChanges(t *testing.T, o *offloaded) {
	pod := o.onVirtual().Name
	o.kubectl(t, o.a, "patch", "pod", "-n", offloadedHere, pod, "-p", `{"spec":{"activeDeadlineSeconds":100000}}`)
	lab.Eventually(t, patience, "the deadline is that of the pod in "+o.b.Name, func() error {
		got, err := o.b.Kubectl("get", "pod", "-n", offloadedThere, pod, "-o", "jsonpath={.spec.activeDeadlineSeconds}")
		if err == nil && got != "100000" {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
	if err := o.check(t.Context()); err != nil {
		t.Errorf("a change ends pods: %v", err)
	}
}

// testOffloadedDeleted deletes the pod in one cluster and in the other.
func testOffloadedDeleted(t *testing.T, o *offloaded) {
	t.Run("in the consumer", func(t *testing.T) {
		before := o.onVirtual().Name
		o.kubectl(t, o.a, "delete", "pod", "-n", offloadedHere, before, "--wait=true", "--timeout="+patience.String())
		if got := o.kubectl(t, o.b, "get", "pods,shadowpods.offloading.liqo.io", "-n", offloadedThere, "--field-selector=metadata.name="+before, "-o", "name"); got != "" {
			t.Errorf("the provider still has %s", got)
		}
		o.wait(t) // the Deployment makes another one
	})
	t.Run("in the provider", func(t *testing.T) {
		here, there := o.onVirtual().UID, o.there.Addr
		o.kubectl(t, o.b, "delete", "pod", "-n", offloadedThere, o.there.Name, "--wait=true", "--timeout="+patience.String())
		lab.Eventually(t, patience, "the pod runs again", func() error {
			if err := o.check(t.Context()); err != nil {
				return err
			}
			p := o.onVirtual()
			if want := o.remote(t, o.a, o.there.Addr).String(); p.UID != here || o.there.Addr == there || p.Status.PodIP != want || p.Status.ContainerStatuses[0].RestartCount == 0 {
				return fmt.Errorf("pod %s, which was %s, has the address %s; %s is to be %s", p.UID, here, p.Status.PodIP, o.there.Addr, want)
			}
			return nil
		})
	})
}

// testOffloadedAPIClient has a client in a pod that runs in b ask the API server of a, with the service account that it
// has there, for pods that only a knows.
func testOffloadedAPIClient(t *testing.T, o *offloaded) {
	if out, err := o.askAPI(offloadedHere); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("a service account without rights: %v\n%s", err, out)
	}
	o.kubectl(t, o.a, "create", "rolebinding", "looks", "-n", offloadedHere, "--clusterrole=view", "--serviceaccount="+offloadedHere+":default")
	lab.Eventually(t, patience, "the client is told all pods of its namespace", func() error {
		out, err := o.askAPI(offloadedHere)
		if err != nil {
			return err
		}
		var list corev1.PodList
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var want, got []string
		for i := range o.here {
			want = append(want, string(o.here[i].UID))
		}
		for i := range list.Items {
			got = append(got, string(list.Items[i].UID))
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got)\n%s", diff)
		}
		return nil
	})
	if out, err := o.askAPI("kube-system"); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("another namespace: %v\n%s", err, out)
	}
}

// askAPI has a client in the pod on the virtual node ask the API server of a for the pods of a namespace.
func (o *offloaded) askAPI(namespace string) (string, error) {
	return o.a.Kubectl("exec", "-n", offloadedHere, o.onVirtual().Name, "-c", "web", "--", "web", "-api", "/api/v1/namespaces/"+namespace+"/pods")
}

// testOffloadedTenantDrained has the provider take everything away, and let it come back.
func testOffloadedTenantDrained(t *testing.T, o *offloaded) {
	p := o.onVirtual()
	tenant := func(verb string) {
		o.liqoctl(t, verb, "tenant", o.a.Name, "--kubeconfig", o.b.Kubeconfig, "--skip-confirm")
	}
	tenant("drain")
	lab.Eventually(t, patience, "the pod is not ready", func() error {
		got, err := o.a.Kubectl("get", "pod", "-n", offloadedHere, p.Name, "-o", `jsonpath={.metadata.uid} {.status.conditions[?(@.type=="Ready")].status}`)
		if want := string(p.UID) + " False"; err == nil && got != want {
			err = fmt.Errorf("it is %q, want %q", got, want)
		}
		return err
	})
	status := func(well bool) {
		t.Helper()
		lab.Eventually(t, patience, fmt.Sprintf("network status calls it well: %t", well), func() error {
			out, errs, err := o.run(t.Context(), o.command("network", "status", "--interval", "0", "--exit-code", "--kubeconfig", o.a.Kubeconfig))
			if drained := strings.Contains(out, "'liqoctl activate tenant "+o.a.Name+"'"); (err == nil) != well || drained == well {
				return fmt.Errorf("%w\n%s\n%s", err, out, errs)
			}
			return nil
		})
	}
	status(false)
	tenant("activate")
	o.wait(t)
	if now := o.onVirtual(); now.UID != p.UID {
		t.Errorf("another pod, %s, runs in place of %s", now.Name, p.Name)
	}
	status(true)
}

// testOffloadedDrained drains the virtual node, as any node.
func testOffloadedDrained(t *testing.T, o *offloaded) {
	o.kubectl(t, o.a, "drain", virtualNode, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String())
	lab.Eventually(t, patience, "all pods run in "+o.a.Name, func() error {
		pods, err := runningPods(t.Context(), o.a, offloadedHere, map[string]string{"app": "web"}, 3)
		if err == nil && len(pods) != 3 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
	left := o.kubectl(t, o.b, "get", "pods,shadowpods.offloading.liqo.io", "-n", offloadedThere, "-o", "name")
	if diff := cmp.Diff("", left); diff != "" {
		t.Errorf("the provider has (-want +got)\n%s", diff)
	}
	o.kubectl(t, o.a, "uncordon", virtualNode)
	o.restarted(t)
}

// restarted has the Deployment place its pods anew.
func (o *offloaded) restarted(t *testing.T) {
	t.Helper()
	o.kubectl(t, o.a, "rollout", "restart", "-n", offloadedHere, "deployment/web")
	o.kubectl(t, o.a, "rollout", "status", "-n", offloadedHere, "deployment/web", "--timeout="+patience.String())
	o.wait(t)
}
