package peering_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestAddressOfAPIServer: a provider gives an address at which nothing answers, and then another one.
func TestAddressOfAPIServer(t *testing.T) {
	t.Parallel()
	const wrong = "https://127.0.0.1:1"
	address := func(to string) func(*manager.Options) {
		return func(o *manager.Options) { o.Authentication.APIServer.URL = to }
	}
	rome := startSide(t, access.Local, "rome", authenticating(t))
	milan := startSide(t, access.Remote, "milan", authenticating(t), func(_ *controlplanetest.Cluster, o *manager.Options) { address(wrong)(o) })
	o := peering.PeerOptions{Options: options(), NetworkingDisabled: true, Slice: &peering.Slice{}}
	o.Timeout = 5 * time.Minute // it is not to last as long

	var waiting []string
	began := time.Now()
	err := peering.Peer(t.Context(), rome.access, milan.access, o, func(e progress.Event) {
		if e.Kind == progress.Waiting {
			waiting = append(waiting, e.Text)
		}
	})
	if err == nil || errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute {
		t.Fatalf("error %v after %v", err, time.Since(began))
	}
	const why = "the API server of cluster milan: it cannot be reached: connection refused"
	for _, want := range []string{why, "API server of cluster milan at " + wrong + ";", "liqoctl install --set apiServer.address=https://ADDRESS:PORT --kubeconfig=/of/milan"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if want := "Waiting for the answer on authentication: " + why; !slices.Contains(waiting, want) {
		t.Errorf("%q is not in %q", want, waiting)
	}

	t.Run("with a timeout of the user's", func(t *testing.T) {
		o := o.Options
		o.UntilTimeout, o.Timeout = true, 20*time.Second
		err := peering.Request(t.Context(), rome.access, peering.Metadata{Name: "milan", RemoteClusterID: "milan"}, peering.Slice{}, o, nil)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "liqoctl authenticate") {
			t.Errorf("error %v", err)
		}
	})

	// The installation says the right address before the controller, which is to start, has given it to the Tenant.
	right := milan.Config.Host
	installation := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: access.InstallationConfigMap}}
	if err := milan.Client.Get(t.Context(), client.ObjectKeyFromObject(installation), installation); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if installation.Data = map[string]string{"apiServer.address": right}; installation.UID == "" {
		milan.Create(t, installation)
	} else if err := milan.Client.Update(t.Context(), installation); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	seen := make(chan struct{})
	go func() {
		told := false
		done <- peering.Peer(t.Context(), rome.access, milan.access, o, func(e progress.Event) {
			if strings.Contains(e.Text, "still has the address "+wrong) && !told {
				told = true
				close(seen)
			}
		})
	}()
	select {
	case <-seen:
	case err := <-done:
		t.Fatalf("it did not wait for the new address: %v", err)
	}
	milan.restart(address(right))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var i authv1beta1.Identity
	rome.Read(t, "liqo-tenant-milan", "controlplane-milan", &i)
	if i.Spec.AuthParams.APIServer != right {
		t.Errorf("the identity has the address %s", i.Spec.AuthParams.APIServer)
	}

	// Each cluster may ask the other one, in the same two namespaces. What rome asks milan for is not what milan asks rome for.
	theirs := new(authv1beta1.ResourceSlice)
	milan.Read(t, "liqo-tenant-rome", "milan", theirs)
	err = peering.Request(t.Context(), milan.access, peering.Metadata{Name: "milan", RemoteClusterID: "rome"}, peering.Slice{VirtualNode: true}, options(), nil)
	if err == nil || !strings.Contains(err.Error(), "ResourceSlice liqo-tenant-rome/milan already exists: cluster rome asks") {
		t.Errorf("error %v", err)
	}
	milan.Read(t, "liqo-tenant-rome", "milan", theirs)
	if v, there := theirs.Annotations[authv1beta1.AnnotationCreateVirtualNode]; there {
		t.Errorf("the slice of rome's has the annotation %s", v)
	}
}
