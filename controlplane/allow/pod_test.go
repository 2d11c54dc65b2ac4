package allow_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/controlplane/allow"
)

// TestPod sets each field of a pod that this version of Kubernetes knows, one at a time. A new field is on neither list:
// whoever updates Kubernetes decides.
func TestPod(t *testing.T) {
	for _, kind := range []struct {
		of      reflect.Type
		passed  string
		refused string
		path    string
		with    func(reflect.Value) *corev1.PodSpec
	}{
		{reflect.TypeFor[corev1.PodSpec](),
			"activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets nodeSelector os readinessGates restartPolicy securityContext setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints",
			// With everything in them: those below are judged field by field. The rest is the provider's.
			"affinity containers initContainers volumes resources ephemeralContainers evictionResponders nodeName overhead preemptionPolicy priority priorityClassName resourceClaims runtimeClassName schedulerName schedulingGates schedulingGroup serviceAccount serviceAccountName",
			"spec.pod.", func(v reflect.Value) *corev1.PodSpec { return v.Interface().(*corev1.PodSpec) }},
		{reflect.TypeFor[corev1.Container](),
			"args command env envFrom image imagePullPolicy name ports resizePolicy restartPolicy restartPolicyRules securityContext stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeMounts workingDir",
			"lifecycle livenessProbe readinessProbe resources startupProbe volumeDevices",
			"spec.pod.containers[0].", func(v reflect.Value) *corev1.PodSpec {
				return &corev1.PodSpec{Containers: []corev1.Container{*v.Interface().(*corev1.Container)}}
			}},
		{reflect.TypeFor[corev1.VolumeSource](),
			"configMap downwardAPI emptyDir hostPath image secret",
			"awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc flexVolume flocker gcePersistentDisk gitRepo glusterfs iscsi nfs persistentVolumeClaim photonPersistentDisk portworxVolume projected quobyte rbd scaleIO storageos vsphereVolume",
			"spec.pod.volumes[0].", func(v reflect.Value) *corev1.PodSpec {
				return &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: *v.Interface().(*corev1.VolumeSource)}}}
			}},
		{reflect.TypeFor[corev1.VolumeProjection](),
			"configMap downwardAPI secret",
			"clusterTrustBundle podCertificate serviceAccountToken",
			"spec.pod.volumes[0].projected.sources[0].", func(v reflect.Value) *corev1.PodSpec {
				return &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{*v.Interface().(*corev1.VolumeProjection)}}}}}}
			}},
		{reflect.TypeFor[corev1.Probe](), // and its handler
			"exec failureThreshold grpc initialDelaySeconds periodSeconds successThreshold terminationGracePeriodSeconds timeoutSeconds",
			"httpGet tcpSocket", // with a host
			"spec.pod.containers[0].livenessProbe.", func(v reflect.Value) *corev1.PodSpec {
				return &corev1.PodSpec{Containers: []corev1.Container{{LivenessProbe: v.Interface().(*corev1.Probe)}}}
			}},
		{reflect.TypeFor[corev1.Affinity](),
			"nodeAffinity", "podAffinity podAntiAffinity",
			"spec.pod.affinity.", func(v reflect.Value) *corev1.PodSpec {
				return &corev1.PodSpec{Affinity: v.Interface().(*corev1.Affinity)}
			}},
		{reflect.TypeFor[corev1.PodAffinityTerm](), // not those of others
			"labelSelector matchLabelKeys mismatchLabelKeys topologyKey", "namespaceSelector namespaces",
			"spec.pod.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].", func(v reflect.Value) *corev1.PodSpec {
				return &corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{*v.Interface().(*corev1.PodAffinityTerm)}}}}
			}},
		{reflect.TypeFor[corev1.ResourceRequirements](),
			"limits requests", "claims",
			"spec.pod.containers[0].resources.", func(v reflect.Value) *corev1.PodSpec {
				return &corev1.PodSpec{Containers: []corev1.Container{{Resources: *v.Interface().(*corev1.ResourceRequirements)}}}
			}},
	} {
		passed, refused := strings.Fields(kind.passed), strings.Fields(kind.refused)
		var seen []string
		for _, f := range reflect.VisibleFields(kind.of) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				continue // an embedded struct, whose fields come too
			}
			seen = append(seen, name)
			v := reflect.New(kind.of)
			set(v.Elem().FieldByIndex(f.Index))
			err := allow.Pod(kind.with(v), "spec.pod")
			switch {
			case !slices.Contains(passed, name) && !slices.Contains(refused, name):
				t.Errorf("%s.%s is new: shall it pass? Now: %v", kind.of, name, err)
			case slices.Contains(passed, name) != (err == nil):
				t.Errorf("%s.%s: %v", kind.of, name, err)
			case err != nil && !strings.HasPrefix(err.Error(), kind.path+name):
				t.Errorf("%s.%s: the message does not name it: %v", kind.of, name, err)
			}
		}
		for _, name := range slices.Concat(passed, refused) {
			if !slices.Contains(seen, name) {
				t.Errorf("%s has no field %s", kind.of, name)
			}
		}
	}
}

// TestPodDefaults: what another API server writes into every pod passes.
func TestPodDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		spec corev1.PodSpec
		ok   bool
	}{
		"the default scheduler":          {corev1.PodSpec{SchedulerName: "default-scheduler"}, true},
		"the default service account":    {corev1.PodSpec{ServiceAccountName: "default", DeprecatedServiceAccount: "default"}, true},
		"another service account":        {corev1.PodSpec{ServiceAccountName: "deployer"}, false},
		"a probe of the pod itself":      {corev1.PodSpec{Containers: []corev1.Container{{ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}}}}}, true},
		"a probe of another host":        {corev1.PodSpec{Containers: []corev1.Container{{ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254"}}}}}}, false},
		"a hook that asks another host":  {corev1.PodSpec{Containers: []corev1.Container{{Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Host: "10.0.0.1"}}}}}}, false},
		"an init container with a probe": {corev1.PodSpec{InitContainers: []corev1.Container{{VolumeDevices: []corev1.VolumeDevice{{Name: "a"}}}}}, false},
		"pods of other namespaces, by a preference": {corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"kube-system"}}}}}}}, false},
		"pods of its own namespace, by a preference": {corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}}}}}}, true},
		"an hour to end": {corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(3600))}, true},
		"longer to end":  {corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(3601))}, false},
		"nothing":        {corev1.PodSpec{}, true},
	} {
		if err := allow.Pod(&tt.spec, "spec.pod"); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
