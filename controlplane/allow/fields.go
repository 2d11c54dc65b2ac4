package allow

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fields are those that an object may have. Below nil, everything is allowed.
type fields map[string]fields

// service leaves out externalIPs, by which a Service takes the traffic of any address
// (CVE-2020-8554).
var service = fields{
	"type": nil, "ports": nil, "selector": nil, "publishNotReadyAddresses": nil,
	"externalName": nil, // means nothing without its type
	"clusterIP":    nil, "clusterIPs": nil, "ipFamilies": nil, "ipFamilyPolicy": nil,
	"sessionAffinity": nil, "sessionAffinityConfig": nil, "internalTrafficPolicy": nil, "externalTrafficPolicy": nil, "trafficDistribution": nil,
	"loadBalancerIP": nil, "loadBalancerClass": nil, "loadBalancerSourceRanges": nil, "allocateLoadBalancerNodePorts": nil, "healthCheckNodePort": nil,
}

// serviceMonitor leaves out what lends the rights of Prometheus: its files and tokens
// (bearerTokenFile, tlsConfig, authorization and the like), proxies, other namespaces,
// and relabelings, which can put any address in the place of a pod's.
var serviceMonitor = fields{
	"jobLabel": nil, "targetLabels": nil, "podTargetLabels": nil, "selector": nil,
	"namespaceSelector": {"matchNames": nil},
	"sampleLimit":       nil, "targetLimit": nil, "labelLimit": nil, "labelNameLengthLimit": nil, "labelValueLengthLimit": nil,
	"endpoints": {
		"port": nil, "targetPort": nil, "path": nil, "scheme": nil, "interval": nil, "scrapeTimeout": nil,
		"honorTimestamps": nil, "metricRelabelings": nil, "filterRunning": nil,
	},
}

// Service says which field of the spec of a Service is not allowed; nil: all are. Path
// is where the spec is. A Service of type ExternalName, which stands for any name, is
// not.
func Service(spec *corev1.ServiceSpec, path string) error {
	if spec.Type == corev1.ServiceTypeExternalName {
		return fmt.Errorf("%s.type: %s is not allowed: it leads to any name", path, spec.Type)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return check(object, service, path, beyond)
}

// ServiceMonitor says which field of the spec of a ServiceMonitor of the Prometheus
// operator is not allowed in a namespace; nil: all are. Path is where the spec is.
func ServiceMonitor(spec map[string]any, namespace, path string) error {
	if err := check(spec, serviceMonitor, path, beyond); err != nil {
		return err
	}
	selector, _ := spec["namespaceSelector"].(map[string]any)
	if names, ok := selector["matchNames"]; ok {
		list, isList := names.([]any)
		if !isList || slices.ContainsFunc(list, func(n any) bool { return n != namespace }) {
			return fmt.Errorf("%s.namespaceSelector.matchNames: only %s is allowed, the namespace of the gateway", path, namespace)
		}
	}
	return nil
}

// What is said of a field that is not on a list.
const (
	beyond  = "is not allowed: it reaches further than the right to write this object does"
	foreign = "is not allowed in a pod of another cluster"
)

// check compares v, which is at path, with a list; why is what is said of a field that is not on it.
func check(v any, allowed fields, path, why string) error {
	switch v := v.(type) {
	case map[string]any:
		// In order, so that the same spec gets the same message.
		for _, key := range slices.Sorted(maps.Keys(v)) {
			below, ok := allowed[key]
			if !ok {
				return fmt.Errorf("%s.%s %s", path, key, why)
			}
			if below == nil {
				continue
			}
			if err := check(v[key], below, path+"."+key, why); err != nil {
				return err
			}
		}
	case []any:
		for i := range v {
			if err := check(v[i], allowed, path+"["+strconv.Itoa(i)+"]", why); err != nil {
				return err
			}
		}
	}
	return nil // of another type: the API server says so
}
