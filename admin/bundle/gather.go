package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
)

const (
	// atOnce is how many requests go to a cluster at the same time.
	atOnce = 8
	// oneRequest bounds what one may take.
	oneRequest = 30 * time.Second
)

// gatherer gathers from one cluster.
type gatherer struct {
	*access.Cluster
	archive *archive
	options Options
	tell    progress.Func
	folder  string
	slots   chan struct{}

	about   manifestCluster
	failure error // the cluster gave nothing at all

	mu         sync.Mutex
	namespaces map[string]bool // those of the installation (true) and of peerings
	pods       []pod
	objects    int
}

func newGatherer(c *access.Cluster, a *archive, o Options, tell progress.Func) *gatherer {
	folder := c.Name
	if folder == "" {
		folder = "cluster"
	}
	return &gatherer{
		Cluster: c, archive: a, options: o, tell: tell, folder: folder, slots: make(chan struct{}, atOnce),
		about:      manifestCluster{Folder: folder, APIServer: c.Config.Host},
		namespaces: map[string]bool{c.LiqoNamespace: true, c.LiqoNamespace + access.FabricSuffix: true},
	}
}

// gather reads everything.
func (g *gatherer) gather(ctx context.Context) {
	g.tell.Waiting(g.Name, "Reading objects")
	if err := g.identify(ctx); err != nil {
		g.failure = err
		g.archive.miss(g.Name, "the whole cluster", err)
		g.tell.Warning(g.Name, "The cluster cannot be read: "+err.Error())
		return
	}
	var survey sync.WaitGroup
	survey.Go(func() { g.readSurvey(ctx) })
	g.readObjects(ctx)
	survey.Wait()
	g.tell.Done(g.Name, fmt.Sprintf("%d objects gathered", g.objects))
	g.tell.Waiting(g.Name, "Asking gateways and agents, reading logs")
	pods := g.choosePods()
	var reports sync.WaitGroup
	asked := 0
	reports.Go(func() { asked = g.readReports(ctx, pods) })
	logs := g.readLogs(ctx, pods)
	reports.Wait()
	g.tell.Done(g.Name, fmt.Sprintf("%d gateways and agents asked", asked))
	g.tell.Done(g.Name, fmt.Sprintf("%d logs gathered", logs))
}

// identify finds out who the cluster is. The error is for one that does not
// answer.
func (g *gatherer) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, oneRequest)
	defer cancel()
	raw, err := g.Clientset.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil && !apierrors.IsForbidden(err) {
		return g.Explain("ask the API server for its version", err)
	}
	var v version.Info
	if json.Unmarshal(raw, &v) == nil {
		g.about.Kubernetes = v.GitVersion
	}
	if g.about.ID, err = g.ID(ctx); err != nil {
		g.miss("the ID of the cluster", err)
	}
	uid, err := g.UID(ctx)
	g.miss("the UID of the cluster", err)
	g.about.UID = string(uid)
	return nil
}

// miss notes what could not be read.
func (g *gatherer) miss(what string, err error) {
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("the user of %s may not read it: %w", g.Origin, err)
	}
	g.archive.miss(g.Name, what, g.Explain("read "+what, err))
}

// each does something with many things, some at the same time.
func each[T any](ctx context.Context, g *gatherer, all []T, do func(context.Context, T)) {
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() {
			select {
			case g.slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-g.slots }()
			ctx, cancel := context.WithTimeout(ctx, oneRequest)
			defer cancel()
			do(ctx, one)
		})
	}
	wg.Wait()
}

// readSurvey packs what `liqoctl info` and `liqoctl network status` go by.
func (g *gatherer) readSurvey(ctx context.Context) {
	s, err := survey.Read(ctx, g.Cluster, survey.Options{})
	if err != nil {
		g.miss("the survey", err)
		return
	}
	g.about.Version = s.Installation.Version
	for _, gap := range s.Gaps {
		if gap.Kind == "" { // lists of objects are missed where they are read for the archive
			g.miss(gap.What, gap.Err)
		}
	}
	s.Gaps = nil
	g.archive.addData(g.Name, fileName(g.folder, "survey.json"), s)
}

// namespace notes a namespace in which there is something of a peering.
func (g *gatherer) namespace(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if name != "" && !g.namespaces[name] {
		g.namespaces[name] = false
	}
}

// installed tells whether a namespace is the installation's.
func (g *gatherer) installed(namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.namespaces[namespace]
}

func (g *gatherer) sortedNamespaces() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.namespaces))
}

func sortedNames(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

// firstError keeps a list of errors short.
func firstError(errs []error) error {
	if len(errs) > 1 {
		return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}
