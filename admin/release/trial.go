package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Before Liqo's programs give way to ours, ours run once where they will, and only tell their version: a node may have to pull
// the image first, and a wrong one must cost no traffic.

// labelName is the label by which the pods of a program are found.
const labelName = "app.kubernetes.io/name"

func trialMeta(namespace, name string) metav1.ObjectMeta {
	meta := adoptionMeta(name)
	meta.Namespace, meta.Labels[labelName] = namespace, access.TrialName
	return meta
}

// trialUser is who runs it where the namespace does not say.
const trialUser = 65532

// trialOf is a pod that goes where another one would and has its image, but only tells the version of that, with no rights
// and no part in anything: namespaces that restrict their pods admit it.
func trialOf(pod corev1.PodSpec) corev1.PodSpec {
	c := pod.Containers[0]
	user := new(int64(trialUser))
	if s := pod.SecurityContext; s != nil && s.RunAsNonRoot != nil && *s.RunAsNonRoot {
		user = s.RunAsUser // nil: OpenShift chooses one
	}
	return corev1.PodSpec{
		NodeSelector: pod.NodeSelector, Affinity: pod.Affinity, Tolerations: pod.Tolerations, ImagePullSecrets: pod.ImagePullSecrets,
		SchedulerName: pod.SchedulerName, RuntimeClassName: pod.RuntimeClassName, PriorityClassName: pod.PriorityClassName,
		DNSPolicy: corev1.DNSDefault, EnableServiceLinks: new(false), AutomountServiceAccountToken: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Args: []string{"--version"}, Resources: c.Resources,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

// trials are what tries the images of an installation, where and as its programs will run, but asking for no room, which they
// may get only when Liqo's have ended: the controller once, the node agents on each node. The namespace is that of the agents.
func (p *Plan) trials() (trials []client.Object, namespace *unstructured.Unstructured, err error) {
	objects, err := decode(p.manifests)
	if err != nil {
		return nil, nil, err
	}
	for _, u := range objects {
		agents := u.GetKind() == "DaemonSet" && u.GetName() == access.FabricName
		if u.GetKind() == "Namespace" && u.GetName() == p.cluster.LiqoNamespace+access.FabricSuffix {
			own(u, p.cluster.LiqoNamespace)
			namespace = u
		}
		if !agents && (u.GetKind() != "Deployment" || u.GetName() != access.ControllerName) {
			continue
		}
		source, err := table(u.Object, []string{"spec", "template", "spec"})
		if err != nil {
			return nil, nil, err
		}
		var spec corev1.PodSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(source, &spec); err != nil {
			return nil, nil, err
		}
		spec = trialOf(spec)
		if at(p.Values, "openshiftConfig.enabled") == true {
			spec.SecurityContext.RunAsUser = nil // the agents' is root
		}
		spec.Containers[0].Resources, spec.PriorityClassName = corev1.ResourceRequirements{}, ""
		if !agents {
			spec.RestartPolicy = corev1.RestartPolicyNever
			pod := &corev1.Pod{ObjectMeta: trialMeta(u.GetNamespace(), access.TrialController), Spec: spec}
			pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			trials = append(trials, pod)
			continue
		}
		d := &appsv1.DaemonSet{ObjectMeta: trialMeta(u.GetNamespace(), access.TrialFabric)}
		d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{labelName: access.TrialName}}
		d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: d.Labels}, Spec: spec}
		trials = append(trials, d)
	}
	if len(trials) != 2 || namespace == nil {
		return nil, nil, fmt.Errorf("the chart has %d of the two programs that are tried", len(trials))
	}
	return trials, namespace, nil
}

// imageOf is the image that is tried.
func imageOf(trial client.Object) string {
	if d, ok := trial.(*appsv1.DaemonSet); ok {
		return d.Spec.Template.Spec.Containers[0].Image
	}
	return trial.(*corev1.Pod).Spec.Containers[0].Image
}

