package kubelab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// startLimit bounds the start of each part, on a loaded machine.
	startLimit = 3 * time.Minute
	// kubectlLimit bounds one kubectl, which may wait for something.
	kubectlLimit = 5 * time.Minute
)

// Cluster is one Kubernetes cluster behind its router.
type Cluster struct {
	Name string
	// Router translates between the LAN, which is the same in every cluster, and
	// the WAN.
	Router *lab.Host
	// Public is the router's address on the WAN. TCP port 6443 there is the API
	// server's, UDP ports 30000 to 32767 are the first node's, or another's once that
	// one was lost.
	Public netip.Addr
	// Kubeconfig is a file, an administrator's, to be used on the WAN host.
	Kubeconfig string
	// Nodes are called NAME-1 and so on.
	Nodes []*Node

	lab       *Lab
	lan       int       // which LAN it has
	plane     *lab.Host // where the control plane runs
	dir       string
	ports     *Node // to which the router leads node ports
	authority *authority
	config    *rest.Config
	client    client.Client
	programs  map[string]*lab.Process // of the control plane
}

// newCluster makes the hosts of a cluster and its files. pause is the program
// that nodes run first.
func (l *Lab) newCluster(index int, name, pause string) *Cluster {
	l.t.Helper()
	c := &Cluster{
		Name: name, Public: publicAddr(index), Router: l.Host(name + "-router"),
		lab: l, plane: l.Host(name + "-plane"), dir: filepath.Join(l.Dir, name), programs: map[string]*lab.Process{},
	}
	if l.options.Routed {
		c.lan = index
	}
	for i := range l.options.Nodes {
		c.Nodes = append(c.Nodes, l.newNode(c, i, pause))
	}
	c.buildRouter()
	if err := c.writeCredentials(); err != nil {
		l.t.Fatalf("cluster %s: credentials: %v", name, err)
	}
	return c
}

// start starts everything and returns when all nodes are ready. The nodes boot
// while the API server starts, as kubelets wait for it anyway.
func (c *Cluster) start() error {
	booted := make(chan error, 1)
	go func() { booted <- each(c.Nodes, (*Node).boot) }()
	err := c.startPlane()
	if err = errors.Join(err, <-booted); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if err := each(c.Nodes, (*Node).startAgents); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if c.lab.options.NetworkPolicies {
		ctx, stop := context.WithCancel(context.Background())
		c.lab.t.Cleanup(stop)
		if err := c.enforcePolicies(ctx); err != nil {
			return fmt.Errorf("cluster %s: NetworkPolicies: %w", c.Name, err)
		}
	}
	err = each(c.Nodes, func(n *Node) error { return n.waitReady(time.Time{}) })
	if err == nil && c.lab.options.DNS {
		err = c.startDNS()
	}
	return err
}

// Config is an administrator's, for clients in the test's own process: it dials
// from the WAN host.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client is an administrator's. It does not cache.
func (c *Cluster) Client() client.Client { return c.client }

// connect makes the administrator's client.
func (c *Cluster) connect(credentials pair) (err error) {
	c.config = c.configFor(credentials)
	c.config.Dial = c.lab.dialWAN
	c.client, err = client.New(c.config, client.Options{Scheme: kinds.Scheme()})
	return err
}

// configFor is how the administrator's host reaches the API server as somebody.
func (c *Cluster) configFor(p pair) *rest.Config {
	return &rest.Config{
		Host: fmt.Sprintf("https://%s:%d", c.Public, apiPort), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem, CertData: p.cert, KeyData: p.key},
	}
}

// KubeconfigFor writes a kubeconfig of a user, whose rights are those of the
// group as well, that is worth nothing after the expiry.
func (c *Cluster) KubeconfigFor(user, group string, expiry time.Time) (string, error) {
	p, err := c.authority.client(user, group, expiry)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(c.dir, user+"-*.kubeconfig")
	if err != nil {
		return "", err
	}
	f.Close()
	return f.Name(), writeKubeconfig(f.Name(), c.Name, user, c.configFor(p))
}

func (l *Lab) dialWAN(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = l.WAN.Apart(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Kubectl runs kubectl on the WAN host as administrator. The error holds what it
// said.
func (c *Cluster) Kubectl(args ...string) (string, error) { return c.KubectlInput("", args...) }

// KubectlInput is Kubectl with text on its standard input.
func (c *Cluster) KubectlInput(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), kubectlLimit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, c.lab.Tool("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := c.lab.WAN.Exec(cmd); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// Load imports an archive of images on every node.
func (c *Cluster) Load(archive string) {
	c.lab.t.Helper()
	if err := each(c.Nodes, func(n *Node) error { return n.importImages(archive) }); err != nil {
		c.lab.t.Fatal(err)
	}
}

// condition returns a condition of a node.
func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
