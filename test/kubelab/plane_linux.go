package kubelab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/process"
)

// serviceAddr is what ServiceCIDR gives the API server.
var serviceAddr = netip.MustParseAddr("10.96.0.1")

// aggregatorUser is who the API server is to API servers that are behind it.
const aggregatorUser = "front-proxy-client"

// file is the path of a file of the cluster.
func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

// writeCredentials makes the certificates of servers and users.
func (c *Cluster) writeCredentials() (err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	if c.authority, err = newAuthority(c.Name); err != nil {
		return err
	}
	key, err := encodeKey(c.authority.key)
	if err != nil {
		return err
	}
	if err := (pair{cert: c.authority.pem, key: key}).write(c.dir, "ca"); err != nil {
		return err
	}
	if err := c.writeServiceAccountKey(); err != nil {
		return err
	}
	server, err := c.authority.server("kube-apiserver", []netip.Addr{c.lanAddr(planeHost), serviceAddr, c.Public, netip.MustParseAddr("127.0.0.1")},
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost")
	if err != nil {
		return err
	}
	if err := server.write(c.dir, "apiserver"); err != nil {
		return err
	}
	kubelets, err := c.authority.client("kube-apiserver-kubelet-client", "system:masters", time.Now().Add(lifetime))
	if err != nil {
		return err
	}
	if err := kubelets.write(c.dir, "kubelet-client"); err != nil {
		return err
	}
	aggregator, err := c.authority.client(aggregatorUser, "", time.Now().Add(lifetime))
	if err != nil {
		return err
	}
	if err := aggregator.write(c.dir, "aggregator"); err != nil {
		return err
	}
	users := map[string]string{"system:kube-controller-manager": "", "system:kube-scheduler": "", "system:kube-proxy": ""}
	for _, n := range c.Nodes {
		users["system:node:"+n.Name] = "system:nodes"
	}
	for user, group := range users {
		if err := c.writeInsideKubeconfig(user, group); err != nil {
			return err
		}
	}
	admin, err := c.authority.client("admin", "system:masters", time.Now().Add(lifetime))
	if err != nil {
		return err
	}
	c.Kubeconfig = c.file("admin.kubeconfig")
	if err := writeKubeconfig(c.Kubeconfig, c.Name, "admin", c.configFor(admin)); err != nil {
		return err
	}
	return c.connect(admin)
}

// insideKubeconfig is the file of a user inside the cluster.
func (c *Cluster) insideKubeconfig(user string) string { return c.file(user + ".kubeconfig") }

// writeInsideKubeconfig makes a user of the LAN.
func (c *Cluster) writeInsideKubeconfig(user, group string) error {
	p, err := c.authority.client(user, group, time.Now().Add(lifetime))
	if err != nil {
		return err
	}
	return writeKubeconfig(c.insideKubeconfig(user), c.Name, user, &rest.Config{
		Host:            fmt.Sprintf("https://%s:%d", c.lanAddr(planeHost), apiPort),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem, CertData: p.cert, KeyData: p.key},
	})
}

func (c *Cluster) writeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	b, err := encodeKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(c.file("sa.key"), b, 0o600)
}

