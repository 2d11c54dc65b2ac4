package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/deploy/images/gobuild"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	liqoctlPackage = "github.com/sluice-net/sluice/cmd/liqoctl"
	// version is that of liqoctl, and the tag of the images: those of the tree, which no registry has.
	version = "lab"
	// nodePort is where milan's gateway is behind its router.
	nodePort = "30742"
	// moreImages is a variable with archives of images that the nodes get as well, separated by spaces.
	moreImages = "SLUICE_LAB_IMAGES"
	// stepLimit bounds each command.
	stepLimit = 5 * time.Minute
)

// web is a Deployment of two pods that say who they are.
//
//go:embed web.yaml
var web string

// holding is the lab with what was put into it.
type holding struct {
	*kubelab.Lab
	rome, milan *kubelab.Cluster
	bin         string // folder of the administrator's programs
	say         func(string)
	// run runs one of them. The error holds what it said.
	run func(ctx context.Context, program string, args ...string) (string, error)
}

// hold builds the lab, says so, and keeps it until a signal comes.
func hold(ctx context.Context) error {
	syscall.CloseOnExec(3) // or the programs of the lab keep it open
	said := os.NewFile(3, "said")
	say := func(text string) { fmt.Fprintln(said, text) }
	err := holdLocked(ctx, said, say)
	if ctx.Err() != nil {
		err = nil // whatever it led to, the end was wanted
		say("interrupted")
	} else if err != nil {
		say(err.Error())
	}
	return err
}

func holdLocked(ctx context.Context, said io.WriteCloser, say func(string)) error {
	lock, err := claim(pidFile)
	if err != nil {
		return err
	}
	// After everything else is gone: who waits for the end looks at the lock.
	defer lock.Close()
	defer os.Remove(pidFile)
	if err := removeIfThere(helpFile); err != nil { // of one that was killed
		return err
	}
	ctrl.SetLogger(logr.Discard()) // or it complains
	s := &session{log: say}
	return s.run(func() error {
		h, err := build(ctx, s, say)
		if err != nil {
			return err
		}
		text, err := h.explain(ctx)
		if err != nil {
			return err
		}
		if err := os.WriteFile(helpFile, []byte(text), 0o644); err != nil {
			return err
		}
		defer os.Remove(helpFile)
		fmt.Fprint(said, ready, text)
		said.Close()
		<-ctx.Done()
		return nil
	})
}

// build brings everything up.
func build(ctx context.Context, s *session, say func(string)) (*holding, error) {
	more, err := moreArchives()
	if err != nil {
		return nil, err
	}
	say("building the images and liqoctl")
	dir, err := os.MkdirTemp("", fmt.Sprintf("sluice-%d-images-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made, err := images.Build(ctx, images.Options{Out: dir, Version: version, Platforms: images.Host(), Cache: gobuild.UserCache()})
	if err != nil {
		return nil, err
	}
	var archives []string
	for _, i := range made {
		archives = append(archives, i.Archive)
	}
	archives = append(archives, more...)
	s.Cleanup(lab.RemoveBuilt)
	liqoctl := lab.Build(s, liqoctlPackage, "-trimpath", "-ldflags=-X main.version="+version)
	if err := ctx.Err(); err != nil {
		return nil, errors.New("interrupted")
	}
	l := kubelab.New(s, kubelab.Options{Clusters: []string{"rome", "milan"}, Images: archives, NetworkPolicies: true, DNS: true, Progress: say})
	h := &holding{Lab: l, rome: l.Cluster("rome"), milan: l.Cluster("milan"), bin: filepath.Join(l.Dir, "bin"), say: say}
	h.run = h.asAdministrator
	if err := os.Mkdir(h.bin, 0o755); err != nil {
		return nil, err
	}
	for name, path := range map[string]string{"liqoctl": liqoctl, "kubectl": l.Tool("kubectl")} {
		if err := os.Symlink(path, filepath.Join(h.bin, name)); err != nil {
			return nil, err
		}
	}
	if err := h.install(ctx); err != nil {
		return nil, err
	}
	return h, h.connect(ctx)
}

// moreArchives are those that the variable names. One that is not there is missed now, and not in some minutes by the nodes.
func moreArchives() ([]string, error) {
	archives := strings.Fields(os.Getenv(moreImages))
	for _, path := range archives {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s: %w", moreImages, err)
		}
	}
	return archives, nil
}

// install installs Sluice and the web servers on both clusters.
func (h *holding) install(ctx context.Context) error {
	h.say("installing")
	errs := make([]error, len(h.Clusters))
	var all sync.WaitGroup
	for i, c := range h.Clusters {
		all.Go(func() {
			_, err := h.run(ctx, "liqoctl", installArgs(c)...)
			if err == nil { // nodes of a lab count as lost sooner than others
				_, err = c.Kubectl("patch", "vkoptionstemplates.offloading.liqo.io", "virtual-kubelet-default", "-n", "liqo", "--type=merge",
					"-p", `{"spec":{"extraArgs":["--node-lease-duration=8s"]}}`)
			}
			if err == nil {
				_, err = c.KubectlInput(web, "apply", "-f", "-")
			}
			if err == nil {
				_, err = c.Kubectl("-n", "app", "rollout", "status", "deployment/web", "--timeout=120s")
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// installArgs install Sluice in a cluster.
func installArgs(c *kubelab.Cluster) []string {
	return []string{"install", "--kubeconfig", c.Kubeconfig, "--cluster-id", c.Name,
		"--pod-cidr", kubelab.PodCIDR, "--service-cidr", kubelab.ServiceCIDR, "--set", "services.enabled=true", "--coredns",
		"--set", "authentication.enabled=true", "--set", "offloading.enabled=true",
		"--set", "apiServer.address=https://" + net.JoinHostPort(c.Public.String(), "6443")} // nodes of both know theirs by one address
}

// connectArgs connect rome to milan.
func (h *holding) connectArgs() []string {
	return []string{"network", "connect", "--kubeconfig", h.rome.Kubeconfig, "--remote-kubeconfig", h.milan.Kubeconfig, "--wait",
		"--gw-server-service-type", "NodePort", "--gw-server-service-nodeport", nodePort, "--gw-client-address", h.milan.Public.String()}
}

// connect connects rome to milan, whose gateway is at a fixed node port behind
// its router.
func (h *holding) connect(ctx context.Context) error {
	h.say("connecting rome to milan")
	_, err := h.run(ctx, "liqoctl", h.connectArgs()...)
	return err
}

// asAdministrator runs a program where the administrator sits.
func (h *holding) asAdministrator(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	var out strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(h.bin, program), args...)
	cmd.Env = []string{"PATH=" + h.bin + ":" + os.Getenv("PATH"), "HOME=" + h.Dir}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.WAN.Exec(cmd); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), errors.Join(err, ctx.Err()), out.String())
	}
	return out.String(), nil
}
