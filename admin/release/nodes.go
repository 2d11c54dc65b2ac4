package release

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
)

// cleanNodes removes from every node what its agent has made there: the agents
// end first, or they would make it all anew.
func (r *Removal) cleanNodes(ctx context.Context) error {
	agents, cleanup := r.daemonSet(access.FabricName), r.daemonSet(cleanupName)
	begun, err := r.exists(ctx, cleanup) // by an uninstallation that was interrupted
	if err != nil {
		return err
	}
	running, err := r.exists(ctx, agents)
	if err != nil || !running && !begun {
		return err
	}
	from := cleanup
	if running {
		from = agents
	}
	image := from.Spec.Template.Spec.Containers[0].Image
	if running {
		if err := r.end(ctx, agents); err != nil {
			return err
		}
	}
	return r.cleanUp(ctx, cleanup, image)
}

// cleanUp runs what removes from the nodes what ended agents have made there.
func (r *Removal) cleanUp(ctx context.Context, cleanup *appsv1.DaemonSet, image string) error {
	if err := r.applyCleanup(ctx, image); err != nil {
		return err
	}
	if err := r.nodesClean(ctx); err != nil {
		return err
	}
	if _, err := r.exists(ctx, cleanup); err != nil {
		return err
	}
	return r.end(ctx, cleanup)
}

// end deletes a program of that name, and waits until its pods have ended.
func (r *Removal) end(ctx context.Context, program client.Object) error {
	if err := r.delete(ctx, []client.Object{program}); err != nil {
		return err
	}
	return r.noPods(ctx, program.GetNamespace(), program.GetName())
}

// withoutAway are the pods of an agent that was deleted, without those of nodes that are not ready: nobody would tell of
// their end. They are forgotten, or their namespace would not end either.
func (r *Removal) withoutAway(ctx context.Context, pods []corev1.Pod) (there []corev1.Pod, err error) {
	if len(pods) == 0 {
		return nil, nil
	}
	away, err := nodesAway(ctx, r.cluster)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if !slices.Contains(away, p.Spec.NodeName) {
			there = append(there, p)
		} else if err := r.cluster.Client.Delete(ctx, &p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return there, nil
}

// cleanupCommand is what a person can run on a node instead. Where Liqo's agents go on, the links are theirs.
func (r *Removal) cleanupCommand() string {
	if at(r.values, pathAdoption) == true {
		return "fabric cleanup --leave-links"
	}
	return "fabric cleanup"
}

// agentImage is that of the agents of the release, which the nodes have: this program may be of another version.
func (r *Removal) agentImage() (string, error) {
	last, err := r.helm.last()
	if err != nil || last == nil {
		return "", err
	}
	objects, err := decode(last.Manifest)
	for _, u := range objects {
		if u.GetKind() != "DaemonSet" || u.GetName() != access.FabricName {
			continue
		}
		containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		if err != nil || len(containers) == 0 {
			return "", err
		}
		image, _, err := unstructured.NestedString(containers[0].(map[string]any), "image")
		return image, err
	}
	return "", err
}

// endCleanup ends what an uninstallation that was interrupted runs on the nodes: it would remove what the agents make, again
// and again.
func (p *Plan) endCleanup(ctx context.Context, tell progress.Func) error {
	r := &Removal{cluster: p.cluster, options: UninstallOptions{Timeout: cleanupTimeout}, tell: onlyNews(tell)}
	cleanup := r.daemonSet(cleanupName)
	if there, err := r.exists(ctx, cleanup); err != nil || !there || !ofThisRelease(cleanup, p.cluster.LiqoNamespace) {
		return err
	}
	return r.end(ctx, cleanup)
}

// cleanupTimeout is how long the pods of a cleanup may take to end.
const cleanupTimeout = 5 * time.Minute

// daemonSet is one of the namespace of the node agents.
func (r *Removal) daemonSet(name string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.fabricNamespace(), Name: name}}
	d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	return d
}

