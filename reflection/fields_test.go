package reflection

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// fate says what becomes of a field.
type fate string

const (
	kept    fate = "kept"
	dropped fate = "dropped" // it says where the pod runs, or is judged here
	refused fate = "refused"
	changed fate = "changed" // the golden files show how
)

// podFields has every field of a PodSpec.
var podFields = map[string]fate{
	"Volumes": changed, "InitContainers": kept, "Containers": kept, "EphemeralContainers": dropped, "RestartPolicy": kept,
	"TerminationGracePeriodSeconds": kept, "ActiveDeadlineSeconds": kept, "DNSPolicy": kept, "NodeSelector": changed,
	"ServiceAccountName": dropped, "DeprecatedServiceAccount": dropped, "AutomountServiceAccountToken": changed, "NodeName": dropped,
	"HostNetwork": refused, "HostPID": refused, "HostIPC": refused, "ShareProcessNamespace": kept, "SecurityContext": kept,
	"ImagePullSecrets": kept, "Hostname": kept, "Subdomain": kept, "Affinity": changed, "SchedulerName": dropped, "Tolerations": changed,
	"HostAliases": kept, "PriorityClassName": dropped, "Priority": dropped, "DNSConfig": kept, "ReadinessGates": dropped,
	"RuntimeClassName": kept, "EnableServiceLinks": kept, "PreemptionPolicy": dropped, "Overhead": dropped,
	"TopologySpreadConstraints": changed, "SetHostnameAsFQDN": kept, "OS": kept, "HostUsers": kept, "SchedulingGates": dropped,
	"ResourceClaims": refused, "Resources": kept, "HostnameOverride": kept, "SchedulingGroup": dropped, "EvictionResponders": dropped,
}

// volumeSources has every source of a volume.
var volumeSources = map[string]fate{
	"EmptyDir": kept, "Secret": kept, "ConfigMap": kept, "DownwardAPI": kept, "Projected": changed, "CSI": kept, "Image": kept,
	"HostPath": refused, "GCEPersistentDisk": refused, "AWSElasticBlockStore": refused, "GitRepo": refused, "NFS": refused,
	"ISCSI": refused, "Glusterfs": refused, "PersistentVolumeClaim": refused, "RBD": refused, "FlexVolume": refused, "Cinder": refused,
	"CephFS": refused, "Flocker": refused, "FC": refused, "AzureFile": refused, "VsphereVolume": refused, "Quobyte": refused,
	"AzureDisk": refused, "PhotonPersistentDisk": refused, "PortworxVolume": refused, "ScaleIO": refused, "StorageOS": refused,
	"Ephemeral": refused,
}

// fill sets everything below v that can be set.
func fill(v reflect.Value, depth int) {
	if depth == 0 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth-1)
		fill(value, depth-1)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth-1)
		}
	}
}

var toMilan = PodOptions{Peering: Peering{Consumer: "rome", Provider: "milan"}, Namespace: "shop-rome"}

func TestEveryFieldOfPodSpec(t *testing.T) {
	for f := range reflect.TypeFor[corev1.PodSpec]().Fields() {
		t.Run(f.Name, func(t *testing.T) {
			pod := &corev1.Pod{}
			in := reflect.ValueOf(&pod.Spec).Elem().FieldByIndex(f.Index)
			fill(in, 12)
			want := podFields[f.Name]
			if f.Name == "Volumes" {
				pod.Spec.Volumes = []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				want = kept
			}
			out, err := podSpec(pod, toMilan)
			got := reflect.ValueOf(out).FieldByIndex(f.Index)
			switch want {
			case kept:
				if diff := cmp.Diff(in.Interface(), got.Interface()); diff != "" || err != nil {
					t.Errorf("is to be kept: %v (-want +got):\n%s", err, diff)
				}
			case dropped:
				if !got.IsZero() || err != nil {
					t.Errorf("is to be dropped: %v, %v", got.Interface(), err)
				}
			case refused:
				if r := new(RefusedError); !errors.As(err, &r) || !strings.EqualFold(r.Field, "spec."+f.Name) {
					t.Errorf("is to be refused: %v", err)
				}
			case changed:
				if err != nil || in.Kind() != reflect.Slice && cmp.Equal(in.Interface(), got.Interface()) {
					t.Errorf("is to be changed: %v, %v", got.Interface(), err)
				}
			default:
				t.Error("Kubernetes has a new field: decide what becomes of it in a ShadowPod")
			}
		})
	}
}

func TestEveryVolumeSource(t *testing.T) {
	for f := range reflect.TypeFor[corev1.VolumeSource]().Fields() {
		t.Run(f.Name, func(t *testing.T) {
			v := corev1.Volume{Name: "data"}
			fill(reflect.ValueOf(&v.VolumeSource).Elem().FieldByIndex(f.Index), 12)
			out, err := podSpec(&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{v}}}, podOptions(""))
			switch volumeSources[f.Name] {
			case kept:
				if diff := cmp.Diff([]corev1.Volume{v}, out.Volumes); diff != "" || err != nil {
					t.Errorf("is to be kept: %v (-want +got):\n%s", err, diff)
				}
			case changed:
				if err != nil || len(out.Volumes) != 1 {
					t.Errorf("is to be changed: %v", err)
				}
			case refused:
				if r := new(RefusedError); !errors.As(err, &r) || r.Field != "spec.volumes[0] (data)" {
					t.Errorf("is to be refused: %v", err)
				}
			default:
				t.Error("Kubernetes has a new volume: decide whether it means the same in another cluster")
			}
		})
	}
}
