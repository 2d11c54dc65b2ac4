package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/underlay"
)

// demo is two clusters on loopback.
type demo struct {
	dir, gateway string
	net          byte // of loopback, 127.net.0.0/16
	clusters     [2]*cluster

	cancel context.CancelFunc // stops the nodes
	wg     sync.WaitGroup
}

// cluster is one side: a gateway process and its simulated nodes.
type cluster struct {
	name        string
	gatewayAddr netip.Addr
	remapped    netip.Prefix // how this cluster sees the other's pods
	manifests   lab.Manifests
	links       []*dataplanetest.Link
	speaks      []geneve.Encapsulation
	pods        []*netstack.Stack
	podAddrs    []netip.Addr

	process *exec.Cmd
	exited  chan error
}

const (
	genevePort = 6091
	mtu        = 1340
)

var internalGateway = netip.MustParseAddr("10.80.0.1")

// newDemo writes the manifests of both sides.
func newDemo(dir, gateway string) (*demo, error) {
	d := &demo{dir: dir, gateway: gateway}
	var err error
	if d.net, err = freeNet(); err != nil {
		return nil, err
	}
	keys := [2]lab.KeyPair{lab.NewKeyPair(), lab.NewKeyPair()}
	remapped := [2]netip.Prefix{dataplanetest.RemappedB, dataplanetest.RemappedA}
	external := [2]netip.Prefix{dataplanetest.ExternalB, dataplanetest.ExternalA}
	for i := range d.clusters {
		c := &cluster{
			name: string(rune('a' + i)), gatewayAddr: d.loopback(i, 2), remapped: remapped[i],
			speaks: []geneve.Encapsulation{geneve.Geneve, geneve.VXLAN}, exited: make(chan error, 1),
		}
		c.manifests = lab.Manifests{
			Server: i == 0, ClusterID: "cluster-" + c.name, PeerID: "cluster-" + string(rune('b'-i)),
			PrivateKey: keys[i].Private(), PeerKey: keys[1-i].Public(),
			Port: 51840, Endpoint: d.loopback(0, 2).String(), MTU: mtu,
			Gateway: c.gatewayAddr, Internal: internalGateway,
			Pods: []netip.Prefix{dataplanetest.PodCIDR}, External: []netip.Prefix{dataplanetest.ExternalCIDR},
			RemappedPods: []netip.Prefix{c.remapped}, RemappedExternal: []netip.Prefix{external[i]},
		}
		for n := range c.speaks {
			c.manifests.Nodes = append(c.manifests.Nodes, lab.NodeManifest{
				Name: c.nodeName(n), Underlay: d.loopback(i, 11+n), Internal: nodeInternal(n), VNI: 100*(i+1) + n,
				Pods: []netip.Prefix{netip.PrefixFrom(dataplanetest.PodAddr(n, 0), 24).Masked()},
			})
		}
		for file, text := range c.manifests.Files() {
			path := filepath.Join(d.manifestsDir(c), file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		d.clusters[i] = c
	}
	return d, nil
}

// loopback returns an address of one side, 127.NET.(side+1).host.
func (d *demo) loopback(side, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, d.net, byte(side + 1), byte(host)})
}

// freeNet returns the first NET on which no other demo runs.
func freeNet() (byte, error) {
	for n := range byte(250) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.1.2:8082", n))
		if err == nil {
			return n, l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("loopback addresses beyond 127.0.0.1 are needed: %w", err)
		}
	}
	return 0, errors.New("port 8082 is in use on every loopback network")
}

func nodeInternal(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 80, 0, byte(11 + n)}) }

func (c *cluster) nodeName(n int) string { return fmt.Sprintf("node-%s%d", c.name, n+1) }

func (d *demo) manifestsDir(c *cluster) string { return filepath.Join(d.dir, c.name) }
func (d *demo) logFile(c *cluster) string      { return filepath.Join(d.dir, c.name+".log") }
func (d *demo) socket(c *cluster) string       { return filepath.Join(d.dir, c.name+".sock") }
func (c *cluster) metrics() string             { return c.gatewayAddr.String() + ":8082" }

// startGateways starts the server first: WireGuard repeats a first message that
// nobody received only after five seconds.
func (d *demo) startGateways(ctx context.Context) (string, error) {
	for _, c := range d.clusters {
		if err := d.startGateway(c); err != nil {
			return "", err
		}
		if err := poll(ctx, func() error { return d.running(c, httpOK("http://"+c.gatewayAddr.String()+":8083/readyz")) }); err != nil {
			return "", fmt.Errorf("gateway of cluster %s: %w", c.name, err)
		}
	}
	return "", nil
}

