package plane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Baseline is what a control plane holds when somebody gets it.
type Baseline int

const (
	// Installed has the project's CRDs, roles and the rest of deploy/manifests, and so
	// the namespace of the installation.
	Installed Baseline = iota
	// Bare has nothing of the project.
	Bare
)

// reset brings the control plane to a baseline, whatever was done to it. The one who
// used it must have stopped what wrote to it.
//
// The kube-controller-manager ends first and starts afterwards. It would act on what
// it sees going, for example make the pods of a ReplicaSet again, and its garbage
// collector remembers owners that are gone, and kinds.
func (p *Plane) reset(to Baseline) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	p.stopManager()
	select {
	case <-p.apiserver.Done():
		if err := p.StartAPIServer(); err != nil {
			return err
		}
	default:
	}
	if err := p.releasePorts(ctx); err != nil {
		return err
	}
	want := p.baselines[to]
	changed, err := p.store.restore(ctx, want)
	if err == nil && slices.ContainsFunc(changed, isPolicy) {
		p.StopAPIServer()
		err = p.StartAPIServer()
	}
	for err == nil && len(changed) > 0 {
		if err = p.follow(ctx, changed, to); err == nil {
			changed, err = p.store.restore(ctx, want) // what the API server's own controllers made meanwhile
		}
	}
	if err != nil {
		return fmt.Errorf("reset a control plane: %w", err)
	}
	p.at = to
	return p.startManager()
}

// isPolicy tells whether a key is that of an admission policy. When one goes, the API
// server stops to watch what the policy takes as its parameters, and when it is there
// again it judges by what it knew then: it stops an informer of its own that it cannot
// start again (k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_source.go,
// ensureParamsForPolicyLocked).
func isPolicy(key string) bool {
	return strings.HasPrefix(key, registry+"validatingadmissionpolicies/")
}

// releasePorts deletes the Services, since the API server holds in memory which node
// ports are taken.
func (p *Plane) releasePorts(ctx context.Context) error {
	var services corev1.ServiceList
	if err := p.client.List(ctx, &services); err != nil {
		return err
	}
	for i := range services.Items {
		s := &services.Items[i]
		if !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 }) {
			continue
		}
		if len(s.Finalizers) > 0 {
			if err := p.client.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if err := p.client.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// follow waits until the API server has seen what was written past it: until it serves
// the kinds of the baseline, and lists of all kinds are as new as the change.
func (p *Plane) follow(ctx context.Context, changed []string, to Baseline) error {
	const crds = registry + "apiextensions.k8s.io/customresourcedefinitions/"
	for slices.ContainsFunc(changed, func(key string) bool { return strings.HasPrefix(key, crds) }) {
		served, err := p.servesOurs(ctx, to)
		if err != nil {
			return err
		}
		if served {
			break
		}
		time.Sleep(pause)
	}
	_, lists, err := p.clientset.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
		for _, r := range l.APIResources {
			if err := p.list(ctx, l.GroupVersion, r.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// servesOurs tells whether the API server serves, and tells of, our kinds in the
// baseline Installed, and none in Bare.
func (p *Plane) servesOurs(ctx context.Context, to Baseline) (bool, error) {
	if to == Installed {
		i := Installer{p.client, p.clientset}
		missing, err := i.undiscovered(ctx)
		return len(missing) == 0, err
	}
	groups, err := p.clientset.Discovery().ServerGroups()
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return strings.HasSuffix(g.Name, ".liqo.io") }), nil
}

// list lists a kind. Without a resource version the API server answers from a cache
// that is as new as etcd.
func (p *Plane) list(ctx context.Context, groupVersion, resource string) error {
	path := "/apis/" + groupVersion
	if groupVersion == "v1" {
		path = "/api/v1"
	}
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Host+path+"/"+resource, nil)
		if err != nil {
			return err
		}
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		resp, err := p.http.Do(r)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		if ctx.Err() != nil {
			return errors.New(resp.Status)
		}
		time.Sleep(pause)
	}
}
