package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// Plan is what an installation would do. To make it changes nothing.
type Plan struct {
	Decision
	// Upgrade says that there is a release already.
	Upgrade bool
	// OtherImages tell which images of the release that is there others take the place of.
	OtherImages []string

	cluster   *access.Cluster
	chart     *Chart
	helm      *helm
	crds      []*unstructured.Unstructured
	manifests string // of the release
	unchanged bool   // they are in force
	coreDNS   bool   // it is to forward the zone of our DNS server
}

// Version is that of the programs: what the values say, or the chart's.
func (p *Plan) Version() string { return cmp.Or(textAt(p.Values, "tag"), p.chart.Version()) }

// Prepare looks at the cluster and decides what to install. The error tells all
// that is in the way.
func Prepare(ctx context.Context, c *access.Cluster, chart *Chart, newVersion string, o Options) (*Plan, error) {
	return prepare(ctx, c, chart, newVersion, o, nil)
}

// prepare is Prepare for an installation beside Liqo, too, if it is one that takes over.
func prepare(ctx context.Context, c *access.Cluster, chart *Chart, newVersion string, o Options, t *takeover) (*Plan, error) {
	if err := c.Require(ctx, rights(c.LiqoNamespace)...); err != nil {
		return nil, err
	}
	facts, err := Gather(ctx, c)
	if err != nil {
		return nil, err
	}
	p := &Plan{cluster: c, chart: chart}
	if p.helm, err = newHelm(c); err != nil {
		return nil, err
	}
	last, err := p.helm.last()
	if err != nil {
		return nil, err
	}
	if p.crds, err = crds(newVersion); err != nil {
		return nil, err
	}
	adopted := last != nil && at(last.Config, pathAdoption) == true
	var refused error
	switch {
	case t != nil:
		refused, facts.Installed.Liqo, o.Values = t.refused, nil, merge(t.values, o.Values)
		p.crds = slices.DeleteFunc(p.crds, func(u *unstructured.Unstructured) bool {
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			return !apply.OfNetwork(group) // of the others Liqo's controllers have objects
		})
		if last != nil && !adopted {
			refused = errors.Join(refused, errors.New("an installation of Sluice on its own is here, beside Liqo: uninstall one of the two first"))
		}
	case adopted:
		facts.Installed.Liqo = nil
		refused = errors.New("the network of Liqo was taken over here: add --adopt to upgrade, or give it back with 'liqoctl uninstall --hand-back'")
	}
	ours, err := typed(p.crds)
	if err != nil {
		return nil, err
	}
	var before Values
	if last != nil && !o.ResetValues {
		before = last.Config
	}
	inTheWay := preflight(facts, c.LiqoNamespace, newVersion, ours)
	var undecided error
	p.Decision, undecided = decide(o, facts, before)
	if err := errors.Join(refused, inTheWay, undecided); err != nil {
		return nil, c.Errorf("nothing was changed: %w", err)
	}
	p.Warnings = append(p.Warnings, chart.ignored(p.Values)...)
	p.Upgrade = last != nil
	if err := chart.Check(p.Values); err != nil {
		return nil, c.Errorf("nothing was changed: %w", err)
	}
	if p.manifests, err = chart.manifests(p.Values, c.LiqoNamespace); err != nil {
		return nil, c.Errorf("nothing was changed: %w", err)
	}
	if err := p.kindsKnown(); err != nil {
		return nil, c.Errorf("nothing was changed: %w", err)
	}
	if t != nil {
		if err := p.othersOwn(ctx); err != nil {
			return nil, c.Errorf("nothing was changed: %w", err)
		}
	}
	p.coreDNS = o.CoreDNS
	if p.coreDNS {
		if err := canForward(ctx, c, p.zone()); err != nil {
			return nil, c.Errorf("nothing was changed: %w", err)
		}
	}
	if p.Upgrade {
		if o.ResetValues {
			p.Warnings = append(p.Warnings, lost(last.Config, p.Values)...)
		}
		p.OtherImages = imagesChange(last.Manifest, p.manifests)
		p.Notes = append(p.Notes, p.OtherImages...)
	}
	p.Warnings = append(p.Warnings, chart.otherImages(o.Values, p.Values)...)
	if same(last, chart, p.Values) {
		p.unchanged, err = p.inForce(ctx)
	}
	return p, err
}

// kindsKnown tells which objects the cluster has no kind for: those of the
// Prometheus operator, which values ask for.
func (p *Plan) kindsKnown() error {
	objects, err := decode(p.manifests)
	if err != nil {
		return err
	}
	var missing []string
	for _, u := range objects {
		kind := u.GroupVersionKind()
		if kind.Group != monitoringGroup || slices.Contains(missing, kind.Kind) {
			continue
		}
		switch _, err := p.cluster.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); {
		case meta.IsNoMatchError(err):
			missing = append(missing, kind.Kind)
		case err != nil:
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the cluster does not know the kinds %s (%s): install the Prometheus operator first, or leave out metrics.podMonitor.enabled and metrics.prometheusRule.enabled",
		strings.Join(missing, " and "), monitoringGroup)
}

