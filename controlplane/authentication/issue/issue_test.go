package issue_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// desk issues a certificate for cluster rome.
type desk struct {
	*issue.Issuer
	t     *testing.T
	grant issue.Grant
	now   time.Time
}

func newDesk(t *testing.T, objects ...client.Object) *desk {
	t.Helper()
	subject := credentials.ControlPlaneSubject("rome")
	c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(objects...).Build()
	d := &desk{t: t, now: time.Now().Truncate(time.Second), grant: issue.Grant{
		Owner:    &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", UID: "1"}},
		Consumer: "rome", Request: request(t, subject), Subject: subject,
	}}
	d.Issuer = &issue.Issuer{Client: c, Reader: c, APIServer: issue.APIServer{URL: "https://milan.example"}, Now: func() time.Time { return d.now }}
	return d
}

// request is one of a new key.
func request(t *testing.T, s credentials.Subject) []byte {
	t.Helper()
	r, err := credentialtest.Key(t).Request(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask asks for the certificate, and returns the problem if there is one.
func (d *desk) ask() (*authv1beta1.AuthParams, *issue.Problem) {
	d.t.Helper()
	params, _, problem, err := d.Issue(d.t.Context(), d.grant)
	if err != nil {
		d.t.Fatal(err)
	}
	return params, problem
}

// requests are those that are there.
func (d *desk) requests() []certificatesv1.CertificateSigningRequest {
	d.t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := d.Reader.List(d.t.Context(), &list); err != nil {
		d.t.Fatal(err)
	}
	return list.Items
}

// request is the only one that is there.
func (d *desk) request() *certificatesv1.CertificateSigningRequest {
	d.t.Helper()
	all := d.requests()
	if len(all) != 1 {
		d.t.Fatalf("there are %d requests", len(all))
	}
	return &all[0]
}

// answers writes the status of the only request, as a signer does.
func (d *desk) answers(change func(*certificatesv1.CertificateSigningRequestStatus)) {
	d.t.Helper()
	r := d.request()
	change(&r.Status)
	if err := d.Client.Status().Update(d.t.Context(), r); err != nil {
		d.t.Fatal(err)
	}
}

// certificate is one for the key of a request.
func (d *desk) certificate(of []byte, s credentials.Subject) []byte {
	d.t.Helper()
	r, err := credentials.ParseRequest(of)
	if err != nil {
		d.t.Fatal(err)
	}
	return credentialtest.Certificate(d.t, r.PublicKey, s, d.now, d.now.Add(24*time.Hour))
}

// TestUnsigned has nobody sign, by a clock that is far ahead of that of the API server.
func TestUnsigned(t *testing.T) {
	d := newDesk(t)
	d.now = d.now.Add(time.Hour)
	for _, step := range []struct {
		after, retry time.Duration
		says         string
	}{
		{0, time.Second, "is being signed"},
		{time.Second, time.Second, "is being signed"},
		{30 * time.Second, 30 * time.Second, "for 31s: this cluster may have no signer"},
	} {
		d.now = d.now.Add(step.after)
		_, problem := d.ask()
		if problem == nil || problem.Reason != authv1beta1.ReasonCertificatePending || problem.Retry != step.retry || !strings.Contains(problem.Message, step.says) {
			t.Errorf("%v later the problem is %+v; want a retry after %v, and %q", step.after, problem, step.retry, step.says)
		}
	}
}

// TestNamespaceThatGoes: in a namespace that is being deleted what was signed is gone before its owner. Nothing is signed
// again for that one, or the request would be left behind.
func TestNamespaceThatGoes(t *testing.T) {
	d := newDesk(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-rome", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"example.org/wait"},
	}})
	if _, problem := d.ask(); problem == nil || !strings.Contains(problem.Message, "being deleted") {
		t.Errorf("%+v", problem)
	}
	if made := d.requests(); len(made) > 0 {
		t.Errorf("%d requests were made", len(made))
	}
}

