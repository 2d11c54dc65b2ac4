package controlplanetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

const deployment = `
apiVersion: v1
kind: Namespace
metadata:
  name: pods
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: pods}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: pods}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: pods}]
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: pods}
stringData: {key: first}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo, namespace: pods}
spec:
  replicas: 2
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      serviceAccountName: reader
      terminationGracePeriodSeconds: 5
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: echo
        image: test/echo
        args: [--listen=:9000, --health=:8083, "--node=$(NODE)", --keys=/etc/keys, --scratch=/run/echo/]
        env:
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        ports: [{name: echo, containerPort: 9000, protocol: UDP}, {name: health, containerPort: 8083}]
        readinessProbe: {httpGet: {path: /readyz, port: health}}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: keys, mountPath: /etc/keys}, {name: run, mountPath: /run/echo}]
      volumes:
      - {name: keys, secret: {secretName: keys}}
      - {name: run, emptyDir: {}}
`

func TestKubelet(t *testing.T) {
	c := controlplanetest.StartBare(t)
	k := controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{Images: map[string]controlplanetest.Image{
		"test/echo": {Program: copyOfThisProgram(t), Args: []string{playPod, "--kubeconfig=$(KUBECONFIG)"}},
	}})
	c.Apply(deployment)
	pods := readyPods(t, c, 2)
	at := func(p *corev1.Pod) netip.AddrPort {
		return netip.AddrPortFrom(k.Loopback.Pod(netip.MustParseAddr(p.Status.PodIP)), 9000)
	}

	t.Run("runs pods", func(t *testing.T) {
		if pods[0].Spec.NodeName == pods[1].Spec.NodeName {
			t.Errorf("both pods are on %s", pods[0].Spec.NodeName)
		}
		for _, n := range k.Nodes() {
			for _, p := range pods {
				if p.Spec.NodeName == n.Name && (!n.PodCIDR.Contains(netip.MustParseAddr(p.Status.PodIP)) || p.Status.HostIP != n.IP.String()) {
					t.Errorf("pod of %s has %s on %s", n.PodCIDR, p.Status.PodIP, p.Status.HostIP)
				}
			}
		}
		p := pods[0]
		s := ask(t, at(&p))
		want := seen{
			PID: s.PID, UID: os.Getuid(), Node: p.Spec.NodeName, Pod: p.Name, Key: "first", Scratch: true, MayGetKeys: true,
			Listen: at(&p).String(),
		}
		if want.UID == 0 {
			want.UID = 65532
		}
		if s != want {
			t.Errorf("the program sees %+v, want %+v", s, want)
		}
	})
	t.Run("follows a Secret", func(t *testing.T) {
		if _, err := c.Kubectl("-n", "pods", "patch", "secret", "keys", "-p", `{"stringData":{"key":"second"}}`); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "the program reads the new key", func(context.Context) error {
			if s := ask(t, at(&pods[1])); s.Key != "second" {
				return errors.New(s.Key)
			}
			return nil
		})
	})
	t.Run("starts what ends again", func(t *testing.T) {
		before := k.PIDs("pods", pods[0].Name)
		if err := k.Kill("pods", pods[0].Name); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "it runs again", func(ctx context.Context) error {
			p := new(corev1.Pod)
			if err := c.Get(ctx, "pods", pods[0].Name, p); err != nil {
				return err
			}
			if s := p.Status.ContainerStatuses[0]; s.RestartCount != 1 || !s.Ready || s.LastTerminationState.Terminated.ExitCode != 137 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if now := k.PIDs("pods", pods[0].Name); len(now) != 1 || now[0] == before[0] {
			t.Errorf("processes %v, before %v", now, before)
		}
	})
	t.Run("replaces a pod that is deleted", func(t *testing.T) {
		if _, err := c.Kubectl("-n", "pods", "delete", "pod", pods[0].Name, "--wait=false"); err != nil {
			t.Fatal(err)
		}
		gone(t, c, pods[0].Name)
		readyPods(t, c, 2)
	})
	t.Run("ends with the namespace", func(t *testing.T) {
		var all []int
		for _, p := range readyPods(t, c, 2) {
			all = append(all, k.PIDs("pods", p.Name)...)
		}
		if _, err := c.Kubectl("delete", "namespace", "pods", "--timeout=60s"); err != nil {
			t.Fatal(err)
		}
		for _, pid := range all {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				t.Errorf("process %d runs on", pid)
			}
		}
	})
}

// copyOfThisProgram lies where another user finds it.
func copyOfThisProgram(t *testing.T) string {
	dir, err := os.MkdirTemp("", "program-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "program")
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close(), os.Chmod(path, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

func readyPods(t *testing.T, c *controlplanetest.Cluster, n int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	controlplanetest.Eventually(t, fmt.Sprintf("%d pods are ready", n), func(ctx context.Context) error {
		list := new(corev1.PodList)
		if err := c.Client.List(ctx, list, client.InNamespace("pods")); err != nil {
			return err
		}
		pods = pods[:0]
		for _, p := range list.Items {
			for _, cond := range p.Status.Conditions {
				if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
					pods = append(pods, p)
				}
			}
		}
		if len(pods) != n {
			return fmt.Errorf("%d of %d are", len(pods), len(list.Items))
		}
		return nil
	})
	return pods
}

func gone(t *testing.T, c *controlplanetest.Cluster, pod string) {
	t.Helper()
	controlplanetest.Eventually(t, "the object goes", func(ctx context.Context) error {
		if err := c.Get(ctx, "pods", pod, new(corev1.Pod)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%v)", err)
		}
		return nil
	})
}

// ask asks until somebody answers.
func ask(t *testing.T, to netip.AddrPort) (s seen) {
	t.Helper()
	conn, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, 1500)
	controlplanetest.Eventually(t, "an answer", func(context.Context) error {
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
		n, err := conn.Read(b)
		if err != nil {
			return err
		}
		return json.Unmarshal(b[:n], &s)
	})
	return s
}
