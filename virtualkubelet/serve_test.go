package virtualkubelet_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// program is what runs in the offloaded pod, and what is executed there.
const program = `#!/bin/sh
case "$1" in
cat) cat ;;
fail) echo "it failed" >&2; exit 3 ;;
*) echo "hello of milan"; exec sleep 1000 ;;
esac
`

// trust has rome's kubelets trust the certificate of rome's API server, which in this control plane no authority has
// signed, and allow allows it what an API server is allowed.
func (s *scene) trust() {
	s.t.Helper()
	c, err := s.rome.KubeletClient()
	if err != nil {
		s.t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	controlplanetest.Edit(s.t, s.rome, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}},
		func(m *corev1.ConfigMap) { m.Data["client-ca-file"] += string(text) })
}

func (s *scene) allow() {
	s.t.Helper()
	s.rome.Create(s.t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubelet-client"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "kubelet"}},
	})
}

// ask asks the kubelet API itself, with a certificate or none.
func (s *scene) ask(path string, certificates ...tls.Certificate) (code int, body string, err error) {
	return s.send(path, "", certificates...)
}

// request asks the kubelet API itself, with a token or, if it is empty, without.
func (s *scene) request(path, token string) (code int, body string, err error) {
	return s.send(path, token)
}

func (s *scene) send(path, token string, certificates ...tls.Certificate) (code int, body string, err error) {
	c := &tls.Config{InsecureSkipVerify: true}
	if len(certificates) > 0 { // shown whether the server asks for one of its authority or not
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificates[0], nil }
	}
	h := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c}}
	q, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.listener.Addr().String()+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	r, err := h.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

func TestStreams(t *testing.T) {
	s := newScene(t)
	file := filepath.Join(t.TempDir(), "web")
	if err := os.WriteFile(file, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	controlplanetest.StartKubelet(t, s.milan, controlplanetest.KubeletOptions{Nodes: 1, Images: map[string]controlplanetest.Image{"web:1": {Program: file}}})
	p := s.bind("shop", "web")
	o := s.shadow(p)
	s.milan.Create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}, Spec: o.Spec.Pod})
	s.pod(p, "runs", runs)

	// Nobody but the API server is answered.
	const path = "/containerLogs/shop/web/web"
	if code, body, err := s.ask(path); err != nil || code != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d %s %v", code, body, err)
	}
	if code, body, err := s.ask(path, stranger(t)); err == nil {
		t.Errorf("with a certificate of another authority: %d %s", code, body)
	}
	own, err := s.rome.KubeletClient()
	if err != nil {
		t.Fatal(err)
	}
	s.trust()
	controlplanetest.Eventually(t, "a user without rights is refused", func(context.Context) error {
		code, body, err := s.ask(path, own)
		if err != nil || code != http.StatusForbidden {
			return fmt.Errorf("%d %s %w", code, body, err)
		}
		return nil
	})
	s.allow()
	controlplanetest.Eventually(t, "the API server is answered", func(context.Context) error {
		code, body, err := s.ask(path, own)
		if err != nil || code != http.StatusOK || body != "hello of milan\n" {
			return fmt.Errorf("%d %q %w", code, body, err)
		}
		return nil
	})
	for path, want := range map[string]int{
		"/containerLogs/shop/other/web": http.StatusNotFound, "/containerLogs/kube-system/web/web": http.StatusNotFound, "/pods": http.StatusNotFound,
	} {
		if code, body, err := s.ask(path, own); code != want {
			t.Errorf("%s: %d %s %v", path, code, body, err)
		}
	}
	// A pod of the provider's own that has the name of one of ours.
	taken := s.bind("shop", "taken")
	s.shadow(taken)
	s.milan.Create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: "taken"}, Spec: o.Spec.Pod})
	if code, body, err := s.ask("/containerLogs/shop/taken/web", own); code != http.StatusNotFound || !strings.Contains(body, "pod shop/taken is not at the provider now") {
		t.Errorf("the provider's own pod: %d %s %v", code, body, err)
	}

	// What a user does.
	s.node("is ready", ready(corev1.ConditionTrue, "KubeletReady"))
	if out, err := s.rome.Kubectl("logs", "-n", "shop", "web", "--tail=1"); err != nil || out != "hello of milan\n" {
		t.Errorf("logs: %q, %v", out, err)
	}
	if out, err := s.rome.KubectlInput("to and fro", "exec", "-i", "-n", "shop", "web", "--", "web", "cat"); err != nil || out != "to and fro" {
		t.Errorf("exec: %q, %v", out, err)
	}
	if _, err := s.rome.Kubectl("exec", "-n", "shop", "web", "--", "web", "fail"); err == nil || !strings.Contains(err.Error(), "it failed") || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("exec of what fails: %v", err)
	}
}

// stranger is a certificate of the API server's name that no authority of the cluster has signed.
func stranger(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubelet", Organization: []string{"system:masters"}},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err2 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