// monitoringGroup is the API group of the Prometheus operator.
const monitoringGroup = "monitoring.coreos.com"

// lost tells which values of the release before go back to the chart's.
func lost(before, now Values) []string {
	var paths []string
	values := byPath(now)
	leaves(before, "", func(path string, v any) {
		if v != nil && values[path] == nil {
			paths = append(paths, path)
		}
	})
	if len(paths) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("values of the previous release that are not given now return to their defaults: %s; without --reset-values they are kept", strings.Join(paths, ", "))}
}

// otherImages warns of images that are not those of this build, without anybody having said
// so now: their tag was kept, or there is no version to know them by.
func (c *Chart) otherImages(said, values Values) []string {
	switch tag := textAt(values, "tag"); {
	case tag == "" && c.Version() == noVersion:
		return []string{fmt.Sprintf("this program was built without a version and installs images with the tag %s: to use others, add --set tag=TAG", noVersion)}
	case tag != "" && tag != c.Version() && at(said, "tag") == nil:
		return []string{fmt.Sprintf("the images keep the tag %s of the installed release, but this program is version %s: to install the matching images, add --set tag=%s", tag, c.Version(), c.Version())}
	}
	return nil
}

// imageLine is where a manifest names an image.
var imageLine = regexp.MustCompile(`(?m)^\s*image: (\S+)$`)

