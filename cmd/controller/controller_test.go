package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/testlog"
)

// asController, in the environment, makes this test binary the controller.
const asController = "SLUICE_TEST_AS_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(asController) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is a controller that runs.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  testlog.Buffer
}

// start starts a controller. The end of the test kills it.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asController+"=1", "POD_NAMESPACE=", "KUBECONFIG=")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState tells
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // or it has ended
		<-p.done
		if t.Failed() {
			t.Logf("controller %q:\n%s", args, p.log.String())
		}
	})
	return p
}

// end sends a signal and waits for the end.
func (p *process) end(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(controlplanetest.Patience):
		t.Fatal("it does not end")
	}
}

func TestController(t *testing.T) {
	c := controlplanetest.StartBare(t)
	admin := []string{"--kubeconfig", c.Kubeconfig, "--metrics-address=0", "--health-probe-address=0"}
	refused := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append(admin[:len(admin):len(admin)], args...), &stdout, &stderr); code != 1 {
			t.Errorf("exit status %d", code)
		}
		return stderr.String()
	}
	says := func(t *testing.T, got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("got %s, want %q in it", got, w)
			}
		}
	}
	kubeconfig := func(t *testing.T, name string, cfg *rest.Config) string {
		t.Helper()
		path, err := c.WriteKubeconfig(name, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return "--kubeconfig=" + path
	}

	t.Run("says that the CRDs are missing", func(t *testing.T) {
		says(t, refused(), "controller: the cluster does not know ForeignCluster (core.liqo.io/v1beta1), IP (ipam.liqo.io/v1alpha1), ", "Configuration (networking.liqo.io/v1beta1)",
			"Install the CRDs of this version: kubectl apply --server-side --force-conflicts -f deploy/crds")
	})
	if err := c.Install(deploy.CRDs(), deploy.Manifests()); err != nil {
		t.Fatal(err)
	}
	t.Run("says what the installation lacks", func(t *testing.T) {
		says(t, refused(), "the installation is incomplete", "set --cluster-id", "set --pod-cidr")
	})
	t.Run("says that the namespace is missing", func(t *testing.T) {
		says(t, refused("--liqo-namespace=elsewhere"), "there is no namespace elsewhere", "set --liqo-namespace")
	})
	t.Run("says that the API server is out of reach", func(t *testing.T) {
		cfg := rest.CopyConfig(c.Config)
		cfg.Host = "https://127.0.0.1:1"
		p := start(t, append(admin[2:len(admin):len(admin)], kubeconfig(t, "closed", cfg))...)
		controlplanetest.Eventually(t, "it says so", func(context.Context) error {
			for _, want := range []string{"waiting for the API server", "the API server https://127.0.0.1:1 cannot be reached", "connection refused", "Check that its address"} {
				if got := p.log.String(); !strings.Contains(got, want) {
					return fmt.Errorf("got %s, want %q in it", got, want)
				}
			}
			return nil
		})
		if p.end(t, syscall.SIGTERM); !p.cmd.ProcessState.Success() {
			t.Errorf("it ended with %v", p.cmd.ProcessState)
		}
	})
	t.Run("says that nobody answers", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cfg := rest.CopyConfig(c.Config)
		cfg.Host = "https://" + l.Addr().String()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err = manager.Preflight(ctx, cfg, manager.Options{})
		says(t, fmt.Sprint(err), "does not answer", "no firewall or network policy")
	})
	t.Run("says that the credentials are wrong", func(t *testing.T) {
		cfg := rest.CopyConfig(c.Config)
		cfg.BearerToken = "wrong"
		says(t, refused(kubeconfig(t, "wrong", cfg)), "does not know who this is", "Check the token or certificate")
	})
	t.Run("says which rights are missing", func(t *testing.T) {
		nobody := kubeconfig(t, "nobody", c.ServiceAccount("default", "default"))
		says(t, refused(nobody), "the cluster denies these rights", "list configurations.networking.liqo.io", "watch nodes",
			"update leases.coordination.k8s.io in namespace liqo", "Install the roles of this version")
		ours := kubeconfig(t, "elsewhere", c.ServiceAccount("liqo", "liqo-controller"))
		says(t, refused(ours, "--liqo-namespace=elsewhere"), "create configmaps in namespace elsewhere", "check --liqo-namespace")
	})

	t.Run("is admitted as a pod", func(t *testing.T) {
		if out, err := c.KubectlInput(controllerManifest(t), "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		// What a ReplicaSet would make of it, in a namespace that takes restricted pods only.
		d := deployment(t)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller", Namespace: "liqo", Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec}
		if err := c.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Error(err)
		}
	})

	flags := []string{kubeconfig(t, "controller", c.ServiceAccount("liqo", "liqo-controller")), "--cluster-id=rome", "--pod-cidr=10.243.0.0/16",
		"--leader-election-lease-duration=5s", "--leader-election-renew-deadline=4s", "--leader-election-retry-period=200ms"}
	holder := func(ctx context.Context) (string, error) {
		var l coordinationv1.Lease
		if err := c.Get(ctx, "liqo", kinds.Lease, &l); err != nil || l.Spec.HolderIdentity == nil {
			return "", err
		}
		return *l.Spec.HolderIdentity, nil
	}
	leads := func(t *testing.T, other string) (id string) {
		t.Helper()
		controlplanetest.Eventually(t, "a controller leads", func(ctx context.Context) (err error) {
			if id, err = holder(ctx); err == nil && (id == "" || id == other) {
				err = errors.New("nobody does")
			}
			return err
		})
		return id
	}
	t.Run("works under the shipped roles, and ends soon", func(t *testing.T) {
		p := start(t, append(flags, "--metrics-address=127.0.0.1:0", "--health-probe-address=127.0.0.1:0", "--log-format=json")...)
		controlplanetest.Eventually(t, "the installation is made", func(ctx context.Context) error {
			return c.Get(ctx, "liqo", "internal-cidr", new(ipamv1alpha1.Network)) // the last one
		})
		if p.end(t, syscall.SIGTERM); !p.cmd.ProcessState.Success() { // which is so if it does not end within daemon.StopWithin
			t.Errorf("it ended with %v", p.cmd.ProcessState)
		}
		if id, err := holder(t.Context()); id != "" || err != nil {
			t.Errorf("the lease is held by %q, %v", id, err)
		}
		for line := range strings.Lines(p.log.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
			if strings.Contains(line, `"level":"ERROR"`) {
				t.Errorf("%s", line)
			}
		}
	})
	t.Run("hands over", func(t *testing.T) {
		quiet := append(flags, "--metrics-address=0", "--health-probe-address=0")
		// Nobody waits for the end of this lease.
		one := start(t, append(quiet[:len(quiet):len(quiet)], "--leader-election-lease-duration=1h", "--leader-election-renew-deadline=59m")...)
		first := leads(t, "")
		two := start(t, quiet...)
		controlplanetest.Eventually(t, "the second one waits", func(context.Context) error {
			if !strings.Contains(two.log.String(), "Attempting to acquire leader lease") {
				return errors.New(two.log.String())
			}
			return nil
		})
		one.end(t, syscall.SIGTERM)
		second := leads(t, first)
		c.Delete(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: bootstrap.ClusterIDConfigMap, Namespace: "liqo"}})
		controlplanetest.Eventually(t, "the second one works", func(ctx context.Context) error {
			return c.Get(ctx, "liqo", bootstrap.ClusterIDConfigMap, new(corev1.ConfigMap))
		})
		three := start(t, quiet...)
		two.end(t, syscall.SIGKILL)
		leads(t, second)
		three.end(t, syscall.SIGTERM)
	})
	t.Run("serves metrics and probes", func(t *testing.T) {
		metrics, health := daemontest.FreeAddress(t), daemontest.FreeAddress(t)
		start(t, append(flags, "--metrics-address="+metrics, "--health-probe-address="+health, "--leader-election=false")...)
		for url, want := range map[string]string{
			"http://" + health + "/healthz":  "ok",
			"http://" + health + "/readyz":   "ok",
			"http://" + metrics + "/metrics": `controller_runtime_reconcile_total{controller="bootstrap",result="success"}`,
		} {
			controlplanetest.Eventually(t, url, func(ctx context.Context) error { return get(ctx, url, want) })
		}
		taken := start(t, append(flags, "--metrics-address="+metrics, "--health-probe-address=0")...)
		<-taken.done
		says(t, taken.log.String(), "address already in use", "Choose another port with --metrics-address or --health-probe-address")
	})
	t.Run("ends in time when the API server is gone", func(t *testing.T) {
		p := start(t, append(flags, "--metrics-address=0", "--health-probe-address=0")...)
		leads(t, "")
		c.StopAPIServer()
		p.end(t, syscall.SIGTERM)
	})
	t.Run("waits for an API server that is away", func(t *testing.T) {
		health := daemontest.FreeAddress(t)
		p := start(t, append(flags, "--metrics-address=0", "--health-probe-address="+health, "--leader-election=false")...)
		controlplanetest.Eventually(t, "it lives", func(ctx context.Context) error { return get(ctx, "http://"+health+"/healthz", "ok") })
		if got := p.log.String(); !strings.Contains(got, "waiting for the API server") {
			t.Errorf("it says %s", got)
		}
		if err := c.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "it works", func(ctx context.Context) error { return get(ctx, "http://"+health+"/readyz", "ok") })
		p.end(t, syscall.SIGTERM)
	})
}

func controllerManifest(t *testing.T) string {
	t.Helper()
	b, err := fs.ReadFile(deploy.Manifests(), "controller/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// deployment is the one that the installation runs the controller by.
func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	text, _, _ := strings.Cut(controllerManifest(t), "\n---\n")
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

func TestShippedArguments(t *testing.T) {
	args := strings.Join(deployment(t).Spec.Template.Spec.Containers[0].Args, " ")
	if _, err := parseFlags(strings.Fields(args), nil); err == nil {
		t.Error("it would start with the placeholders")
	}
	args = strings.NewReplacer("<CLUSTER_ID>", "rome", "<POD_CIDR>", "10.243.0.0/16").Replace(args)
	if _, err := parseFlags(strings.Fields(args), nil); err != nil {
		t.Error(err)
	}
}

// get wants a page with text in it.
func get(ctx context.Context, url, text string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(b), text)) {
		err = fmt.Errorf("%s: %.300s", resp.Status, b)
	}
	return err
}
