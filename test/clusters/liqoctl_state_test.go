package clusters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// stateKinds are those of which a peering has objects, without pods and their
// ReplicaSets, which have other names each time.
const stateKinds = "configurations,gatewayservers,gatewayclients,wggatewayservers,wggatewayclients,connections,publickeies,internalfabrics," +
	"genevetunnels,networks.ipam.liqo.io,deployments,services,secrets,serviceaccounts,roles,rolebindings,leases.coordination.k8s.io"

// state is what two peerings have in common that were made in the same way:
// names, labels, owners and specs of all objects, without what is drawn by lot.
func (pe *peering) state(t *testing.T) map[string]string {
	t.Helper()
	state := make(map[string]string)
	for _, e := range pe.ends() {
		out, err := e.Kubectl("get", stateKinds, "-n", e.namespace, "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			m, _ := o["metadata"].(map[string]any)
			name := fmt.Sprintf("%v/%v", o["kind"], m["name"])
			if name == "ServiceAccount/default" {
				continue
			}
			text, err := json.MarshalIndent(without(o), "", " ")
			if err != nil {
				t.Fatal(err)
			}
			state[e.id+" "+name] = string(text)
		}
	}
	if err := pe.keysMatch(t); err != nil {
		t.Error(err)
	}
	return state
}

// byLot are fields that differ from one time to the other.
var byLot = []string{
	"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "annotations", "status", "clusterIP", "clusterIPs", "nodePort",
	"gatewayIP", "gateway", "publicKey", "privateKey", "port", "holderIdentity", "acquireTime", "renewTime", "leaseTransitions", "id",
	"addresses", // of the node that the gateway runs on
}

// someUID is a UID in a text.
var someUID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// without returns a value without these.
func without(v any) any {
	switch v := v.(type) {
	case string:
		return someUID.ReplaceAllString(v, "UID")
	case []any:
		for i := range v {
			v[i] = without(v[i])
		}
	case map[string]any:
		for name := range v {
			if slices.Contains(byLot, name) {
				v[name] = "..."
			} else {
				v[name] = without(v[name])
			}
		}
	}
	return v
}

// keysMatch checks that each end knows the key of the other's gateway.
func (pe *peering) keysMatch(t *testing.T) error {
	t.Helper()
	for _, ends := range [][2]*end{{&pe.provider, &pe.consumer}, {&pe.consumer, &pe.provider}} {
		var s corev1.Secret
		if err := ends[0].Get(t.Context(), ends[0].namespace, "gw-"+ends[0].gateway, &s); err != nil {
			return err
		}
		var k networkingv1beta1.PublicKey
		if err := ends[1].Get(t.Context(), ends[1].namespace, ends[1].peerID, &k); err != nil {
			return err
		}
		if !bytes.Equal(s.Data["publicKey"], k.Spec.PublicKey) {
			return fmt.Errorf("%s has not the public key of %s", ends[1].id, ends[0].id)
		}
	}
	return nil
}
