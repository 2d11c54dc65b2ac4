package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestAPIServerIP has offloaded pods reach the API server from the first virtual node to the last.
func TestAPIServerIP(t *testing.T) {
	c := consumer(t)
	run(t, c)
	ip := &ipamv1alpha1.IP{ObjectMeta: object(controlplanetest.LiqoNamespace, "api-server")}
	is := func(want bool) {
		t.Helper()
		controlplanetest.Eventually(t, fmt.Sprintf("there is an IP of the API server: %v", want), func(ctx context.Context) error {
			got := new(ipamv1alpha1.IP)
			err := c.Get(ctx, ip.Namespace, ip.Name, got)
			switch {
			case err != nil && !want:
				return client.IgnoreNotFound(err)
			case err != nil:
				return err
			case !want:
				return errors.New("it is there")
			case got.Spec.IP == "" || got.Spec.Masquerade == nil || !*got.Spec.Masquerade || got.Labels["ipam.liqo.io/ip-type"] != "api-server":
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}
	c.Create(t, tenant("milan"))
	v := virtualNode("milan", "milan", "eu")
	c.Create(t, v)
	is(true)
	c.Delete(t, ip)
	is(true)
	c.Delete(t, v)
	is(false)
}
