package controlplanetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest/plane"
	"github.com/sluice-net/sluice/test/source"
)

// LiqoNamespace is where the installation lives.
const LiqoNamespace = "liqo"

// startTimeout is how long a control plane, or what is new in it, may take.
const startTimeout = 5 * time.Minute

// Cluster is one control plane without nodes.
type Cluster struct {
	// Dir holds what belongs to the test.
	Dir string
	// Config is an administrator's.
	Config *rest.Config
	// Kubeconfig is a file with the same.
	Kubeconfig string
	// Client is an administrator's, uncached.
	Client client.Client
	// Clientset is the same for what Client lacks: tokens, logs.
	Clientset *kubernetes.Clientset

	tb    testing.TB
	plane *plane.Lease
}

// Start returns a cluster with the project's CRDs and roles and the namespace
// LiqoNamespace. The test has it to itself until it ends.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	return start(tb, plane.Installed)
}

// StartBare returns a cluster with nothing of the project in it.
func StartBare(tb testing.TB) *Cluster {
	tb.Helper()
	return start(tb, plane.Bare)
}

func start(tb testing.TB, b plane.Baseline) *Cluster {
	tb.Helper()
	source.NeedControlPlanes(tb)
	socket, err := pool()
	if err != nil {
		tb.Fatalf("start the control planes: %v", err)
	}
	c := &Cluster{Dir: tb.TempDir(), tb: tb}
	if c.plane, err = plane.Dial(socket, b); err != nil {
		tb.Fatalf("start a control plane: %v", err)
	}
	tb.Cleanup(func() { c.plane.Close() })
	c.Config = c.plane.Config()
	transport, err := rest.TransportFor(c.Config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { utilnet.CloseIdleConnectionsFor(transport) }) // which the API server does not close, as it goes on
	if c.Kubeconfig, err = c.WriteKubeconfig("admin", c.Config); err != nil {
		tb.Fatal(err)
	}
	if c.Clientset, err = kubernetes.NewForConfig(c.Config); err != nil {
		tb.Fatal(err)
	}
	if c.Client, err = client.New(c.Config, client.Options{Scheme: kinds.Scheme()}); err != nil {
		tb.Fatal(err)
	}
	return c
}

// StopAPIServer kills the kube-apiserver.
func (c *Cluster) StopAPIServer() {
	c.tb.Helper()
	if err := c.plane.StopAPIServer(); err != nil {
		c.tb.Fatal(err)
	}
}

// StartAPIServer starts the kube-apiserver again after StopAPIServer, with the same
// data, address and certificates.
func (c *Cluster) StartAPIServer() error { return c.plane.StartAPIServer() }

// WriteKubeconfig writes a kubeconfig file for cfg and returns its path.
func (c *Cluster) WriteKubeconfig(name string, cfg *rest.Config) (string, error) {
	path := c.path(name + ".kubeconfig")
	return path, plane.WriteKubeconfig(path, cfg)
}

// ServiceAccount returns a configuration with a token of a service account, so
// that a program is held to the roles bound to it.
func (c *Cluster) ServiceAccount(namespace, name string) *rest.Config {
	c.tb.Helper()
	cfg, err := c.serviceAccount(context.Background(), namespace, name)
	if err != nil {
		c.tb.Fatal(err)
	}
	return cfg
}

func (c *Cluster) serviceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	t, err := c.Clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 3600))}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of %s/%s: %w", namespace, name, err)
	}
	cfg := rest.CopyConfig(c.Config)
	cfg.BearerToken = t.Status.Token
	return cfg, nil
}

// KubeletClient is the certificate with which the API server shows kubelets who it is, signed by itself: the user
// kubelet.
func (c *Cluster) KubeletClient() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(c.plane.KubeletCert, c.plane.KubeletKey)
}

// Install applies the manifests of folders, one after the other, and
// waits for the namespace LiqoNamespace. The CRDs are among them, or there.
func (c *Cluster) Install(folders ...fs.FS) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, f := range folders {
		if err := c.installer().Install(ctx, f); err != nil {
			return err
		}
	}
	return c.CreateNamespace(LiqoNamespace, nil)
}

func (c *Cluster) installer() plane.Installer {
	return plane.Installer{Client: c.Client, Clientset: c.Clientset}
}

// CreateNamespace makes a namespace, if it is not there, and its
// default service account, without which no pod is admitted.
func (c *Cluster) CreateNamespace(name string, labels map[string]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return c.installer().Account(ctx, name)
}

// Kubectl runs kubectl as administrator. The error holds what it said.
func (c *Cluster) Kubectl(args ...string) (stdout string, err error) {
	return c.KubectlInput("", args...)
}

// KubectlInput is Kubectl with text on its standard input.
func (c *Cluster) KubectlInput(stdin string, args ...string) (stdout string, err error) {
	cmd := exec.Command(c.KubectlPath(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// KubectlPath is the kubectl in use.
func (c *Cluster) KubectlPath() string { return filepath.Join(c.plane.Bin, "kubectl") }

// Apply applies manifests, as kubectl apply --server-side -f does.
func (c *Cluster) Apply(manifests string) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.installer().Apply(ctx, manifests); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.Dir, name) }
