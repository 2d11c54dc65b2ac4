package peering

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExplain(t *testing.T) {
	now := time.Unix(1e9, 0)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	pod := func(status corev1.PodStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "gw-a-1"}, Status: status}
	}
	deployment := func(namespace, name string, conditions ...appsv1.DeploymentCondition) appsv1.Deployment {
		return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: appsv1.DeploymentStatus{Conditions: conditions}}
	}
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "gateway", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	about := func(kind, name, reason, message string) corev1.Event {
		return corev1.Event{Type: "Warning", InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Reason: reason, Message: message, LastTimestamp: ago(0)}
	}
	for _, tt := range []struct {
		name string
		told string
		v    evidence
		want string
	}{
		{name: "nothing is seen", want: "Next: run 'liqoctl network doctor' for a closer look"},
		{
			name: "an image that is not there",
			told: "GatewayServer n/a: Deployment gw-a: Deployment does not have minimum availability",
			v: evidence{
				Objects: []judged{{"GatewayServer n/a", "u", []metav1.Condition{
					{Type: "TemplateRendered", Status: "True"},
					{Type: "Deployed", Status: "False", Reason: "DeploymentNotReady", Message: "Deployment gw-a: Deployment does not have minimum availability."},
					{Type: "EndpointReady", Status: "False", Reason: "WaitingForGatewayPod", Message: "no gateway pod is running"},
				}}},
				Deployments: []appsv1.Deployment{deployment("n", "gw-a", appsv1.DeploymentCondition{Type: "Available", Status: "False", Message: "Deployment does not have minimum availability."})},
				Pods:        []corev1.Pod{pod(waiting("ImagePullBackOff", `Back-off pulling image "registry.example.com/gateway:1"`))},
			},
			want: `
Pod n/gw-a-1, container gateway: ImagePullBackOff: Back-off pulling image "registry.example.com/gateway:1"
Next: the node cannot pull the image: check its name in the template, its pull secret, and whether the nodes can reach the registry`,
		},
		{
			name: "a pod that no node takes",
			v: evidence{Pods: []corev1.Pod{pod(corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient cpu."},
			}})}},
			want: `
Pod n/gw-a-1: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu
Next: make room on a node, or change requests, node selector or tolerations in the template`,
		},
		{
			name: "a pod that is not admitted",
			v: evidence{
				Deployments: []appsv1.Deployment{deployment("n", "gw-a",
					appsv1.DeploymentCondition{Type: "Available", Status: "False", Message: "Deployment does not have minimum availability."},
					appsv1.DeploymentCondition{Type: "ReplicaFailure", Status: "True", Message: `pods "gw-a-1" is forbidden: violates PodSecurity "restricted:latest": privileged`},
				)},
				Events: []corev1.Event{{
					InvolvedObject: corev1.ObjectReference{Kind: "ReplicaSet", Name: "gw-a-1"}, Type: "Warning", Reason: "FailedCreate", LastTimestamp: ago(3 * time.Second),
					Message: `Error creating: pods "gw-a-1" is forbidden: violates PodSecurity "restricted:latest": privileged`,
				}},
				Now: now,
			},
			want: `
Deployment n/gw-a: pods "gw-a-1" is forbidden: violates PodSecurity "restricted:latest": privileged
Next: the namespace does not admit the pod: use a template whose pods need no privileges, or change the label pod-security.kubernetes.io/enforce of the namespace`,
		},
		{
			name: "a gateway that ends again and again",
			v: evidence{Pods: []corev1.Pod{pod(corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "gateway", RestartCount: 4,
				State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "no keys\n"}},
			}}})}},
			want: `
Pod n/gw-a-1, container gateway, restarted 4 times: CrashLoopBackOff: back-off 40s
Pod n/gw-a-1, container gateway, restarted 4 times: ended with exit code 1: no keys
Next: read the log of the pod with 'kubectl logs'`,
		},
		{
			name: "a load balancer without provider",
			told: "GatewayServer n/a: Service gw-a has no address: the cloud's controller, or one like MetalLB, must assign it",
			v: evidence{Objects: []judged{{"GatewayServer n/a", "u", []metav1.Condition{
				{Type: "EndpointReady", Status: "False", Reason: "WaitingForLoadBalancer", Message: "Service gw-a has no address: the cloud's controller, or one like MetalLB, must assign it"},
			}}}},
			want: `
Next: the cluster does not assign addresses to Services of type LoadBalancer: use --gw-server-service-type NodePort, or install a provider such as MetalLB`,
		},
		{
			name: "no controller",
			v:    evidence{Installation: []appsv1.Deployment{deployment("liqo", "liqo-controller"), {ObjectMeta: metav1.ObjectMeta{Name: "other"}, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}}},
			want: `
Deployment liqo/liqo-controller has no ready pod
Next: get the controller running first: nothing happens without it`,
		},
		{
			name: "warnings that explain nothing",
			v: evidence{Now: now, Pods: []corev1.Pod{pod(waiting("ImagePullBackOff", "no such host"))}, Events: []corev1.Event{
				about("Pod", "gw-a-0", "Unhealthy", "readiness probe failed"), // replaced
				about("Pod", "gw-a-1", "MissingClusterDNS", "kubelet does not have ClusterDNS IP configured"),
				about("Pod", "gw-a-1", "Failed", "pull of the image failed"),
				about("ReplicaSet", "gw-a-0", "FailedCreate", "exceeded quota"),
			}},
			want: `
Pod n/gw-a-1, container gateway: ImagePullBackOff: no such host
Event of Pod gw-a-1, 0s ago: Failed: pull of the image failed
Event of ReplicaSet gw-a-0, 0s ago: FailedCreate: exceeded quota
Next: the node cannot pull the image: check its name in the template, its pull secret, and whether the nodes can reach the registry`,
		},
		{
			name: "warnings of the last pod, which is gone",
			v:    evidence{Now: now, Events: []corev1.Event{about("Pod", "gw-a-0", "Evicted", "disk pressure")}},
			want: `
Event of Pod gw-a-0, 0s ago: Evicted: disk pressure
Next: fix the problems above; run 'liqoctl network doctor' for a closer look`,
		},
		{
			name: "warnings of what has passed",
			v: evidence{
				Now:         now,
				Objects:     []judged{{"GatewayServer n/a", "u", nil}},
				Deployments: []appsv1.Deployment{deployment("n", "gw-a")},
				Pods: []corev1.Pod{pod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(0)}},
				}}})},
				Events: []corev1.Event{
					{Type: "Warning", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "gw-a-1", UID: "of another"}, Reason: "A", Message: "of an earlier pod", LastTimestamp: ago(0)},
					{Type: "Warning", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "gw-a-1"}, Reason: "B", Message: "before it started", LastTimestamp: ago(time.Second)},
					{Type: "Warning", InvolvedObject: corev1.ObjectReference{Kind: "GatewayServer", Namespace: "n", Name: "a", UID: "of another"}, Reason: "C", Message: "of an earlier gateway", LastTimestamp: ago(0)},
					{Type: "Warning", InvolvedObject: corev1.ObjectReference{Kind: "GatewayServer", Namespace: "n", Name: "a", UID: "u"}, Reason: "D", Message: "of this one", LastTimestamp: ago(0)},
					about("ReplicaSet", "gw-a-0", "FailedCreate", "exceeded quota"),
				},
			},
			want: `
Pod n/gw-a-1: not ready
Event of GatewayServer a, 0s ago: D: of this one
Next: fix the problems above; run 'liqoctl network doctor' for a closer look`,
		},
		{
			name: "only the latest warnings",
			v: evidence{Now: now, Events: []corev1.Event{
				{Type: "Normal", Message: "pulled"},
				{Type: "Warning", Reason: "A", Message: "a", LastTimestamp: ago(0)}, {Type: "Warning", Reason: "B", Message: "b", LastTimestamp: ago(time.Second)},
				{Type: "Warning", Reason: "A", Message: "a", LastTimestamp: ago(time.Second)},
				{Type: "Warning", Reason: "C", Message: "c", LastTimestamp: ago(time.Second)}, {Type: "Warning", Reason: "D", Message: "d", LastTimestamp: ago(time.Minute)},
				{Type: "Warning", Reason: "E", Message: "e", LastTimestamp: ago(-time.Minute)}, {Type: "Warning", Reason: "F", Message: "f", LastTimestamp: ago(time.Hour)},
			}},
			want: `
Event of  , 0s ago: A: a
Event of  , 1s ago: B: b
Event of  , 1s ago: C: c
Event of  , 1m0s ago: D: d
Event of  , 0s ago: E: e
Next: fix the problems above; run 'liqoctl network doctor' for a closer look`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(tt.v.explain(tt.told), "\n")
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), got); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}