// exists reads an object.
func (r *Removal) exists(ctx context.Context, o client.Object) (bool, error) {
	kind := o.GetObjectKind().GroupVersionKind()
	err := r.cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	o.GetObjectKind().SetGroupVersionKind(kind)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, r.cluster.Explain("read "+describe(o), err)
}

// applyCleanup puts in the place of the agents what cleans up after them, with their image,
// which the nodes have, and the settings of the release.
func (r *Removal) applyCleanup(ctx context.Context, image string) error {
	objects, err := r.render(true)
	if err != nil {
		return err
	}
	for _, u := range objects {
		if u.GetKind() != "DaemonSet" {
			continue
		}
		path := []string{"spec", "template", "spec", "containers"}
		containers, _, err := unstructured.NestedSlice(u.Object, path...)
		if err != nil {
			return err
		}
		if image != "" {
			containers[0].(map[string]any)["image"] = image
		}
		if err := unstructured.SetNestedSlice(u.Object, containers, path...); err != nil {
			return err
		}
		if err := forceApply(ctx, r.cluster, u); err != nil {
			return err
		}
	}
	return nil
}

// nodesClean waits until the cleanup has succeeded on every node that is ready.
func (r *Removal) nodesClean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	var missing string
	before := eventsOf(ctx, r.cluster, r.fabricNamespace()).versions()
	for {
		done, m, err := r.cleanedUp(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && done >= 0:
			r.tell.Done(r.cluster.Name, fmt.Sprintf("Nodes are clean (%d)", done))
			return nil
		case err == nil:
			missing = m
		}
		r.tell.Waiting(r.cluster.Name, "Waiting until the nodes are clean: "+missing)
		if !access.Pause(ctx, pause) {
			reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return r.cluster.Errorf("%w while waiting for the nodes to be clean: %s%s\nRun the same command again to continue; --skip-node-cleanup leaves the nodes as they are",
				context.Cause(ctx), missing, indented(findings(reading, r.cluster, r.fabricNamespace(), cleanupName, before)))
		}
	}
}

// cleanedUp counts the nodes that are clean. It is negative while some are not
// and could be.
func (r *Removal) cleanedUp(ctx context.Context) (done int, missing string, err error) {
	var d appsv1.DaemonSet
	if err := r.cluster.Client.Get(ctx, client.ObjectKey{Namespace: r.fabricNamespace(), Name: cleanupName}, &d); err != nil {
		return -1, "", r.cluster.Explain("read DaemonSet "+cleanupName, err)
	}
	away, err := nodesAway(ctx, r.cluster)
	if err != nil {
		return -1, "", r.cluster.Explain("read the nodes", err)
	}
	pods, err := podsOf(ctx, r.cluster, d.Namespace, cleanupName)
	if err != nil {
		return -1, "", r.cluster.Explain("read the pods of the cleanup", err)
	}
	for _, p := range pods {
		if p.DeletionTimestamp == nil && succeeded(p) {
			done++
		}
	}
	if d.Status.ObservedGeneration < d.Generation {
		return -1, "the cleanup has not started", nil
	}
	want := int(d.Status.DesiredNumberScheduled)
	if done < want-len(away) {
		return -1, fmt.Sprintf("%d of %d are clean%s", done, want, firstFailure(pods)), nil
	}
	if done < want {
		r.left("what the agents created on nodes that are not ready (%s): run '%s' there to remove it", strings.Join(away, ", "), r.cleanupCommand())
	}
	return done, "", nil
}

// succeeded tells whether the cleanup in a pod has ended well. It is started
// again then, again and again.
func succeeded(p corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil && t.ExitCode == 0 {
				return true
			}
		}
	}
	return false
}

func firstFailure(pods []corev1.Pod) string {
	for _, p := range pods {
		if !succeeded(p) {
			if t := podTrouble(p); t != "" {
				return ": " + t
			}
		}
	}
	return ""
}