// TestEarlierRemains: what an earlier owner of the name had is not taken over, and who waits for long is to tell.
func TestEarlierRemains(t *testing.T) {
	earlier := &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", UID: "0"}}
	left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "liqo-tenant-rome", Name: "liqo-remote-certificate", Labels: map[string]string{"liqo.io/managed": "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(earlier, authv1beta1.GroupVersion.WithKind("Tenant"))},
	}}
	d := newDesk(t, left)
	d.grant.Owner.SetCreationTimestamp(metav1.NewTime(d.now))
	for _, step := range []struct{ after, retry time.Duration }{{0, time.Second}, {30 * time.Second, time.Second}, {time.Second, 30 * time.Second}} {
		d.now = d.now.Add(step.after)
		_, problem := d.ask()
		if problem == nil || problem.Reason != authv1beta1.ReasonEarlierRemains || problem.Retry != step.retry || !strings.Contains(problem.Message, "Secret liqo-remote-certificate is that of an earlier Tenant") {
			t.Errorf("%v later the problem is %+v; want a retry after %v", step.after, problem, step.retry)
		}
	}
	if made := d.requests(); len(made) > 0 {
		t.Errorf("%d requests were made", len(made))
	}
	if err := d.Client.Delete(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	if _, problem := d.ask(); problem == nil || problem.Reason != authv1beta1.ReasonCertificatePending {
		t.Errorf("after it is gone: %+v", problem)
	}
}

// TestAsksOtherwise: who asks with another key before the first request was signed leaves none behind.
func TestAsksOtherwise(t *testing.T) {
	d := newDesk(t)
	d.ask()
	first := d.request()
	d.grant.Request = request(t, d.grant.Subject)
	d.ask()
	for _, r := range d.requests() {
		if r.Name == first.Name {
			continue
		}
		r.Status.Certificate = d.certificate(d.grant.Request, d.grant.Subject)
		if err := d.Client.Status().Update(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if params, problem := d.ask(); params == nil {
		t.Fatalf("%+v", problem)
	}
	if left := d.requests(); len(left) > 0 {
		t.Errorf("%d requests are left", len(left))
	}
}

// TestForget has a request made for an object that is gone already, which a cache may not know yet.
func TestForget(t *testing.T) {
	d := newDesk(t)
	d.grant.Owner = &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "slice", UID: "1"}}
	d.grant.Slice, d.grant.Subject = "slice", credentials.SliceSubject("slice", "rome")
	d.grant.Request = request(t, d.grant.Subject)
	_, problem := d.ask()
	if problem == nil || len(d.requests()) != 1 {
		t.Fatalf("%+v; %d requests", problem, len(d.requests()))
	}
	for _, other := range [][2]string{{"liqo-tenant-rome", "other"}, {"liqo-tenant-rome", ""}, {"liqo-tenant-paris", "slice"}} {
		if err := d.Forget(t.Context(), other[0], other[1]); err != nil || len(d.requests()) != 1 {
			t.Errorf("that %v is gone: %v; %d requests", other, err, len(d.requests()))
		}
	}
	if err := d.Forget(t.Context(), "liqo-tenant-rome", "slice"); err != nil || len(d.requests()) != 0 {
		t.Errorf("it is gone: %v; %d requests", err, len(d.requests()))
	}
}

// TestRequestOfAnother has somebody take the name of the controller's request: he asks for another certificate, or for
// the same one.
func TestRequestOfAnother(t *testing.T) {
	for _, c := range []struct {
		name     string
		lifetime time.Duration
		change   func(*certificatesv1.CertificateSigningRequestSpec)
		field    string // empty: it is approved
	}{
		{"another key", 0, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Request = request(t, credentials.ControlPlaneSubject("rome"))
		}, "request"},
		{"another signer", 0, func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "example.org/signer" }, "signerName"},
		{"another usage", 0, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = append(s.Usages, certificatesv1.UsageServerAuth)
		}, "usages"},
		{"valid for ten minutes", 0, func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = new(int32(600)) }, "expirationSeconds"},
		{"valid for years", time.Hour, func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = new(int32(1e8)) }, "expirationSeconds"},
		{"valid for as long as the signer likes", time.Hour, func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = nil }, "expirationSeconds"},
		{"the same, of an earlier user of the controller", time.Hour, func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Username = "system:serviceaccount:liqo:earlier"
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.Lifetime = c.lifetime
			d.ask()
			made := d.request()
			if err := d.Client.Delete(t.Context(), made); err != nil {
				t.Fatal(err)
			}
			theirs := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: made.Name}, Spec: made.Spec}
			c.change(&theirs.Spec)
			if err := d.Client.Create(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			_, problem := d.ask()
			switch approved := len(d.request().Status.Conditions) > 0; {
			case approved != (c.field == ""):
				t.Errorf("it is approved: %v", approved)
			case problem == nil:
				t.Error("there is no problem")
			case approved && problem.Reason != authv1beta1.ReasonCertificatePending,
				!approved && (problem.Reason != authv1beta1.ReasonCertificateRefused || problem.Retry == 0 || !strings.Contains(problem.Message, made.Name) || !strings.Contains(problem.Message, "spec."+c.field+" ")):
				t.Errorf("the problem is %+v", problem)
			}
		})
	}
}