// startPlane starts the control plane and registers the nodes.
func (c *Cluster) startPlane() error {
	err := c.launch("etcd", "--data-dir="+c.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380")
	if err != nil {
		return err
	}
	if err := c.startAPIServer(); err != nil {
		return err
	}
	if err := c.startManager(); err != nil {
		return err
	}
	scheduler := c.insideKubeconfig("system:kube-scheduler")
	err = c.launch("kube-scheduler", "--kubeconfig="+scheduler, "--authentication-kubeconfig="+scheduler, "--authorization-kubeconfig="+scheduler,
		"--bind-address=127.0.0.1", "--leader-elect=false")
	if err != nil {
		return err
	}
	return each(c.Nodes, (*Node).register)
}

func (c *Cluster) startManager() error {
	manager := c.insideKubeconfig("system:kube-controller-manager")
	return c.launch("kube-controller-manager", "--kubeconfig="+manager, "--authentication-kubeconfig="+manager, "--authorization-kubeconfig="+manager,
		"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file="+c.file("sa.key"), "--root-ca-file="+c.file("ca.crt"),
		"--cluster-signing-cert-file="+c.file("ca.crt"), "--cluster-signing-key-file="+c.file("ca.key"),
		"--cluster-cidr="+c.lab.options.families(PodCIDR, PodCIDR6), "--allocate-node-cidrs=false",
		"--service-cluster-ip-range="+c.lab.options.families(ServiceCIDR, ServiceCIDR6),
		"--node-monitor-period=1s", "--node-monitor-grace-period="+c.lab.options.NodeMonitorGracePeriod.String())
}

// launch starts a program of the control plane with its output in a file of its
// name.
func (c *Cluster) launch(name string, args ...string) error {
	p, err := c.plane.Launch(lab.Program{
		Name: name, Args: append([]string{c.lab.Tool(name)}, args...), Env: process.RareCollection,
		Log: c.file(name + ".log"), Worthless: true,
	})
	c.programs[name] = p
	return err
}

func (c *Cluster) startAPIServer() error {
	err := c.launch("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
		fmt.Sprintf("--secure-port=%d", apiPort), "--advertise-address="+c.lanAddr(planeHost).String(),
		"--service-cluster-ip-range="+c.lab.options.families(ServiceCIDR, ServiceCIDR6),
		"--tls-cert-file="+c.file("apiserver.crt"), "--tls-private-key-file="+c.file("apiserver.key"), "--client-ca-file="+c.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+c.file("sa.key"), "--service-account-signing-key-file="+c.file("sa.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-client-certificate="+c.file("kubelet-client.crt"), "--kubelet-client-key="+c.file("kubelet-client.key"),
		"--kubelet-certificate-authority="+c.file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file="+c.file("ca.crt"), "--requestheader-allowed-names="+aggregatorUser,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.file("aggregator.crt"), "--proxy-client-key-file="+c.file("aggregator.key"), "--enable-aggregator-routing")
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(c.config)
	if err != nil {
		return err
	}
	h := http.Client{Timeout: 2 * time.Second, Transport: transport}
	return eventually(startLimit, "kube-apiserver", func() error {
		if !c.programs["kube-apiserver"].Running() {
			return &finalError{fmt.Errorf("it has ended: %s", lastLines(c.file("kube-apiserver.log"), 3))}
		}
		r, err := h.Get(c.config.Host + "/readyz")
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", r.Status)
		}
		return nil
	})
}

// StopAPIServer kills the kube-apiserver and returns when it is gone.
func (c *Cluster) StopAPIServer() {
	c.lab.t.Helper()
	if err := c.programs["kube-apiserver"].Kill(); err != nil {
		c.lab.t.Fatalf("cluster %s: stop the kube-apiserver: %v", c.Name, err)
	}
}

// StartAPIServer starts the kube-apiserver again, with the same data, and the
// kube-controller-manager anew, which on other clusters ends when it cannot renew its
// lease; this one has none, and would look at some kinds again after half a minute only.
// It returns when nodes are heard and controllers act: until then a node counts as lost,
// and a new namespace has no ServiceAccount for pods.
func (c *Cluster) StartAPIServer() {
	c.lab.t.Helper()
	if err := c.programs["kube-controller-manager"].Kill(); err != nil {
		c.lab.t.Fatalf("cluster %s: stop the kube-controller-manager: %v", c.Name, err)
	}
	start := time.Now()
	if err := c.startAPIServer(); err != nil {
		c.lab.t.Fatalf("cluster %s: %v", c.Name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "default"}} // no pod has it
	err := client.IgnoreNotFound(c.client.Delete(context.Background(), account))
	if err := errors.Join(err, c.startManager()); err != nil {
		c.lab.t.Fatalf("cluster %s: %v", c.Name, err)
	}
	err = eventually(startLimit, "kube-controller-manager makes ServiceAccounts", func() error {
		return c.client.Get(context.Background(), client.ObjectKeyFromObject(account), new(corev1.ServiceAccount))
	})
	if err = errors.Join(err, each(c.Nodes, func(n *Node) error { return n.waitHeard(start) })); err != nil {
		c.lab.t.Fatalf("cluster %s: %v", c.Name, err)
	}
}

// FreezeAPIServer has the kube-apiserver accept connections and answer nothing, as a
// machine that hangs does, until thaw is called.
func (c *Cluster) FreezeAPIServer() (thaw func()) {
	c.lab.t.Helper()
	pid := c.programs["kube-apiserver"].PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		c.lab.t.Fatalf("cluster %s: freeze the kube-apiserver: %v", c.Name, err)
	}
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // one that is gone needs none
}

// register makes the Node object before its kubelet does, with the pod network
// that the routes of the lab lead to.
func (n *Node) register() error {
	nets := n.cluster.lab.options.podNets(n.index)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name},
		Spec:       corev1.NodeSpec{PodCIDR: nets[0], PodCIDRs: nets},
	}
	return n.cluster.client.Create(context.Background(), node)
}
