package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	helmrelease "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
)

const (
	// keptRevisions is how many revisions stay in the history.
	keptRevisions = 10
	// underWay is how long a revision may be in the making before nobody makes it
	// any more: it takes seconds, as nothing is waited for.
	underWay = time.Minute
)

// helm is the release as Helm keeps it.
type helm struct {
	cluster *access.Cluster
	config  *action.Configuration
}

func newHelm(c *access.Cluster) (*helm, error) {
	// One name for what Helm's own command writes, too: they take turns.
	kube.ManagedFieldsManager = helmOwner
	h := &helm{cluster: c, config: action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))}
	if err := h.config.Init(getter{c}, c.LiqoNamespace, "secrets"); err != nil {
		return nil, c.Explain("prepare Helm", err)
	}
	return h, nil
}

// helmOwner is the field owner of what is in the release.
const helmOwner = "helm"

// last is the newest revision, or nil.
func (h *helm) last() (*releasev1.Release, error) {
	r, err := h.config.Releases.Last(Name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, h.cluster.Explain(fmt.Sprintf("read the release %s in namespace %s", Name, h.cluster.LiqoNamespace), err)
	}
	return asRelease(r, nil)
}

// asRelease is what Helm returned, if it did not fail.
func asRelease(r helmrelease.Releaser, err error) (*releasev1.Release, error) {
	if err != nil {
		return nil, err
	}
	if v, ok := r.(*releasev1.Release); ok {
		return v, nil
	}
	return nil, fmt.Errorf("this program does not know the format of release %s: use a newer liqoctl", Name)
}

// apply makes the release what the chart says, without waiting for its pods. A
// half-made revision of a program that is gone is completed.
func (h *helm) apply(c *Chart, values Values) (*releasev1.Release, error) {
	last, err := h.last()
	if err != nil {
		return nil, err
	}
	if last == nil {
		in := action.NewInstall(h.config)
		in.ReleaseName, in.Namespace = Name, h.cluster.LiqoNamespace
		in.SkipCRDs, in.TakeOwnership, in.ForceConflicts = true, true, true
		in.WaitStrategy = kube.HookOnlyStrategy
		return asRelease(in.Run(c.chart, values))
	}
	up := action.NewUpgrade(h.config)
	up.Namespace, up.ResetValues, up.MaxHistory = h.cluster.LiqoNamespace, true, keptRevisions
	up.ServerSideApply, up.TakeOwnership, up.ForceConflicts = "true", true, true
	up.WaitStrategy = kube.HookOnlyStrategy
	return asRelease(up.Run(Name, c.chart, values))
}

// takeOver ends a revision that somebody began and did not finish, and waits for
// one that is under way.
func (h *helm) takeOver(ctx context.Context, tell progress.Func) error {
	tell = onlyNews(tell)
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		last, err := h.last()
		if err != nil || last == nil {
			return true, err
		}
		pending := last.Info.Status.IsPending()
		if pending && time.Since(last.Info.LastDeployed) < underWay {
			tell.Waiting(h.cluster.Name, fmt.Sprintf("Waiting for another operation on release %s in namespace %s", Name, h.cluster.LiqoNamespace))
			return false, nil
		}
		if pending || last.Info.Status == common.StatusUninstalling {
			last.SetStatus(common.StatusFailed, "interrupted")
			err = h.cluster.Explain("end an interrupted installation", h.config.Releases.Update(last))
		}
		return true, err
	})
}

// same tells whether a revision is what the chart and the values make, and was
// completed.
func same(last *releasev1.Release, c *Chart, values Values) bool {
	return last != nil && last.Info.Status == common.StatusDeployed && last.Chart != nil && last.Chart.Metadata != nil &&
		last.Chart.Metadata.Version == c.chart.Metadata.Version && last.Chart.Metadata.AppVersion == c.chart.Metadata.AppVersion &&
		reflect.DeepEqual(normal(last.Config), normal(values))
}

// normal is a value as the store gives it back: of the types of JSON.
func normal(v Values) any {
	text, err := YAML(v)
	if err != nil {
		return err
	}
	return text
}

// remove deletes the release with all of its objects, and its history. It
// returns nil when there is none.
func (h *helm) remove(timeout time.Duration) error {
	last, err := h.last()
	if err != nil || last == nil {
		return err
	}
	un := action.NewUninstall(h.config)
	un.Timeout, un.WaitStrategy, un.DeletionPropagation = timeout, kube.HookOnlyStrategy, "foreground"
	_, err = un.Run(Name)
	return h.cluster.Explain("uninstall the release "+Name, err)
}

// getter is a cluster as Helm reaches it.
type getter struct{ cluster *access.Cluster }

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (g getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.cluster.Config), nil }

// ToDiscoveryClient implements genericclioptions.RESTClientGetter.
func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	d, err := discovery.NewDiscoveryClientForConfig(g.cluster.Config)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(d), nil
}

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (g getter) ToRESTMapper() (meta.RESTMapper, error) {
	d, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(d), nil
}

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter. Helm asks
// it for the namespace only.
func (g getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: g.cluster.LiqoNamespace},
	})
}
