package cluster

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespaceEnds asks the API server whether it still makes things in the gateway's
// namespace. When a namespace is deleted its pods are the first to go and the
// gateway is there until they are gone, so that nothing else tells. The question
// is a trial: an event is what a gateway may make.
func (l *Link) namespaceEnds(ctx context.Context) bool {
	e := eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{GenerateName: l.options.Name + "-", Namespace: l.options.Namespace},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: "liqo.io/gateway", ReportingInstance: l.options.Name,
		Action: "HandOver", Reason: "HandOver", Type: corev1.EventTypeNormal,
		Regarding: corev1.ObjectReference{Kind: "Namespace", Name: l.options.Namespace, Namespace: l.options.Namespace},
	}
	b, err := json.Marshal(&e)
	if err != nil {
		return false
	}
	err = l.coordination.Post().AbsPath("/apis", eventsv1.SchemeGroupVersion.String(), "namespaces", l.options.Namespace, "events").
		Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body(b).Do(ctx).Error()
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
