package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// Exec runs a command in a container, as `kubectl exec` does, until it ends. The
// error holds the end of what it said on stderr.
//
// The stdin of the command stays open and empty until then, or until ctx ends. A
// command that runs on until somebody tells it to end can wait for its end: not
// every container runtime kills what it runs for a client that is gone.
func (c *Cluster) Exec(ctx context.Context, pod types.NamespacedName, container string, argv []string, stdout io.Writer) error {
	return c.exec(ctx, ctx, pod, container, argv, stdout)
}

// exitGrace is how long a command may take after its stdin has ended.
const exitGrace = 3 * time.Second

// ExecUntil is Exec of a command that ends with its stdin. When ctx ends that is
// how it is told so, and what it says until its end still arrives: then the error is
// nil.
func (c *Cluster) ExecUntil(ctx context.Context, pod types.NamespacedName, container string, argv []string, stdout io.Writer) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(exitGrace, cancel) })()
	return c.exec(hard, ctx, pod, container, argv, stdout)
}

// exec runs a command whose stdin ends with listening.
func (c *Cluster) exec(ctx, listening context.Context, pod types.NamespacedName, container string, argv []string, stdout io.Writer) error {
	req := c.Clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: argv, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	doing := fmt.Sprintf("run %q in pod %s", strings.Join(argv, " "), pod)
	websocket, err := remotecommand.NewWebSocketExecutor(c.Config, http.MethodGet, req.URL().String())
	if err != nil {
		return c.Explain(doing, err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.Config, http.MethodPost, req.URL())
	if err != nil {
		return c.Explain(doing, err)
	}
	// What stands between us and the API server may know only the older of the
	// two, and so may the user's rights.
	var refused error
	e, err := remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		failure := (*httpstream.UpgradeFailureError)(nil)
		if !errors.As(err, &failure) {
			return httpstream.IsHTTPSProxyError(err)
		}
		refused = failure.Cause // it does not unwrap to it
		return true
	})
	if err != nil {
		return c.Explain(doing, err)
	}
	stdin, end := io.Pipe()
	defer end.Close()
	defer context.AfterFunc(listening, func() { end.Close() })()
	stderr := &tail{max: 2 << 10}
	if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr}); err != nil {
		return c.Explain(doing, execError(withStatus(err, refused), stderr.String()))
	}
	return nil
}

// Output is Exec that returns what the command prints.
func (c *Cluster) Output(ctx context.Context, pod types.NamespacedName, container string, argv []string) ([]byte, error) {
	var out bytes.Buffer
	err := c.Exec(ctx, pod, container, argv, &out)
	return out.Bytes(), err
}

// withStatus adds the API server's answer to the newer way to the error of the
// older one, which only has its text.
func withStatus(err, refused error) error {
	var exit exec.CodeExitError
	var status apierrors.APIStatus
	if errors.As(err, &exit) || errors.As(err, &status) || !errors.As(refused, &status) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, refused)
}

// execError puts what the command said in the place of its exit code.
func execError(err error, stderr string) error {
	var exit exec.CodeExitError
	if errors.As(err, &exit) && stderr != "" {
		return fmt.Errorf("%s: %w", strings.TrimSpace(stderr), err)
	}
	if apierrors.IsNotFound(err) || stderr == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr))
}

// tail keeps the end of what is written to it.
type tail struct {
	max  int
	kept []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if n := len(t.kept) - t.max; n > 0 {
		t.kept = append(t.kept[:0], t.kept[n:]...)
	}
	return len(b), nil
}

func (t *tail) String() string { return string(t.kept) }
