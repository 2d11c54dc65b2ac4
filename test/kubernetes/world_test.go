package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// patience bounds what takes seconds on a machine that has nothing else to do.
	patience = 90 * time.Second
	// commandLimit bounds one command of an administrator.
	commandLimit = 4 * time.Minute
	// nodePort is the fixed node port of gateway servers, as in the document about
	// declarative peerings.
	nodePort = "30742"
	// tag is that of the images under test.
	tag = "test"
)

// world is clusters with a lab around them, and what an administrator has.
type world struct {
	*kubelab.Lab
	// a and b are the first two clusters: the local one, which has the gateway
	// clients, and the remote one, which has the servers.
	a, b *kubelab.Cluster
	// bin is the folder with liqoctl and kubectl.
	bin string
	// installed and joined tell whether the clusters have what is under test, and
	// whether a and b are connected as connectArgs say. Parts leave both as they are
	// for those that follow, since each takes long. altered tells that the
	// installation has other options than those of the test.
	installed, altered, joined bool
	// before is what there was at the beginning of the parts that must leave nothing.
	before *inventory
}

// newWorld brings up clusters that have our images, and nothing installed.
func newWorld(t *testing.T, o kubelab.Options) *world {
	t.Helper()
	kubelab.Require(t, "tshark", "tmux", "jq", "openssl")
	archives, liqoctl := programs(t)
	o.Images = append(o.Images, archives...)
	start := time.Now()
	l := kubelab.New(t, o)
	t.Logf("%d clusters are up after %v", len(l.Clusters), time.Since(start).Round(100*time.Millisecond))
	w := &world{Lab: l, a: l.Clusters[0], b: l.Clusters[1], bin: filepath.Join(l.Dir, "bin")}
	if err := os.Mkdir(w.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"liqoctl": liqoctl, "kubectl": l.Tool("kubectl")} {
		if err := os.Symlink(path, filepath.Join(w.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// run runs a program as an administrator who sits on the WAN does.
func (w *world) run(ctx context.Context, cmd *exec.Cmd) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.WAN.Do(cmd.Start); err != nil {
		return "", "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	return out.String(), errs.String(), err
}

// command is liqoctl with arguments, not yet started. Nothing of the
// administrator's own settings gets into it.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.bin, "liqoctl"), args...)
	cmd.Dir, cmd.Env = w.Dir, w.environment()
	return cmd
}

func (w *world) environment() []string {
	return []string{"PATH=" + w.bin + ":" + os.Getenv("PATH"), "HOME=" + w.Dir}
}

// liqoctl runs liqoctl, which must succeed.
func (w *world) liqoctl(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := w.tryLiqoctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr
}

// tryLiqoctl runs liqoctl. The error holds what it said.
func (w *world) tryLiqoctl(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	stdout, stderr, err = w.run(ctx, w.command(args...))
	if err != nil {
		err = fmt.Errorf("liqoctl %s: %w\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout, stderr, err
}

// both adds the flags for a as the local cluster and b as the remote one.
func (w *world) both(args ...string) []string {
	return w.between(w.a, w.b, args...)
}

// between adds the flags for a local and a remote cluster.
func (w *world) between(local, remote *kubelab.Cluster, args ...string) []string {
	return append(args, "--kubeconfig", local.Kubeconfig, "--remote-kubeconfig", remote.Kubeconfig)
}

// httpClient asks as an administrator who sits on the WAN does.
func (w *world) httpClient() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = w.WAN.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}}
}

// kubectl runs kubectl, which must succeed.
func (w *world) kubectl(t *testing.T, c *kubelab.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(args...)
	if err != nil {
		t.Fatalf("%s: kubectl %s: %v\n%s", c.Name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// installArgs is what an administrator says to install what is under test. Which images
// these are liqoctl knows by itself.
func installArgs(c *kubelab.Cluster, more ...string) []string {
	return append([]string{"install", "--kubeconfig", c.Kubeconfig, "--cluster-id", c.Name,
		"--pod-cidr", kubelab.PodCIDR, "--service-cidr", kubelab.ServiceCIDR}, more...)
}

// each does something to all clusters at the same time.
func (w *world) each(t *testing.T, f func(c *kubelab.Cluster) error) {
	t.Helper()
	errs := make([]error, len(w.Clusters))
	var wg sync.WaitGroup
	for i, c := range w.Clusters {
		wg.Go(func() { errs[i] = f(c) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// ready has what is under test installed on all clusters, with the options of the
// test unless others will do.
func (w *world) ready(t *testing.T, asIs bool) {
	t.Helper()
	switch {
	case !w.installed:
		w.install(t)
	case w.altered && !asIs:
		w.each(t, w.reinstall)
		w.altered = false
	}
}

// install installs on all clusters. Further options stay for the parts that are
// content with any.
func (w *world) install(t *testing.T, more ...string) {
	t.Helper()
	start := time.Now()
	w.altered = w.altered || len(more) > 0
	w.each(t, func(c *kubelab.Cluster) error {
		_, _, err := w.tryLiqoctl(t.Context(), installArgs(c, more...)...)
		return err
	})
	w.installed = true
	t.Logf("installed on %d clusters after %v", len(w.Clusters), time.Since(start).Round(100*time.Millisecond))
}

// reinstall undoes what other options than those of the test have changed. It is for
// clean-ups, in which the context of the test is over.
func (w *world) reinstall(c *kubelab.Cluster) error {
	_, _, err := w.tryLiqoctl(context.Background(), installArgs(c, "--reset-values")...)
	return err
}

// uninstall removes the installation from all clusters.
func (w *world) uninstall(t *testing.T, more ...string) {
	t.Helper()
	w.installed, w.altered = false, false
	w.each(t, func(c *kubelab.Cluster) error {
		_, _, err := w.tryLiqoctl(t.Context(), append([]string{"uninstall", "--kubeconfig", c.Kubeconfig, "--skip-confirm"}, more...)...)
		return err
	})
}

// connectArgs connects a to b, whose server is behind a NAT.
func (w *world) connectArgs(more ...string) []string {
	return append(w.both("network", "connect", "--wait", "--gw-server-service-type", "NodePort",
		"--gw-server-service-nodeport", nodePort, "--gw-client-address", w.b.Public.String()), more...)
}

// connect connects a and b, unless they are. The connection stays for other parts.
func (w *world) connect(t *testing.T) {
	t.Helper()
	if w.joined {
		return
	}
	w.joined = true // if it is not, it is to be reset
	start := time.Now()
	w.liqoctl(t, w.connectArgs()...)
	t.Logf("connected after %v", time.Since(start).Round(10*time.Millisecond))
}

// connectAs connects a and b in another way until the test ends.
func (w *world) connectAs(t *testing.T, more ...string) {
	t.Helper()
	w.apart(t)
	t.Cleanup(func() { w.reset(t) })
	w.liqoctl(t, w.connectArgs(more...)...)
}

// apart ends the connection, if there is one.
func (w *world) apart(t *testing.T) {
	t.Helper()
	if w.joined {
		w.reset(t)
	}
}

// disconnect ends the connection.
func (w *world) disconnect(t *testing.T) {
	t.Helper()
	w.liqoctl(t, w.both("network", "disconnect", "--wait", "--skip-confirm")...)
}

// reset ends the connection and forgets the peer. It may be called when there is
// nothing to forget, and when the test has failed.
func (w *world) reset(t *testing.T) {
	t.Helper()
	w.joined = false
	// The context of a test is over when its clean-ups run.
	if _, _, err := w.tryLiqoctl(context.Background(), w.both("network", "reset", "--wait", "--skip-confirm")...); err != nil {
		t.Error(err)
		return
	}
	if err := w.deleteTenants(); err != nil {
		t.Error(err)
	}
}

// deleteTenants deletes the tenant namespaces of a and b, and waits until they are
// gone.
func (w *world) deleteTenants() error {
	return onBoth(w, func(c *kubelab.Cluster) error {
		_, err := c.Kubectl("delete", "namespaces", "-l", "liqo.io/tenant-namespace=true", "--wait=true", "--timeout="+patience.String())
		return err
	})
}

// deleteNamespace deletes a namespace, and first its pods, with what makes them: they would wait before they end, for
// connections that there are none of any more.
func deleteNamespace(c *kubelab.Cluster, name string) error {
	for _, args := range [][]string{
		{"deployments,statefulsets,replicasets", "--all", "--cascade=orphan", "-n", name},
		{"pods", "--all", "--grace-period=1", "--wait=false", "-n", name},
		{"namespace", name, "--ignore-not-found", "--wait=true", "--timeout=" + patience.String()},
	} {
		if out, err := c.Kubectl(append([]string{"delete"}, args...)...); err != nil {
			return fmt.Errorf("delete %s of %s: %w\n%s", args[0], c.Name, err, out)
		}
	}
	return nil
}

// onBoth does something to a and b at the same time.
func onBoth(w *world, do func(c *kubelab.Cluster) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for i, c := range []*kubelab.Cluster{w.a, w.b} {
		wg.Go(func() { errs[i] = do(c) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// connected waits until both sides call themselves connected.
func (w *world) connected(t *testing.T) {
	t.Helper()
	lab.Eventually(t, patience, "both Connections are Connected", func() error {
		return errors.Join(connectedHere(t.Context(), w.a, w.b.Name), connectedHere(t.Context(), w.b, w.a.Name))
	})
}

// connectedHere tells whether c calls itself connected to a peer.
func connectedHere(ctx context.Context, c *kubelab.Cluster, peer string) error {
	var list networkingv1beta1.ConnectionList
	if err := c.Client().List(ctx, &list, ofPeer(peer)); err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("%s has %d Connections to %s", c.Name, len(list.Items), peer)
	}
	if got := list.Items[0].Status.Value; got != networkingv1beta1.Connected {
		return fmt.Errorf("the Connection of %s to %s is %q", c.Name, peer, got)
	}
	return nil
}

func ofPeer(name string) client.MatchingLabels {
	return client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: name}
}

// remote is what the pod address of the other cluster, of a and b, is called in c.
func (w *world) remote(t *testing.T, c *kubelab.Cluster, addr netip.Addr) netip.Addr {
	t.Helper()
	peer := w.b
	if c == w.b {
		peer = w.a
	}
	return w.remoteOf(t, c, peer, addr)
}

// remoteOf is what a pod address of a peer is called in c.
func (w *world) remoteOf(t *testing.T, c, peer *kubelab.Cluster, addr netip.Addr) netip.Addr {
	t.Helper()
	cidrs, err := remoteCIDRs(t.Context(), c, peer.Name)
	for _, cidr := range cidrs {
		if cidr.Addr().Is4() == addr.Is4() {
			return through(cidr, addr)
		}
	}
	t.Fatalf("%s has the pod CIDRs %s of %s (%v), none of the family of %s", c.Name, cidrs, peer.Name, err, addr)
	return netip.Addr{}
}

// remoteCIDR is what the pod CIDR of a peer, which is one, is called in c.
func remoteCIDR(ctx context.Context, c *kubelab.Cluster, peer string) (netip.Prefix, error) {
	all, err := remoteCIDRs(ctx, c, peer)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s has the pod CIDRs %s of %s", c.Name, all, peer)
	}
	if err != nil {
		return netip.Prefix{}, err
	}
	return all[0], nil
}

// remoteCIDRs are what the pod CIDRs of a peer are called in c.
func remoteCIDRs(ctx context.Context, c *kubelab.Cluster, peer string) (all []netip.Prefix, err error) {
	var list networkingv1beta1.ConfigurationList
	if err := c.Client().List(ctx, &list, ofPeer(peer)); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 || list.Items[0].Status.Remote == nil {
		return nil, fmt.Errorf("%s has no status of a Configuration for %s", c.Name, peer)
	}
	for _, cidr := range list.Items[0].Status.Remote.CIDR.Pod.List {
		p, err := cidr.Prefix()
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// through is the address of the same host in another prefix of its family.
func through(p netip.Prefix, addr netip.Addr) netip.Addr {
	to, from := p.Masked().Addr().AsSlice(), addr.AsSlice()
	for bit := p.Bits(); bit < 8*len(to); bit++ {
		to[bit/8] |= from[bit/8] & (0x80 >> (bit % 8))
	}
	out, _ := netip.AddrFromSlice(to)
	return out
}

// explain logs what the clusters are like when the test has failed. What pods and
// events there are at the very end the lab tells by itself.
func (w *world) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, c := range w.Clusters {
		out, err := c.Kubectl("get", "pods,configurations,gatewayservers,gatewayclients,connections,internalnodes,internalfabrics", "-A", "-o", "wide")
		t.Logf("--- %s (%v)\n%s", c.Name, err, out)
	}
	out, errs, err := w.run(context.Background(), w.command(w.both("network", "doctor")...))
	t.Logf("--- the doctor says (%v)\n%s%s", err, errs, out)
}
