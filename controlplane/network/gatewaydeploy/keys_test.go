package gatewaydeploy

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// pair is a key pair in base64: RFC 7748, section 6.1, Alice's.
const (
	alicePrivate = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	alicePublic  = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	bobPublic    = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
)

func key(tb testing.TB, text string) []byte {
	tb.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "t", Labels: map[string]string{
		networkingv1beta1.LabelGatewayResource: "true", networkingv1beta1.LabelRemoteClusterID: "peer"}}, Data: data}
}

func TestJudge(t *testing.T) {
	private, public := key(t, alicePrivate), key(t, alicePublic)
	for _, row := range []struct {
		name string
		data map[string][]byte
		want string // "" for a pair that is good
	}{
		{"a pair", map[string][]byte{"privateKey": private, "publicKey": public}, ""},
		{"no public key", map[string][]byte{"privateKey": private}, ""},
		{"other entries besides", map[string][]byte{"privateKey": private, "note": []byte("x")}, ""},
		{"nothing", nil, "data.privateKey is required"},
		{"an empty private key", map[string][]byte{"privateKey": {}}, "data.privateKey is empty"},
		{"a private key that is too short", map[string][]byte{"privateKey": private[:31]}, "data.privateKey decodes to 31 bytes, but a WireGuard key has 32"},
		{"zeros", map[string][]byte{"privateKey": make([]byte, 32)}, "data.privateKey is all zeros"},
		{"base64 over base64", map[string][]byte{"privateKey": []byte(alicePrivate)}, "data.privateKey is encoded twice"},
		{"base64 with a line end", map[string][]byte{"privateKey": []byte(alicePrivate + "\n")}, "data.privateKey is encoded twice"},
		{"another's public key", map[string][]byte{"privateKey": private, "publicKey": key(t, bobPublic)}, "data.publicKey is not the public key of privateKey"},
		{"an empty public key", map[string][]byte{"privateKey": private, "publicKey": {}}, "data.publicKey is empty"},
		{"a public key encoded twice", map[string][]byte{"privateKey": private, "publicKey": []byte(alicePublic)}, "data.publicKey is encoded twice"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, why := judge(row.data)
			if row.want == "" {
				if why != "" || !bytes.Equal(got, public) {
					t.Errorf("got %x, %q", got, why)
				}
				return
			}
			if !strings.HasPrefix(why, row.want) || got != nil {
				t.Errorf("got %x, %q, want %q", got, why, row.want)
			}
			tellsNoKey(t, why)
		})
	}
}

// tellsNoKey fails if a text holds any of the private key, in any of its forms.
func tellsNoKey(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{alicePrivate[:6], alicePrivate[10:16], string(key(t, alicePrivate)[:4]), "77076d", "119 7 109"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q holds a part of the key", text)
		}
	}
}

