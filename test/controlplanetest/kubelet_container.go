package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/test/process"
)

// The pause before a container that ended is started again: a kubelet begins
// with ten seconds, for which no test has time.
const (
	firstBackoff  = 200 * time.Millisecond
	longBackoff   = 3 * time.Second
	backoffForget = 10 * time.Second
)

// container is one container of a pod: a process, when it runs.
type container struct {
	w     *podWorker
	spec  *corev1.Container
	image Image
	log   string
	wake  chan struct{} // of the pod's worker

	mu       sync.Mutex
	process  *process.Process // nil: none runs
	paused   bool             // it runs without a process
	over     context.Context  // ends with what runs now; nil: nothing has
	end      context.CancelFunc
	began    int64 // where in the log the output begins of what runs now, or ran last,
	before   int64 // and of what ran before; negative: nothing did
	started  time.Time
	ended    time.Time
	exit     *corev1.ContainerStateTerminated // of the last process
	failure  string                           // why it cannot be started
	restarts int32
	backoff  time.Duration
	blamed   bool // somebody else is to blame for the end of the process
	stopping bool
	ready    bool
}

func newContainer(w *podWorker, spec *corev1.Container) *container {
	return &container{
		w: w, spec: spec, image: w.k.images[spec.Image], wake: w.wake, before: -1,
		log: filepath.Join(w.k.logs(), fmt.Sprintf("%s_%s_%s.log", w.namespace, w.name, spec.Name)),
	}
}

// forget ends what goes with a container that nothing ends: one without a
// process.
func (c *container) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		c.end()
	}
}

func (c *container) running() *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

func (c *container) kill() {
	c.mu.Lock()
	p := c.process
	c.blamed = p != nil
	c.mu.Unlock()
	if p != nil {
		p.Kill()
	}
}

// start starts the process if none runs and its pause is over.
func (c *container) start(ctx context.Context, pod *corev1.Pod) error {
	c.mu.Lock()
	idle := c.process == nil && !c.paused && !c.stopping && time.Since(c.ended) >= c.backoff
	c.mu.Unlock()
	if !idle {
		return nil
	}
	from := logSize(c.log)
	if c.image.Program == "" {
		c.mu.Lock()
		c.paused, c.started = true, time.Now()
		c.beginLocked(from)
		c.mu.Unlock()
		return nil
	}
	cmd, err := c.w.command(ctx, pod, c)
	var p *process.Process
	if err == nil {
		p, err = cmd.Start()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.beginLocked(from)
	}
	c.failure = ""
	if err != nil {
		c.failure, c.ended, c.backoff = err.Error(), time.Now(), max(c.backoff, firstBackoff)
		return err
	}
	c.process, c.started = p, time.Now()
	if c.exit != nil {
		c.restarts++
	}
	go c.wait(p)
	return nil
}

// beginLocked notes that something runs, whose output begins there in the log.
func (c *container) beginLocked(from int64) {
	if c.over != nil {
		c.before = c.began
	}
	c.began = from
	c.over, c.end = context.WithCancel(context.Background())
}

// up tells whether the container runs, and what ends with it.
func (c *container) up() (over context.Context, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		return gone, false
	}
	return c.over, c.over.Err() == nil
}

// logRange is where in the log the output stands of what runs now, or ran last.
// What ended last is the previous one, whether it was started again or not, as a
// kubelet has it. A negative end is that of the file.
func (c *container) logRange(previous bool) (began, end int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if previous && c.process != nil {
		return c.before, c.began, c.before >= 0
	}
	return c.began, -1, c.over != nil && (!previous || c.exit != nil)
}

func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // nothing was written
	}
	return info.Size()
}