// imagesChange tells which images others take the place of.
func imagesChange(before, now string) []string {
	names := func(manifests string) (names []string) {
		for _, m := range imageLine.FindAllStringSubmatch(manifests, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	without := func(all, others []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
	}
	old, fresh := names(before), names(now)
	gone, come := without(old, fresh), without(fresh, old)
	if len(gone) == 0 || len(come) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Images change from %s to %s", strings.Join(gone, ", "), strings.Join(come, ", "))}
}

// DryRun is all that would be applied, as YAML: the namespace of the
// installation, the objects of the release, and before them the CRDs, if they are
// wanted.
func (p *Plan) DryRun(withCRDs bool) (string, error) {
	var b strings.Builder
	shared, err := multiCluster(p.Values)
	if err != nil {
		return "", err
	}
	for _, u := range slices.Concat(p.crds, shared) {
		if !withCRDs {
			break
		}
		text, err := YAML(u.Object)
		if err != nil {
			return "", err
		}
		b.WriteString("---\n" + text)
	}
	manifests, err := p.chart.manifests(merge(p.Values, value(true, "createNamespace")), p.cluster.LiqoNamespace)
	b.WriteString(manifests)
	return b.String(), err
}

// Result is what an installation did.
type Result struct {
	// Changed says that something had to be changed.
	Changed bool
	// Revision is that of the release.
	Revision int
}

// Apply installs or upgrades, and waits until the installation works. It may be
// repeated, also after it was interrupted.
func (p *Plan) Apply(ctx context.Context, tell progress.Func) (Result, error) {
	var r Result
	err := inSteps(ctx, p.cluster, tell, p.steps(ctx, tell, &r))
	return r, err // read after the steps, which write it
}

// steps are those of an installation, with others before there is anything of the release.
func (p *Plan) steps(ctx context.Context, tell progress.Func, r *Result, before ...applyStep) []applyStep {
	var gateways []gatewayAtWork
	return slices.Concat([]applyStep{
		{"making the namespace", func() error { return p.namespace(ctx) }},
		{"ending the cleanup of the nodes", func() error { return p.endCleanup(ctx, tell) }},
		{"applying the CRDs", func() (err error) {
			r.Changed, err = p.applyKinds(ctx, tell)
			return err
		}},
	}, before, []applyStep{
		{"installing the release", func() (err error) {
			var broken []string
			if gateways, broken, err = p.atWork(ctx); err != nil {
				return err
			}
			for _, name := range broken {
				tell.Warning(p.cluster.Name, fmt.Sprintf("Gateway %s has no ready pod, so this command does not wait for it: run 'liqoctl network doctor' to see why", name))
			}
			r.Revision, err = p.release(ctx, tell)
			r.Changed = r.Changed || err == nil && !p.unchanged
			return err
		}},
		{"waiting for the pods", func() error { return p.rollout(ctx, tell) }},
		{"telling CoreDNS of the zone", func() error {
			forwards, err := forward(ctx, p.cluster, p.zone(), at(p.Values, "clusterDNS.enabled") == true, p.coreDNS, tell)
			r.Changed = r.Changed || forwards
			return err
		}},
		{"waiting for the gateways", func() error { return p.gatewaysBack(ctx, tell, gateways) }},
	})
}

// applyStep is a part of an installation. Whoever interrupts it is told how many are done: an earlier run may have done more.
type applyStep struct {
	doing string
	do    func() error
}

// answerWithin is for how long an API server that gives no answer is asked again within one step.
const answerWithin = 2 * time.Minute

// inSteps takes steps until one fails. Each may be repeated.
func inSteps(ctx context.Context, c *access.Cluster, tell progress.Func, steps []applyStep) error {
	for i, s := range steps {
		err := s.untilAnswered(ctx, c, tell)
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			return c.Errorf("interrupted while %s: this run has done %d of %d steps, which stay so: the same command continues from there\n%w", s.doing, i, len(steps), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// untilAnswered takes the step, again while the API server gives no answer: one that is busy with new CRDs, or that is
// replaced, gives one soon.
func (s applyStep) untilAnswered(ctx context.Context, c *access.Cluster, tell progress.Func) error {
	var end time.Time
	return retry.OnError(wait.Backoff{Duration: pause, Steps: math.MaxInt}, func(err error) bool {
		if end.IsZero() {
			end = time.Now().Add(answerWithin)
		}
		if ctx.Err() != nil || !access.Unreachable(err) || time.Now().After(end) {
			return false
		}
		tell.Waiting(c.Name, fmt.Sprintf("Trying again while %s: the API server gave no answer: %v", s.doing, err))
		return true
	}, s.do)
}

// applyKinds applies the CRDs, and tells whether one was new or changed.
func (p *Plan) applyKinds(ctx context.Context, tell progress.Func) (bool, error) {
	tell.Waiting(p.cluster.Name, "Applying the CRDs")
	changed, err := applyCRDs(ctx, p.cluster, p.crds)
	if err != nil {
		return false, err
	}
	shared, err := multiCluster(p.Values)
	if err != nil {
		return false, err
	}
	created, err := createCRDs(ctx, p.cluster, shared)
	if err != nil {
		return false, err
	}
	tell.Done(p.cluster.Name, fmt.Sprintf("CRDs correctly applied (%d, of which %d new or changed)", len(p.crds), changed))
	return changed+created > 0, nil
}

// zone is the domain of the cluster set.
func (p *Plan) zone() string { return cmp.Or(textAt(p.Values, "clusterDNS.zone"), clusterSetZone) }

// release makes the release what was planned, unless it is.
func (p *Plan) release(ctx context.Context, tell progress.Func) (revision int, err error) {
	if err := p.helm.takeOver(ctx, tell); err != nil {
		return 0, err
	}
	doing, done := "Installing", "installed"
	if p.Upgrade {
		doing, done = "Upgrading", "upgraded"
	}
	if p.unchanged {
		tell.Done(p.cluster.Name, fmt.Sprintf("Release %s is up to date: nothing to change", Name))
		last, err := p.helm.last()
		if last == nil {
			return 0, err
		}
		return last.Version, err
	}
	tell.Waiting(p.cluster.Name, fmt.Sprintf("%s the release %s", doing, Name))
	rel, err := p.helm.apply(p.chart, p.Values)
	if err != nil {
		return 0, p.cluster.Explain(fmt.Sprintf("%s the release %s in namespace %s", strings.ToLower(doing), Name, p.cluster.LiqoNamespace), err)
	}
	tell.Done(p.cluster.Name, fmt.Sprintf("Release %s correctly %s in namespace %s (revision %d)", Name, done, p.cluster.LiqoNamespace, rel.Version))
	return rel.Version, nil
}

// Labels of the namespace of the installation.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedByUs    = "liqoctl"
)

// namespace makes the namespace of the installation, which admits restricted pods
// only. One that is there already stays as it is.
func (p *Plan) namespace(ctx context.Context) error {
	name := p.cluster.LiqoNamespace
	var ns corev1.Namespace
	switch err := p.cluster.Client.Get(ctx, client.ObjectKey{Name: name}, &ns); {
	case err == nil && ns.DeletionTimestamp != nil:
		return p.cluster.Errorf("the namespace %s is being deleted: wait until it is gone, and try again", name)
	case !apierrors.IsNotFound(err):
		return p.cluster.Explain("read namespace "+name, err)
	}
	ns = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{networkingv1beta1.LabelPodSecurity: "restricted", labelManagedBy: managedByUs}}}
	return p.cluster.Explain("create namespace "+name, p.cluster.Client.Create(ctx, &ns, fieldOwner))
}

// inForce tells whether the cluster has what the manifests say: a server-side
// apply would change nothing.
func (p *Plan) inForce(ctx context.Context) (bool, error) {
	objects, err := decode(p.manifests)
	if err != nil {
		return false, err
	}
	for _, u := range objects {
		own(u, p.cluster.LiqoNamespace)
		have := new(unstructured.Unstructured)
		have.SetGroupVersionKind(u.GroupVersionKind())
		switch err := p.cluster.Client.Get(ctx, client.ObjectKeyFromObject(u), have); {
		case absent(err):
			return false, nil
		case err != nil:
			return false, p.cluster.Explain("read "+describe(u), err)
		}
		err := p.cluster.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(helmOwner), client.ForceOwnership, client.DryRunAll)
		if err != nil {
			return false, p.cluster.Explain("compare "+describe(u), err)
		}
		if !alike(have, u) {
			return false, nil
		}
	}
	return true, nil
}
