package plane

import (
	"context"
	"crypto/rand"
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
// used it must have stopped what wrote to it. An error leaves it unusable.
//
// The kube-controller-manager ends first and starts afterwards. It would act on what
// it sees going, for example make the pods of a ReplicaSet again, and its garbage
// collector remembers owners that are gone, and kinds.
func (p *Plane) reset(ctx context.Context, to Baseline) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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
	if err == nil && slices.ContainsFunc(changed, p.isInstalledPolicy) {
		p.StopAPIServer()
		err = p.StartAPIServer()
	} else if err == nil && slices.ContainsFunc(changed, isPolicy) {
		err = p.followPolicies(ctx)
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

// isPolicy tells whether a key is that of an admission policy, or of a binding of one.
func isPolicy(key string) bool {
	resource, _, _ := strings.Cut(strings.TrimPrefix(key, registry), "/")
	return slices.Contains([]string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	}, resource)
}

// isInstalledPolicy tells whether a key is that of an admission policy of the baseline
// Installed, one of which takes a ConfigMap as its parameters. When it goes, the API
// server stops to watch ConfigMaps for it, and when it is there again it judges by what
// was known then: it stops an informer that it shares, and cannot start that again
// (k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_source.go,
// ensureParamsForPolicyLocked). What CRDs define it watches anew each time. So policies
// of tests may take that, and ConfigMaps, but no other kind of Kubernetes itself.
func (p *Plane) isInstalledPolicy(key string) bool {
	return isPolicy(key) && p.baselines[Installed][key] != nil
}

// followPolicies waits until the API server judges by the policies that there are now.
// It looks at them once a second. So it is given two more, of which it learns after all
// others, until both have their effect: one marks a ConfigMap, the other one refuses what
// is marked. A restart would do the same for some seconds of a processor.
func (p *Plane) followPolicies(ctx context.Context) error {
	name := "followed-" + strings.ToLower(rand.Text()) // those of the last time may be in force
	if err := (Installer{p.client, p.clientset}).Apply(ctx, strings.ReplaceAll(followed, "NAME", name)); err != nil {
		return err
	}
	for {
		// Until then the policies of a test may refuse it as well.
		err := p.client.Create(ctx, configMap(name), client.DryRunAll)
		switch {
		case err != nil && strings.Contains(err.Error(), "it is marked "+name):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the API server does not judge by new policies: %w", errors.Join(ctx.Err(), err))
		}
		time.Sleep(pause)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
}

// followed are the policies for followPolicies.
const followed = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], resourceNames: [NAME]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/data', value: {'marked': ''}}]"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], resourceNames: [NAME]}
  validations:
  - {expression: "!has(object.data)", message: it is marked NAME}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
`

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
