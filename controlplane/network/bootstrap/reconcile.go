package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

// recheck is how soon a problem is looked at again: nothing wakes us when an
// administrator cures it elsewhere.
const recheck = time.Minute

// eventMadeAgain is the reason of the event of an object that was deleted and
// came back.
const eventMadeAgain = "MadeAgain"

// The kinds of the objects of the installation.
const (
	configMapKind = "ConfigMap"
	networkKind   = "Network"
)

// Reconciler keeps the objects of the installation existing. There is one world
// and so one key.
type Reconciler struct {
	client.Client
	// Reader reads past the cache, which need not hold every ConfigMap of the
	// cluster for the sake of one.
	Reader   client.Reader
	Recorder events.EventRecorder
	Options  Options

	// There is one worker, and so no lock.

	// logged are the notes that were logged and still hold.
	logged []string
	// seen are the objects that were there once.
	seen map[string]bool
}

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create,namespace=liqo
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=liqo-clusterid-configmap,verbs=get;list;watch,namespace=liqo
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=create,namespace=liqo
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,resourceNames=kubernetes,verbs=get

// Reconcile makes what is missing. The request says nothing.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	facts, err := gather(ctx, r.Reader, r.Client, r.Options)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	plan := Build(r.Options, facts)
	logger := log.FromContext(ctx)
	r.logNotes(logger, plan.Notes)
	r.remember(facts)
	for _, o := range plan.Create {
		kind, err := apiutil.GVKForObject(o, r.Scheme())
		if err != nil {
			return ctrl.Result{}, err
		}
		switch err := r.Create(ctx, o); {
		case apierrors.IsAlreadyExists(err): // the cache is behind
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return ctrl.Result{}, nil // it is being removed
		case err != nil:
			return ctrl.Result{}, fmt.Errorf("create %s %s: %w", kind.Kind, client.ObjectKeyFromObject(o), err)
		default:
			logger.Info("made an object of the installation", "kind", kind.Kind, "object", client.ObjectKeyFromObject(o))
			r.recordCreated(kind.Kind, o)
		}
	}
	for _, p := range plan.Problems {
		logger.Error(nil, "the installation is incomplete", "reason", p)
	}
	if len(plan.Problems) > 0 {
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	return ctrl.Result{}, nil
}

// logNotes logs the notes that are new.
func (r *Reconciler) logNotes(logger logr.Logger, notes []string) {
	// What is logged through logr is information or an error, and this is neither.
	warnings := slog.New(logr.ToSlogHandler(logger))
	for _, n := range notes {
		if !slices.Contains(r.logged, n) {
			warnings.Warn("an option is not used", "reason", n)
		}
	}
	r.logged = notes
}

// remember records which objects exist, for recordCreated.
func (r *Reconciler) remember(f Facts) {
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	if f.ConfigMap != nil {
		r.seen[identity(configMapKind, f.ConfigMap)] = true
	}
	for _, n := range f.Networks {
		if n.Labels[ipamv1alpha1.LabelNetworkType] != "" {
			r.seen[identity(networkKind, &n)] = true
		}
	}
}

// recordCreated emits an event if an object of this name existed before: somebody
// deleted it.
func (r *Reconciler) recordCreated(kind string, o client.Object) {
	if id := identity(kind, o); r.seen[id] {
		r.Recorder.Eventf(o, nil, corev1.EventTypeWarning, eventMadeAgain, "Create", "it was deleted, and the installation cannot do without it")
	} else {
		r.seen[id] = true
	}
}

func identity(kind string, o client.Object) string { return kind + "/" + o.GetName() }

// Check tells, before anything runs, what the administrator must cure so that
// the installation can be complete.
func Check(ctx context.Context, reader client.Reader, o Options) error {
	facts, err := gather(ctx, reader, reader, o)
	if err != nil {
		return err
	}
	problems := Build(o, facts).Problems
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "\n"))
}

// gather reads Networks through networks, and what is read rarely through
// reader.
func gather(ctx context.Context, reader, networks client.Reader, o Options) (Facts, error) {
	var f Facts
	var m corev1.ConfigMap
	switch err := reader.Get(ctx, client.ObjectKey{Namespace: o.LiqoNamespace, Name: ClusterIDConfigMap}, &m); {
	case err == nil:
		f.ConfigMap = &m
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("get ConfigMap %s: %w", ClusterIDConfigMap, err)
	}
	var list ipamv1alpha1.NetworkList
	if err := networks.List(ctx, &list, client.InNamespace(o.LiqoNamespace)); err != nil {
		return f, fmt.Errorf("list Networks: %w", err)
	}
	f.Networks = list.Items
	if len(o.ServiceCIDRs) == 0 {
		var err error
		if f.ServiceCIDRs, err = serviceCIDRs(ctx, reader); err != nil {
			return f, err
		}
	}
	return f, nil
}

// serviceCIDRs asks the API server for the prefixes it was started with. Before
// Kubernetes 1.33 it does not tell.
func serviceCIDRs(ctx context.Context, reader client.Reader) ([]netip.Prefix, error) {
	var s networkingv1.ServiceCIDR
	switch err := reader.Get(ctx, client.ObjectKey{Name: "kubernetes"}, &s); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ServiceCIDR kubernetes: %w", err)
	}
	var ps []netip.Prefix
	for _, c := range s.Spec.CIDRs {
		p, err := netip.ParsePrefix(c)
		if err != nil {
			return nil, fmt.Errorf("ServiceCIDR kubernetes: %w", err)
		}
		ps = append(ps, p)
	}
	slices.SortFunc(ps, netip.Prefix.Compare) // the order has no meaning
	return ps, nil
}
