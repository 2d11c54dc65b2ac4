package apply_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-net/sluice/controlplane/apply"
)

func TestRefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	ending := apierrors.NewForbidden(pods, "p", errors.New("the namespace ends"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, test := range []struct {
		name    string
		err     error
		refused bool
	}{
		{"no error", nil, false},
		{"an invalid object", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true},
		{"one that a policy forbids", apierrors.NewForbidden(pods, "p", errors.New("restricted")), true},
		{"fields that the schema does not know", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "field not declared in schema"}}, true},
		{"a server in trouble", apierrors.NewInternalError(errors.New("etcd is away")), false},
		{"a conflict", apierrors.NewConflict(pods, "p", errors.New("newer")), false},
		{"a namespace that is being deleted", ending, false},
		{"a connection that broke", errors.New("connection refused"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.err
			if err != nil {
				err = fmt.Errorf("apply: %w", err)
			}
			message, refused := apply.Refusal(err)
			if refused != test.refused || refused && message == "" {
				t.Errorf("%q, %v", message, refused)
			}
		})
	}
}
