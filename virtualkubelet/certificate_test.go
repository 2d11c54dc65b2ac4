package virtualkubelet_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// approve approves what is asked for in the name of a node, as the controller does. The signer is the cluster's own.
func (s *scene) approve(node string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "a certificate is asked for in the name of "+node, func(ctx context.Context) error {
		var list certificatesv1.CertificateSigningRequestList
		if err := s.rome.Client.List(ctx, &list); err != nil {
			return err
		}
		var names []string
		for i := range list.Items {
			o := &list.Items[i]
			block, _ := pem.Decode(o.Spec.Request)
			asked, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				return err
			}
			if names = append(names, asked.Subject.CommonName); asked.Subject.CommonName != "system:node:"+node {
				continue
			}
			o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
			return s.rome.Client.SubResource("approval").Update(ctx, o)
		}
		return fmt.Errorf("asked for are %v", names)
	})
}

// secondNode is another virtual node of milan.
func (s *scene) secondNode(name string) {
	s.t.Helper()
	first := new(offloadingv1beta1.VirtualNode)
	s.rome.Read(s.t, tenant, "milan", first)
	s.rome.Create(s.t, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: first.Labels}, Spec: first.Spec})
}

// TestTwoNodes has two virtual nodes of one provider, and one more whose name a real node has, which comes first. All
// that is asked of the kubelet API works for the pods of both, and an API server can verify it.
func TestTwoNodes(t *testing.T) {
	s := newScene(t)
	s.node("is there", func(*corev1.Node) error { return nil }) // the first node asks for the certificate
	s.rome.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bologna"}})
	s.secondNode("bologna")
	s.secondNode("monza")
	s.approve("milan")
	controlplanetest.Eventually(t, "the certificate is shown", func(ctx context.Context) error {
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", s.listener.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		leaf := c.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if leaf.Subject.CommonName != "system:node:milan" || leaf.Issuer.String() == leaf.Subject.String() {
			return fmt.Errorf("one of %s for %s", leaf.Issuer, leaf.Subject)
		}
		return leaf.VerifyHostname("127.0.0.1") // API servers verify the address that the Node has
	})

	file := filepath.Join(t.TempDir(), "web")
	if err := os.WriteFile(file, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	controlplanetest.StartKubelet(t, s.milan, controlplanetest.KubeletOptions{Nodes: 1, Images: map[string]controlplanetest.Image{"web:1": {Program: file}}})
	s.trust()
	s.allow()
	for _, node := range []string{"milan", "monza"} {
		p := s.bind("shop", "web-"+node, func(p *corev1.Pod) { p.Spec.NodeName = node })
		o := s.shadow(p)
		s.milan.Create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}, Spec: o.Spec.Pod})
		s.pod(p, "runs", runs)
		controlplanetest.Eventually(t, "logs of "+p.Name, func(context.Context) error {
			if out, err := s.rome.Kubectl("logs", "-n", "shop", p.Name, "--tail=1"); err != nil || out != "hello of milan\n" {
				return fmt.Errorf("%q, %w", out, err)
			}
			return nil
		})
		if out, err := s.rome.KubectlInput("to and fro", "exec", "-i", "-n", "shop", p.Name, "--", "web", "cat"); err != nil || out != "to and fro" {
			t.Errorf("exec in %s: %q, %v", p.Name, out, err)
		}
	}
	var node corev1.Node
	if err := s.rome.Get(t.Context(), "", "bologna", &node); err != nil || len(node.Labels) > 0 {
		t.Errorf("a real node of the name was touched: %v %v", node.Labels, err)
	}
}
