package peering_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/peering"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// identity is what the doctor finds about identities in the cluster, as its operator asks who has no rights in the other.
func (s *side) identity(ctx context.Context, peer string) (found []doctor.Finding, err error) {
	r, err := doctor.Examine(ctx, doctor.Options{Clusters: []doctor.Target{{Cluster: s.access}}, Peer: peer}, nil)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Findings {
		if f.Check == "authentication" {
			found = append(found, f)
		}
	}
	return found, nil
}

// TestDoctorOfIdentities peers by hand and takes one piece away after the other. The operator who looks where it is missing
// gets a red line with its cause and what to do, of what the controllers say alone.
func TestDoctorOfIdentities(t *testing.T) {
	t.Parallel()
	rome, milan := startSide(t, access.Local, "rome", authenticating(t)), startSide(t, access.Remote, "milan", authenticating(t))
	milan.Apply(`
{apiVersion: v1, kind: Namespace, metadata: {name: liqo-tenant-rome, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: rome}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: of-rome, namespace: liqo-tenant-rome}}
`)
	rome.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: liqo-tenant-milan, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: milan}}}`)

	const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: of-rome, namespace: liqo-tenant-rome, labels: {liqo.io/remote-cluster-id: rome}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqo-remote-controlplane}
subjects: [{kind: ServiceAccount, namespace: liqo-tenant-rome, name: %s}]
`
	bound := func(account string) { milan.Apply(fmt.Sprintf(binding, account)) }
	tenant := func(condition string) {
		milan.Apply(`
apiVersion: authentication.liqo.io/v1beta1
kind: Tenant
metadata: {name: rome, namespace: liqo-tenant-rome, labels: {liqo.io/remote-cluster-id: rome}}
spec: {clusterID: rome, authzPolicy: TolerateNoHandshake, tenantCondition: ` + condition + `}
`)
	}
	right := credentialtest.TokenKubeconfig(milan.ServiceAccount("liqo-tenant-rome", "of-rome"))
	away := milan.ServiceAccount("liqo-tenant-rome", "of-rome")
	away.Host = "https://127.0.0.1:1"
	secret := func(kubeconfig []byte, there string) {
		t.Helper()
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "identity"}}
		if err := client.IgnoreNotFound(rome.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s)); err != nil {
			t.Fatal(err)
		}
		s.Labels = map[string]string{"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane"}
		s.Annotations = map[string]string{"liqo.io/remote-tenant-namespace": there}
		s.Data = map[string][]byte{"kubeconfig": kubeconfig}
		write := func() error { return rome.Client.Update(t.Context(), s) }
		if s.UID == "" {
			write = func() error { return rome.Client.Create(t.Context(), s) }
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	mended := func() {
		t.Helper()
		bound("of-rome")
		tenant("Active")
		secret(right, "liqo-tenant-rome")
	}

	for _, c := range []struct {
		name         string
		fault        func()
		in           *side
		object, says string
	}{
		{"no RoleBinding", func() { tenant("Active"); secret(right, "liqo-tenant-rome") }, milan, "Tenant liqo-tenant-rome/rome", "liqoctl create tenant -n liqo-tenant-rome --remote-cluster-id rome --user NAME, "},
		{"no RoleBinding, at the consumer", func() {}, rome, "ForeignCluster milan", "no RoleBinding there"},
		{"a RoleBinding for another user", func() { mended(); bound("somebody") }, rome, "ForeignCluster milan", "for another user"},
		{"a Secret without its annotation", func() { mended(); secret(right, "") }, rome, "ForeignCluster milan", "liqo.io/remote-tenant-namespace"},
		{"a kubeconfig that does not parse", func() { mended(); secret([]byte("a: b: c"), "liqo-tenant-rome") }, rome, "ForeignCluster milan", "kubeconfig"},
		{"a certificate that has expired", func() {
			mended()
			secret(credentialtest.Kubeconfig(t, time.Now().Add(-time.Hour)), "liqo-tenant-rome")
		}, rome, "ForeignCluster milan", "was valid until"},
		{"an API server that does not answer", func() { mended(); secret(credentialtest.TokenKubeconfig(away), "liqo-tenant-rome") }, rome, "ForeignCluster milan", "it cannot be reached"},
		{"a Tenant that is cordoned", func() { mended(); tenant("Cordoned") }, milan, "Tenant liqo-tenant-rome/rome", "is cordoned"},
		{"a Tenant that is drained", func() { mended(); tenant("Drained") }, milan, "Tenant liqo-tenant-rome/rome", "is drained"},
	} {
		peer := "milan"
		if c.in == milan {
			peer = "rome"
		}
		c.fault()
		controlplanetest.Eventually(t, "the doctor finds "+c.name, func(ctx context.Context) error {
			found, err := c.in.identity(ctx, peer)
			if err != nil {
				return err
			}
			// One line, and no other that is red for the same.
			if len(found) == 0 {
				return errors.New("it finds nothing")
			}
			if f := found[0]; len(found) > 1 || f.Status != doctor.Failed || f.Object != c.object || !strings.Contains(f.Message+" "+f.Cause, c.says) || f.Cause == "" || f.Fix == "" {
				return fmt.Errorf("it finds %+v", found)
			}
			return nil
		})
	}
	// The events of what was wrong are all there still.
	mended()
	for in, peer := range map[*side]string{milan: "rome", rome: "milan"} {
		controlplanetest.Eventually(t, "the doctor finds nothing in the cluster whose peer is "+peer, func(ctx context.Context) error {
			found, err := in.identity(ctx, peer)
			if err == nil && (len(found) != 1 || found[0].Status != doctor.OK) {
				err = fmt.Errorf("it finds %+v", found)
			}
			return err
		})
	}
	t.Run("create identity", func(t *testing.T) { testCreateIdentity(t, rome, right, credentialtest.TokenKubeconfig(away)) })
	t.Run("create resourceslice", func(t *testing.T) {
		in := rome.as(t, func(o *access.Options) { o.Namespace, o.NamespaceGiven = "default", true })
		err := peering.Request(t.Context(), in, peering.Metadata{Name: "slice", RemoteClusterID: "milan"}, peering.Slice{}, options(), nil)
		if err == nil || !strings.Contains(err.Error(), "run the command with -n liqo-tenant-milan") {
			t.Errorf("in another namespace: %v", err)
		}
		if err := rome.Get(t.Context(), "default", "slice", new(authv1beta1.ResourceSlice)); !apierrors.IsNotFound(err) {
			t.Errorf("the slice: %v", err)
		}
	})
}

