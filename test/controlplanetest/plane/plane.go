// Package plane runs control planes of Kubernetes as processes on loopback: an etcd, a
// kube-apiserver and, as garbage collection and namespaces are its work, a
// kube-controller-manager. They cost some seconds of a processor each, so one is used
// by many tests, one after the other: a Pool lends them, and brings them back to one of
// two states in between (Baseline) by writing to etcd what was there.
//
// The programs are those that test/kubetools/build.sh builds.
package plane

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/process"
	"github.com/sluice-net/sluice/test/source"
)

const (
	adminToken = "admin-of-this-test"
	// startTimeout is for a machine that is busy with real nodes too. A program that has ended is told of at once.
	startTimeout = 5 * time.Minute
	readyTimeout = 10 * time.Second // of one request
)

// Access is how to reach a control plane.
type Access struct {
	// Dir holds its data, certificates and logs.
	Dir string
	// Bin is the folder of its programs, and of kubectl.
	Bin string
	// Host is the URL of the API server, CA its certificate, Token an administrator's.
	Host  string
	CA    []byte
	Token string
	// KubeletCert and KubeletKey are files with the certificate of the way between API
	// server and kubelets. Both sides show it.
	KubeletCert, KubeletKey string
}

// Config is an administrator's.
func (a Access) Config() *rest.Config {
	return &rest.Config{Host: a.Host, BearerToken: a.Token, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA}, QPS: -1}
}

// WriteKubeconfig writes a kubeconfig file for cfg.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	return clientcmd.WriteToFile(*k, path)
}

// Plane is one control plane. One caller uses it at a time.
type Plane struct {
	Access

	etcd      *process.Process
	apiserver *process.Process
	manager   *manager // nil: does not run
	peer      string   // the URL of etcd for others like it, of which there are none
	// managerPort is where the kube-controller-manager listens. Each restart of it has the same.
	managerPort int
	reserved    []net.Listener // for the ports of the programs
	store       store
	client      client.Client
	clientset   *kubernetes.Clientset
	http        *http.Client

	baselines [2]state // by Baseline
	at        Baseline
}

// Start starts a control plane with its files in dir. It is in the state Installed.
func Start(dir string) (_ *Plane, err error) {
	bin, err := source.Kubernetes()
	if err != nil {
		return nil, err
	}
	p := &Plane{Access: Access{Dir: dir, Bin: bin, Token: adminToken}, at: Installed}
	p.KubeletCert, p.KubeletKey = p.path("kubelet.crt"), p.path("kubelet.key")
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	for _, step := range []func() error{p.addresses, p.credentials, p.startEtcd, p.StartAPIServer, p.connect, p.install} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("start a control plane: %w", err)
		}
	}
	return p, nil
}

