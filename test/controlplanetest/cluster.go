package controlplanetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/source"
)

// LiqoNamespace is where the installation lives.
const LiqoNamespace = "liqo"

const (
	adminToken   = "admin-of-this-test"
	startTimeout = 60 * time.Second
	stopTimeout  = 15 * time.Second
)

// Cluster is one control plane without nodes.
type Cluster struct {
	// Dir holds its data, certificates and logs.
	Dir string
	// Config is an administrator's.
	Config *rest.Config
	// Kubeconfig is a file with the same.
	Kubeconfig string
	// Client is an administrator's, uncached.
	Client client.Client
	// Clientset is the same for what Client lacks: tokens, logs.
	Clientset *kubernetes.Clientset

	tb        testing.TB
	bin       string
	etcdPort  int
	apiPort   int
	etcd      *process
	apiserver *process
	manager   *process
}

// Start starts a cluster with the project's CRDs and roles and the namespace
// LiqoNamespace. It ends with the test.
//
// The CRDs come before the kube-controller-manager, whose garbage collector
// takes up to a minute to notice kinds that come later.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	return startWith(tb, func(c *Cluster) error { return c.applyKinds(source.Path("deploy", "crds")) },
		func(c *Cluster) error { return c.Install(source.Path("deploy", "manifests")) })
}

// StartBare starts a cluster with nothing of the project in it.
func StartBare(tb testing.TB) *Cluster {
	tb.Helper()
	nothing := func(*Cluster) error { return nil }
	return startWith(tb, nothing, nothing)
}

// startWith starts a cluster with what is done before and after its
// kube-controller-manager starts.
func startWith(tb testing.TB, before, after func(*Cluster) error) *Cluster {
	tb.Helper()
	c := &Cluster{Dir: tb.TempDir(), tb: tb, bin: binaries(tb), etcdPort: freePort(tb), apiPort: freePort(tb)}
	tb.Cleanup(c.stop)
	for _, step := range []func() error{
		c.startEtcd, c.StartAPIServer, c.connect, func() error { return before(c) }, c.startManager, func() error { return after(c) },
	} {
		if err := step(); err != nil {
			tb.Fatalf("start a control plane: %v", err)
		}
	}
	return c
}

