package peering_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/docs"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// authenticating has a side make identities.
func authenticating(t *testing.T) func(*controlplanetest.Cluster, *manager.Options) {
	roles, err := fs.ReadFile(deploy.Manifests(), "authentication/authentication.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *controlplanetest.Cluster, o *manager.Options) {
		c.Apply(string(roles))
		o.Authentication = &authentication.Options{
			APIServer: issue.APIServer{URL: c.Config.Host, CA: c.Config.CAData}, Slices: resourceslice.Options{DefaultClass: true},
		}
	}
}

// kubeconfigOwner is a side as the owner of a kubeconfig reaches it.
func kubeconfigOwner(t *testing.T, name string, text []byte) *access.Cluster {
	t.Helper()
	loader, err := clientcmd.NewClientConfigFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // as liqoctl has it
	namespace, _, err := loader.Namespace()
	if err != nil {
		t.Fatal(err)
	}
	c, err := access.New(config, access.Options{Name: name, Origin: "kubeconfig of a user", Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// operator makes the peering user for the operator of a cluster.
func (s *side) operator(t *testing.T, name, peerID string) *access.Cluster {
	t.Helper()
	text, err := peering.GeneratePeeringUser(t.Context(), s.access, peerID, false, options(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfigOwner(t, name, text)
}

// pairOf starts two clusters that may ask each other for resources, and returns how they peer and which objects there are.
func pairOf(t *testing.T) (rome, milan *side, o peering.PeerOptions, before []string) {
	t.Helper()
	rome, milan = startSide(t, access.Local, "rome", authenticating(t)), startSide(t, access.Remote, "milan", authenticating(t))
	rome.play(t, networkingv1beta1.Connected)
	milan.play(t, networkingv1beta1.Connected)
	// An API server that knows the kinds only since a moment ago refuses these for a while.
	controlplanetest.Eventually(t, "the nodes have their routes", func(context.Context) (err error) {
		if before, err = objectsOf(rome, milan); err != nil {
			return err
		}
		for _, s := range []*side{rome, milan} {
			for _, node := range []string{"node-1", "node-2"} {
				if routes := s.id + ": RouteConfiguration liqo/" + node + "-gw-node"; !slices.Contains(before, routes) {
					return errors.New("there is no " + routes)
				}
			}
		}
		return nil
	})
	o = peering.PeerOptions{Options: options(), Slice: &peering.Slice{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}, VirtualNode: true}}
	return rome, milan, o, before
}

// TestPeeringUser: two operators of whom none is an administrator of the other's cluster peer.
func TestPeeringUser(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rome, milan, o, _ := pairOf(t)
	inMilan := milan.operator(t, access.Remote, "rome")
	csrs, err := milan.Kubectl("get", "csr", "-o", "name")
	if err != nil || csrs != "" {
		t.Errorf("requests are left: %s, %v", csrs, err)
	}
	for range 2 {
		if err := peering.Peer(ctx, rome.access, inMilan, o, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("rights", func(t *testing.T) { testRightsOfOthers(t, rome, milan, inMilan) })
	t.Run("what is denied", func(t *testing.T) { testPeeringUserDenied(t, milan, inMilan) })
	if err := peering.Unpeer(ctx, rome.access, inMilan, options(), nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*side{rome, milan} {
		s.nothing(t, "gatewayservers,gatewayclients,configurations,publickeies,tenants,identities,resourceslices,renews")
	}

	// Neither side by an administrator, the gateways the other way round.
	inRome := rome.operator(t, access.Local, "milan")
	o.ServerIsLocal = true
	if err := peering.Peer(ctx, inRome, inMilan, o, nil); err != nil {
		t.Fatal(err)
	}
	if err := peering.Unpeer(ctx, inRome, inMilan, o.Options, nil); err != nil {
		t.Fatal(err)
	}

	var s told
	for range 2 {
		if err := peering.DeletePeeringUsers(ctx, milan.access, "rome", options(), s.tell); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, "(remote) Peering users deleted: their kubeconfigs no longer work\n(remote) There is no peering user for cluster rome")
	versions := rome.resourceVersions(t) + milan.resourceVersions(t)
	controlplanetest.Eventually(t, "the user has lost its rights", func(ctx context.Context) error {
		if err := peering.Peer(ctx, rome.access, inMilan, o, nil); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it gets %v", err)
		}
		return nil
	})
	if diff := cmp.Diff(versions, rome.resourceVersions(t)+milan.resourceVersions(t)); diff != "" {
		t.Errorf("objects (-before +after):\n%s", diff)
	}

	if err := peering.DeletePeeringUsers(ctx, rome.access, "milan", options(), nil); err != nil {
		t.Fatal(err)
	}
}

// testPeeringUserDenied goes beyond what the roles say.
func testPeeringUserDenied(t *testing.T, milan *side, user *access.Cluster) {
	ctx := t.Context()
	const namespace = "liqo-tenant-rome"
	meta := func(name, cluster string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"liqo.io/remote-cluster-id": cluster}}
	}
	tenant := &authv1beta1.Tenant{}
	milan.Read(t, namespace, "rome", tenant)
	before := tenant.DeepCopy()
	tenant.Spec.TenantCondition = authv1beta1.TenantCordoned
	if err := milan.Client.Patch(ctx, tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	active := tenant.DeepCopy()
	active.Spec.TenantCondition = authv1beta1.TenantActive
	for what, do := range map[string]func() error{
		"a token of the gateway's": func() error {
			s := &corev1.Secret{ObjectMeta: meta("token", "rome"), Type: corev1.SecretTypeServiceAccountToken}
			s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			return user.Client.Create(ctx, s)
		},
		"a Configuration for another cluster": func() error {
			return user.Client.Create(ctx, peering.NewConfiguration(peering.Metadata{Namespace: namespace, RemoteClusterID: "paris"}, networkingv1beta1.ClusterConfig{
				CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.99.0.0/16"), External: cidrs("10.98.0.0/16")},
			}))
		},
		"a Tenant for another cluster": func() error {
			return user.Client.Create(ctx, &authv1beta1.Tenant{ObjectMeta: meta("paris", "rome"), Spec: authv1beta1.TenantSpec{ClusterID: "paris"}})
		},
		"a Tenant for no cluster": func() error { return user.Client.Create(ctx, &authv1beta1.Tenant{ObjectMeta: meta("nobody", "rome")}) },
		"an Identity for another cluster": func() error {
			return user.Client.Create(ctx, &authv1beta1.Identity{ObjectMeta: meta("paris", "rome"), Spec: authv1beta1.IdentitySpec{ClusterID: "paris", Type: authv1beta1.ControlPlaneIdentity}})
		},
		"uncordon":                func() error { return user.Client.Patch(ctx, active, client.MergeFrom(tenant)) },
		"delete what is cordoned": func() error { return user.Client.Delete(ctx, tenant.DeepCopy()) },
		"the key of the cluster": func() error {
			return user.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kubeconfig-controlplane-rome"}, new(corev1.Secret))
		},
		"Secrets": func() error { return user.Client.List(ctx, new(corev1.SecretList), client.InNamespace(namespace)) },
		"pods":    func() error { return user.Client.List(ctx, new(corev1.PodList), client.InNamespace(namespace)) },
	} {
		if err := do(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := milan.Client.Patch(ctx, active, client.MergeFrom(tenant)); err != nil {
		t.Fatal(err)
	}
}

func cidrs(one string) networkingv1beta1.CIDRs {
	return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(one)}}
}

// testRightsOfOthers compares the table in docs/operations.md with what an API server answers to those for whom it is.
func testRightsOfOthers(t *testing.T, rome, milan *side, operator *access.Cluster) {
	kubeconfig, err := peering.ReadKubeconfig(t.Context(), rome.access, "milan", "controlplane-milan")
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(docs.Pages(), "operations.md")
	if err != nil {
		t.Fatal(err)
	}
	users := []*access.Cluster{kubeconfigOwner(t, "consumer", kubeconfig), operator} // as the columns
	want, got := []map[string]string{{}, {}}, []map[string]string{{}, {}}
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if where := strings.TrimSpace(cells[0]); len(cells) < 3 || where != "tenant namespace" && where != "`liqo`" {
			continue
		}
		cells = append(cells, "")
		for i := range users {
			if verbs := strings.TrimSpace(cells[2+i]); verbs != "" {
				want[i][strings.TrimSpace(cells[0])+" "+strings.Trim(cells[1], " `")] = verbs
			}
		}
	}
	for i, user := range users {
		for name, namespace := range map[string]string{"tenant namespace": "liqo-tenant-rome", "`liqo`": "liqo", "elsewhere": "default"} {
			review := authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
			if err := user.Client.Create(t.Context(), &review); err != nil {
				t.Fatal(err)
			}
			if s := review.Status; s.Incomplete || s.EvaluationError != "" {
				t.Fatalf("the answer is not complete: %s", s.EvaluationError)
			}
			maps.Copy(got[i], rightsIn(name, review.Status.ResourceRules))
		}
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("%s (-documented +granted):\n%s", user.Name, diff)
		}
	}
	if len(want[0]) == 0 || len(want[1]) == 0 {
		t.Error("the table is empty")
	}
}

// rightsIn returns what somebody may do with each kind, beyond what everybody may: to ask about himself.
func rightsIn(where string, rules []authorizationv1.ResourceRule) map[string]string {
	all := map[string][]string{}
	for _, r := range rules {
		for _, g := range r.APIGroups {
			for _, kind := range r.Resources {
				kind, sub, has := strings.Cut(kind, "/")
				if g == "authorization.k8s.io" || g == "authentication.k8s.io" {
					continue
				}
				if g != "" {
					kind += "." + g
				}
				if has {
					kind += "/" + sub
				}
				names := r.ResourceNames
				if len(names) == 0 {
					names = []string{""}
				}
				for _, name := range names {
					if strings.HasPrefix(name, "gw-") {
						name = "gw-CLUSTER"
					}
					key := strings.TrimSpace(where + " " + kind + " " + name)
					all[key] = append(all[key], r.Verbs...)
				}
			}
		}
	}
	texts := map[string]string{}
	for key, verbs := range all {
		slices.Sort(verbs)
		texts[key] = strings.Join(slices.Compact(verbs), ", ")
	}
	return texts
}
