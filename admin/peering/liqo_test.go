package peering

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// liqoSite is a cluster with Liqo's controllers, which the test plays.
type liqoSite struct {
	*end
	t *testing.T
}

// change changes what Liqo's controllers write: the data of a Secret, the status of anything else.
func (s liqoSite) change(o client.Object, change func()) {
	s.t.Helper()
	if err := s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		s.t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change()
	write := s.Client.Patch
	if _, secret := o.(*corev1.Secret); !secret {
		write = func(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
			return s.Client.Status().Patch(ctx, o, p)
		}
	}
	if err := write(s.t.Context(), o, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// TestNetworkOfLiqo: what is made where Liqo runs admits its gateways, and the keys that its controllers have made, which an
// object owns that is not marked as their controller, are not taken for somebody's.
func TestNetworkOfLiqo(t *testing.T) {
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "net-controller-manager",
		Labels: map[string]string{"app.kubernetes.io/name": "controller-manager", "app.kubernetes.io/component": "controller-manager"}}}
	labels := map[string]string{networkingv1beta1.LabelGatewayResource: "true", networkingv1beta1.LabelRemoteClusterID: "rome"}
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "gw-rome", Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "networking.liqo.io/v1beta1", Kind: "GatewayServer", Name: "rome", UID: "1"}}}}
	stray := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "gw-other", Labels: labels}}
	for _, tt := range []struct {
		objects []client.Object
		enforce string
	}{{[]client.Object{keys, stray}, "restricted"}, {[]client.Object{keys, stray, manager}, ""}} {
		c := &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(tt.objects...).Build()}
		p := newPair(c, c, &Options{})
		p[0].id, p[1].id, p[1].namespace = "rome", "milan", "liqo-tenant-rome"
		if err := p[1].ensureNamespace(t.Context()); err != nil {
			t.Fatal(err)
		}
		var space corev1.Namespace
		if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "liqo-tenant-rome"}, &space); err != nil {
			t.Fatal(err)
		}
		if got := space.Labels[networkingv1beta1.LabelPodSecurity]; got != tt.enforce || space.Labels[networkingv1beta1.LabelTenantNamespace] != "true" {
			t.Errorf("labels %v, want %s=%q", space.Labels, networkingv1beta1.LabelPodSecurity, tt.enforce)
		}
		for _, e := range p {
			e.network.CIDR.Pod = networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.243.0.0/16"}, Scalar: true}
			if err := e.spell(t.Context()); err != nil || e.network.CIDR.Pod.Scalar != (tt.enforce != "") {
				t.Errorf("%s: %+v, %v", e.id, e.network, err)
			}
		}
		// An earlier Configuration has strings.
		network := networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
			Pod: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.243.0.0/16"}, Scalar: true}, External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.70.0.0/16"}, Scalar: true}}}
		earlier := NewConfiguration(Metadata{Namespace: p[1].namespace, RemoteClusterID: "rome"}, network)
		earlier.Spec.Local = network.DeepCopy()
		if err := c.Client.Create(t.Context(), earlier); err != nil {
			t.Fatal(err)
		}
		p[0].network.CIDR.External = network.CIDR.External
		s := p[1].configure()
		if missing, err := s.try(t.Context()); missing != "" || err != nil || p[1].corrected {
			t.Errorf("waits for %q, %v", missing, err)
		}
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(earlier), earlier); err != nil {
			t.Fatal(err)
		}
		if strings := tt.enforce != ""; earlier.Spec.AsLists() != strings || (len(s.notes) == 0) != strings {
			t.Errorf("the earlier Configuration has %+v, told is %v", earlier.Spec, s.notes)
		}
		if got, err := p[1].strayKeys(t.Context(), "liqo-tenant-rome", nil); err != nil || !slices.Equal(got, []string{"gw-other"}) {
			t.Errorf("stray keys %v, %v", got, err)
		}
	}
}

// TestLiqoRuns: whether Liqo runs is seen by its Deployment, or by who may not list these by what the ConfigMap of our chart says.
func TestLiqoRuns(t *testing.T) {
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "net-controller-manager"}}
	manager.Spec.Template.Spec.Containers = []corev1.Container{{Image: "mirror:5000/liqo/liqo-controller-manager-ci@sha256:0"}}
	ours := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-controller",
		Labels: map[string]string{"app.kubernetes.io/name": "controller-manager", "app.kubernetes.io/component": "controller-manager"}}}
	installation := func(adoption string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: access.InstallationConfigMap}, Data: map[string]string{"version": "v0.1.0", "adoption": adoption}}
	}
	for _, tt := range []struct {
		name     string
		objects  []client.Object
		unseen   []string // types that may not be read
		liqo     bool
		mistaken string
	}{
		{"nothing", nil, nil, false, ""},
		{"Liqo", []client.Object{manager}, nil, true, ""},
		{"ours", []client.Object{ours, installation("")}, nil, false, ""},
		{"both", []client.Object{ours, manager, installation("true")}, nil, true, ""},
		{"ours, seen by a peering user", []client.Object{ours, installation("")}, []string{"Deployment"}, false, ""},
		{"both, seen by a peering user", []client.Object{ours, manager, installation("true")}, []string{"Deployment"}, true, ""},
		{"Liqo, seen by a peering user", []client.Object{manager}, []string{"Deployment"}, true, ""},
		{"Liqo, not seen", []client.Object{manager}, []string{"Deployment", "ConfigMap"}, false, "it cannot be seen whether Liqo runs there"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			deny := func(o any) error {
				if slices.ContainsFunc(tt.unseen, func(kind string) bool { return strings.Contains(fmt.Sprintf("%T", o), kind) }) {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "of the test"}, "", nil)
				}
				return nil
			}
			in := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(tt.objects...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					return cmp.Or(deny(o), c.Get(ctx, key, o, opts...))
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					return cmp.Or(deny(list), c.List(ctx, list, opts...))
				},
			}).Build()
			liqo, err := LiqoRuns(t.Context(), &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: in})
			if liqo != tt.liqo || !strings.Contains(errText(err), tt.mistaken) || (err == nil) != (tt.mistaken == "") {
				t.Errorf("%v, %v", liqo, err)
			}
		})
	}
}