func (d *demo) startGateway(c *cluster) error {
	log, err := os.Create(d.logFile(c))
	if err != nil {
		return err
	}
	c.process = exec.Command(d.gateway,
		"--manifests", d.manifestsDir(c), "--bind-address", c.gatewayAddr.String(),
		"--admin-socket", d.socket(c), "--metrics-address", c.metrics(),
		"--health-probe-address", c.gatewayAddr.String()+":8083")
	c.process.Stdout, c.process.Stderr = log, log
	// Ctrl-C reaches the demo, which then stops the gateways in order.
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.process.Start(); err != nil {
		return fmt.Errorf("start %s: %w (`make build` makes it)", d.gateway, err)
	}
	go func() { c.exited <- c.process.Wait(); log.Close() }()
	return nil
}

// running returns err unless the gateway of c has ended, which says more.
func (d *demo) running(c *cluster, err error) error {
	select {
	case end := <-c.exited:
		c.exited <- end
		if end == nil {
			end = errors.New("exit status 0")
		}
		return errFinal{fmt.Errorf("it ended: %w", end)}
	default:
		return err
	}
}

func (d *demo) connectNodes(ctx context.Context) (string, error) {
	nodesCtx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	for i, c := range d.clusters {
		for n, speaks := range c.speaks {
			node, link, err := d.startNode(nodesCtx, i, n, speaks)
			if err != nil {
				return "", err
			}
			c.links = append(c.links, link)
			addr := dataplanetest.PodAddr(n, 0)
			pod, err := node.AddPod(addr)
			if err != nil {
				return "", err
			}
			c.pods, c.podAddrs = append(c.pods, pod), append(c.podAddrs, addr)
		}
	}
	for _, c := range d.clusters {
		for n, link := range c.links {
			select {
			case <-link.Ready():
			case <-ctx.Done():
				return "", fmt.Errorf("%s gets no answer to its ARP requests", c.nodeName(n))
			}
		}
	}
	return "", nil
}

func (d *demo) startNode(ctx context.Context, side, n int, speaks geneve.Encapsulation) (*dataplanetest.Node, *dataplanetest.Link, error) {
	c := d.clusters[side]
	socket, err := underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(d.loopback(side, 11+n), genevePort), GSO: true})
	if err != nil {
		return nil, nil, fmt.Errorf("socket of %s: %w", c.nodeName(n), err)
	}
	node := dataplanetest.NewNode(dataplanetest.NodeConfig{Name: c.nodeName(n), Socket: socket, MTU: mtu, SuperSegments: true})
	link := node.Connect(dataplanetest.LinkConfig{
		Gateway: netip.AddrPortFrom(c.gatewayAddr, genevePort), VNI: geneve.VNI(100*(side+1) + n), Encapsulation: speaks,
		Internal: nodeInternal(n), GatewayInternal: internalGateway,
	})
	d.wg.Go(func() {
		if err := node.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
	})
	return node, link, nil
}

func (d *demo) waitConnected(ctx context.Context) (string, error) {
	for _, c := range d.clusters {
		path := filepath.Join(d.manifestsDir(c), "status", "connection.yaml")
		err := poll(ctx, func() error {
			b, err := os.ReadFile(path)
			if err == nil && !strings.Contains(string(b), "value: Connected") {
				err = errors.New("not Connected yet")
			}
			return d.running(c, err)
		})
		if err != nil {
			return "", fmt.Errorf("cluster %s: %w", c.name, err)
		}
	}
	return "", nil
}

// errFinal is not worth polling on.
type errFinal struct{ error }

// poll calls f until it succeeds, and returns its last error when ctx ends.
func poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		var final errFinal
		if err == nil || errors.As(err, &final) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// close ends what was started and removes the files, unless they are needed to
// understand what went wrong.
func (d *demo) close(keep bool) {
	for _, c := range d.clusters {
		if c.process != nil && c.process.Process != nil {
			_ = c.process.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, c := range d.clusters {
		if c.process == nil || c.process.Process == nil {
			continue
		}
		select {
		case <-c.exited:
		case <-time.After(3 * time.Second):
			_ = c.process.Process.Kill()
			<-c.exited
		}
	}
	if d.cancel != nil {
		d.cancel()
	}
	d.wg.Wait()
	os.RemoveAll(d.dir)
}
