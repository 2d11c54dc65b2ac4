package gatewaydeploy

import (
	"encoding/hex"
	"strings"

	"github.com/sluice-net/sluice/controlplane/objectname"
)

const (
	// childPrefix precedes the gateway's name in the names of most of its objects.
	childPrefix = "gw-"
	// gatewayRole is the ClusterRole, and the Role in the Liqo namespace, of every gateway, unless the options name another.
	gatewayRole = "liqo-gateway"
	// defaultAccount is the service account of pods that name none.
	defaultAccount = "default"
	// keysVolume is the volume of the pods that is given the Secret with the keys.
	keysVolume = "wireguard-config"
	// metricsSuffix ends the names of what exposes metrics.
	metricsSuffix = "-metrics"

	maxName    = 253 // of most objects
	maxService = 63  // of a Service, which is a DNS label
)

// childName is the name of the Deployment, Secret, Role, RoleBinding and Connection.
func childName(gateway string) string { return childPrefix + gateway }

func serviceName(gateway string) string { return objectname.Shorten(childPrefix+gateway, maxService) }

func metricsName(gateway string) string {
	return objectname.Shorten(childPrefix+gateway+metricsSuffix, maxService)
}

// leaseName is that of the Lease by which replicas elect.
func leaseName(gateway, namespace string, m mode) string {
	return objectname.Shorten(gateway+"."+namespace+"."+string(m)+".connections.liqo.io", maxName)
}

// bindingName is the name of the bindings outside the gateway's namespace.
//
// Namespace a-b with gateway c must not meet namespace a with gateway b-c. The last
// dash tells them apart, unless it may belong to the gateway. A gateway whose name
// looks like a digest would have the name of the one whose digest it is.
func bindingName(role, namespace, gateway string) string {
	n := role + "-" + namespace + "-" + gateway
	if strings.Contains(gateway, "-") || isDigest(gateway) {
		n += "-" + objectname.Digest(namespace+"/"+gateway, digestBytes)
	}
	return objectname.Shorten(n, maxName)
}

// digestBytes is how much of a digest a name holds.
const digestBytes = 4

// isDigest tells whether text could be a digest.
func isDigest(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == digestBytes
}
