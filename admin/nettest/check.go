package nettest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/exec"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/probe"
)

// Limits of how much happens at the same time.
const (
	batchSize    = 40 // URLs of one command, which are themselves passed in a URL
	execsAtOnce  = 8  // in all clusters together
	triesAtOnce  = 16 // of one command
	triesDefault = probe.DefaultTries
)

// How long to wait until the nodes know the Services of the test.
const (
	settleTries   = 6
	settleTimeout = time.Second // of each
)

// check runs the checks group by group.
func (r *run) check(ctx context.Context, checks []Check) error {
	for len(checks) > 0 {
		kind := checks[0].Kind
		end := slices.IndexFunc(checks, func(c Check) bool { return c.Kind != kind })
		if end < 0 {
			end = len(checks)
		}
		if checks[0].byService() && !r.settled {
			r.settle(ctx, checks[:end])
		}
		outcomes, err := r.group(ctx, kind, checks[:end])
		r.report.Outcomes = append(r.report.Outcomes, outcomes...)
		if err != nil {
			return err
		}
		if checks = checks[end:]; len(checks) > 0 && r.FailFast && slices.ContainsFunc(outcomes, func(o Outcome) bool { return !o.OK }) {
			r.say.Warning("", "The remaining checks are skipped (--fail-fast)")
			return nil
		}
	}
	r.say.Done("", "All checks completed")
	return nil
}

// group runs the checks of one kind. The checks of a pod run by a command in that pod.
func (r *run) group(ctx context.Context, kind Kind, checks []Check) ([]Outcome, error) {
	r.say.Done("", fmt.Sprintf("Running checks %s", kind))
	outcomes := make([]Outcome, len(checks))
	var done, failed atomic.Int32
	eachBatch(checks, func(batch []int) {
		for n, o := range r.batch(ctx, checks, batch) {
			outcomes[batch[n]] = o
			if !o.OK {
				failed.Add(1)
			}
		}
		r.say.Waiting("", fmt.Sprintf("Running checks %s: %d of %d", kind, done.Add(int32(len(batch))), len(checks)))
	})
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("running checks %s: %w", kind, err)
	}
	if n := failed.Load(); n > 0 {
		r.say.Failed("", fmt.Sprintf("Checks failed: %d of %d", n, len(checks)))
	} else {
		r.say.Done("", fmt.Sprintf("Checks succeeded: %d", len(checks)))
	}
	return outcomes, nil
}

// settle waits a little until the Services that checks use answer. Nodes take some time to
// learn about them, and an attempt that comes too early says nothing about the network.
func (r *run) settle(ctx context.Context, checks []Check) {
	r.settled = true
	r.say.Waiting("", "Waiting until the nodes know the Services")
	eachBatch(checks, func(batch []int) {
		if urls := urlsOf(checks, batch); len(urls) > 0 {
			args := []string{"get", "--tries", strconv.Itoa(settleTries), "--timeout", settleTimeout.String(), "--parallel", strconv.Itoa(triesAtOnce)}
			_, _ = r.command(ctx, checks[batch[0]], append(args, urls...)) // the checks report what does not answer
		}
	})
}

// eachBatch does something for every batch of checks, for several at a time.
func eachBatch(checks []Check, do func(batch []int)) {
	access.Parallel(batches(checks), execsAtOnce, func(batch []int) (struct{}, error) { do(batch); return struct{}{}, nil })
}

// batches groups checks, by their index, into those that one command can run: of the same
// pod, with the same number of attempts, and no URL twice.
func batches(checks []Check) (out [][]int) {
	type key struct {
		cluster, namespace, pod string
		times                   int
	}
	open := make(map[key]int) // index in out
	for i, c := range checks {
		k := key{c.From.Cluster, c.namespace, c.From.Pod, c.Times}
		n, ok := open[k]
		if !ok || len(out[n]) == batchSize || slices.ContainsFunc(out[n], func(j int) bool { return checks[j].URL == c.URL }) {
			open[k], n = len(out), len(out)
			out = append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	return out
}

// batch runs one command and judges what it printed.
func (r *run) batch(ctx context.Context, checks []Check, batch []int) []Outcome {
	first := checks[batch[0]]
	args := []string{"get", "--tries", strconv.Itoa(triesDefault), "--parallel", strconv.Itoa(triesAtOnce), "--count", strconv.Itoa(max(first.Times, 1))}
	var results map[string][]probe.Result
	var err error
	if urls := urlsOf(checks, batch); len(urls) > 0 {
		results, err = r.command(ctx, first, append(args, urls...))
	}
	outcomes := make([]Outcome, len(batch))
	for n, i := range batch {
		outcomes[n] = Judge(checks[i], results[checks[i].URL])
		if err != nil && len(results[checks[i].URL]) == 0 && checks[i].Missing == "" {
			outcomes[n].Error = err.Error()
		}
	}
	return outcomes
}

// urlsOf are the URLs of a batch.
func urlsOf(checks []Check, batch []int) (urls []string) {
	for _, i := range batch {
		if url := checks[i].URL; url != "" {
			urls = append(urls, url)
		}
	}
	return urls
}

// command runs a prober where a check starts: in a pod, or on this machine.
func (r *run) command(ctx context.Context, c Check, args []string) (map[string][]probe.Result, error) {
	var out bytes.Buffer
	if c.From.Cluster == "" {
		new(probe.Program).Run(ctx, args, &out, io.Discard)
		return parseResults(&out)
	}
	pod := types.NamespacedName{Namespace: c.namespace, Name: c.From.Pod}
	err := r.cluster(c.From.Cluster).Exec(ctx, pod, containerName, append([]string{"prober"}, args...), &out)
	var exit exec.CodeExitError
	if errors.As(err, &exit) && exit.Code == 1 {
		err = nil // the results say what failed
	}
	results, parseErr := parseResults(&out)
	return results, errors.Join(err, parseErr)
}

func (r *run) cluster(id string) *access.Cluster {
	for _, s := range r.sites {
		if s.inv.ID == id {
			return s.Cluster
		}
	}
	return nil
}

// parseResults reads lines of JSON, by URL.
func parseResults(out io.Reader) (map[string][]probe.Result, error) {
	results := make(map[string][]probe.Result)
	for dec := json.NewDecoder(out); ; {
		var r probe.Result
		switch err := dec.Decode(&r); {
		case errors.Is(err, io.EOF):
			return results, nil
		case err != nil:
			return results, fmt.Errorf("read what the prober printed: %w", err)
		}
		results[r.URL] = append(results[r.URL], r)
	}
}
