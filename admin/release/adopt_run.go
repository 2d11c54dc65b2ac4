package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Run hands the gateways over, one after the other, and waits for each. One that does not get ready goes back to Liqo's
// template, or if that was to replace ours, to ours, and the rest stays as it is; where Sluice runs the network, it goes
// nowhere. Run may be repeated, also after it was interrupted: it waits for what is there already as for what it changes.
func (a *Adoption) Run(ctx context.Context, tell progress.Func) error {
	var errs []error
	for i := range a.handovers {
		h := &a.handovers[i]
		err := a.handOver(ctx, h, tell)
		if err != nil && (h.replaces() || ctx.Err() != nil) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err) // of a gateway that stays as it is, in the way of no other
	}
	if err := errors.Join(errs...); err != nil {
		return err
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
		if err := forceApply(ctx, a.cluster, o); err != nil {
			return err
		}
	}
	if h.replaces() {
		note := peerWasSilent
		if h.awaited() {
			note = peerAnswered
		}
		if err := a.note(ctx, h, note); err != nil {
			return err
		}
	}
	if err := a.refer(ctx, h, h.from, h.to); err != nil {
		return err
	}
	err := a.ready(ctx, h, h.to, tell)
	switch {
	case err == nil:
		return a.note(ctx, h, "")
	case errors.Is(ctx.Err(), context.Canceled):
		return err
	case h.wasGivenBack() || h.to == h.liqos && h.noted == peerAnswered && !h.connected: // the peer does not answer the other gateway either
		return errors.Join(err, a.cluster.Errorf("%s keeps template %s; to hand it to Sluice's gateway again, run\n  liqoctl network adopt %s",
			h.named(), h.to, h.peer))
	case a.takenOver:
		return errors.Join(err, a.cluster.Errorf("%s keeps template %s: Sluice runs the network of this cluster, and its controllers run no gateway by a template of Liqo's, "+
			"so there is no way back; 'liqoctl network doctor %s' tells more; correct what is wrong, and repeat the command", h.named(), h.to, h.peer))
	case !h.replaces():
		return errors.Join(err, a.cluster.Errorf("%s has had template %s before this command, and keeps it; to give it back to Liqo's gateway, run\n  liqoctl network adopt %s --back",
			h.named(), h.to, h.peer))
	}
	// Whoever waited has no time left, and the traffic must come back.
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	tell.Warning(a.cluster.Name, fmt.Sprintf("%s refers to template %s again, as it is not ready by %s", h.named(), h.otherwise(), h.to))
	backErr := retry.OnError(wait.Backoff{Duration: pause, Steps: math.MaxInt}, func(err error) bool { return back.Err() == nil && access.Unreachable(err) },
		func() error { return a.refer(back, h, h.to, h.otherwise()) })
	if backErr != nil {
		return errors.Join(err, backErr)
	}
	if backErr = a.ready(back, h, h.otherwise(), tell); backErr == nil {
		backErr = a.note(back, h, "")
	}
	return errors.Join(err, backErr)
}

// note notes on the copy whether the peer answers before a handover, and takes the note back, which is empty then, when
// that is completed: after an interruption nothing else tells.
func (a *Adoption) note(ctx context.Context, h *handover, note string) error {
	if note == h.noted {
		return nil
	}
	value := &note
	if note == "" {
		value = nil // removes it
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotationSilent: value}}})
	if err != nil {
		return err
	}
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(h.ref.kind))
	u.SetNamespace(h.ref.namespace)
	u.SetName(h.copied)
	if err := a.cluster.Client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return a.cluster.Explain("change "+describe(u), err)
	}
	h.noted = note
	return nil
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
	silent, limit := time.Now().Add(a.timeout), a.timeout
	if h.wasGivenBack() {
		limit += time.Second + 4*pause // to say that the peer is silent
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g := h.gatewayAtWork
	g.template.Name = template
	whose := "Liqo's"
	if template != h.liqos {
		whose = "Sluice's"
	}
	p := Plan{cluster: a.cluster}
	w := waiter{cluster: a.cluster, tell: onlyNews(tell), advice: "name the right one with --set tag=TAG."}
	return w.until(ctx, fmt.Sprintf("%s to be %s", h.named(), whose), fmt.Sprintf("%s is %s", h.named(), whose), h.name.Namespace, h.name.Name,
		func(ctx context.Context) (missing string, err error) {
			if missing, err = a.podOf(ctx, h, template); missing != "" || err != nil {
				return missing, err
			}
			if missing, err = p.gatewayReady(ctx, g); missing != "" || err != nil || !h.awaited() {
				return missing, err
			}
			if missing, err = a.answer(ctx, h); missing != "" && h.wasGivenBack() && time.Now().After(silent) {
				tell.Warning(a.cluster.Name, fmt.Sprintf("%s: %s; it did before the gateway was handed over", h.named(), missing))
				missing = ""
			}
			return missing, err
		})
}

// answer tells whether the peer has yet to answer the pods that a gateway has now.
func (a *Adoption) answer(ctx context.Context, h *handover) (missing string, err error) {
	var d appsv1.Deployment
	if err := a.cluster.Client.Get(ctx, h.deployment(), &d); err != nil {
		return "", err
	}
	pods, err := podsSelected(ctx, a.cluster, d.Namespace, d.Spec.Selector)
	if err != nil {
		return "", err
	}
	var c networkingv1beta1.Connection
	switch err := a.cluster.Client.Get(ctx, h.deployment(), &c); { // of the same name
	case apierrors.IsNotFound(err):
		return "there is no Connection yet", nil
	case err != nil:
		return "", err
	case !answered(c.Status, pods):
		return "the peer has not answered yet", nil
	}
	return "", nil
}

// answered tells whether a Connection says that the peer has answered one of the pods: what a pod before them has reported
// proves nothing. The clock is that of the pod's node in both cases. A latency that stays the same may be written once.
func answered(c networkingv1beta1.ConnectionStatus, pods []corev1.Pod) bool {
	return c.Value == networkingv1beta1.Connected && slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return p.DeletionTimestamp == nil && p.Status.StartTime != nil && c.Latency.Timestamp.After(p.Status.StartTime.Time)
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
		return a.controllers() + " have not changed its Deployment yet", nil
	}
	return "", nil
}

// try runs our program once where a gateway would run, before anything is changed.
func (a *Adoption) try(ctx context.Context, h *handover, tell progress.Func) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	pod, err := trialPod(h)
	if err != nil {
		return err
	}
	return try(ctx, a.cluster, tell, pod)
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
		spec = trialOf(spec)
		spec.RestartPolicy = corev1.RestartPolicyNever
		pod := &corev1.Pod{ObjectMeta: trialMeta(h.name.Namespace, access.TrialName+"-"+h.name.Name), Spec: spec}
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
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, err
}

// forceApply applies an object as ours, whoever owns its fields.
func forceApply(ctx context.Context, c *access.Cluster, o client.Object) error {
	u, err := asUnstructured(o)
	if err != nil {
		return err
	}
	return c.Explain("apply "+describe(u), c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership))
}