// binaries returns the folder of the programs.
func binaries(tb testing.TB) string {
	dir, err := source.Kubernetes()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// freePort returns a TCP port that nobody listens on. It lies below those that the
// kernel gives to outgoing connections, so that none of them takes it before the
// program listens, or while it is stopped.
func freePort(tb testing.TB) int {
	const lowest, highest, attempts = 12000, 29999, 100
	var err error
	for range attempts {
		port := lowest + rand.IntN(highest-lowest+1)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	tb.Fatalf("no free port: %v", err)
	return 0
}

func (c *Cluster) startEtcd() (err error) {
	peer := freePort(c.tb)
	c.etcd, err = c.run("etcd", "--data-dir="+c.path("etcd"), "--unsafe-no-fsync", "--log-level=error",
		fmt.Sprintf("--listen-client-urls=http://127.0.0.1:%d", c.etcdPort), fmt.Sprintf("--advertise-client-urls=http://127.0.0.1:%d", c.etcdPort),
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", peer), fmt.Sprintf("--initial-advertise-peer-urls=http://127.0.0.1:%d", peer),
		fmt.Sprintf("--initial-cluster=default=http://127.0.0.1:%d", peer))
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("tokens.csv"), []byte(adminToken+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}
	return errors.Join(c.serviceAccountKey(), c.kubeletCertificate())
}

func (c *Cluster) startManager() (err error) {
	c.manager, err = c.run("kube-controller-manager", "--kubeconfig="+c.Kubeconfig, "--leader-elect=false",
		"--use-service-account-credentials=false", "--service-account-private-key-file="+c.path("sa.key"), "--root-ca-file="+c.path("pki/apiserver.crt"),
		"--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller,deployment-controller,replicaset-controller,daemonset-controller",
		fmt.Sprintf("--secure-port=%d", freePort(c.tb)), "--bind-address=127.0.0.1", "--concurrent-gc-syncs=4",
		"--kube-api-qps=200", "--kube-api-burst=400")
	return err
}

// StartAPIServer starts the kube-apiserver, or starts it again after
// StopAPIServer with the same data, address and certificates.
func (c *Cluster) StartAPIServer() (err error) {
	c.apiserver, err = c.run("kube-apiserver", fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcdPort),
		fmt.Sprintf("--secure-port=%d", c.apiPort), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--cert-dir="+c.path("pki"),
		"--token-auth-file="+c.path("tokens.csv"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+c.path("sa.key"),
		"--service-account-key-file="+c.path("sa.key"), "--allow-privileged=true", "--endpoint-reconciler-type=none",
		"--kubelet-client-certificate="+c.path(kubeletCertFile), "--kubelet-client-key="+c.path(kubeletKeyFile), "--kubelet-preferred-address-types=InternalIP",
		"--max-requests-inflight=1000", "--max-mutating-requests-inflight=500", "--watch-cache=true")
	if err != nil {
		return err
	}
	h := http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer h.CloseIdleConnections()
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		r, err := h.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", c.apiPort))
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-c.apiserver.done:
			return fmt.Errorf("kube-apiserver ended: %s", c.apiserver.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("kube-apiserver is not ready: %s", c.apiserver.tail())
}

// StopAPIServer kills the kube-apiserver.
func (c *Cluster) StopAPIServer() { c.apiserver.kill() }

func (c *Cluster) serviceAccountKey() error {
	out, err := exec.Command("openssl", "genrsa", "-out", c.path("sa.key"), "2048").CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a key: %w: %s", err, out)
	}
	return nil
}

func (c *Cluster) connect() (err error) {
	ca, err := os.ReadFile(c.path("pki/apiserver.crt"))
	if err != nil {
		return err
	}
	c.Config = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", c.apiPort), BearerToken: adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1,
	}
	if c.Kubeconfig, err = c.WriteKubeconfig("admin", c.Config); err != nil {
		return err
	}
	if c.Clientset, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	c.Client, err = client.New(c.Config, client.Options{Scheme: kinds.Scheme()})
	return err
}

// WriteKubeconfig writes a kubeconfig file for cfg and returns its path.
func (c *Cluster) WriteKubeconfig(name string, cfg *rest.Config) (string, error) {
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	path := c.path(name + ".kubeconfig")
	return path, clientcmd.WriteToFile(*k, path)
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

// Install applies every manifest of the folders or files, one after the other, and
// waits for the namespace LiqoNamespace. The CRDs are among them, or there.
func (c *Cluster) Install(paths ...string) error {
	if err := c.applyKinds(paths...); err != nil {
		return err
	}
	return c.CreateNamespace(LiqoNamespace, nil)
}

func (c *Cluster) applyKinds(paths ...string) error {
	for _, p := range paths {
		if _, err := c.Kubectl("apply", "--server-side", "--force-conflicts", "-f", p); err != nil {
			return err
		}
		// The next ones may be of these kinds.
		if _, err := c.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"); err != nil {
			return err
		}
		if err := c.discovered(); err != nil {
			return err
		}
	}
	return nil
}

// discovered waits until kubectl knows the kinds of all CRDs.
func (c *Cluster) discovered() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := c.Client.List(ctx, &crds); err != nil {
		return err
	}
	for {
		missing, err := access.Undiscovered(c.Clientset.Discovery(), crds.Items)
		switch {
		case err != nil:
			return err
		case len(missing) == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the API server does not tell of %s", strings.Join(missing, ", "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// CreateNamespace makes a namespace, if it is not there, and waits for its
// default service account, without which no pod is admitted.
func (c *Cluster) CreateNamespace(name string, labels map[string]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for {
		_, err := c.Clientset.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Kubectl runs kubectl as administrator. The error holds what it said.
func (c *Cluster) Kubectl(args ...string) (stdout string, err error) {
	return c.KubectlInput("", args...)
}

// KubectlInput is Kubectl with text on its standard input.
func (c *Cluster) KubectlInput(stdin string, args ...string) (stdout string, err error) {
	cmd := exec.Command(filepath.Join(c.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// KubectlPath is the kubectl in use.
func (c *Cluster) KubectlPath() string { return filepath.Join(c.bin, "kubectl") }

// Apply applies manifests, as kubectl apply -f does.
func (c *Cluster) Apply(manifests string) {
	c.tb.Helper()
	if _, err := c.KubectlInput(manifests, "apply", "-f", "-"); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) stop() {
	for _, p := range []*process{c.manager, c.apiserver, c.etcd} { // an apiserver without etcd takes long to end
		if p != nil {
			p.kill()
		}
	}
}

// run starts a program of the control plane with its output in a file of its
// name.
func (c *Cluster) run(name string, args ...string) (*process, error) {
	return command{program: filepath.Join(c.bin, name), args: args, env: os.Environ(), dir: c.Dir, log: c.path(name + ".log")}.start()
}
