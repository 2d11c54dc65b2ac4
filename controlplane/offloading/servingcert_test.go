package offloading_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// servingRequest is what a virtual kubelet with this address asks for.
func servingRequest(t *testing.T, name, node, address string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, IPAddresses: []net.IP{net.ParseIP(address)},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
}

// TestServingCertificate has the pod of a virtual kubelet, and others, ask for serving certificates. The signer is the
// cluster's own.
func TestServingCertificate(t *testing.T) {
	c := consumer(t)
	run(t, c)
	s := &site{Cluster: c, t: t}
	const ns = "liqo-tenant-milan"
	c.Create(t, tenant("milan"))
	c.Create(t, virtualNode("milan", "milan", "eu"))
	var pod corev1.Pod
	controlplanetest.Eventually(t, "the process has a pod", func(ctx context.Context) error {
		var pods corev1.PodList
		err := c.Client.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{"offloading.liqo.io/component": "virtual-kubelet"})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		if err != nil {
			return err
		}
		pod = pods.Items[0]
		return nil
	})
	as := func(p *corev1.Pod, account string, groups ...string) client.Client {
		t.Helper()
		cfg := rest.CopyConfig(c.Config)
		cfg.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + p.Namespace + ":" + account, Groups: append(groups, "system:authenticated"),
			Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {p.Name}, "authentication.kubernetes.io/pod-uid": {string(p.UID)}},
		}
		cl, err := client.New(cfg, client.Options{Scheme: c.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	ask := func(by client.Client, r *certificatesv1.CertificateSigningRequest) {
		t.Helper()
		controlplanetest.Eventually(t, "the request is made, as soon as the rights are there", func(ctx context.Context) error { return by.Create(ctx, r) })
	}
	kubelet := as(&pod, "virtual-kubelet") // with the rights that it is given, and no others

	// The address of a pod is told a moment after it has begun to run.
	early := servingRequest(t, "virtual-kubelet-early", "milan", "10.243.0.7")
	ask(kubelet, early)
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.243.0.7", []corev1.PodIP{{IP: "10.243.0.7"}}
	if err := c.Client.Status().Update(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the certificate is issued", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(early), early); err != nil {
			return err
		}
		if len(early.Status.Certificate) == 0 {
			return fmt.Errorf("%+v", early.Status)
		}
		return nil
	})
	block, _ := pem.Decode(early.Status.Certificate)
	if block == nil {
		t.Fatalf("no certificate: %s", early.Status.Certificate)
	}
	issued, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := issued.VerifyHostname("10.243.0.7"); err != nil || issued.Subject.CommonName != "system:node:milan" {
		t.Errorf("issued for %s: %v", issued.Subject, err)
	}

	t.Run("a request goes when it was used", func(t *testing.T) {
		approve := func(name, reason string) *certificatesv1.CertificateSigningRequest {
			t.Helper()
			r := servingRequest(t, name, "milan", "10.243.0.99") // which the controller does not approve
			ask(kubelet, r)
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason, LastUpdateTime: metav1.NewTime(time.Now().Add(-time.Hour)),
			}}
			if err := c.Client.SubResource("approval").Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		theirs := approve("virtual-kubelet-approved-by-another", "Somebody")
		s.Gone(t, approve("virtual-kubelet-used", "VirtualKubelet"))
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
			t.Errorf("one that another has approved: %v", err)
		}
	})
	for _, tt := range []struct {
		name, reason string
		by           client.Client
		request      *certificatesv1.CertificateSigningRequest
	}{
		{"another-address", "AddressForbidden", kubelet, servingRequest(t, "virtual-kubelet-another-address", "milan", "192.168.50.11")},
		{"another-account", "RequesterForbidden", as(&pod, "default", "system:masters"), servingRequest(t, "virtual-kubelet-another-account", "milan", "10.243.0.7")},
		{"the-administrator", "RequesterForbidden", c.Client, servingRequest(t, "virtual-kubelet-the-administrator", "milan", "10.243.0.7")},
		{"another-pod", "PodForbidden", as(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pod.Name, UID: "other"}}, "virtual-kubelet"), servingRequest(t, "virtual-kubelet-another-pod", "milan", "10.243.0.7")},
		{"another-namespace", "NamespaceNotTenant", as(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod.Name, UID: pod.UID}}, "virtual-kubelet", "system:masters"), servingRequest(t, "virtual-kubelet-another-namespace", "milan", "10.243.0.7")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask(tt.by, tt.request)
			s.Event(t, "default", tt.request.Name, tt.reason, "not approved")
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(tt.request), tt.request); err != nil || len(tt.request.Status.Conditions) > 0 {
				t.Errorf("%v, %+v", err, tt.request.Status)
			}
		})
	}
	t.Run("what the controller could not approve", func(t *testing.T) {
		controller, err := client.New(c.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller), client.Options{Scheme: c.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		r := servingRequest(t, "csr-of-a-kubelet", "real", "192.168.50.11")
		c.Create(t, r)
		controlplanetest.Eventually(t, "it is forbidden", func(ctx context.Context) error {
			approved := r.DeepCopy()
			approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Stolen"}}
			if err := controller.Delete(ctx, r, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "and no others") {
				return fmt.Errorf("to delete it: %v", err)
			}
			switch err := controller.SubResource("approval").Update(ctx, approved, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}}); {
			case err == nil:
				return errors.New("it is approved")
			case !strings.Contains(err.Error(), "and no others"):
				return err
			}
			return nil
		})
	})
}
