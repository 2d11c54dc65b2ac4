package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
)

// TestObstacle: each kind of refusal has the reason that says what to do about it. A role is asked for only where one is
// missing.
func TestObstacle(t *testing.T) {
	slices := schema.GroupResource{Group: authv1beta1.GroupVersion.Group, Resource: "resourceslices"}
	forbidden := func(why string) error { return apierrors.NewForbidden(slices, "x", errors.New(why)) }
	for _, tt := range []struct {
		err    error
		reason string
	}{
		{forbidden(`User "rome" cannot create resource "resourceslices" in API group "authentication.liqo.io" in the namespace "rome-there"`), authv1beta1.ReasonRoleBindingMissing},
		{forbidden("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"), authv1beta1.ReasonCopyRefused},
		{apierrors.NewForbidden(slices, "", errors.New(`admission webhook "w" denied the request: no`)), authv1beta1.ReasonCopyRefused},
		{forbidden("exceeded quota: q, requested: count/resourceslices=1, used: count/resourceslices=1, limited: count/resourceslices=1"), authv1beta1.ReasonCopyRefused},
		{forbidden("status unknown for quota: q, resources: count/resourceslices"), authv1beta1.ReasonCopyRefused}, // it has just been made
		{apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceSlice"}, "x", field.ErrorList{field.Required(field.NewPath("spec"), "")}), authv1beta1.ReasonCopyRefused},
		{apierrors.NewBadRequest("unknown field"), authv1beta1.ReasonCopyRefused},
		{apierrors.NewUnauthorized("no"), authv1beta1.ReasonCredentialsRefused},
		{apierrors.NewAlreadyExists(slices, "x"), authv1beta1.ReasonNameTaken},
		{&answerError{"x", errors.New("too long")}, authv1beta1.ReasonAnswerInvalid},
		{errors.New("connection refused"), authv1beta1.ReasonAPIServerUnreachable},
		{apierrors.NewInternalError(errors.New("no")), authv1beta1.ReasonAPIServerUnreachable},
		{apierrors.NewTooManyRequests("no", 1), authv1beta1.ReasonAPIServerUnreachable},
	} {
		for _, err := range []error{tt.err, fmt.Errorf("copy x: %w", tt.err)} {
			reason, note := obstacle(between, err)
			if reason != tt.reason || !strings.Contains(note, "milan") || !strings.Contains(note, tt.err.Error()) {
				t.Errorf("%v: %s, %s; want %s", err, reason, note, tt.reason)
			}
		}
	}
}