// try runs trials, which are Pods or DaemonSets, one after the other, and removes them.
func try(ctx context.Context, c *access.Cluster, tell progress.Func, trials ...client.Object) (err error) {
	for _, o := range trials {
		if err := removeTrial(ctx, c, o); err != nil { // that of a run which was interrupted
			return err
		}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		for _, o := range trials {
			err = errors.Join(err, removeTrial(ctx, c, o))
		}
	}()
	for _, o := range trials {
		image, nodes := imageOf(o), "a node"
		if _, all := o.(*appsv1.DaemonSet); all {
			nodes = "all nodes"
		}
		w := waiter{cluster: c, tell: onlyNews(tell), advice: "name the right one with --set tag=TAG."}
		var made types.UID
		err := w.until(ctx, nodes+" to run "+image, image+" runs", o.GetNamespace(), access.TrialName, func(ctx context.Context) (string, error) {
			if made == "" {
				p := o.DeepCopyObject().(client.Object)
				switch err := c.Client.Create(ctx, p, fieldOwner); {
				case apierrors.IsAlreadyExists(err): // whatever came of it proves nothing
					return "there is a former " + describe(o) + " still", removeTrial(ctx, c, o)
				case err != nil:
					return "", err
				}
				made = p.GetUID()
			}
			missing, again, err := trialLacks(ctx, c, o, made)
			if again {
				made, err = "", removeTrial(ctx, c, o)
			}
			return missing, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trialLacks tells where the program of a trial has not run yet, and whether nothing will come of it, so that it is to be made
// again.
func trialLacks(ctx context.Context, c *access.Cluster, trial client.Object, made types.UID) (missing string, again bool, err error) {
	now, err := readAgain(ctx, c, trial)
	switch {
	case apierrors.IsNotFound(err):
		return "somebody has deleted " + describe(trial) + ", which is made again", true, nil
	case err != nil:
		return "", false, err
	case now.GetUID() != made:
		return "", false, fmt.Errorf("somebody has replaced %s", describe(trial))
	}
	away, err := nodesAway(ctx, c)
	if ignoreAbsent(err) != nil { // whoever hands over a gateway need not see nodes
		return "", false, err
	}
	if p, single := now.(*corev1.Pod); single {
		return trialRuns([]corev1.Pod{*p}, 1, away, true)
	}
	d := now.(*appsv1.DaemonSet)
	if d.Status.ObservedGeneration < d.Generation {
		return "it has not started", false, nil
	}
	pods, err := podsOf(ctx, c, d.Namespace, access.TrialName)
	if err != nil {
		return "", false, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, d) })
	return trialRuns(pods, int(d.Status.DesiredNumberScheduled), away, false)
}

// trialRuns decides. Nodes that are not ready are not waited for; a single pod goes to another one. What the cluster has ended
// says nothing of an image: a DaemonSet replaces its pods, and a single pod is to be made again.
func trialRuns(pods []corev1.Pod, want int, away []string, single bool) (missing string, again bool, err error) {
	waiting, trouble := max(0, want-len(pods)), ""
	for _, p := range pods {
		why, ended, isAway := podTrouble(p), endedBy(p), slices.Contains(away, p.Spec.NodeName)
		if ended == "" && p.DeletionTimestamp != nil {
			ended = "it is being deleted"
		}
		switch {
		case succeeded(p), isAway && !single:
			continue
		case isAway:
			why, again = "pod "+p.Name+": node "+p.Spec.NodeName+" is not ready", true
		case ended != "":
			why, again = "pod "+p.Name+": "+ended, single
		case failed(p):
			return "", false, fmt.Errorf("image %s is none of Sluice's: its program does not tell its version%s", p.Spec.Containers[0].Image, strings.TrimSuffix(": "+why, ": "))
		}
		waiting++
		trouble = cmp.Or(trouble, why)
	}
	if waiting == 0 {
		return "", false, nil
	}
	return strings.TrimSuffix(fmt.Sprintf("%d of %d pods have not run: %s", waiting, want, trouble), ": "), again, nil
}

// readAgain is a trial as the API server has it.
func readAgain(ctx context.Context, c *access.Cluster, trial client.Object) (client.Object, error) {
	empty, err := c.Client.Scheme().New(trial.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, err
	}
	o := empty.(client.Object)
	return o, c.Client.Get(ctx, client.ObjectKeyFromObject(trial), o)
}

// failed tells whether a program has ended, and not well.
func failed(p corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}

// removeTrial deletes what tries an image, and nothing else of its name.
func removeTrial(ctx context.Context, c *access.Cluster, trial client.Object) error {
	o, err := readAgain(ctx, c, trial)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
	case o.GetLabels()[labelAdoption] != networkingv1beta1.LabelTrue:
		return c.Errorf("%s exists, and was not made by this command: rename or delete it", describe(trial))
	default:
		err = client.IgnoreNotFound(c.Client.Delete(ctx, o, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.Preconditions{UID: new(o.GetUID())}))
	}
	return c.Explain("delete "+describe(trial), err)
}