func TestNewKeysAreAsWgMakesThem(t *testing.T) {
	private, public, err := newKeys(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if private[0]&7 != 0 || private[31]&128 != 0 || private[31]&64 == 0 {
		t.Error("the private key is not clamped")
	}
	if got, why := judge(map[string][]byte{"privateKey": private, "publicKey": public}); why != "" || !bytes.Equal(got, public) {
		t.Errorf("not a pair: %s", why)
	}
	again, _, err := newKeys(rand.Reader)
	if err != nil || bytes.Equal(again, private) {
		t.Errorf("the same key twice (%v)", err)
	}
	// RFC 7748, section 6.1; its private key is clamped by whoever uses it.
	_, public, err = newKeys(bytes.NewReader(key(t, alicePrivate)))
	if err != nil || !bytes.Equal(public, key(t, alicePublic)) {
		t.Errorf("got %x (%v)", public, err)
	}
	if _, _, err := newKeys(bytes.NewReader(nil)); err == nil {
		t.Error("keys without randomness")
	}
}

func TestKeysReady(t *testing.T) {
	pair := map[string][]byte{"privateKey": key(t, alicePrivate), "publicKey": key(t, alicePublic)}
	for _, row := range []struct {
		name  string
		facts func(*Facts)
		want  string
		says  string
		uses  string // the Secret in the status
	}{
		{"generated", func(f *Facts) { f.Secret = secret("gw-a", pair) }, "True KeysGenerated", "Secret gw-a", "gw-a"},
		{"provided", func(f *Facts) { f.Gateway.secretRef, f.Secret = "mine", secret("mine", pair) }, "True KeysProvided", "Secret mine", "mine"},
		{"provided, and not there", func(f *Facts) { f.Gateway.secretRef = "mine" }, "False SecretNotFound", "there is no Secret mine: create it", ""},
		{"could not be made", func(*Facts) {}, "False SecretNotFound", "could not be made", ""},
		{"deleted, and in use", func(f *Facts) { *f.Gateway.keys, f.KeysIn = &corev1.ObjectReference{Name: "gw-a"}, "gw-a-1" },
			"False SecretDeleted", "Pod gw-a-1 keeps using the keys", "gw-a"},
		{"provided, and bad", func(f *Facts) { f.Gateway.secretRef, f.Secret = "mine", secret("mine", nil) }, "False SecretInvalid", "Secret mine: data.privateKey is required", ""},
		{"generated, and broken since", func(f *Facts) { f.Secret = secret("gw-a", nil) }, "False SecretInvalid", "delete the Secret to have new keys generated", ""},
		{"the generated one named", func(f *Facts) { f.Gateway.secretRef, f.Secret = "gw-a", secret("gw-a", pair) }, "True KeysGenerated", "", "gw-a"},
		{"another one that nobody chose", func(f *Facts) { f.Secret, f.OtherSecrets = secret("gw-a", pair), []string{"y", "x"} },
			"False SecretAmbiguous", "peer: x, y. Name one in secretRef of the GatewayServer", "gw-a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			row.facts(&f)
			p := Build(f)
			if got := brief(p, networkingv1beta1.ConditionKeysReady); got != row.want {
				t.Errorf("KeysReady is %q, want %q", got, row.want)
			}
			if got := message(p, networkingv1beta1.ConditionKeysReady); !strings.Contains(got, row.says) {
				t.Errorf("message %q, want %q in it", got, row.says)
			}
			got := ""
			if p.Keys != nil {
				got = p.Keys.Name
			}
			if got != row.uses {
				t.Errorf("status names Secret %q, want %q", got, row.uses)
			}
			// The pods wait for the Secret that is to be, whatever it holds now.
			if d := found[appsv1.Deployment](p.Objects, "gw-a"); volumeSecret(&d.Spec.Template.Spec) != f.Gateway.secretName() {
				t.Errorf("pods mount %q", volumeSecret(&d.Spec.Template.Spec))
			}
		})
	}
}

