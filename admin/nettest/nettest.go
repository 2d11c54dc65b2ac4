package nettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
)

// Options say what to test, and how.
type Options struct {
	Wanted
	// Image is the prober's image. Empty: the one of the installation's version.
	Image string
	// Replicas is how many probers a cluster gets. 0: one on each node.
	Replicas int32
	// Remove deletes everything at the end, also after an error.
	Remove bool
	// FailFast ends the test with the first group in which something failed.
	FailFast bool
	// Timeout is for everything but the removal.
	Timeout time.Duration
	// Labels and Annotations are for everything that is created.
	Labels, Annotations map[string]string
	// Prepared, if not nil, is called with what there is to test before the checks begin.
	Prepared func([]Inventory)
}

// Defaults of Options.
const (
	DefaultTimeout = 5 * time.Minute
	removeTimeout  = 90 * time.Second
)

// Report is what a test found.
type Report struct {
	Clusters []Inventory `json:"clusters"`
	Outcomes []Outcome   `json:"checks"`
	// Skipped says what was not tested, and why.
	Skipped []string `json:"skipped,omitempty"`
}

// Failed counts the checks that failed.
func (r *Report) Failed() (n int) {
	for _, o := range r.Outcomes {
		if !o.OK {
			n++
		}
	}
	return n
}

// run is one test.
type run struct {
	Options
	say    progress.Func
	sites  []*site
	report *Report
	// settled says that the nodes have had time to learn about the Services.
	settled bool
	mu      sync.Mutex // guards report while several clusters add to it
}

// site is one cluster of a test.
type site struct {
	*access.Cluster
	*run
	inv   Inventory
	image string
	pull  []corev1.LocalObjectReference // the Secrets of its registry
	// shares says that the controller shares Services with other clusters.
	shares bool
}

// Run tests the network between the first cluster and each of the others, and between
// those of the others that are peered. After an error, the report holds what was found
// until then. Failed checks are not an error.
func Run(ctx context.Context, clusters []*access.Cluster, o Options, say progress.Func) (report *Report, err error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	say = say.Serial()
	r := &run{Options: o, report: &Report{}, say: say}
	for _, c := range clusters {
		r.sites = append(r.sites, &site{Cluster: c, run: r, inv: Inventory{Name: c.Name}})
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := r.identify(limited); err != nil {
		return r.report, r.late(limited, err)
	}
	if o.Remove {
		defer func() {
			err = errors.Join(err, Remove(context.WithoutCancel(ctx), clusters, say))
		}()
	}
	if err := r.prepare(limited); err != nil {
		return r.report, r.late(limited, err)
	}
	for _, s := range r.sites {
		r.report.Clusters = append(r.report.Clusters, s.inv)
	}
	if o.Prepared != nil {
		o.Prepared(r.report.Clusters)
	}
	return r.report, r.late(limited, r.check(limited, Plan(r.report.Clusters, o.Wanted)))
}

// late adds to an error that it is due to the timeout, if it is.
func (r *run) late(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not finished within %v (--timeout): %w", r.Timeout, err)
	}
	return err
}

// each does something in all clusters at the same time.
func (r *run) each(do func(*site) error) error {
	return errors.Join(access.Together(r.sites, do)...)
}

// skip notes what is not tested.
func (r *run) skip(s *site, text string) {
	r.say.Warning(s.Name, text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Skipped = append(r.report.Skipped, fmt.Sprintf("cluster %s: %s", s.inv.ID, text))
}

// peered tells whether two clusters have a view of each other.
func peered(a, b *Inventory) bool { return a.view(b.ID) != nil && b.view(a.ID) != nil }

// peersOf are the other clusters of the test that one is peered with.
func (r *run) peersOf(s *site) []*site {
	return slices.DeleteFunc(slices.Clone(r.sites), func(o *site) bool { return o == s || !peered(&s.inv, &o.inv) })
}
