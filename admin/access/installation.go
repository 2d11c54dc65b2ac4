package access

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// InstallationConfigMap is the name of the ConfigMap, in the Liqo namespace,
// with what the administrator said at install time and no program in the cluster
// needs. The chart makes it.
const InstallationConfigMap = "liqo-installation"

// Keys of the ConfigMap.
const (
	keyVersion           = "version"
	keyAdoption          = "adoption"
	keyClusterLabels     = "cluster.labels"
	keyAPIServerAddress  = "apiServer.address"
	keyControllerPods    = "controller.replicas"
	keyGatewayMTU        = "gateway.mtu"
	keyServerServicePort = "gateway.server.service.port"
	keyServerServiceType = "gateway.server.service.type"
)

// Installation is what the administrator said at install time.
type Installation struct {
	// Version is that of the programs in the cluster. Empty: not known.
	Version string
	// Adopted says that Liqo runs there, too, and that its network was taken over.
	Adopted bool
	// ClusterLabels characterize the cluster.
	ClusterLabels map[string]string
	// APIServerAddress is the URL at which other clusters are to reach the API server. Empty: the controller finds it.
	APIServerAddress string
	// ControllerReplicas is how many pods of the controller there are to be; 0: not said, as
	// by earlier versions.
	ControllerReplicas int32
	// Gateway are the defaults of gateways that are made from here on.
	Gateway GatewayDefaults
}

// GatewayDefaults are used where the user says nothing else.
type GatewayDefaults struct {
	MTU               int
	ServerServicePort int32
	ServerServiceType corev1.ServiceType
}

// DefaultControllerReplicas is the chart's number of pods of the controller.
const DefaultControllerReplicas = 2

// DefaultGateway holds where the administrator says nothing either.
var DefaultGateway = GatewayDefaults{MTU: 1340, ServerServicePort: 51840, ServerServiceType: corev1.ServiceTypeLoadBalancer}

// Installation reads what the administrator said. What is not said is
// DefaultGateway's, also where there is no installation.
func (c *Cluster) Installation(ctx context.Context) (Installation, error) {
	var m corev1.ConfigMap
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.LiqoNamespace, Name: InstallationConfigMap}, &m)
	if err != nil && !apierrors.IsNotFound(err) {
		return Installation{}, c.Explain(fmt.Sprintf("read ConfigMap %s/%s", c.LiqoNamespace, InstallationConfigMap), err)
	}
	i, err := parseInstallation(m.Data)
	if err != nil {
		return i, c.Errorf("ConfigMap %s/%s: %w; run 'liqoctl install' again", c.LiqoNamespace, InstallationConfigMap, err)
	}
	return i, nil
}

func parseInstallation(data map[string]string) (Installation, error) {
	i := Installation{Version: data[keyVersion], APIServerAddress: data[keyAPIServerAddress], Adopted: data[keyAdoption] == "true", Gateway: DefaultGateway}
	for pair := range strings.SplitSeq(data[keyClusterLabels], ",") {
		k, v, ok := strings.Cut(pair, "=")
		switch {
		case ok && i.ClusterLabels == nil:
			i.ClusterLabels = map[string]string{k: v}
		case ok:
			i.ClusterLabels[k] = v
		case pair != "":
			return i, fmt.Errorf("%s: %q is not KEY=VALUE", keyClusterLabels, pair)
		}
	}
	if s := data[keyControllerPods]; s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return i, fmt.Errorf("%s: %q is not a number of pods", keyControllerPods, s)
		}
		i.ControllerReplicas = int32(n)
	}
	if s := data[keyGatewayMTU]; s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return i, fmt.Errorf("%s: %q is not an MTU", keyGatewayMTU, s)
		}
		i.Gateway.MTU = int(n)
	}
	if s := data[keyServerServicePort]; s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return i, fmt.Errorf("%s: %q is not a port", keyServerServicePort, s)
		}
		i.Gateway.ServerServicePort = int32(n)
	}
	switch s := corev1.ServiceType(data[keyServerServiceType]); s {
	case "":
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP:
		i.Gateway.ServerServiceType = s
	default:
		return i, fmt.Errorf("%s: %q is not LoadBalancer, NodePort or ClusterIP", keyServerServiceType, s)
	}
	return i, nil
}