// testCreateIdentity is for where there is an identity for milan in Secret liqo-tenant-milan/identity.
func testCreateIdentity(t *testing.T, rome *side, right, away []byte) {
	given := func(kubeconfig []byte, timeout time.Duration, want ...string) {
		t.Helper()
		o := options()
		o.Timeout = timeout
		err := peering.CreateIdentity(t.Context(), rome.access, peering.Given{ProviderID: "milan", Kubeconfig: kubeconfig}, o, nil)
		if (err == nil) != (len(want) == 0) || slices.ContainsFunc(want, func(w string) bool { return err != nil && !strings.Contains(err.Error(), w) }) {
			t.Errorf("error %v; want %q", err, want)
		}
	}
	given(right, controlplanetest.Patience, "Secret liqo-tenant-milan/identity; nothing was changed")
	if err := rome.Get(t.Context(), "liqo-tenant-milan", "controlplane-milan", new(corev1.Secret)); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret: %v", err)
	}
	rome.Delete(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "identity"}})
	given(right, controlplanetest.Patience)
	// Although the controller still speaks well of those before.
	given(away, 10*time.Second, "it cannot be reached", "replaced others in Secret liqo-tenant-milan/controlplane-milan, which the API server accepted")
	given(right, controlplanetest.Patience)
}
