package release

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// leftWithin is how long our agents may take to remove what Liqo's have made before somebody is told. It takes them seconds.
var leftWithin = 20 * time.Second

// leftOnNodes waits for a while until what Liqo's node agents have made is gone, and tells where it is not. That is no error:
// the traffic flows, and the agents go on.
func (t *TakeOver) leftOnNodes(ctx context.Context, tell progress.Func) error {
	news, end := onlyNews(tell), time.Now().Add(leftWithin)
	for {
		left, away, err := t.leftOn(ctx)
		if ctx.Err() == nil && access.Unreachable(err) {
			left, err = []string{"it is not known what is left of Liqo's on the nodes, as the API server gives no answer: " + err.Error()}, nil
		}
		if err != nil {
			return t.cluster.Explain("read what is left of Liqo's on the nodes", err)
		}
		if len(left) > 0 && time.Now().Before(end) {
			news.Waiting(t.cluster.Name, "Waiting for what Liqo's node agents have made to be removed: "+text.Few(left))
			if access.Pause(ctx, pause) {
				continue
			}
			return t.cluster.Errorf("%w while waiting for what Liqo's node agents have made to be removed: %s", context.Cause(ctx), text.Few(left))
		}
		for _, line := range slices.Concat(left, away) {
			tell.Warning(t.cluster.Name, line)
		}
		if len(left)+len(away) == 0 {
			tell.Done(t.cluster.Name, "Nothing that Liqo's node agents have made is left on the nodes")
		}
		return nil
	}
}

// forgetReplaced removes what agents of ours have said of what Liqo's have made, if there are none now: it is of an earlier
// takeover, and Liqo's agents have been at work since.
func (t *TakeOver) forgetReplaced(ctx context.Context) error {
	r := &Removal{cluster: t.cluster}
	if there, err := r.exists(ctx, r.daemonSet(access.FabricName)); err != nil || there {
		return err
	}
	var nodes networkingv1beta1.InternalNodeList
	if err := t.cluster.Client.List(ctx, &nodes); err != nil {
		return t.cluster.Explain("list the InternalNodes", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if meta.FindStatusCondition(n.Status.Conditions, string(networkingv1beta1.ConditionLiqoReplaced)) == nil {
			continue
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := t.cluster.Client.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
				return err
			}
			_, err := apply.Status(ctx, t.cluster.Client, n, func() {
				meta.RemoveStatusCondition(&n.Status.Conditions, string(networkingv1beta1.ConditionLiqoReplaced))
			})
			return err
		})
		if client.IgnoreNotFound(err) != nil {
			return t.cluster.Explain("change the status of InternalNode "+n.Name, err)
		}
	}
	return nil
}

// leftOn tells on which nodes something of Liqo's is left, and why, and of which nobody can tell.
func (t *TakeOver) leftOn(ctx context.Context) (left, away []string, err error) {
	notReady, err := nodesAway(ctx, t.cluster)
	if err != nil {
		return nil, nil, err
	}
	var nodes networkingv1beta1.InternalNodeList
	if err := t.cluster.Client.List(ctx, &nodes); err != nil {
		return nil, nil, err
	}
	for _, n := range nodes.Items {
		switch c := meta.FindStatusCondition(n.Status.Conditions, string(networkingv1beta1.ConditionLiqoReplaced)); {
		case slices.Contains(notReady, n.Name):
			away = append(away, fmt.Sprintf("node %s is not ready: what Liqo's node agent has made there stays until Sluice's runs there", n.Name))
		case c == nil:
			left = append(left, fmt.Sprintf("node %s: its agent has not said whether something of Liqo's is left", n.Name))
		case c.Status != metav1.ConditionTrue:
			left = append(left, fmt.Sprintf("node %s: %s", n.Name, c.Message))
		}
	}
	return left, away, nil
}