// TestHandshakeOfLiqo: both clusters have Liqo's controllers. Between the tries of each step they do what they do.
func TestHandshakeOfLiqo(t *testing.T) {
	key := credentialtest.Key(t)
	private, err := key.MarshalPrivate()
	if err != nil {
		t.Fatal(err)
	}
	cluster := func(of ...client.Object) *access.Cluster {
		return &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).
			WithObjects(of...).WithStatusSubresource(&authv1beta1.Tenant{}, &authv1beta1.Identity{}).Build()}
	}
	p := newPair(cluster(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "authentication-keys"}, Data: map[string][]byte{"privateKey": private}}), cluster(), &Options{})
	rome, milan := liqoSite{p[0], t}, liqoSite{p[1], t}
	rome.id, milan.id, rome.namespace, milan.namespace = "rome", "milan", "liqo-tenant-milan", "liqo-tenant-rome"

	for range 2 { // it may be repeated
		h := &handshake{consumer: p[0], provider: p[1]}
		peerOfLiqo(t, h, rome, milan, key)
		if h.granted == nil || h.granted.APIServer != "https://milan.example.org:6443" {
			t.Fatalf("rome is granted %+v", h.granted)
		}
	}
	proxy := "http://10.71.0.1:8118"
	h := &handshake{consumer: p[0], provider: p[1], proxyURL: &proxy}
	peerOfLiqo(t, h, rome, milan, key)
	if h.granted.ProxyURL == nil || *h.granted.ProxyURL != proxy {
		t.Errorf("by another proxy rome is granted %+v", h.granted)
	}
}

// peerOfLiqo tries each step until it is done.
func peerOfLiqo(t *testing.T, h *handshake, rome, milan liqoSite, key credentials.Key) {
	t.Helper()
	public, err := key.Public()
	if err != nil {
		t.Fatal(err)
	}
	nonce := func() {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: milan.namespace, Name: "liqo-nonce"}}
		milan.change(s, func() {
			s.Data = map[string][]byte{"nonce": []byte(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 64))))}
		})
	}
	sign := func() {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "liqo-signed-nonce"}}
		rome.change(s, func() {
			if s.Data["signedNonce"], err = key.Sign(s.Data["nonce"]); err != nil {
				t.Fatal(err)
			}
		})
	}
	grant := func() {
		o := &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: milan.namespace, Name: "rome"}}
		milan.change(o, func() {
			if judged, err := credentials.ParsePublicKey(o.Spec.PublicKey); err != nil || !credentials.Verify(judged, h.nonceText, o.Spec.Signature) {
				t.Fatalf("the Tenant does not prove who made it: %+v, %v", o.Spec, err)
			}
			if err := credentials.JudgeRequest(o.Spec.CSR, credentials.ControlPlaneSubject("rome"), public); err != nil {
				t.Fatal(err)
			}
			o.Status.TenantNamespace = o.Namespace
			o.Status.AuthParams = &authv1beta1.AuthParams{
				APIServer: "https://milan.example.org:6443", ProxyURL: o.Spec.ProxyURL,
				SignedCRT: credentialtest.Certificate(t, public, credentials.ControlPlaneSubject("rome"), time.Now(), time.Now().Add(time.Hour)),
			}
		})
	}
	use := func() {
		o := &authv1beta1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "controlplane-milan"}}
		rome.change(o, func() { o.Status.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: "kubeconfig"} })
	}
	for _, step := range []struct {
		step *step
		then func()
	}{{h.nonce(), nonce}, {h.signature(), sign}, {h.tenant(), grant}, {h.identity(), use}} {
		for tries := 0; ; tries++ {
			missing, err := step.step.try(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", step.step.waiting, err)
			}
			if missing == "" {
				break
			}
			if tries == 3 {
				t.Fatalf("%s: %s", step.step.waiting, missing)
			}
			step.then()
		}
	}
}

