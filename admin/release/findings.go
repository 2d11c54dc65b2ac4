package release

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
)

// What is told of a program for which a wait was in vain.

// findings are what pods, their logs and events tell about a program that does not come up. What cannot be read is left out.
// Events are those of its objects since the wait for it began, before which there were others.
func findings(ctx context.Context, c *access.Cluster, namespace, program string, before eventVersions) (lines []string) {
	pods, _ := podsOf(ctx, c, namespace, program)
	for _, p := range pods {
		if t := podTrouble(p); t != "" {
			lines = append(lines, t)
		}
		for _, s := range p.Status.ContainerStatuses {
			if t := s.LastTerminationState.Terminated; t != nil && t.ExitCode != 0 && !s.Ready {
				lines = append(lines, lastLogLines(ctx, c, p, s)...)
			}
		}
	}
	lines = append(lines, eventsOf(ctx, c, namespace).told(programObjects(ctx, c, namespace, program), before)...)
	const enough = 12
	return lines[:min(len(lines), enough)]
}

// lastLogLines are the end of the log of a container that has failed. It may have been
// started again since its status was read.
func lastLogLines(ctx context.Context, c *access.Cluster, p corev1.Pod, s corev1.ContainerStatus) (lines []string) {
	o := &corev1.PodLogOptions{Container: s.Name, Previous: true, TailLines: new(int64(3))}
	b, err := c.Clientset.CoreV1().Pods(p.Namespace).GetLogs(p.Name, o).DoRaw(ctx)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		lines = append(lines, fmt.Sprintf("log of pod %s: %s", p.Name, strings.TrimSpace(line)))
	}
	return lines
}

// eventList are the events of a namespace, eventVersions those of a moment: each has another version when it happens again.
// Times would not do, as the clock of the cluster is another one.
type (
	eventList     []corev1.Event
	eventVersions map[types.UID]string
)

func eventsOf(ctx context.Context, c *access.Cluster, namespace string) eventList {
	var list corev1.EventList
	_ = c.Client.List(ctx, &list, client.InNamespace(namespace)) // without events the rest is told
	return list.Items
}

func (l eventList) versions() eventVersions {
	v := eventVersions{}
	for _, e := range l {
		v[e.UID] = e.ResourceVersion
	}
	return v
}

// told are the warnings about objects that were not there before.
func (l eventList) told(about map[types.UID]bool, before eventVersions) (lines []string) {
	for _, e := range l {
		line := fmt.Sprintf("event of %s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, shorten(e.Message))
		told := e.Reason == "Failed" || e.Reason == "BackOff" // the state of the pod says the same
		if e.Type == corev1.EventTypeWarning && !told && about[e.InvolvedObject.UID] && before[e.UID] != e.ResourceVersion && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// programKinds are those of a program, each after what makes it.
var programKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"}, {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	{Version: "v1", Kind: "Pod"},
}

// programObjects are the objects of a program: those that have its name or its label, and what these have made.
func programObjects(ctx context.Context, c *access.Cluster, namespace, program string) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, kind := range programKinds {
		objects, _ := (&Removal{cluster: c}).listKind(ctx, kind, client.InNamespace(namespace))
		for _, o := range objects {
			owner := metav1.GetControllerOf(o)
			if o.GetName() == program || o.GetLabels()[labelName] == program || owner != nil && found[owner.UID] {
				found[o.GetUID()] = true
			}
		}
	}
	return found
}

// whatKeeps says what keeps an object from being removed: of a Namespace its conditions, such as an API service that does not
// answer, for which Kubernetes waits. Whoever asks may have no time left.
func (r *Removal) whatKeeps(ctx context.Context, o client.Object) string {
	keeps := fmt.Sprintf("finalizers %v", o.GetFinalizers())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var n corev1.Namespace
	if o.GetObjectKind().GroupVersionKind().Kind != "Namespace" || r.cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), &n) != nil {
		return keeps
	}
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			keeps += "; " + c.Message
		}
	}
	return keeps
}
