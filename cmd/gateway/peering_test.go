package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/testlog"
	"github.com/sluice-net/sluice/tunnel"
)

// side is one end of a peering: a tenant namespace with the objects that a
// person and the controllers make there, and what its gateway processes need.
// Both ends of a test live in one control plane.
type side struct {
	c          *controlplanetest.Cluster
	namespace  string
	mode       string // server or client
	peer       string // cluster ID
	host       string // the gateway's address
	serverHost string
	key        tunnel.PrivateKey
	peerKey    tunnel.PublicKey
	keysDir    string
	kubeconfig string
	number     int
}

var sides struct {
	sync.Mutex
	count int
}

// newPeering makes both ends of a peering but none of their objects.
func newPeering(t testing.TB, c *controlplanetest.Cluster) (server, client *side) {
	t.Helper()
	make := func(mode string) *side {
		sides.Lock()
		sides.count++
		n := sides.count
		sides.Unlock()
		s := &side{
			c: c, mode: mode, number: n, namespace: fmt.Sprintf("tenant-%d", n), peer: fmt.Sprintf("peer-%d", n),
			host: fmt.Sprintf("127.7.%d.1", n), key: tunnel.GeneratePrivateKey(), keysDir: t.TempDir(),
		}
		if err := c.CreateNamespace(s.namespace, nil); err != nil {
			t.Fatal(err)
		}
		s.create(t, s.manifests(roleManifests)...)
		kubeconfig, err := c.WriteKubeconfig(s.namespace, c.ServiceAccount(s.namespace, "gw"))
		if err != nil {
			t.Fatal(err)
		}
		s.kubeconfig = kubeconfig
		s.writeKeys(t)
		return s
	}
	server, client = make("server"), make("client")
	server.serverHost, client.serverHost = server.host, server.host
	server.peerKey, client.peerKey = client.key.Public(), server.key.Public()
	return server, client
}

// writeKeys puts the keys where a kubelet does, and as it does: all files at
// once, by the swap of a link.
func (s *side) writeKeys(t testing.TB) {
	t.Helper()
	version, err := os.MkdirTemp(s.keysDir, "..version")
	if err != nil {
		t.Fatal(err)
	}
	public := s.key.Public()
	next := filepath.Join(s.keysDir, "..data_tmp")
	err = errors.Join(
		os.WriteFile(filepath.Join(version, "privateKey"), s.key[:], 0o600),
		os.WriteFile(filepath.Join(version, "publicKey"), public[:], 0o600),
		os.Symlink(filepath.Base(version), next),
		os.Rename(next, filepath.Join(s.keysDir, "..data")),
	)
	for _, name := range []string{"privateKey", "publicKey"} {
		_ = os.Symlink(filepath.Join("..data", name), filepath.Join(s.keysDir, name)) // may be there
	}
	if err != nil {
		t.Fatal(err)
	}
}

// args are the command line that a template makes.
func (s *side) args(t testing.TB, pod string, more ...string) []string {
	return append([]string{
		"--name=gw", "--namespace=" + s.namespace, "--remote-cluster-id=" + s.peer, "--mode=" + s.mode, "--kubeconfig=" + s.kubeconfig,
		"--keys-dir=" + s.keysDir, "--bind-address=" + s.host, "--pod-name=" + pod, "--node-name=worker-" + fmt.Sprint(s.number),
		"--metrics-address=" + s.host + ":8082", "--health-probe-address=" + s.host + ":8083", "--admin-socket=" + s.socket(t, pod),
		"--ping-update-status-interval=1s",
	}, more...)
}

// socket is short enough for a socket, and the same for a pod all the time.
func (s *side) socket(t testing.TB, pod string) string {
	t.Helper()
	return filepath.Join(os.TempDir(), fmt.Sprintf("sluice-%d-%d-%s.sock", os.Getpid(), s.number, pod))
}

// manifests fills in one of the templates below and splits it.
func (s *side) manifests(template string) []string {
	return strings.Split(controlplanetest.PeeringEnd{
		Namespace: s.namespace, Peer: s.peer, Mode: s.mode, Host: s.host, Server: s.serverHost, PeerKey: s.peerKey, Number: s.number,
	}.Fill(template), "\n---\n")
}

// create creates objects with their status, as administrator.
func (s *side) create(t testing.TB, docs ...string) {
	t.Helper()
	s.c.CreateText(t, strings.Join(docs, "\n---\n"))
}

// roleManifests are what a gateway may do.
const roleManifests = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: gw, namespace: $NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gw-gw, namespace: $NAMESPACE}
rules:
- apiGroups: [networking.liqo.io]
  resources: [gatewayservers, gatewayclients, configurations, publickeies, internalfabrics, genevetunnels, firewallconfigurations, connections, exportedservices]
  verbs: [get, list, watch]