// TestTenantNotReady: what Liqo has granted is of use if it is what was asked for.
func TestTenantNotReady(t *testing.T) {
	request := func(k credentials.Key) []byte {
		r, err := k.Request(credentials.ControlPlaneSubject("rome"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	key, other := credentialtest.Key(t), credentialtest.Key(t)
	signed := func(k credentials.Key) []byte {
		public, err := k.Public()
		if err != nil {
			t.Fatal(err)
		}
		return credentialtest.Certificate(t, public, credentials.ControlPlaneSubject("rome"), time.Now(), time.Now().Add(time.Hour))
	}
	ready := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "TenantReady"}}
	for _, tt := range []struct {
		name   string
		spec   authv1beta1.TenantSpec
		status authv1beta1.TenantStatus
		ready  bool
	}{
		{"new", authv1beta1.TenantSpec{CSR: request(key)}, authv1beta1.TenantStatus{}, false},
		{"of ours", authv1beta1.TenantSpec{CSR: request(key)}, authv1beta1.TenantStatus{Conditions: ready}, true},
		{"of ours, not ready", authv1beta1.TenantSpec{CSR: request(key)}, authv1beta1.TenantStatus{
			TenantNamespace: "tenant", AuthParams: &authv1beta1.AuthParams{SignedCRT: signed(key)}, Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "CertificatePending"}},
		}, false},
		{"of Liqo", authv1beta1.TenantSpec{CSR: request(key)}, authv1beta1.TenantStatus{TenantNamespace: "tenant", AuthParams: &authv1beta1.AuthParams{SignedCRT: signed(key)}}, true},
		{"of Liqo, without credentials", authv1beta1.TenantSpec{CSR: request(key)}, authv1beta1.TenantStatus{TenantNamespace: "tenant"}, false},
		{"of Liqo, for an earlier key", authv1beta1.TenantSpec{CSR: request(key)}, authv1beta1.TenantStatus{TenantNamespace: "tenant", AuthParams: &authv1beta1.AuthParams{SignedCRT: signed(other)}}, false},
		{"of Liqo, by an earlier proxy", authv1beta1.TenantSpec{CSR: request(key), ProxyURL: new("http://10.0.0.1:8118")}, authv1beta1.TenantStatus{TenantNamespace: "tenant", AuthParams: &authv1beta1.AuthParams{SignedCRT: signed(key)}}, false},
		{"of Liqo in EKS", authv1beta1.TenantSpec{CSR: request(key)}, authv1beta1.TenantStatus{TenantNamespace: "tenant", AuthParams: &authv1beta1.AuthParams{AwsConfig: &authv1beta1.AwsConfig{}}}, true},
		{"of Liqo, without a handshake", authv1beta1.TenantSpec{AuthzPolicy: authv1beta1.TolerateNoHandshake}, authv1beta1.TenantStatus{TenantNamespace: "tenant"}, true},
		{"of Liqo, without a handshake, new", authv1beta1.TenantSpec{AuthzPolicy: authv1beta1.TolerateNoHandshake}, authv1beta1.TenantStatus{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			missing, err := tenantNotReady(&authv1beta1.Tenant{Spec: tt.spec, Status: tt.status})
			if (missing == "") != tt.ready || err != nil {
				t.Errorf("it waits for %q, %v", missing, err)
			}
		})
	}
}

// TestProofOfLiqo: what Liqo's controller has signed is of use with the key of its cluster alone.
func TestProofOfLiqo(t *testing.T) {
	key, other := credentialtest.Key(t), credentialtest.Key(t)
	private, err := key.MarshalPrivate()
	if err != nil {
		t.Fatal(err)
	}
	nonce, earlier := credentials.NewNonce(), credentials.NewNonce()
	sign := func(k credentials.Key, nonce []byte) []byte {
		s, err := k.Sign(nonce)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tt := range []struct {
		name      string
		keys      map[string][]byte // nil: no Secret
		signature []byte
		complete  bool
		wrong     string
	}{
		{"of this nonce", map[string][]byte{"privateKey": private}, sign(key, nonce), true, ""},
		{"of an earlier nonce", map[string][]byte{"privateKey": private}, sign(key, earlier), false, ""},
		{"by another key", map[string][]byte{"privateKey": private}, sign(other, nonce), false, ""},
		{"no keys", nil, sign(key, nonce), false, "there is no Secret liqo/authentication-keys"},
		{"no private key", map[string][]byte{"publicKey": []byte("?")}, sign(key, nonce), false, "privateKey of Secret liqo/authentication-keys"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := fake.NewClientBuilder().WithScheme(kinds.Scheme())
			if tt.keys != nil {
				b = b.WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "authentication-keys"}, Data: tt.keys})
			}
			e := newEnd(&access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: b.Build()}, &Options{})
			e.id = "rome"
			proof, err := e.proofOfLiqo(t.Context(), map[string][]byte{"nonce": nonce, "signedNonce": tt.signature})
			if (proof != nil) != tt.complete || !strings.Contains(errText(err), tt.wrong) || (err == nil) != (tt.wrong == "") {
				t.Errorf("%v, %v", proof, err)
			}
		})
	}
}
