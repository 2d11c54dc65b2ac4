package apply

import (
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Refusal tells whether err is an API server's answer to an object that it does
// not take as it is, so that the same request would be refused again until
// somebody changes something. The message is the server's. A [ForeignError] is
// one, too.
//
// A namespace that is being deleted takes nothing either, but that is no reason
// to tell anybody: see NamespaceEnds.
func Refusal(err error) (message string, refused bool) {
	if theirs := new(ForeignError); errors.As(err, &theirs) {
		return theirs.message(), true
	}
	var status apierrors.APIStatus
	if err == nil || NamespaceEnds(err) || !errors.As(err, &status) {
		return "", false
	}
	s := status.Status()
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), unnamed(s):
		return s.Message, true
	}
	return "", false
}

// NamespaceEnds tells whether nothing can be made because the namespace is being
// deleted, and with it what the object was for.
func NamespaceEnds(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// unnamed tells of errors for which API servers have no name. Of an apply it is
// that the fields do not fit the schema: unknown ones, or list elements without
// their key.
func unnamed(s metav1.Status) bool {
	return s.Code == http.StatusInternalServerError && s.Reason == metav1.StatusReasonUnknown
}
