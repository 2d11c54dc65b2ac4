package v1beta1_test

import (
	"slices"
	"strings"
)

func init() {
	for kind, text := range map[string]string{
		"authentication.liqo.io/v1beta1 Tenant": `
metadata: {name: rome, namespace: default}
spec:
  clusterID: rome
  publicKey: SU+Ba3jBNgofBrZtVHwad1VJotcVs4TmgpOdFQhx/UE=
  csr: LS0tLS0=
  signature: c2lnbmVk
  proxyURL: http://192.0.2.1:8118
`,
		"authentication.liqo.io/v1beta1 Identity": `
metadata: {name: controlplane-milan, namespace: default}
spec:
  clusterID: milan
  type: ControlPlane
  namespace: liqo-tenant-rome
  authParams: {ca: LS0tLS0=, signedCRT: LS0tLS0=, apiServer: "https://192.0.2.1:6443", proxyURL: "http://192.0.2.1:8118"}
`,
		"authentication.liqo.io/v1beta1 Renew": `
metadata: {name: controlplane-milan, namespace: default}
spec: {consumerClusterID: rome, publicKey: LS0tLS0=, csr: LS0tLS0=, identityType: ResourceSlice, resourceSliceRef: {name: milan}}
`,
		"authentication.liqo.io/v1beta1 ResourceSlice": `
metadata: {name: milan, namespace: default, labels: {liqo.io/remote-cluster-id: milan, liqo.io/remoteID: milan, liqo.io/replication: "true"}}
spec: {class: default, consumerClusterID: rome, providerClusterID: milan, resources: {cpu: 20, memory: 128Gi, example.org/gpu: "1"}, csr: LS0tLS0=}
`,
		"core.liqo.io/v1beta1 ForeignCluster": `
metadata: {name: milan}
spec: {clusterID: milan}
`,
	} {
		group, kind, _ := strings.Cut(kind, " ")
		bases[kind] = "apiVersion: " + group + "\nkind: " + kind + text
	}
}