// TestLifetimeChanges restarts the controller with another lifetime while a request of its own waits: it is not taken for
// somebody else's.
func TestLifetimeChanges(t *testing.T) {
	d := newDesk(t)
	d.ask()
	d.Lifetime = time.Hour
	if _, problem := d.ask(); problem == nil || problem.Reason != authv1beta1.ReasonCertificatePending {
		t.Fatalf("the problem is %+v", problem)
	}
	asked := 0
	for _, r := range d.requests() {
		if r.Spec.ExpirationSeconds != nil && *r.Spec.ExpirationSeconds == 3600 {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("%d requests are for an hour", asked)
	}
	if err := d.Forget(t.Context(), "liqo-tenant-rome", ""); err != nil || len(d.requests()) > 0 {
		t.Errorf("%d requests are left when the Tenant is gone, %v", len(d.requests()), err)
	}
}

// TestRefused has the signer of the cluster refuse in every way. It is asked again by itself, and an hour after the
// request was made by another one.
func TestRefused(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) func(*desk, *certificatesv1.CertificateSigningRequestStatus) {
		return func(_ *desk, s *certificatesv1.CertificateSigningRequestStatus) {
			s.Conditions = append(s.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Because", Message: "of a policy"})
		}
	}
	for _, c := range []struct {
		name   string
		answer func(*desk, *certificatesv1.CertificateSigningRequestStatus)
		says   string
	}{
		{"denied", condition(certificatesv1.CertificateDenied), "Because: of a policy. Delete it"},
		{"failed", condition(certificatesv1.CertificateFailed), "Because: of a policy. Delete it"},
		{"signed for another user", func(d *desk, s *certificatesv1.CertificateSigningRequestStatus) {
			s.Certificate = d.certificate(d.grant.Request, credentials.ControlPlaneSubject("naples"))
		}, "another certificate than was asked for: it is for {naples liqo.io}"},
		{"signed for another key", func(d *desk, s *certificatesv1.CertificateSigningRequestStatus) {
			s.Certificate = d.certificate(request(d.t, d.grant.Subject), d.grant.Subject)
		}, "another certificate than was asked for"},
		{"signed with garbage", func(_ *desk, s *certificatesv1.CertificateSigningRequestStatus) { s.Certificate = []byte("x") }, "another certificate than was asked for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.ask()
			made := d.request()
			made.CreationTimestamp = metav1.NewTime(d.now) // the fake sets none
			if err := d.Client.Update(t.Context(), made); err != nil {
				t.Fatal(err)
			}
			d.answers(func(s *certificatesv1.CertificateSigningRequestStatus) { c.answer(d, s) })
			refused := func() {
				t.Helper()
				params, problem := d.ask()
				if params != nil || problem == nil || problem.Reason != authv1beta1.ReasonCertificateRefused || problem.Retry != 30*time.Second || !strings.Contains(problem.Message, c.says) {
					t.Errorf("%+v, %+v", params, problem)
				}
			}
			refused()
			d.request() // is still there, for who wants to look at it
			d.now = d.now.Add(time.Hour)
			refused()
			if left := d.requests(); len(left) > 0 {
				t.Fatalf("an hour later there are %d requests", len(left))
			}
			d.ask()
			d.answers(func(s *certificatesv1.CertificateSigningRequestStatus) {
				s.Certificate = d.certificate(d.grant.Request, d.grant.Subject)
			})
			if params, problem := d.ask(); params == nil || problem != nil {
				t.Errorf("signed as it should be: %+v, %+v", params, problem)
			}
		})
	}
}

// TestRefusedRenewal has the signer sign another certificate when the one that is there is to be replaced: that one goes
// on to serve, and a new one is asked for again.
func TestRefusedRenewal(t *testing.T) {
	d := newDesk(t)
	d.ask()
	old := d.certificate(d.grant.Request, d.grant.Subject)
	d.answers(func(s *certificatesv1.CertificateSigningRequestStatus) { s.Certificate = old })
	d.ask()
	d.now = d.now.Add(17 * time.Hour)
	d.ask()
	d.answers(func(s *certificatesv1.CertificateSigningRequestStatus) { s.Certificate = []byte("x") })
	params, again, problem, err := d.Issue(t.Context(), d.grant)
	if err != nil || problem != nil || params == nil || !bytes.Equal(params.SignedCRT, old) || again != 30*time.Second {
		t.Errorf("%+v, again after %v, %+v, %v", params, again, problem, err)
	}
}
