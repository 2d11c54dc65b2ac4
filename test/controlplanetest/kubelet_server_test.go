package controlplanetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const execPods = `
apiVersion: v1
kind: Namespace
metadata: {name: pods}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: pods}
stringData: {key: first}
---
apiVersion: v1
kind: Pod
metadata: {name: program, namespace: pods}
spec:
  containers:
  - name: program
    image: test/program
    args: ["--listen=:9000", "--health=:8083"]
    ports: [{name: health, containerPort: 8083}]
    readinessProbe: {httpGet: {path: /readyz, port: health}}
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: keys, mountPath: /etc/keys}]
  volumes:
  - {name: keys, secret: {secretName: keys}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: played, namespace: pods}
spec:
  selector: {matchLabels: {app: played}}
  template:
    metadata: {labels: {app: played}}
    spec:
      hostNetwork: true
      containers: [{name: played, image: test/played}]
`

// TestKubeletServer uses the kubelets as kubectl does: through the API server.
func TestKubeletServer(t *testing.T) {
	c := controlplanetest.StartBare(t)
	program := copyOfThisProgram(t)
	var left sync.WaitGroup // what was played and has not ended
	k := controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{ControlPlane: true, Images: map[string]controlplanetest.Image{
		"test/program": {Program: program, Args: []string{playPod, "--kubeconfig=$(KUBECONFIG)"}},
		"test/played": {Exec: func(ctx context.Context, pod *corev1.Pod, argv []string, stdout, stderr io.Writer) int {
			left.Add(1)
			defer left.Done()
			fmt.Fprintln(stdout, pod.Spec.NodeName, argv)
			if argv[0] == "wait" {
				<-ctx.Done()
			}
			fmt.Fprintln(stderr, "that was all")
			return len(argv)
		}},
	}})
	c.Apply(execPods)
	pods := readyPods(t, c, 1+len(k.Nodes()))
	cluster, err := access.New(c.Config, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	name := types.NamespacedName{Namespace: "pods", Name: "program"}

	t.Run("runs a DaemonSet on every node", func(t *testing.T) {
		var on []string
		for _, p := range pods {
			if p.Labels["app"] == "played" {
				on = append(on, p.Spec.NodeName)
				if p.Status.PodIP != p.Status.HostIP {
					t.Errorf("on %s, address %s: want the node's, %s", p.Spec.NodeName, p.Status.PodIP, p.Status.HostIP)
				}
			}
		}
		slices.Sort(on)
		if want := []string{controlplanetest.ControlPlaneNode, "node-1", "node-2"}; !slices.Equal(on, want) {
			t.Errorf("it runs on %v, want %v", on, want)
		}
	})
	t.Run("runs the program of a container, with its files and variables", func(t *testing.T) {
		out, err := cluster.Output(t.Context(), name, "program", []string{"program", playCommand, "see", "/etc/keys/key"})
		if want := "first <nil>\nprogram\n"; err != nil || string(out) != want {
			t.Errorf("printed %q (%v), want %q", out, err, want)
		}
	})
	t.Run("tells exit code and stderr", func(t *testing.T) {
		_, err := cluster.Output(t.Context(), name, "program", []string{"program", playCommand, "fail"})
		var exit exec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 3 || !strings.Contains(err.Error(), "it failed") {
			t.Errorf("error %v, want exit code 3 and what it said", err)
		}
	})
	t.Run("knows no other program", func(t *testing.T) {
		_, err := cluster.Output(t.Context(), name, "program", []string{"sh", "-c", "true"})
		if err == nil || !strings.Contains(err.Error(), `exec: "sh": executable file not found in $PATH`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("lets the test play commands", func(t *testing.T) {
		p := pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Labels["app"] == "played" })]
		out, err := c.Kubectl("exec", "-n", "pods", p.Name, "--", "do", "that")
		if want := p.Spec.NodeName + " [do that]\n"; out != want || err == nil || !strings.Contains(err.Error(), "exit code 2") {
			t.Errorf("printed %q (%v), want %q and exit code 2", out, err, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := &firstWrite{then: cancel}
		if err := cluster.Exec(ctx, client.ObjectKeyFromObject(&p), "", []string{"wait"}, w); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		left.Wait()
	})
	t.Run("passes stdin on", func(t *testing.T) {
		out, err := c.KubectlInput("to and fro", "exec", "-i", "-n", "pods", "program", "--", "program", playCommand, "cat")
		if err != nil || !strings.HasSuffix(out, "\nto and fro") {
			t.Errorf("printed %q (%v)", out, err)
		}
	})
	for _, websockets := range []string{"true", "false"} {
		t.Run("ends a command when the client goes away, WebSocket "+websockets, func(t *testing.T) {
			killClient(t, c, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "exec", "-n", "pods", "program", "--", "program", playCommand, "wait")
		})
	}
	t.Run("ends stdin when the client goes away", func(t *testing.T) {
		killClient(t, c, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "exec", "-i", "-n", "pods", "program", "--", "program", playCommand, "cat")
	})
	t.Run("ends what access started", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &firstWrite{then: cancel}
		if err := cluster.Exec(ctx, name, "program", []string{"program", playCommand, "wait"}, w); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		processGone(t, w.pid(t))
	})
	t.Run("ends a command with the container", func(t *testing.T) {
		w := &firstWrite{then: func() {
			if err := k.Kill("pods", "program"); err != nil {
				t.Error(err)
			}
		}}
		if err := cluster.Exec(t.Context(), name, "program", []string{"program", playCommand, "wait"}, w); err == nil {
			t.Error("it was not killed")
		}
		processGone(t, w.pid(t))
	})
	t.Run("shows logs", func(t *testing.T) { testLogs(t, c, k) })
}

// killClient kills kubectl when it has printed something, and waits for the end
// of what it ran.
func killClient(t *testing.T, c *controlplanetest.Cluster, env string, args ...string) {
	t.Helper()
	kubectl := osexec.Command(c.KubectlPath(), args...)
	kubectl.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, env)
	stdin, err := kubectl.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	w := &firstWrite{then: func() {
		if err := kubectl.Process.Kill(); err != nil {
			t.Error(err)
		}
	}}
	kubectl.Stdout = w
	if err := kubectl.Run(); err == nil {
		t.Error("kubectl was not killed")
	}
	processGone(t, w.pid(t))
}