// peeringAdmissions are about the kinds of authentication.liqo.io and core.liqo.io.
var peeringAdmissions = slices.Concat([]admission{
	{"as it is", "Tenant", nil, nil, ""},
	{"without a spec", "Tenant", values{"spec": "null"}, nil, ""},
	{"without a handshake", "Tenant", values{"spec": `{"clusterID": "rome", "authzPolicy": "TolerateNoHandshake", "tenantCondition": "Active"}`}, nil, ""},
	{"with an unknown policy", "Tenant", values{"spec.authzPolicy": `"Trust"`}, nil, `spec.authzPolicy: Unsupported value: "Trust"`},
	{"with an empty policy", "Tenant", values{"spec.authzPolicy": `""`}, nil, "spec.authzPolicy: Unsupported value"},
	{"with an unknown condition", "Tenant", values{"spec.tenantCondition": `"Paused"`}, nil, `spec.tenantCondition: Unsupported value: "Paused"`},
	{"with a key that is no base64", "Tenant", values{"spec.publicKey": `"-----BEGIN"`}, nil, "spec.publicKey"},
	{"to Cordoned", "Tenant", nil, values{"spec.tenantCondition": `"Cordoned"`}, ""},
	{"to Drained", "Tenant", nil, values{"spec.tenantCondition": `"Drained"`}, ""},
	{"to another policy", "Tenant", nil, values{"spec.authzPolicy": `"TolerateNoHandshake"`}, ""},
	{"to a new signature", "Tenant", nil, values{"spec.signature": `"bmV3"`}, ""},
	{"to a cluster ID", "Tenant", values{"spec.clusterID": "null"}, values{"spec.clusterID": `"rome"`}, ""},
	{"to another cluster ID", "Tenant", nil, values{"spec.clusterID": `"naples"`}, "clusterID cannot be changed: make another Tenant"},
	{"to no cluster ID", "Tenant", nil, values{"spec.clusterID": "null"}, "clusterID cannot be changed: make another Tenant"},
	{"to no spec", "Tenant", nil, values{"spec": "null"}, "clusterID cannot be changed: make another Tenant"},
	{"with a status", "Tenant", nil, values{"status.tenantNamespace": `"default"`, "status.authParams": `{"apiServer": "https://192.0.2.1"}`}, ""},
	{"with two conditions of a type", "Tenant", nil, values{"status.conditions": twice(`{"type": "Ready", "status": "True", "reason": "TenantReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}`)}, "status.conditions[1]: Duplicate value"},

	{"as it is", "Identity", nil, nil, ""},
	{"without a spec", "Identity", values{"spec": "null"}, nil, ""},
	{"of a slice", "Identity", values{"spec.type": `"ResourceSlice"`, "spec.namespace": "null"}, nil, ""},
	{"of an unknown type", "Identity", values{"spec.type": `"Administrator"`}, nil, `spec.type: Unsupported value: "Administrator"`},
	{"in EKS", "Identity", values{"spec.authParams": `{"awsConfig": {"awsUserArn": "a", "awsAccessKeyID": "b", "awsSecretAccessKey": "c", "awsRegion": "d", "awsClusterName": "e"}}`}, nil, ""},
	{"in EKS, with half of it", "Identity", values{"spec.authParams": `{"awsConfig": {"awsUserArn": "a", "awsAccessKeyID": "b", "awsSecretAccessKey": "c"}}`}, nil, "spec.authParams.awsConfig.awsRegion: Required value"},
	{"with a kubeconfig", "Identity", nil, values{"status.kubeconfigSecretRef": `{"name": "kubeconfig"}`}, ""},
	{"to newer credentials", "Identity", nil, values{"spec.authParams.signedCRT": `"bmV3"`}, ""},

	{"as it is", "Renew", nil, nil, ""},
	{"without a spec", "Renew", values{"spec": "null"}, nil, ""},
	{"of an unknown type", "Renew", values{"spec.identityType": `"Administrator"`}, nil, `spec.identityType: Unsupported value: "Administrator"`},
	{"with an answer", "Renew", nil, values{"status.authParams": `{"ca": "LS0tLS0=", "signedCRT": "LS0tLS0="}`}, ""},
	{"with an answer that is no base64", "Renew", nil, values{"status.authParams": `{"ca": "-"}`}, "status.authParams.ca"},

	{"as it is", "ResourceSlice", nil, nil, ""},
	{"without a spec", "ResourceSlice", values{"spec": "null"}, nil, ""},
	{"of a class of somebody's", "ResourceSlice", values{"spec.class": `"gold.example.org"`}, nil, ""},
	{"with an amount that is a list", "ResourceSlice", values{"spec.resources.cpu": `["1"]`}, nil, "spec.resources.cpu"},
	{"with an amount that is none", "ResourceSlice", values{"spec.resources.cpu": `"many"`}, nil, "spec.resources.cpu"},
	{"to another amount", "ResourceSlice", nil, values{"spec.resources.cpu": `"500m"`}, ""},
	{"with an answer", "ResourceSlice", nil, values{
		"status.conditions": `[{"type": "Authentication", "status": "Accepted"}, {"type": "Resources", "status": "Denied", "reason": "x", "message": "y", "lastTransitionTime": "2026-01-01T00:00:00Z"}]`,
		"status.resources":  `{"cpu": "20"}`, "status.nodeLabels": `{"region": "eu"}`, "status.nodeSelector": `{"pool": "rome"}`,
		"status.storageClasses": `[{"storageClassName": "fast", "default": true}, {"storageClassName": "slow"}]`,
		"status.ingressClasses": `[{"ingressClassName": "nginx"}]`, "status.loadBalancerClasses": `[{"loadBalancerClassName": "public"}]`,
	}, ""},
	{"with a condition of an unknown type", "ResourceSlice", nil, values{"status.conditions": `[{"type": "Ready", "status": "Accepted"}]`}, `status.conditions[0].type: Unsupported value: "Ready"`},
	{"with an unknown decision", "ResourceSlice", nil, values{"status.conditions": `[{"type": "Resources", "status": "True"}]`}, `status.conditions[0].status: Unsupported value: "True"`},
	{"with two decisions on the same", "ResourceSlice", nil, values{"status.conditions": twice(`{"type": "Resources", "status": "Denied"}`)}, "status.conditions[1]: Duplicate value"},
	{"with a class of no name", "ResourceSlice", nil, values{"status.storageClasses": `[{"default": true}]`}, "status.storageClasses[0].storageClassName: Required value"},

	{"as it is", "ForeignCluster", nil, nil, ""},
	{"of nobody", "ForeignCluster", values{"spec": "{}"}, nil, "spec.clusterID: Required value"},
	{"to another cluster ID", "ForeignCluster", nil, values{"spec.clusterID": `"naples"`}, "clusterID cannot be changed: make another ForeignCluster"},
	{"to no spec", "ForeignCluster", nil, values{"spec": "null"}, "clusterID cannot be changed: make another ForeignCluster"},
	{"with a status", "ForeignCluster", nil, values{"status": foreignClusterStatus}, ""},
	{"with an unknown role", "ForeignCluster", nil, values{"status": foreignClusterStatus, "status.role": `"Friend"`}, `status.role: Unsupported value: "Friend"`},
	{"with a module that says nothing", "ForeignCluster", nil, values{"status": foreignClusterStatus, "status.modules.offloading": "{}"}, "status.modules.offloading.enabled: Required value"},
	{"without a module", "ForeignCluster", nil, values{"status": foreignClusterStatus, "status.modules.networking": "null"}, "status.modules.networking: Required value"},
	{"with a condition of an unknown type", "ForeignCluster", nil, values{"status": foreignClusterStatus, "status.conditions": `[{"type": "Ready", "status": "Ready"}]`}, `status.conditions[0].type: Unsupported value: "Ready"`},
	{"with an unknown status of a condition", "ForeignCluster", nil, values{"status": foreignClusterStatus, "status.conditions": `[{"type": "APIServerStatus", "status": "True"}]`}, `status.conditions[0].status: Unsupported value: "True"`},
}, clusterIDs("Tenant", "spec.clusterID"), clusterIDs("Identity", "spec.clusterID"), clusterIDs("Renew", "spec.consumerClusterID"),
	clusterIDs("ResourceSlice", "spec.consumerClusterID"), clusterIDs("ResourceSlice", "spec.providerClusterID"), clusterIDs("ForeignCluster", "spec.clusterID"),
	bounds("Tenant", map[string]int{"spec.publicKey": 16384, "spec.csr": 16384, "spec.signature": 16384, "spec.proxyURL": 2048}),
	bounds("Identity", map[string]int{"spec.namespace": 63, "spec.authParams.apiServer": 2048, "spec.authParams.proxyURL": 2048}),
	bounds("Renew", map[string]int{"spec.publicKey": 16384, "spec.csr": 16384}),
	bounds("ResourceSlice", map[string]int{"spec.class": 253, "spec.csr": 16384}))

