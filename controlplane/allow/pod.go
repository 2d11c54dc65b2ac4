package allow

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// handler leaves out the host of a request that a kubelet makes: it would reach what only nodes reach.
var handler = fields{
	"exec": nil, "grpc": nil, "sleep": nil, "tcpSocket": {"port": nil},
	"httpGet": {"path": nil, "port": nil, "scheme": nil, "httpHeaders": nil},
}

var probe = handler.and(fields{
	"initialDelaySeconds": nil, "timeoutSeconds": nil, "periodSeconds": nil, "successThreshold": nil, "failureThreshold": nil,
	"terminationGracePeriodSeconds": nil,
})

// quantities leaves out claims, which are devices of nodes.
var quantities = fields{"requests": nil, "limits": nil}

// container leaves out raw block devices.
var container = fields{
	"name": nil, "image": nil, "command": nil, "args": nil, "workingDir": nil, "ports": nil, "envFrom": nil, "env": nil,
	"resources": quantities, "resizePolicy": nil, "restartPolicy": nil, "restartPolicyRules": nil, "volumeMounts": nil,
	"livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe,
	"lifecycle":              {"postStart": handler, "preStop": handler, "stopSignal": nil},
	"terminationMessagePath": nil, "terminationMessagePolicy": nil, "imagePullPolicy": nil, "securityContext": nil,
	"stdin": nil, "stdinOnce": nil, "tty": nil,
}

// affinityTerm leaves out namespaces and their selector. Whoever could name other namespaces would find out by the places of
// its own pods which pods are there, and could keep those from being scheduled.
var affinityTerm = fields{"labelSelector": nil, "matchLabelKeys": nil, "mismatchLabelKeys": nil, "topologyKey": nil}

var podAffinity = fields{
	"requiredDuringSchedulingIgnoredDuringExecution":  affinityTerm,
	"preferredDuringSchedulingIgnoredDuringExecution": {"weight": nil, "podAffinityTerm": affinityTerm},
}

// longestGracePeriod is how long the containers of a pod of another cluster may take to end, in seconds: drained, a Tenant is
// to lose what it has.
const longestGracePeriod = 3600

// pod leaves out what names a node, a priority, a scheduler, a runtime or an identity of this cluster: they are the
// provider's. Of volumes pass those whose content is the consumer's. What reaches the host (hostPath, hostNetwork,
// privileged and the like) passes here: the API server judges it by the PodSecurity level of the namespace.
var pod = fields{
	"activeDeadlineSeconds": nil, "affinity": {"nodeAffinity": nil, "podAffinity": podAffinity, "podAntiAffinity": podAffinity}, "containers": container, "dnsConfig": nil, "dnsPolicy": nil,
	"enableServiceLinks": nil, "hostAliases": nil, "hostIPC": nil, "hostNetwork": nil, "hostPID": nil, "hostUsers": nil,
	"hostname": nil, "hostnameOverride": nil, "imagePullSecrets": nil, "initContainers": container, "nodeSelector": nil, "os": nil, "readinessGates": nil,
	"resources": quantities, "restartPolicy": nil, "securityContext": nil, "setHostnameAsFQDN": nil, "shareProcessNamespace": nil,
	"subdomain": nil, "terminationGracePeriodSeconds": nil, "tolerations": nil, "topologySpreadConstraints": nil,
	"volumes": {
		"name": nil, "configMap": nil, "downwardAPI": nil, "emptyDir": nil, "hostPath": nil, "image": nil, "secret": nil,
		"projected": {"defaultMode": nil, "sources": {"configMap": nil, "downwardAPI": nil, "secret": nil}},
	},
}

// Pod says which field of the spec of a pod of another cluster is not allowed; nil: all are. Path is where the spec is.
// What only says the default passes.
func Pod(spec *corev1.PodSpec, path string) error {
	spec = spec.DeepCopy()
	spec.AutomountServiceAccountToken = nil // the caller says it
	if spec.SchedulerName == corev1.DefaultSchedulerName {
		spec.SchedulerName = ""
	}
	for _, account := range []*string{&spec.ServiceAccountName, &spec.DeprecatedServiceAccount} {
		if *account == "default" {
			*account = ""
		}
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace > longestGracePeriod {
		return fmt.Errorf("%s.terminationGracePeriodSeconds: %d is not allowed: the most is %d, an hour", path, *grace, longestGracePeriod)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if object["containers"] == nil {
		delete(object, "containers") // the API server says that it is missing
	}
	return check(object, pod, path, foreign)
}

// and is both lists.
func (f fields) and(more fields) fields {
	all := fields{}
	for _, list := range []fields{f, more} {
		for k, v := range list {
			all[k] = v
		}
	}
	return all
}
