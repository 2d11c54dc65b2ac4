package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// remove ends a peering, as `liqoctl network reset` does, and its namespaces.
// Nothing of it may be left.
func (pe *peering) remove(t *testing.T) {
	t.Helper()
	pe.delete(t)
	pe.gone(t)
}

func (pe *peering) delete(t *testing.T) {
	t.Helper()
	for _, e := range pe.ends() {
		if _, err := e.Kubectl("delete", "-n", e.namespace, "--ignore-not-found", "--wait=false", "gatewayservers,gatewayclients,configurations,publickeies", "--all"); err != nil {
			t.Error(err)
		}
		if e.namespace != "default" {
			if _, err := e.Kubectl("delete", "namespace", e.namespace, "--ignore-not-found", "--wait=false"); err != nil {
				t.Error(err)
			}
		}
	}
}

func (pe *peering) gone(t *testing.T) {
	t.Helper()
	for _, e := range pe.ends() {
		controlplanetest.Eventually(t, "nothing of the peering is left in "+e.id, e.left)
	}
}

// leftovers are kinds of which nothing may be left, where.
const leftovers = "gatewayservers,gatewayclients,wggatewayservers,wggatewayclients,configurations,connections,publickeies," +
	"internalfabrics,genevetunnels,networks.ipam.liqo.io,ips.ipam.liqo.io,firewallconfigurations,routeconfigurations," +
	"deployments,replicasets,pods,services,leases,roles,rolebindings,secrets,serviceaccounts"

// left lists what is left of the peering.
func (e *end) left(ctx context.Context) error {
	if e.namespace != "default" {
		n := new(corev1.Namespace)
		if err := e.Get(ctx, "", e.namespace, n); !apierrors.IsNotFound(err) {
			why := []string{fmt.Sprint(err)}
			for _, c := range n.Status.Conditions {
				if c.Status == corev1.ConditionTrue {
					why = append(why, c.Message)
				}
			}
			return fmt.Errorf("namespace %s is there: %s", e.namespace, strings.Join(why, ": "))
		}
	} else if names, err := e.names("get", leftovers, "-n", e.namespace); err != nil || len(names) > 0 {
		return fmt.Errorf("left: %v (%v)", names, err)
	}
	names, err := e.names("get", "roles,rolebindings", "-n", controlplanetest.LiqoNamespace, "-l", "networking.liqo.io/gateway-namespace="+e.namespace)
	if err != nil {
		return err
	}
	more, err := e.names("get", "clusterrolebindings", "-l", "networking.liqo.io/gateway-namespace="+e.namespace)
	if err != nil {
		return err
	}
	if names = append(names, more...); len(names) > 0 {
		return fmt.Errorf("left: %v", names)
	}
	return nil
}

// names lists objects by kubectl, without those that every namespace has.
func (e *end) names(args ...string) ([]string, error) {
	out, err := e.Kubectl(append(args, "-o", "name")...)
	if err != nil {
		return nil, err
	}
	names := strings.Fields(out)
	return slices.DeleteFunc(names, func(n string) bool { return n == "service/kubernetes" || n == "serviceaccount/default" }), nil
}