const foreignClusterStatus = `{"role": "Provider", "apiServerUrl": "https://192.0.2.1:6443", "tenantNamespace": {"local": "a", "remote": "b"},
	"modules": {"networking": {"enabled": true, "conditions": [{"type": "NetworkConnectionStatus", "status": "Established"}]},
	"authentication": {"enabled": true}, "offloading": {"enabled": false}}, "conditions": [{"type": "APIServerStatus", "status": "Error", "reason": "x", "message": "y"}]}`

// twice is a list of an element two times.
func twice(element string) string { return "[" + element + "," + element + "]" }

// clusterIDs are what a field with the ID of a cluster accepts, and what it does not.
func clusterIDs(base, field string) (all []admission) {
	for _, id := range []string{"1", "a-1", "0123456789", strings.Repeat("x", 63)} {
		all = append(all, admission{field + " " + id, base, values{field: `"` + id + `"`}, nil, ""})
	}
	for _, id := range []string{"", "Rome", "-rome", "rome-", "rome.eu", "rome eu", "römer"} {
		all = append(all, admission{field + " " + id, base, values{field: `"` + id + `"`}, nil, field + ": Invalid value"})
	}
	return append(all, admission{field + " that is too long", base, values{field: `"` + strings.Repeat("x", 64) + `"`}, nil, field + ": Too long"})
}

// bounds are the longest values of fields, and those that are longer by 4: bytes are base64.
func bounds(base string, of map[string]int) (all []admission) {
	for field, most := range of {
		all = append(all,
			admission{field + " of the greatest length", base, values{field: `"` + strings.Repeat("x", most) + `"`}, nil, ""},
			admission{field + " that is too long", base, values{field: `"` + strings.Repeat("x", most+4) + `"`}, nil, field + ": Too long"})
	}
	return all
}