- apiGroups: [networking.liqo.io]
  resources: [importedservices]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [networking.liqo.io]
  resources: [connections/status]
  resourceNames: [gw-gw]
  verbs: [get, patch, update]
- apiGroups: [networking.liqo.io]
  resources: [firewallconfigurations/status]
  verbs: [get, patch]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [gw.$NAMESPACE.$MODE.connections.liqo.io]
  verbs: [get, list, watch, update, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gw-gw, namespace: $NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gw-gw}
subjects: [{kind: ServiceAccount, name: gw, namespace: $NAMESPACE}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gw-$NAMESPACE-gw, namespace: liqo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: liqo-gateway}
subjects: [{kind: ServiceAccount, name: gw, namespace: $NAMESPACE}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: liqo-gateway-$NAMESPACE-gw}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqo-gateway}
subjects: [{kind: ServiceAccount, name: gw, namespace: $NAMESPACE}]`

// objectManifests are everything that a gateway works by.
const objectManifests = controlplanetest.GatewayObjects + `
---
apiVersion: networking.liqo.io/v1beta1
kind: InternalNode
metadata: {name: worker-$N}
spec: {interface: {gateway: {name: liqo.w$N}, node: {ip: 10.80.$N.2}}}
status: {nodeIP: {local: 127.7.$N.2, remote: 127.7.$N.3}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GeneveTunnel
metadata: {name: $PEER-worker-$N, namespace: $NAMESPACE}
spec: {id: 7, internalFabricRef: {name: $PEER}, internalNodeRef: {name: worker-$N}}
---
apiVersion: networking.liqo.io/v1beta1
kind: RouteConfiguration
metadata: {name: worker-$N-gw-node, namespace: liqo, labels: {networking.liqo.io/route-category: gateway, networking.liqo.io/route-subcategory: fabric}}
spec: {table: {name: worker-$N, rules: [{iif: liqo-tunnel, routes: [{dst: 10.243.$N.5/32, gw: 10.80.$N.2}]}]}}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: printer, namespace: $NAMESPACE}
spec: {ip: 192.168.1.$N}
status: {ip: 10.70.0.$N, cidr: 10.70.0.0/16}
` + controlplanetest.GatewayConnection + `
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: gw.$NAMESPACE.$MODE.connections.liqo.io, namespace: $NAMESPACE, labels: {liqo.io/managed: "true"}}`

// pod is a gateway process.
type pod struct {
	s      *side
	name   string
	socket string
	cmd    *exec.Cmd
	log    testlog.Buffer
	done   chan struct{}
}

// start runs a gateway as a process, which a test can kill.
func (s *side) start(t testing.TB, name string, more ...string) *pod {
	t.Helper()
	p := &pod{s: s, name: name, socket: s.socket(t, name), done: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], s.args(t, name, more...)...)
	p.cmd.Env = append(os.Environ(), "TEST_RUN_GATEWAY=1")
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait() // how it ended is in the log
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		os.Remove(p.socket)
		if t.Failed() {
			t.Logf("%s of %s:\n%s", p.name, s.namespace, p.log.String())
		}
	})
	return p
}

// kill ends the process as a failing machine does.
func (p *pod) kill() {
	p.cmd.Process.Kill() // gone already is as good
	<-p.done
}

// report asks the process how it is.
func (p *pod) report(ctx context.Context) (r report, err error) {
	body, err := program.FetchStatus(ctx, p.socket)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(body, &r)
}

// connection reads the Connection.
func (s *side) connection(ctx context.Context) (c networkingv1beta1.Connection, err error) {
	err = s.c.Get(ctx, s.namespace, "gw-gw", &c)
	return c, err
}

// is checks the Connection for a value, and that the configuration is applied.
func (s *side) is(ctx context.Context, value networkingv1beta1.ConnectionValue) error {
	c, err := s.connection(ctx)
	if err != nil {
		return err
	}
	applied := meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionConfigurationApplied))
	if c.Status.Value != value || applied == nil || applied.Status != metav1.ConditionTrue {
		return fmt.Errorf("%s: status is %+v", s.namespace, c.Status)
	}
	return nil
}

// untilConnected waits for both ends.
func untilConnected(t testing.TB, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		controlplanetest.Eventually(t, s.mode+" connected", func(ctx context.Context) error { return s.is(ctx, networkingv1beta1.Connected) })
	}
}

// lease reads the Lease.
func (s *side) lease(ctx context.Context) (l coordinationv1.Lease, err error) {
	err = s.c.Get(ctx, s.namespace, s.leaseName(), &l)
	return l, err
}

func (s *side) leaseName() string {
	return fmt.Sprintf("gw.%s.%s.connections.liqo.io", s.namespace, s.mode)
}

// within waits for what must come soon, and returns when it came.
func within(t testing.TB, patience time.Duration, what string, check func(ctx context.Context) error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := check(context.Background())
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