// testLogs has the program killed and ended once more.
func testLogs(t *testing.T, c *controlplanetest.Cluster, k *controlplanetest.Kubelet) {
	controlplanetest.Eventually(t, "it runs again, and is ready", func(ctx context.Context) error {
		pod, err := c.Clientset.CoreV1().Pods("pods").Get(ctx, "program", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pids, s := k.PIDs("pods", "program"), pod.Status.ContainerStatuses[0]
		if len(pids) != 1 || !s.Ready || s.ContainerID != fmt.Sprintf("process://%d", pids[0]) {
			return fmt.Errorf("processes %v, status %+v", pids, s)
		}
		return nil
	})
	stream, err := c.Clientset.CoreV1().Pods("pods").GetLogs("program", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	line := "asked to end\n"
	for _, pid := range k.PIDs("pods", "program") {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := io.ReadAll(stream); err != nil || !strings.HasSuffix(string(b), line) { // until the container ends
		t.Errorf("followed %q (%v)", b, err)
	}
	controlplanetest.Eventually(t, "it runs again", func(context.Context) error {
		for _, check := range []struct {
			args []string
			want string
		}{
			{[]string{"--previous", "--tail=1"}, line},
			{[]string{"--previous", "--limit-bytes=5"}, line[:5]},
			{nil, ""},
		} {
			out, err := c.Kubectl(append([]string{"logs", "-n", "pods", "program"}, check.args...)...)
			if err != nil || out != check.want {
				return fmt.Errorf("logs %v: %q (%v), want %q", check.args, out, err, check.want)
			}
		}
		return nil
	})
}

// firstWrite keeps what is written, and does something at the first.
type firstWrite struct {
	buf  bytes.Buffer
	once sync.Once
	then func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	n, err := w.buf.Write(b)
	if n > 0 {
		w.once.Do(w.then)
	}
	return n, err
}

// pid is the second word of what was written.
func (w *firstWrite) pid(t *testing.T) (pid int) {
	t.Helper()
	var zero int
	if _, err := fmt.Sscan(w.buf.String(), &zero, &pid); err != nil {
		t.Fatalf("%q: %v", w.buf.String(), err)
	}
	return pid
}

func processGone(t *testing.T, pid int) {
	t.Helper()
	controlplanetest.Eventually(t, "the process ends", func(context.Context) error {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			return fmt.Errorf("%d runs on", pid)
		}
		return nil
	})
}
