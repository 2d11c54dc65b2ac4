package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Run hands the gateways over, one after the other, and waits for each. One that does not get ready goes back to the
// template that it had, and the rest stays as it is. Run may be repeated, also after it was interrupted.
func (a *Adoption) Run(ctx context.Context, tell progress.Func) error {
	for i := range a.handovers {
		if err := a.handOver(ctx, &a.handovers[i], tell); err != nil {
			return err
		}
	}
	for _, o := range a.remove {
		err := a.cluster.Client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})
		if client.IgnoreNotFound(err) != nil {
			return a.cluster.Explain("delete "+describe(o), err)
		}
		tell.Done(a.cluster.Name, describe(o)+" is deleted")
	}
	return nil
}

// handOver hands one gateway over.
func (a *Adoption) handOver(ctx context.Context, h *handover, tell progress.Func) error {
	if h.replaces() && len(h.make) > 0 {
		if err := a.try(ctx, h, tell); err != nil {
			return err
		}
	}
	for _, o := range h.make {
		u, err := asUnstructured(o)
		if err != nil {
			return err
		}
		if err := a.cluster.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
			return a.cluster.Explain("apply "+describe(u), err)
		}
	}
	if err := a.refer(ctx, h, h.from, h.to); err != nil {
		return err
	}
	err := a.ready(ctx, h, h.to, tell)
	if err == nil || !h.replaces() || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	// Whoever waited has no time left, and the traffic must come back.
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	tell.Warning(a.cluster.Name, fmt.Sprintf("%s refers to template %s again, as it is not ready by %s", h.named(), h.otherwise(), h.to))
	if backErr := a.refer(back, h, h.to, h.otherwise()); backErr != nil {
		return errors.Join(err, backErr)
	}
	return errors.Join(err, a.ready(back, h, h.otherwise(), tell))
}

// refer makes a gateway refer to another template, unless it meanwhile refers to a third one.
func (a *Adoption) refer(ctx context.Context, h *handover, from, to string) error {
	if from == to {
		return nil
	}
	path := "/spec/" + h.field + "/name"
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": from}, {"op": "replace", "path": path, "value": to}})
	if err != nil {
		return err
	}
	o := h.object.DeepCopyObject().(client.Object)
	err = a.cluster.Client.Patch(ctx, o, client.RawPatch(types.JSONPatchType, patch), fieldOwner)
	return a.cluster.Explain(fmt.Sprintf("change the template of %s from %s to %s", h.named(), from, to), err)
}

// ready waits until a gateway is what a template says, and if its peer answered before, until it does again.
func (a *Adoption) ready(ctx context.Context, h *handover, template string, tell progress.Func) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	g := h.gatewayAtWork
	g.template.Name = template
	whose := "Liqo's"
	if template != h.liqos {
		whose = "Sluice's"
	}
	var first *metav1.Time // when the peer had answered last, as the new pod got ready
	p := Plan{cluster: a.cluster}
	w := waiter{cluster: a.cluster, tell: onlyNews(tell), advice: "name the right one with --set tag=TAG."}
	return w.until(ctx, fmt.Sprintf("%s to be %s", h.named(), whose), fmt.Sprintf("%s is %s", h.named(), whose), h.name.Namespace, h.name.Name,
		func(ctx context.Context) (missing string, err error) {
			if missing, err = a.podOf(ctx, h, template); missing != "" || err != nil {
				return missing, err
			}
			if missing, err = p.gatewayReady(ctx, g); missing != "" || err != nil || !h.connected {
				return missing, err
			}
			var c networkingv1beta1.Connection
			switch err := a.cluster.Client.Get(ctx, h.deployment(), &c); { // of the same name
			case apierrors.IsNotFound(err):
				return "there is no Connection yet", nil
			case err != nil:
				return "", err
			}
			// What the pod before has reported proves nothing.
			at := &c.Status.Latency.Timestamp
			if first == nil {
				first = at
			}
			if c.Status.Value != networkingv1beta1.Connected || at.Equal(first) {
				return "the peer has not answered yet", nil
			}
			return "", nil
		})
}

// podOf tells whether the Deployment of a gateway still has the pod of the other program. Not every template of Liqo can be
// rendered here.
func (a *Adoption) podOf(ctx context.Context, h *handover, template string) (missing string, err error) {
	var d appsv1.Deployment
	switch err := a.cluster.Client.Get(ctx, h.deployment(), &d); {
	case apierrors.IsNotFound(err):
		return "there is no Deployment " + h.deployment().Name + " yet", nil
	case err != nil:
		return "", err
	}
	containers := d.Spec.Template.Spec.Containers
	if ours := len(containers) == 1 && containers[0].Name == gatewayContainer; ours != (template != h.liqos) {
		return "Liqo's controllers have not changed its Deployment yet", nil
	}
	return "", nil
}

// trialName begins the names of pods that try an image, and is their label.
const trialName = "sluice-trial"

// try runs our program once where a gateway would run, before anything is changed: a node may have to pull the image first,
// and a wrong one must cost no traffic.
func (a *Adoption) try(ctx context.Context, h *handover, tell progress.Func) (err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	pod, err := trialPod(h)
	if err != nil {
		return err
	}
	remove := func(ctx context.Context) error {
		return client.IgnoreNotFound(a.cluster.Client.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0)))
	}
	if err := remove(ctx); err != nil { // that of a run which was interrupted
		return a.cluster.Explain("delete "+describe(pod), err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, a.cluster.Explain("delete "+describe(pod), remove(ctx)))
	}()
	image := pod.Spec.Containers[0].Image
	w := waiter{cluster: a.cluster, tell: onlyNews(tell), advice: "name the right one with --set tag=TAG."}
	return w.until(ctx, "a node to run "+image, image+" runs", pod.Namespace, trialName, func(ctx context.Context) (string, error) {
		if err := a.cluster.Client.Create(ctx, pod.DeepCopy(), fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", err
		}
		var p corev1.Pod
		if err := a.cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), &p); err != nil {
			return "", err
		}
		switch {
		case succeeded(p):
			return "", nil
		case p.Status.Phase == corev1.PodFailed:
			return "", fmt.Errorf("image %s is none of the gateway: its program does not tell its version%s", image, firstTrouble(ctx, a.cluster, p.Namespace, trialName))
		}
		return "pod " + p.Name + " is " + string(p.Status.Phase) + firstTrouble(ctx, a.cluster, p.Namespace, trialName), nil
	})
}

// trialPod is a pod of a gateway whose program only tells its version. Nothing finds it by its labels.
func trialPod(h *handover) (*corev1.Pod, error) {
	for _, o := range h.make {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		spec, err := renderedPod(u, h.vars)
		if err != nil {
			return nil, err
		}
		c := spec.Containers[0]
		c.Args, c.Command, c.Ports, c.Env, c.VolumeMounts, c.ReadinessProbe, c.LivenessProbe = []string{"--version"}, nil, nil, nil, nil, nil, nil
		spec.Containers, spec.Volumes, spec.RestartPolicy = []corev1.Container{c}, nil, corev1.RestartPolicyNever
		spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.AutomountServiceAccountToken = "", "", new(false)
		meta := adoptionMeta(trialName + "-" + h.name.Name)
		meta.Namespace, meta.Labels["app.kubernetes.io/name"] = h.name.Namespace, trialName
		pod := &corev1.Pod{ObjectMeta: meta, Spec: spec}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		return pod, nil
	}
	return nil, errors.New("nothing tells what the pod would be")
}

// asUnstructured is an object as it is applied.
func asUnstructured(o client.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.DeepCopy(), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return &unstructured.Unstructured{Object: content}, err
}
