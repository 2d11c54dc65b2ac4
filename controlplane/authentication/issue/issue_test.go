package issue_test

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestUnsigned has nobody sign, by a clock that is far ahead of that of the API server.
func TestUnsigned(t *testing.T) {
	key, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	subject := credentials.ControlPlaneSubject("rome")
	request, err := key.Request(subject)
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build()
	now := time.Now().Add(time.Hour).Truncate(time.Second)
	i := &issue.Issuer{Client: c, Reader: c, APIServer: issue.APIServer{URL: "https://milan.example"}, Now: func() time.Time { return now }}
	for _, step := range []struct {
		after, retry time.Duration
		says         string
	}{
		{0, time.Second, "is being signed"},
		{time.Second, time.Second, "is being signed"},
		{30 * time.Second, 30 * time.Second, "for 31s: this cluster may have no signer"},
	} {
		now = now.Add(step.after)
		_, _, problem, err := i.Issue(t.Context(), issue.Grant{
			Owner:    &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", UID: "1"}},
			Consumer: "rome", Request: request, Subject: subject,
		})
		if err != nil {
			t.Fatal(err)
		}
		if problem == nil || problem.Reason != authv1beta1.ReasonCertificatePending || problem.Retry != step.retry || !strings.Contains(problem.Message, step.says) {
			t.Errorf("%v later the problem is %+v; want a retry after %v, and %q", step.after, problem, step.retry, step.says)
		}
	}
}

// TestNamespaceThatGoes: in a namespace that is being deleted what was signed is gone before its owner. Nothing is signed
// again for that one, or the request would be left behind.
func TestNamespaceThatGoes(t *testing.T) {
	key, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	subject := credentials.ControlPlaneSubject("rome")
	request, err := key.Request(subject)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-rome", DeletionTimestamp: new(metav1.NewTime(now)), Finalizers: []string{"example.org/wait"},
	}}).Build()
	i := &issue.Issuer{Client: c, Reader: c, APIServer: issue.APIServer{URL: "https://milan.example"}, Now: func() time.Time { return now }}
	_, _, problem, err := i.Issue(t.Context(), issue.Grant{
		Owner:    &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", UID: "1"}},
		Consumer: "rome", Request: request, Subject: subject,
	})
	if err != nil || problem == nil || !strings.Contains(problem.Message, "being deleted") {
		t.Errorf("%+v, %v", problem, err)
	}
	var made certificatesv1.CertificateSigningRequestList
	if err := c.List(t.Context(), &made); err != nil || len(made.Items) > 0 {
		t.Errorf("%d requests were made, %v", len(made.Items), err)
	}
}

// TestForget has a request made for an object that is gone already, which a cache may not know yet.
func TestForget(t *testing.T) {
	key, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	subject := credentials.SliceSubject("slice", "rome")
	request, err := key.Request(subject)
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build()
	i := &issue.Issuer{Client: c, Reader: c, APIServer: issue.APIServer{URL: "https://milan.example"}, Now: time.Now}
	made := func() int {
		var list certificatesv1.CertificateSigningRequestList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	_, _, problem, err := i.Issue(t.Context(), issue.Grant{
		Owner:    &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "slice", UID: "1"}},
		Consumer: "rome", Slice: "slice", Request: request, Subject: subject,
	})
	if err != nil || problem == nil || made() != 1 {
		t.Fatalf("%+v, %v; %d requests", problem, err, made())
	}
	for _, other := range [][2]string{{"liqo-tenant-rome", "other"}, {"liqo-tenant-rome", ""}, {"liqo-tenant-paris", "slice"}} {
		if err := i.Forget(t.Context(), other[0], other[1]); err != nil || made() != 1 {
			t.Errorf("that %v is gone: %v; %d requests", other, err, made())
		}
	}
	if err := i.Forget(t.Context(), "liqo-tenant-rome", "slice"); err != nil || made() != 0 {
		t.Errorf("it is gone: %v; %d requests", err, made())
	}
}
