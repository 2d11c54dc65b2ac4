package virtualkubelet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// who says as whom rome's API server knows the bearer of a token.
func (s *scene) who(token []byte) (string, error) {
	cfg := rest.AnonymousClientConfig(s.rome.Config)
	cfg.BearerToken = string(token)
	c, err := client.New(cfg, client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		return "", err
	}
	review := new(authenticationv1.SelfSubjectReview)
	err = c.Create(s.t.Context(), review)
	return review.Status.UserInfo.Username, err
}

// TestTokens has an offloaded pod reach the API server of its home with its own identity, for as long as it is there.
func TestTokens(t *testing.T) {
	s := newScene(t)
	ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "api-server"}, Spec: ipamv1alpha1.IPSpec{IP: "10.96.0.1"}}
	s.rome.Create(t, ip)
	controlplanetest.EditStatus(t, s.rome, ip, func(o *ipamv1alpha1.IP) { o.Status.IP, o.Status.CIDR = "10.70.0.9", "10.70.0.0/16" })
	s.stop() // so that the process that runs knows it
	s.start()
	s.rome.Create(t, &corev1.ServiceAccount{ObjectMeta: named("robot")})
	withToken := func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "robot"
		p.Spec.Volumes = []corev1.Volume{{Name: "access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "vault", Audience: "vault", ExpirationSeconds: new(int64(600))}},
		}}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
	}
	p := s.bind("shop", "web", withToken)
	o := s.shadow(p)
	var keys []string
	for _, source := range o.Spec.Pod.Volumes[0].Projected.Sources {
		if source.Secret == nil || source.Secret.Name != "web-token" {
			t.Fatalf("%+v", source)
		}
		keys = append(keys, source.Secret.Items[0].Key)
	}
	if len(o.Spec.Pod.HostAliases) != 1 || o.Spec.Pod.HostAliases[0].IP != "10.70.0.9" {
		t.Errorf("host aliases %+v", o.Spec.Pod.HostAliases)
	}
	secret := new(corev1.Secret)
	s.there(secret, "web-token", func() error { return nil })
	if name, err := s.who(secret.Data[keys[0]]); err != nil || name != "system:serviceaccount:shop:robot" {
		t.Errorf("the token is of %q, %v", name, err)
	}
	if _, err := s.who(secret.Data[keys[1]]); !apierrors.IsUnauthorized(err) {
		t.Errorf("the API server takes a token for another audience: %v", err)
	}
	if string(secret.Data["namespace"]) != "shop" || secret.Annotations["offloading.liqo.io/service-account-for-pod-uid"] != string(p.UID) {
		t.Errorf("%v, %v", secret.Data["namespace"], secret.Annotations)
	}

	t.Run("rotation", func(t *testing.T) {
		before := string(secret.Data[keys[0]])
		controlplanetest.Edit(t, s.milan, secret, func(o *corev1.Secret) {
			o.Annotations["offloading.liqo.io/service-account-expiration"] = "2020-01-01T00:00:00Z"
		})
		again := new(corev1.Secret)
		s.there(again, "web-token", func() error {
			if string(again.Data[keys[0]]) == before {
				return errors.New("with the token of before")
			}
			return nil
		})
		secret = again
	})
	t.Run("a token that is somebody else's Secret", func(t *testing.T) {
		s.milan.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "taken-token"}})
		taken := s.bind("shop", "taken", withToken)
		s.warned(taken, "FailedReflection", "was not reflected from here")
	})
	t.Run("no tokens but those of pods, and in offloaded namespaces", func(t *testing.T) {
		s.rome.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "robot"}})
		own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "own"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
		s.rome.Create(t, own)
		c, err := client.New(s.rome.ServiceAccount(tenant, "virtual-kubelet"), client.Options{Scheme: kinds.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range map[string]struct {
			of      client.Object
			request authenticationv1.TokenRequestSpec
		}{
			"of another namespace": {own, authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600)), BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "own", UID: own.UID}}},
			"bound to nothing":     {p, authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))}},
			"for longer":           {p, authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(86401)), BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: p.UID}}},
		} {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: x.of.GetNamespace(), Name: "robot"}}
			// An API server that has just got a policy judges by it a moment later.
			controlplanetest.Eventually(t, "a token "+name+" is refused", func(ctx context.Context) error {
				if err := c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{Spec: x.request}); !apierrors.IsForbidden(err) {
					return fmt.Errorf("got %w", err)
				}
				return nil
			})
		}
	})
	t.Run("the end", func(t *testing.T) {
		s.milan.Delete(t, o)
		s.rome.Delete(t, p, client.GracePeriodSeconds(0))
		s.gone(s.milan, secret)
		controlplanetest.Eventually(t, "the token is worth nothing", func(context.Context) error {
			if name, err := s.who(secret.Data[keys[0]]); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("it is %q, %w", name, err)
			}
			return nil
		})
	})
}
