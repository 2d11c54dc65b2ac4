package access

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestParseInstallation(t *testing.T) {
	for _, tt := range []struct {
		name string
		data map[string]string
		want Installation
		err  string
	}{
		{"nothing said", nil, Installation{Gateway: DefaultGateway}, ""},
		{"everything said", map[string]string{
			"version": "v0.4.0", "adoption": "true", "cluster.labels": "region=eu,tier=edge", "apiServer.address": "https://203.0.113.7:6443", "controller.replicas": "3",
			"gateway.mtu": "1280", "gateway.server.service.port": "51900", "gateway.server.service.type": "NodePort",
		}, Installation{
			Version: "v0.4.0", Adopted: true, ClusterLabels: map[string]string{"region": "eu", "tier": "edge"}, APIServerAddress: "https://203.0.113.7:6443", ControllerReplicas: 3,
			Gateway: GatewayDefaults{MTU: 1280, ServerServicePort: 51900, ServerServiceType: corev1.ServiceTypeNodePort},
		}, ""},
		{"a label without a value", map[string]string{"cluster.labels": "region="}, Installation{ClusterLabels: map[string]string{"region": ""}, Gateway: DefaultGateway}, ""},
		{"no label", map[string]string{"cluster.labels": "region"}, Installation{}, `cluster.labels: "region" is not KEY=VALUE`},
		{"no number of pods", map[string]string{"controller.replicas": "many"}, Installation{}, `controller.replicas: "many" is not a number of pods`},
		{"no MTU", map[string]string{"gateway.mtu": "-1"}, Installation{}, `gateway.mtu: "-1" is not an MTU`},
		{"no port", map[string]string{"gateway.server.service.port": "0"}, Installation{}, `gateway.server.service.port: "0" is not a port`},
		{"no type", map[string]string{"gateway.server.service.type": "ExternalName"}, Installation{}, `gateway.server.service.type: "ExternalName" is not LoadBalancer, NodePort or ClusterIP`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseInstallation(tt.data)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("got error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