// Inputs is a hash of what control planes are made of: the programs, and what is installed.
func Inputs() (string, error) {
	bin, err := source.Kubernetes()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, filepath.Base(bin)) // a hash of their source
	for _, folder := range []fs.FS{deploy.CRDs(), deploy.Manifests()} {
		files, err := fs.Glob(folder, "*.yaml")
		if err != nil {
			return "", err
		}
		for _, f := range files {
			text, err := fs.ReadFile(folder, f)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s %d\n%s", f, len(text), text)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// addresses chooses where the programs listen.
func (p *Plane) addresses() error {
	for url, scheme := range map[*string]string{&p.Host: "https", &p.store.url: "http", &p.peer: "http"} {
		port, err := p.reservePort()
		if err != nil {
			return err
		}
		*url = fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
	}
	var err error
	p.managerPort, err = p.reservePort()
	return err
}

// reservePort returns a TCP port that nobody listens on, and that no other plane of this machine takes until Stop: also while
// the program that listens is not up yet, or is stopped. A plane that has a port listens on the same port of reservations. It
// lies below those that the kernel gives to outgoing connections, so that none of them takes it either.
func (p *Plane) reservePort() (int, error) {
	const lowest, highest, attempts = 12000, 29999, 100
	const reservations, programs = "127.255.255.1:%d", "127.0.0.1:%d"
	var err error
	for range attempts {
		port := lowest + rand.IntN(highest-lowest+1)
		var reserved, l net.Listener
		if reserved, err = net.Listen("tcp", fmt.Sprintf(reservations, port)); err != nil {
			continue
		}
		if l, err = net.Listen("tcp", fmt.Sprintf(programs, port)); err == nil {
			l.Close()
			p.reserved = append(p.reserved, reserved)
			return port, nil
		}
		reserved.Close()
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

func (p *Plane) credentials() (err error) {
	if err := writeKeyPair(p.KubeletCert, p.KubeletKey, "kubelet"); err != nil {
		return err
	}
	if err := writeKeyPair(p.path("apiserver.crt"), p.path("apiserver.key"), "kube-apiserver"); err != nil {
		return err
	}
	if p.CA, err = os.ReadFile(p.path("apiserver.crt")); err != nil {
		return err
	}
	return errors.Join(writeKeyPair(p.path("sa.crt"), p.path("sa.key"), "service accounts"),
		writeKeyPair(p.path("clients.crt"), p.path("clients.key"), "clients"), // signs the certificates of clients
		os.WriteFile(p.path("tokens.csv"), []byte(adminToken+",admin,admin,system:masters\n"), 0o600),
		WriteKubeconfig(p.path("admin.kubeconfig"), p.Config()))
}

func (p *Plane) startEtcd() (err error) {
	p.etcd, err = p.run("etcd", "--data-dir="+p.path("etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+p.store.url, "--advertise-client-urls="+p.store.url,
		"--listen-peer-urls="+p.peer, "--initial-advertise-peer-urls="+p.peer, "--initial-cluster=default="+p.peer,
		// A state is restored in one transaction.
		"--max-txn-ops=1000000", "--max-request-bytes=268435456")
	return err
}

// StartAPIServer starts the kube-apiserver, or starts it again after StopAPIServer
// with the same data, address and certificates, and waits until it is ready.
func (p *Plane) StartAPIServer() (err error) {
	_, port, err := net.SplitHostPort(p.Host[len("https://"):])
	if err != nil {
		return err
	}
	p.apiserver, err = p.run("kube-apiserver", "--etcd-servers="+p.store.url,
		"--secure-port="+port, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--tls-cert-file="+p.path("apiserver.crt"), "--tls-private-key-file="+p.path("apiserver.key"),
		"--token-auth-file="+p.path("tokens.csv"), "--client-ca-file="+p.path("clients.crt"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+p.path("sa.key"),
		"--service-account-key-file="+p.path("sa.key"), "--allow-privileged=true", "--endpoint-reconciler-type=none",
		"--kubelet-client-certificate="+p.KubeletCert, "--kubelet-client-key="+p.KubeletKey, "--kubelet-preferred-address-types=InternalIP",
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement", // as OpenShift does
		"--max-requests-inflight=1000", "--max-mutating-requests-inflight=500", "--watch-cache=true")
	if err != nil {
		return err
	}
	h := http.Client{Timeout: readyTimeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer h.CloseIdleConnections()
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		r, err := h.Get(p.Host + "/readyz")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.apiserver.Done():
			return fmt.Errorf("kube-apiserver ended: %s", p.apiserver.Tail())
		case <-time.After(pause):
		}
	}
	return fmt.Errorf("kube-apiserver is not ready: %s", p.apiserver.Tail())
}

// RestartAPIServer starts the kube-apiserver again after StopAPIServer, and the
// kube-controller-manager anew. One that elects a leader ends when it cannot renew
// its lease; this one would have its collector of garbage wait for minutes.
func (p *Plane) RestartAPIServer() error {
	managed := p.manager != nil
	p.stopManager()
	if err := p.StartAPIServer(); err != nil || !managed {
		return err
	}
	return p.startManager()
}

// StopAPIServer kills the kube-apiserver.
func (p *Plane) StopAPIServer() { p.apiserver.Kill() }

// manager is a kube-controller-manager that is kept running.
type manager struct {
	running atomic.Pointer[process.Process]
	stop    chan struct{} // the end is wanted
	done    chan struct{} // nothing runs any more
}

// startManager starts the kube-controller-manager. It ends by itself where the API server does not answer for ten
// seconds while it starts, and is started again, as a kubelet does: else whoever is lent this plane next would wait in
// vain.
func (p *Plane) startManager() error {
	running, err := p.runManager()
	if err != nil {
		return err
	}
	m := &manager{stop: make(chan struct{}), done: make(chan struct{})}
	m.running.Store(running)
	p.manager = m
	go func() {
		defer close(m.done)
		for {
			select {
			case <-m.stop:
				running.Kill()
				return
			case <-running.Done():
			}
			fmt.Fprintf(os.Stderr, "the kube-controller-manager in %s has ended and is started again: %s\n", p.Dir, running.Tail())
			if running, err = p.runManager(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			m.running.Store(running)
		}
	}()
	return nil
}

func (p *Plane) runManager() (*process.Process, error) {
	return p.run("kube-controller-manager", "--kubeconfig="+p.path("admin.kubeconfig"), "--leader-elect=false",
		"--use-service-account-credentials=false", "--service-account-private-key-file="+p.path("sa.key"), "--root-ca-file="+p.path("apiserver.crt"),
		"--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller,deployment-controller,replicaset-controller,daemonset-controller,certificatesigningrequest-signing-controller",
		"--cluster-signing-cert-file="+p.path("clients.crt"), "--cluster-signing-key-file="+p.path("clients.key"),
		fmt.Sprintf("--secure-port=%d", p.managerPort), "--bind-address=127.0.0.1", "--concurrent-gc-syncs=4",
		"--kube-api-qps=200", "--kube-api-burst=400")
}

func (p *Plane) stopManager() {
	if p.manager != nil {
		close(p.manager.stop)
		<-p.manager.done
		p.manager = nil
	}
}

func (p *Plane) connect() (err error) {
	if p.http, err = rest.HTTPClientFor(p.Config()); err != nil {
		return err
	}
	if p.clientset, err = kubernetes.NewForConfig(p.Config()); err != nil {
		return err
	}
	p.client, err = client.New(p.Config(), client.Options{Scheme: kinds.Scheme()})
	return err
}

// install takes the two baselines. The CRDs come before the kube-controller-manager,
// whose garbage collector takes up to a minute to notice kinds that come later.
func (p *Plane) install() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := p.complete(ctx); err != nil {
		return err
	}
	bare, err := p.store.read(ctx)
	if err != nil {
		return err
	}
	i := Installer{p.client, p.clientset}
	if err := i.Install(ctx, deploy.CRDs()); err != nil {
		return err
	}
	if err := p.startManager(); err != nil {
		return err
	}
	if err := i.Install(ctx, deploy.Manifests()); err != nil {
		return err
	}
	if err := p.accounts(ctx); err != nil {
		return err
	}
	installed, err := p.store.read(ctx)
	if err != nil {
		return err
	}
	bare.addAccounts(installed)
	p.baselines = [...]state{Installed: installed, Bare: bare}
	return nil
}

func (p *Plane) path(name string) string { return filepath.Join(p.Dir, name) }

// Stop ends the control plane.
func (p *Plane) Stop() {
	p.stopManager()
	for _, p := range []*process.Process{p.apiserver, p.etcd} { // an apiserver without etcd takes long to end
		if p != nil {
			p.Kill()
		}
	}
	for _, l := range p.reserved {
		l.Close()
	}
}

// run starts a program of the control plane with its output in a file of its name. It
// computes on one processor: other planes and tests keep the rest busy, and what it does
// to use several at once costs more than it gains.
func (p *Plane) run(name string, args ...string) (*process.Process, error) {
	return process.Command{
		Program: filepath.Join(p.Bin, name), Args: args, Env: slices.Concat(os.Environ(), process.RareCollection, []string{"GOMAXPROCS=1"}),
		Dir: p.Dir, Log: p.path(name + ".log"),
	}.Start()
}
