package wggateway

import (
	"errors"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refusal is an object that the API server does not take.
type refusal struct {
	object client.Object
	err    error
}

// isRefusal tells whether the same request would be refused again, until the user
// changes something.
func isRefusal(err error) bool {
	return err != nil && !namespaceEnds(err) &&
		(apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err))
}

// namespaceEnds tells whether nothing can be made because the namespace is being
// deleted. The gateway will be, too.
func namespaceEnds(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// text is what the API server said.
func (r refusal) text() string {
	message := r.err.Error()
	if status := apierrors.APIStatus(nil); errors.As(r.err, &status) {
		message = status.Status().Message
	}
	return kindOf(r.object) + " " + r.object.GetName() + ": " + message
}

func kindOf(o client.Object) string {
	if k := o.GetObjectKind().GroupVersionKind().Kind; k != "" {
		return k
	}
	return reflect.TypeOf(o).Elem().Name()
}

func join(refusals []refusal) string {
	texts := make([]string, len(refusals))
	for i, r := range refusals {
		texts[i] = r.text()
	}
	return strings.Join(texts, "; ")
}