// A pod has the keys that its volume had when it started.
func TestKeysInPods(t *testing.T) {
	now := time.Now()
	pod := func(ready corev1.ConditionStatus, since time.Duration, container string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gw-a-1"}, Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(now.Add(-since))}},
			ContainerStatuses: []corev1.ContainerStatus{{ContainerID: container}},
		}}
		if change != nil {
			change(&p)
		}
		return p
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	for _, row := range []struct {
		name string
		pod  corev1.Pod
		want string
	}{
		{"ready", pod(yes, time.Hour, "c", nil), "gw-a-1"},
		{"starts again", pod(no, time.Minute, "c", nil), "gw-a-1"},
		{"has not come back", pod(no, 3*time.Minute, "c", nil), ""},
		{"never started", pod(no, time.Second, "", nil), ""},
		{"ended", pod(yes, time.Hour, "c", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), ""},
		{"goes", pod(yes, time.Hour, "c", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), ""},
	} {
		if got := keysIn([]corev1.Pod{row.pod}, now); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestPodsDoNotDependOnWhatTheSecretHolds(t *testing.T) {
	deployment := func(data map[string][]byte) *appsv1.Deployment {
		f := serverFacts()
		f.Secret = secret("gw-a", data)
		return found[appsv1.Deployment](Build(f).Objects, "gw-a")
	}
	with := map[string][]byte{"privateKey": key(t, alicePrivate)}
	if diff := cmp.Diff(deployment(nil), deployment(with)); diff != "" {
		t.Errorf("another key makes another Deployment (-without +with):\n%s", diff)
	}
}

func TestLabelsOfTheSecret(t *testing.T) {
	f := serverFacts()
	keys := map[string][]byte{networkingv1beta1.PrivateKeyEntry: key(t, alicePrivate)}
	f.Gateway.secretRef, f.Secret = "mine", &corev1.Secret{Data: keys}
	want := map[string]any{
		"labels":      map[string]any{networkingv1beta1.LabelGatewayResource: "true", networkingv1beta1.LabelRemoteClusterID: "peer"},
		"annotations": map[string]string{annotationLabelled: "liqo.io/remote-cluster-id,networking.liqo.io/gateway-resource"},
	}
	if diff := cmp.Diff(want, Build(f).LabelSecret); diff != "" {
		t.Errorf("without labels (-want +got):\n%s", diff)
	}
	f.Secret.Data = map[string][]byte{"tls.key": []byte("of somebody else")}
	if got := Build(f).LabelSecret; got != nil {
		t.Errorf("a Secret that holds no keys gets %v", got)
	}
	f.Secret = secret("mine", keys)
	if got := Build(f).LabelSecret; got != nil {
		t.Errorf("with all labels it gets %v", got)
	}
	f.Secret.Labels[networkingv1beta1.LabelRemoteClusterID] = "another"
	if got := Build(f).LabelSecret; got != nil {
		t.Errorf("labelled for another peer it gets %v", got)
	}
}

func TestLabelsAreTakenAway(t *testing.T) {
	s := secret("mine", nil)
	if got := withoutLabels(s); got != nil {
		t.Errorf("labels that a user gave: %v", got)
	}
	s.Annotations = map[string]string{annotationLabelled: networkingv1beta1.LabelGatewayResource + ",team"}
	want := map[string]any{
		"labels": map[string]any{networkingv1beta1.LabelGatewayResource: nil}, "annotations": map[string]any{annotationLabelled: nil},
	}
	if diff := cmp.Diff(want, withoutLabels(s)); diff != "" {
		t.Errorf("labels that the controllers gave (-want +got):\n%s", diff)
	}
}

func TestGeneratedSecretGoesWhenNothingNeedsIt(t *testing.T) {
	pair := map[string][]byte{"privateKey": key(t, alicePrivate)}
	facts := func() Facts {
		f := serverFacts()
		f.Gateway.secretRef, f.Secret = "mine", secret("mine", pair)
		f.Generated = secret("gw-a", pair)
		f.Generated.Labels[networkingv1beta1.LabelManaged] = "true"
		f.Generated.OwnerReferences = []metav1.OwnerReference{f.Gateway.family()}
		f.Deployment = found[appsv1.Deployment](Build(f).Objects, "gw-a")
		f.Deployment.Generation = 2
		f.Deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
		return f
	}
	for _, row := range []struct {
		name  string
		facts func(*Facts)
		want  bool
	}{
		{"nothing needs it", func(*Facts) {}, true},
		{"the user's is bad", func(f *Facts) { f.Secret = secret("mine", nil) }, false},
		{"the user's is missing", func(f *Facts) { f.Secret = nil }, false},
		{"it is in use", func(f *Facts) { f.Gateway.secretRef, f.Secret = "", f.Generated; f.Generated = nil }, false},
		{"pods of the old kind are left", func(f *Facts) { f.Deployment.Status.Replicas = 2 }, false},
		{"the rollout has not begun", func(f *Facts) { f.Deployment.Status.ObservedGeneration = 1 }, false},
		{"no pod is ready", func(f *Facts) { f.Deployment.Status.ReadyReplicas = 0 }, false},
		{"the Deployment still mounts it", func(f *Facts) { f.Deployment.Spec.Template.Spec.Volumes[1].Secret.SecretName = "gw-a" }, false},
		{"somebody else made it", func(f *Facts) { f.Generated.OwnerReferences = nil }, false},
		{"it is not labelled as ours", func(f *Facts) { delete(f.Generated.Labels, networkingv1beta1.LabelManaged) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := facts()
			row.facts(&f)
			if got := found[corev1.Secret](Build(f).Delete, "gw-a") != nil; got != row.want {
				t.Errorf("deleted: %v", got)
			}
		})
	}
}

func TestPeerKeyReady(t *testing.T) {
	peer := func(name string, raw []byte) networkingv1beta1.PublicKey {
		return networkingv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1beta1.PublicKeySpec{PublicKey: raw}}
	}
	for _, row := range []struct {
		name string
		keys []networkingv1beta1.PublicKey
		want string
		says string
	}{
		{"the peer's", []networkingv1beta1.PublicKey{peer("p", key(t, bobPublic))}, "True PeerKeyAccepted", "PublicKey p"},
		{"none", nil, "False PeerKeyMissing", "label liqo.io/remote-cluster-id=peer: create it"},
		{"several", []networkingv1beta1.PublicKey{peer("q", key(t, bobPublic)), peer("p", key(t, bobPublic))}, "False PeerKeyAmbiguous", "p, q. Delete all but one"},
		{"one of another length", []networkingv1beta1.PublicKey{peer("p", []byte{1})}, "False PeerKeyInvalid", "PublicKey p: spec.publicKey decodes to 1 bytes"},
		{"an empty one", []networkingv1beta1.PublicKey{peer("p", nil)}, "False PeerKeyInvalid", "is empty"},
		{"zeros", []networkingv1beta1.PublicKey{peer("p", make([]byte, 32))}, "False PeerKeyInvalid", "is all zeros"},
		{"one encoded twice", []networkingv1beta1.PublicKey{peer("p", []byte(bobPublic))}, "False PeerKeyInvalid", "is encoded twice"},
		{"the gateway's own", []networkingv1beta1.PublicKey{peer("p", key(t, alicePublic))}, "False PeerKeyInvalid", "is this gateway's own public key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			f.Secret = secret("gw-a", map[string][]byte{"privateKey": key(t, alicePrivate)})
			f.PublicKeys = row.keys
			p := Build(f)
			if got := brief(p, networkingv1beta1.ConditionPeerKeyReady); got != row.want {
				t.Errorf("PeerKeyReady is %q, want %q", got, row.want)
			}
			if got := message(p, networkingv1beta1.ConditionPeerKeyReady); !strings.Contains(got, row.says) {
				t.Errorf("message %q, want %q in it", got, row.says)
			}
		})
	}
	f := serverFacts()
	f.Gateway.SetLabels(nil)
	p := Build(f)
	if got := message(p, networkingv1beta1.ConditionPeerKeyReady); !strings.Contains(got, "the label liqo.io/remote-cluster-id is missing") {
		t.Errorf("without the label: %q", got)
	}
}

// TestKeysSince: the age of keys that were replaced in their Secret is not that of the Secret.
func TestKeysSince(t *testing.T) {
	made := metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	later, now := metav1.NewTime(made.Add(time.Hour)), metav1.NewTime(made.Add(2*time.Hour))
	alice, bob := key(t, alicePublic), key(t, bobPublic)
	for _, c := range []struct {
		name   string
		before []byte
		since  metav1.Time
		want   metav1.Time
	}{
		{"the first", nil, metav1.Time{}, made},
		{"the same", alice, later, later},
		{"the same, of an earlier version", alice, metav1.Time{}, made},
		{"others", bob, later, now},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := secret("mine", nil)
			s.CreationTimestamp = made
			f := Facts{Gateway: &gateway{publicKey: &c.before, publicKeyTime: &c.since}, Secret: s, Now: metav1.NewTime(now.Add(3 * time.Millisecond))}
			if got := f.keysSince(alice); !got.Equal(&c.want) {
				t.Errorf("since %v, want %v", got, c.want)
			}
		})
	}
}