// wait notes how a process ends.
func (c *container) wait(p *process.Process) {
	<-p.Done()
	c.mu.Lock()
	state := p.State()
	c.end()
	c.process, c.ready, c.ended = nil, false, time.Now()
	if c.backoff = min(max(2*c.backoff, firstBackoff), longBackoff); c.blamed || time.Since(c.started) > backoffForget {
		c.backoff, c.blamed = firstBackoff, false
	}
	c.exit = &corev1.ContainerStateTerminated{
		ExitCode: int32(state.ExitCode()), Reason: "Completed",
		StartedAt: metav1.NewTime(c.started), FinishedAt: metav1.NewTime(c.ended), ContainerID: c.id(p),
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		c.exit.ExitCode = 128 + int32(status.Signal())
	}
	if c.exit.ExitCode != 0 {
		c.exit.Reason = "Error"
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *container) id(p *process.Process) string { return fmt.Sprintf("process://%d", p.ID()) }

// stop asks the process to end, or makes it, and tells whether it has ended.
func (c *container) stop(first, late bool) (ended bool) {
	c.mu.Lock()
	if c.paused {
		c.end()
	}
	c.stopping, c.paused = true, false
	p := c.process
	c.mu.Unlock()
	switch {
	case p == nil:
		return true
	case late:
		p.Kill()
	case first:
		_ = p.Signal(syscall.SIGTERM) // it ends later, if not now
	}
	return false
}

func (c *container) status() corev1.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image,
		RestartCount: c.restarts, Ready: c.ready,
	}
	if c.exit != nil {
		s.LastTerminationState.Terminated = c.exit
	}
	up := c.process != nil || c.paused
	s.Started = &up
	switch {
	case up:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started)}
		if c.process != nil {
			s.ContainerID = c.id(c.process)
		}
	case c.failure != "":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: c.failure}
	case c.stopping:
		s.State.Terminated = c.exit
		if c.exit == nil {
			s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed"}
		}
	case c.exit != nil:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "it ended and is started again soon"}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	return s
}

// watch keeps c.ready by the probes, until ctx ends.
func (c *container) watch(ctx context.Context) {
	readiness, liveness := prober{probe: c.spec.ReadinessProbe}, prober{probe: c.spec.LivenessProbe}
	var of *process.Process
	for tick := time.NewTicker(podTick); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		c.mu.Lock()
		p, paused, started, was := c.process, c.paused, c.started, c.ready
		c.mu.Unlock()
		if p != of { // another process starts anew
			of = p
			readiness, liveness = prober{probe: c.spec.ReadinessProbe}, prober{probe: c.spec.LivenessProbe}
		}
		if p == nil {
			c.setReady(nil, paused)
			continue
		}
		if now := readiness.ask(ctx, c, started, !was); now != was {
			c.setReady(p, now)
		}
		if liveness.probe != nil && !liveness.ask(ctx, c, started, false) && liveness.failures >= int(liveness.probe.FailureThreshold) {
			p.Kill()
		}
	}
}

// setReady notes what a probe of a process found.
func (c *container) setReady(of *process.Process, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == of && c.ready != ready {
		c.ready = ready
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// prober asks one probe of one process.
type prober struct {
	probe    *corev1.Probe // nil: always well
	asked    time.Time
	well     bool
	failures int // in a row
}

// ask returns what is known, and asks first if it is time. A process that is
// waited for is asked more often than a kubelet would.
func (p *prober) ask(ctx context.Context, c *container, started time.Time, eager bool) bool {
	if p.probe == nil {
		return true
	}
	period := time.Duration(max(p.probe.PeriodSeconds, 1)) * time.Second
	if eager {
		period = podTick
	}
	if time.Since(started) < time.Duration(p.probe.InitialDelaySeconds)*time.Second || time.Since(p.asked) < period {
		return p.well
	}
	p.asked = time.Now()
	if err := c.get(ctx, p.probe); err == nil {
		p.well, p.failures = true, 0
	} else if p.failures++; p.failures >= int(p.probe.FailureThreshold) {
		p.well = false
	}
	return p.well
}

// get asks a probe over HTTP.
func (c *container) get(ctx context.Context, probe *corev1.Probe) error {
	if probe.HTTPGet == nil {
		return errors.New("only probes over HTTP are known")
	}
	port := probe.HTTPGet.Port.IntVal
	if probe.HTTPGet.Port.Type == intstr.String {
		for _, p := range c.spec.Ports {
			if p.Name == probe.HTTPGet.Port.StrVal {
				port = p.ContainerPort
			}
		}
	}
	host := c.w.k.Loopback.Pod(c.w.address()).String()
	url := "http://" + net.JoinHostPort(host, fmt.Sprint(port)) + "/" + strings.TrimPrefix(probe.HTTPGet.Path, "/")
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := probeClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return errors.New(resp.Status)
	}
	return nil
}

// probeClient keeps no connection: a probe asks whether one is accepted.
var probeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
