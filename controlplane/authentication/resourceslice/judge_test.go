package resourceslice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// asked is a copy of a slice of cluster rome, with the Tenant of rome, at cluster milan.
func asked(t *testing.T) (*authv1beta1.ResourceSlice, *authv1beta1.Tenant, credentials.Key) {
	t.Helper()
	k, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := k.MarshalPublic()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := k.Request(credentials.SliceSubject("milan", "rome"))
	if err != nil {
		t.Fatal(err)
	}
	return &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-of-rome", Name: "milan"},
			Spec: authv1beta1.ResourceSliceSpec{
				ConsumerClusterID: new(authv1beta1.ClusterID("rome")), ProviderClusterID: new(authv1beta1.ClusterID("milan")), CSR: csr,
			},
		}, &authv1beta1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-of-rome", Name: "rome"},
			Spec: authv1beta1.TenantSpec{
				ClusterID: "rome", AuthzPolicy: authv1beta1.KeysExchange, TenantCondition: authv1beta1.TenantActive, PublicKey: public,
			},
		}, k
}

func TestJudgeAuthentication(t *testing.T) {
	stranger, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	request := func(k credentials.Key, s credentials.Subject) []byte {
		r, err := k.Request(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		name   string
		change func(*authv1beta1.ResourceSlice, *authv1beta1.Tenant, credentials.Key)
		reason string // empty: accepted
	}{
		{"what is expected", func(*authv1beta1.ResourceSlice, *authv1beta1.Tenant, credentials.Key) {}, ""},
		{"another consumer", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, _ credentials.Key) {
			s.Spec.ConsumerClusterID = new(authv1beta1.ClusterID("naples"))
		}, authv1beta1.ReasonConsumerInvalid},
		{"no consumer", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, _ credentials.Key) {
			s.Spec.ConsumerClusterID = nil
		}, authv1beta1.ReasonConsumerInvalid},
		{"another provider", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, _ credentials.Key) {
			s.Spec.ProviderClusterID = new(authv1beta1.ClusterID("naples"))
		}, authv1beta1.ReasonConsumerInvalid},
		{"another slice's name", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, k credentials.Key) {
			s.Spec.CSR = request(k, credentials.SliceSubject("other", "rome"))
		}, authv1beta1.ReasonUserForbidden},
		{"another tenant's group", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, k credentials.Key) {
			s.Spec.CSR = request(k, credentials.Subject{CommonName: credentials.SliceSubject("milan", "rome").CommonName, Organization: "naples"})
		}, authv1beta1.ReasonGroupForbidden},
		{"system:masters", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, k credentials.Key) {
			s.Spec.CSR = request(k, credentials.Subject{CommonName: credentials.SliceSubject("milan", "rome").CommonName, Organization: "system:masters"})
		}, authv1beta1.ReasonGroupForbidden},
		{"another key", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, _ credentials.Key) {
			s.Spec.CSR = request(stranger, credentials.SliceSubject("milan", "rome"))
		}, authv1beta1.ReasonKeyMismatch},
		{"another key, of a consumer that made no handshake", func(s *authv1beta1.ResourceSlice, tn *authv1beta1.Tenant, _ credentials.Key) {
			tn.Spec.AuthzPolicy, tn.Spec.PublicKey = authv1beta1.TolerateNoHandshake, nil
			s.Spec.CSR = request(stranger, credentials.SliceSubject("milan", "rome"))
		}, ""},
		{"no request, of a consumer that made no handshake", func(s *authv1beta1.ResourceSlice, tn *authv1beta1.Tenant, _ credentials.Key) {
			tn.Spec.AuthzPolicy, tn.Spec.PublicKey, s.Spec.CSR = authv1beta1.TolerateNoHandshake, nil, nil
		}, ""},
		{"system:masters, of a consumer that made no handshake", func(s *authv1beta1.ResourceSlice, tn *authv1beta1.Tenant, k credentials.Key) {
			tn.Spec.AuthzPolicy, tn.Spec.PublicKey = authv1beta1.TolerateNoHandshake, nil
			s.Spec.CSR = request(k, credentials.Subject{CommonName: credentials.SliceSubject("milan", "rome").CommonName, Organization: "system:masters"})
		}, authv1beta1.ReasonGroupForbidden},
		{"no request", func(s *authv1beta1.ResourceSlice, _ *authv1beta1.Tenant, _ credentials.Key) { s.Spec.CSR = nil }, authv1beta1.ReasonRequestInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, tenant, k := asked(t)
			c.change(s, tenant, k)
			v := judgeAuthentication(s, tenant, "milan")
			if c.reason == "" && v.status != authv1beta1.SliceAccepted || c.reason != "" && (v.status != authv1beta1.SliceDenied || v.reason != c.reason) {
				t.Errorf("%+v, want %q", v, c.reason)
			}
		})
	}
	s, _, _ := asked(t)
	if v := judgeAuthentication(s, nil, "milan"); v.reason != authv1beta1.ReasonTenantMissing {
		t.Errorf("without a Tenant: %+v", v)
	}
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestJudgeResources(t *testing.T) {
	many := corev1.ResourceList{}
	for i := range maxResources + 1 {
		many[corev1.ResourceName(fmt.Sprintf("example.org/r%d", i))] = resource.MustParse("1")
	}
	for _, c := range []struct {
		name    string
		asked   corev1.ResourceList
		class   string
		tenant  authv1beta1.TenantCondition
		before  []authv1beta1.ResourceSliceCondition
		had     corev1.ResourceList
		off     bool
		ledger  ledger
		notes   map[string]string
		reason  string
		granted corev1.ResourceList
		others  bool
		says    string
	}{
		{name: "nothing in particular", reason: "ResourceSliceResourcesAccepted", granted: list("cpu", "4", "memory", "8Gi", "pods", "110", "ephemeral-storage", "20Gi")},
		{
			name: "what is asked for", asked: list("cpu", "2", "example.org/gpu", "1"), class: "default", reason: "ResourceSliceResourcesAccepted",
			granted: list("cpu", "2", "memory", "8Gi", "pods", "110", "ephemeral-storage", "20Gi", "example.org/gpu", "1"),
		},
		{name: "less than nothing", asked: list("cpu", "-1"), reason: "ResourcesInvalid"},
		{name: "a name made to break a terminal", asked: list("\x1b[31mcpu", "1"), reason: "ResourcesInvalid"},
		{name: "too many", asked: many, reason: "ResourcesInvalid"},
		{name: "another class", class: "gold", others: true},
		{name: "the class is off", off: true, reason: "DefaultResourceSliceClassDisabled"},
		{name: "a new slice of a cordoned tenant", tenant: authv1beta1.TenantCordoned, reason: "TenantCordoned"},
		{
			name: "a slice that a cordoned tenant had", tenant: authv1beta1.TenantCordoned, asked: list("cpu", "1000"), had: list("cpu", "2"),
			before: []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceAccepted, Reason: "ResourceSliceResourcesAccepted"}},
			reason: "ResourceSliceResourcesAccepted", granted: list("cpu", "2"),
		},
		{
			name: "a slice that was denied to a cordoned tenant", tenant: authv1beta1.TenantCordoned,
			before: []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceDenied, Reason: "TenantCordoned"}}, reason: "TenantCordoned",
		},
		{name: "a new slice that is cordoned", notes: map[string]string{"liqo.io/cordon": "true"}, reason: "ResourceSliceCordoned"},
		{
			name: "a slice that had something and is cordoned", notes: map[string]string{"liqo.io/cordon": "true"}, asked: list("cpu", "1000"), had: list("cpu", "2"),
			before: []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceAccepted, Reason: "ResourceSliceResourcesAccepted"}},
			reason: "ResourceSliceResourcesAccepted", granted: list("cpu", "2"),
		},
		{name: "a slice that is not cordoned any more", notes: map[string]string{"liqo.io/cordon": "false"}, asked: defaults(), reason: "ResourceSliceResourcesAccepted", granted: defaults()},
		{name: "a cordoned slice of a drained tenant", tenant: authv1beta1.TenantDrained, notes: map[string]string{"liqo.io/cordon": "true"}, reason: "TenantDrained"},
		{
			name: "within the quota", asked: list("cpu", "2"), ledger: ledger{quota: list("cpu", "8", "memory", "4Gi"), taken: list("cpu", "6")},
			reason: "ResourceSliceResourcesAccepted", granted: list("cpu", "2", "memory", "4Gi", "pods", "110", "ephemeral-storage", "20Gi"),
		},
		{
			name: "beyond the quota", asked: list("cpu", "3"), ledger: ledger{quota: list("cpu", "8"), taken: list("cpu", "6")},
			reason: "QuotaExceeded", says: "3 of cpu are asked for; the quota of cluster rome is 8, of which its other slices have 6",
		},
		{
			name: "a quota that was lowered takes nothing away", asked: list("cpu", "3"), had: list("cpu", "3"), ledger: ledger{quota: list("cpu", "1")},
			before: []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceAccepted, Reason: "ResourceSliceResourcesAccepted"}},
			reason: "ResourceSliceResourcesAccepted", granted: list("cpu", "3"),
		},
		{
			name: "more than it has, of a quota that was lowered", asked: list("cpu", "4"), had: list("cpu", "3"), ledger: ledger{quota: list("cpu", "1")},
			before: []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceAccepted, Reason: "ResourceSliceResourcesAccepted"}},
			reason: "QuotaExceeded",
		},
		{name: "a quota that does not parse", ledger: ledger{wrong: "the annotation x"}, reason: "QuotaInvalid", says: "must mend the annotation x"},
		{
			name: "what the nodes have left", asked: list("cpu", "2"), class: "available", off: true, // the class default is
			ledger: ledger{free: &capacity{allocatable: list("cpu", "8", "memory", "16Gi", "pods", "110"), requested: list("cpu", "5", "pods", "10"), granted: list("cpu", "1")}},
			reason: "ResourceSliceResourcesAccepted", granted: list("cpu", "2", "memory", "8Gi", "pods", "100", "ephemeral-storage", "0"),
		},
		{
			name: "more than the nodes have left", asked: list("cpu", "2001m"), class: "available",
			ledger: ledger{free: &capacity{allocatable: list("cpu", "8"), requested: list("cpu", "5"), granted: list("cpu", "1")}},
			reason: "ResourcesUnavailable", says: "2001m of cpu are asked for; the provider has 2 left: its nodes have 8, of which slices have 1 and other pods request 5",
		},
		{
			name: "what no node has", asked: list("example.org/gpu", "1"), class: "available", ledger: ledger{free: &capacity{}},
			reason: "ResourcesUnavailable", says: "the provider has 0 left",
		},
		{
			name: "the nodes would have it, the quota not", asked: list("cpu", "2"), class: "available",
			ledger: ledger{quota: list("cpu", "1"), free: &capacity{allocatable: list("cpu", "8")}}, reason: "QuotaExceeded",
		},
		{name: "a slice of a drained tenant", tenant: authv1beta1.TenantDrained, reason: "TenantDrained"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, tenant, _ := asked(t)
			s.Spec.Resources, s.Spec.Class, s.Status.Conditions, s.Status.Resources = c.asked, c.class, c.before, c.had
			s.Annotations = c.notes
			if c.tenant != "" {
				tenant.Spec.TenantCondition = c.tenant
			}
			v, granted, others := judgeResources(s, tenant, !c.off, c.ledger)
			if !strings.Contains(v.message, c.says) {
				t.Errorf("the message is %q", v.message)
			}
			if v.reason != c.reason || others != c.others || strings.ContainsRune(v.message, '\x1b') {
				t.Errorf("%+v, others %v", v, others)
			}
			if (v.status == authv1beta1.SliceAccepted) != (c.granted != nil) {
				t.Errorf("%+v grants %v", v, granted)
			}
			if diff := cmp.Diff(c.granted, granted, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); c.granted != nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}
