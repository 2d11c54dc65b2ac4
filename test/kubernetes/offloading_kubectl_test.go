package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testOffloadedKubectl uses an offloaded pod as any other.
func testOffloadedKubectl(t *testing.T, o *offloaded) {
	pod := o.onVirtual().Name
	lab.Eventually(t, patience, "logs, as the serving certificate is there", func() error {
		out, err := o.a.Kubectl("logs", "-n", offloadedHere, pod, "-c", "web")
		if err == nil && !strings.Contains(out, "listens at") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	t.Run("logs -f", func(t *testing.T) {
		o.follow(t, "listens at", "", "logs", "-f", "-n", offloadedHere, pod, "-c", "web")
	})
	t.Run("attach", func(t *testing.T) {
		const line = "through two API servers"
		o.follow(t, line, line+"\n", "attach", "-i", "-n", offloadedHere, pod, "-c", "files")
	})
	t.Run("exec", func(t *testing.T) {
		out := o.kubectl(t, o.a, "exec", "-n", offloadedHere, pod, "-c", "web", "--", "web", "-get", fmt.Sprintf("http://127.0.0.1:%d/", webPort))
		var got answer
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Pod != pod || got.Node != o.there.Node.Name {
			t.Errorf("%s, %v", out, err)
		}
		if out, err := o.a.Kubectl("exec", "-n", offloadedHere, pod, "-c", "web", "--", "web", "-none"); err == nil || !strings.Contains(err.Error(), "exit code 2") {
			t.Errorf("a command that fails: %v\n%s", err, out)
		}
	})
	t.Run("cp", func(t *testing.T) {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		want := bytes.Repeat([]byte("through two API servers\n"), 100_000)
		if err := os.WriteFile(in, want, 0o600); err != nil {
			t.Fatal(err)
		}
		o.kubectl(t, o.a, "cp", "-c", "files", in, offloadedHere+"/"+pod+":/files/kept")
		o.kubectl(t, o.a, "cp", "-c", "files", offloadedHere+"/"+pod+":/files/kept", out)
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d come back, %v", len(got), len(want), err)
		}
	})
	t.Run("port-forward", func(t *testing.T) {
		const port = 18080
		ctx, cancel := context.WithCancel(t.Context())
		forwards := o.follows(ctx, "Forwarding from", "", "port-forward", "-n", offloadedHere, "pod/"+pod, fmt.Sprintf("%d:%d", port, webPort))
		defer func() {
			cancel()
			<-forwards.done
		}()
		forwards.wait(t)
		r, err := o.httpClient().Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var got answer
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || got.Pod != pod {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// following is a kubectl that goes on until its context ends.
type following struct {
	seen chan struct{} // closed when it has said what was waited for
	done chan struct{} // closed when it has ended

	mu   sync.Mutex
	text strings.Builder
	want string
	err  error
}

// Write implements io.Writer.
func (f *following) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	had := strings.Contains(f.text.String(), f.want)
	f.text.Write(b)
	if !had && strings.Contains(f.text.String(), f.want) {
		close(f.seen)
	}
	return len(b), nil
}

// follows starts a kubectl for a, with text on its standard input, which stays open: where it ends, attach does.
func (w *world) follows(ctx context.Context, want, stdin string, args ...string) *following {
	f := &following{seen: make(chan struct{}), done: make(chan struct{}), want: want}
	cmd := exec.Command(w.Tool("kubectl"), append([]string{"--kubeconfig", w.a.Kubeconfig}, args...)...)
	in, text, err := os.Pipe()
	if err == nil {
		_, err = text.WriteString(stdin)
	}
	if f.err = err; err != nil {
		close(f.done)
		return f
	}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = w.environment(), in, f, f
	go func() {
		defer close(f.done)
		defer in.Close()
		defer text.Close()
		_, _, f.err = w.run(ctx, cmd)
	}()
	return f
}

// wait waits until it has said it.
func (f *following) wait(t *testing.T) {
	t.Helper()
	select {
	case <-f.seen:
	case <-f.done:
		t.Fatalf("kubectl has ended: %v\n%s", f.err, f.text.String())
	case <-time.After(patience):
		f.mu.Lock()
		defer f.mu.Unlock()
		t.Fatalf("kubectl says %q, and not %q", f.text.String(), f.want)
	}
}

// follow runs a kubectl, with text on its standard input, until it says something.
func (o *offloaded) follow(t *testing.T, want, stdin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := o.follows(ctx, want, stdin, args...)
	defer func() {
		cancel()
		<-f.done
	}()
	f.wait(t)
}

// metricsText is a kind in the place of a metrics-server, and what it says of a pod.
const metricsText = `
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
 metadata: {name: pods.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, of a test"}},
 spec: {group: metrics.k8s.io, names: {kind: PodMetrics, listKind: PodMetricsList, plural: pods, singular: pod}, scope: Namespaced,
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`

// testOffloadedTop asks the virtual node for what a metrics-server asks it for, and `kubectl top` shows.
func testOffloadedTop(t *testing.T, o *offloaded) {
	manifest{o.b, "", metricsText}.apply(t)
	t.Cleanup(func() { o.kubectl(t, o.b, "delete", "customresourcedefinition", "pods.metrics.k8s.io") })
	lab.Eventually(t, patience, o.b.Name+" has metrics", func() error {
		_, err := o.b.KubectlInput(fmt.Sprintf(`{apiVersion: metrics.k8s.io/v1beta1, kind: PodMetrics, metadata: {namespace: %s, name: %s}, window: 15s,
			containers: [{name: web, usage: {cpu: 250m, memory: 64Mi}}]}`, offloadedThere, o.there.Name), "apply", "-f", "-")
		return err
	})
	want := fmt.Sprintf("container_memory_working_set_bytes{container=\"web\",namespace=%q,pod=%q} 6.7108864e+07", offloadedHere, o.onVirtual().Name)
	lab.Eventually(t, patience, "the virtual node tells what its pod uses", func() error {
		got, err := o.a.Kubectl("get", "--raw", "/api/v1/nodes/"+virtualNode+"/proxy/metrics/resource")
		if err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("no %s in\n%s", want, got)
		}
		return err
	})
}

// testOffloadedView lists where the pods run, in both clusters.
func testOffloadedView(t *testing.T, o *offloaded) {
	own := func(p *corev1.Pod) survey.OffloadedPod {
		return survey.OffloadedPod{Namespace: offloadedHere, Name: p.Name, From: o.a.Name, In: o.a.Name, Node: p.Spec.NodeName, Phase: corev1.PodRunning, Ready: true, IP: p.Status.PodIP}
	}
	here := []survey.OffloadedPod{own(&o.here[0]), own(&o.here[1]), own(o.onVirtual())}
	here[2].In, here[2].OtherNamespace = o.b.Name, offloadedThere
	there := []survey.OffloadedPod{{
		Namespace: offloadedThere, Name: o.there.Name, From: o.a.Name, In: o.b.Name, Node: o.there.Node.Name, Phase: corev1.PodRunning, Ready: true,
		IP: o.there.Addr.String(), OtherNamespace: offloadedHere,
	}}
	byName := func(a, b survey.OffloadedPod) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(here, byName)
	for c, want := range map[*kubelab.Cluster][]survey.OffloadedPod{o.a: here, o.b: there} {
		var got []survey.OffloadedPod
		o.decode(t, &got, "--kubeconfig", c.Kubeconfig, "get", "pods", "-o", "json")
		slices.SortFunc(got, byName)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(survey.OffloadedPod{}, "Created")); diff != "" {
			t.Errorf("pods of %s (-want +got)\n%s", c.Name, diff)
		}
	}
}

// testOffloadedCordoned has the virtual node take no more pods and keep the one that it has, as any node.
func testOffloadedCordoned(t *testing.T, o *offloaded) {
	o.kubectl(t, o.a, "cordon", virtualNode)
	manifest{o.a, offloadedHere, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: late}, spec: {nodeSelector: {kubernetes.io/hostname: %s}, terminationGracePeriodSeconds: 1,
securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}},
containers: [{name: web, image: %q, imagePullPolicy: Never, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`, virtualNode, webImage)}.apply(t)
	state := func() (string, error) {
		return o.a.Kubectl("get", "pod", "-n", offloadedHere, "late", "-o", `jsonpath={.spec.nodeName} {.status.phase} {.status.conditions[?(@.type=="PodScheduled")].reason}`)
	}
	is := func(want string) func() error {
		return func() error {
			got, err := state()
			if err == nil && got != want {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		}
	}
	lab.Eventually(t, patience, "a pod finds no node", is(" Pending Unschedulable"))
	if err := o.check(t.Context()); err != nil {
		t.Errorf("a cordon ends pods: %v", err)
	}
	o.kubectl(t, o.a, "uncordon", virtualNode)
	lab.Eventually(t, patience, "the pod runs", is(virtualNode+" Running "))
	o.kubectl(t, o.a, "delete", "pod", "-n", offloadedHere, "late", "--wait=true", "--timeout="+patience.String())
}

// testOffloadedRefused asks for what an offloaded pod cannot have: an Event of the pod says so, and it goes on.
func testOffloadedRefused(t *testing.T, o *offloaded) {
	pod := o.onVirtual().Name
	o.kubectl(t, o.a, "-n", offloadedHere, "debug", pod, "--image="+webImage, "--container=looks", "--target=web", "--profile=restricted", "--attach=false")
	o.says(t, pod, "FailedReflection", "ephemeral container looks does not run")
	if err := o.check(t.Context()); err != nil {
		t.Errorf("what is refused ends pods: %v", err)
	}
}

// says waits for an Event of a pod of a.
func (o *offloaded) says(t *testing.T, pod, reason, note string) {
	t.Helper()
	lab.Eventually(t, patience, "pod "+pod+" says "+reason, func() error {
		var list eventsv1.EventList
		if err := o.a.Client().List(t.Context(), &list, client.InNamespace(offloadedHere)); err != nil {
			return err
		}
		var said []string
		for _, e := range list.Items {
			if e.Regarding.Kind == "Pod" && e.Regarding.Name == pod {
				said = append(said, e.Reason+" "+e.Note)
			}
		}
		if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, reason+" ") && strings.Contains(s, note) }) {
			return errors.New(strings.Join(said, "\n"))
		}
		return nil
	})
}
