package v1beta1_test

func init() {
	for kind, text := range map[string]string{
		"NamespaceOffloading": `
metadata: {name: offloading, namespace: default}
spec: {clusterSelector: {nodeSelectorTerms: [{matchExpressions: [{key: region, operator: In, values: [milan]}]}]}}
`,
		"NamespaceMap": `
metadata: {name: milan, namespace: default}
spec: {desiredMapping: {shop: shop-rome}}
`,
		"VirtualNode": `
metadata: {name: milan, namespace: default}
spec:
  clusterID: milan
  template: {metadata: {labels: {a: b}}, spec: {replicas: 1, template: {spec: {ofTheYear2030: true}}}}
  resourceQuota: {hard: {cpu: "4"}}
`,
		"VkOptionsTemplate": `
metadata: {name: x, namespace: default}
spec: {containerImage: vk, createNode: true, disableNetworkCheck: false, metricsEnabled: false, reflectorsConfig: {pod: {workers: 10, type: CustomLiqo}}}
`,
		"Quota": `
metadata: {name: x, namespace: default}
spec: {user: milan-0123456789ab, resources: {cpu: "4"}, limitsEnforcement: None}
`,
		"ShadowPod": `
metadata: {name: x, namespace: default}
spec: {pod: {containers: [{name: a, image: b}], ofTheYear2030: {a: [1]}}}
`,
		"ShadowEndpointSlice": `
metadata: {name: x, namespace: default}
spec: {template: {addressType: IPv4, endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}], ports: [{port: 80}]}}
`,
	} {
		bases[kind] = "apiVersion: offloading.liqo.io/v1beta1\nkind: " + kind + text
	}
}

// offloadingAdmissions are about the kinds of offloading.liqo.io.
var offloadingAdmissions = []admission{
	{"as it is", "NamespaceOffloading", nil, nil, ""},
	{"with another name", "NamespaceOffloading", values{"metadata.name": `"mine"`}, nil, "the name must be offloading"},
	{"without a spec", "NamespaceOffloading", values{"spec": "null"}, nil, "spec: Required value"},
	{"with an empty spec", "NamespaceOffloading", values{"spec": "{}"}, nil, ""},
	{"that selects every cluster", "NamespaceOffloading", values{"spec.clusterSelector": `{"nodeSelectorTerms": []}`}, nil, ""},
	{"with a selector without terms", "NamespaceOffloading", values{"spec.clusterSelector": "{}"}, nil, "nodeSelectorTerms: Required value"},
	{"with an unknown pod strategy", "NamespaceOffloading", values{"spec.podOffloadingStrategy": `"Everywhere"`}, nil, "spec.podOffloadingStrategy: Unsupported value"},
	{"with a selected name", "NamespaceOffloading", values{"spec.namespaceMappingStrategy": `"SelectedName"`, "spec.remoteNamespaceName": `"store"`}, nil, ""},
	{"with no selected name", "NamespaceOffloading", values{"spec.namespaceMappingStrategy": `"SelectedName"`}, nil, "SelectedName needs remoteNamespaceName"},
	{"with an empty selected name", "NamespaceOffloading", values{"spec.namespaceMappingStrategy": `"SelectedName"`, "spec.remoteNamespaceName": `""`}, nil, "SelectedName needs remoteNamespaceName"},
	{"with a name that no namespace can have", "NamespaceOffloading", values{"spec.remoteNamespaceName": `"Store.1"`}, nil, "spec.remoteNamespaceName"},
	{"to another pod strategy", "NamespaceOffloading", nil, values{"spec.podOffloadingStrategy": `"Remote"`}, ""},
	{"to another mapping strategy", "NamespaceOffloading", nil, values{"spec.namespaceMappingStrategy": `"EnforceSameName"`}, "namespaceMappingStrategy cannot be changed"},
	{"to the default mapping strategy, in words", "NamespaceOffloading", nil, values{"spec.namespaceMappingStrategy": `"DefaultName"`}, ""},
	{"to a remote name", "NamespaceOffloading", nil, values{"spec.remoteNamespaceName": `"store"`}, "remoteNamespaceName cannot be changed"},
	{"to no remote name", "NamespaceOffloading", values{"spec.remoteNamespaceName": `"store"`}, values{"spec.remoteNamespaceName": "null"}, "remoteNamespaceName cannot be changed"},

	{"as it is", "NamespaceMap", nil, nil, ""},
	{"to a list", "NamespaceMap", values{"spec.desiredMapping": `["shop"]`}, nil, "spec.desiredMapping"},
	{"as it is", "VirtualNode", nil, nil, ""},
	{"of no cluster ID", "VirtualNode", values{"spec.clusterID": `"Milan"`}, nil, "spec.clusterID"},
	{"as it is", "VkOptionsTemplate", nil, nil, ""},
	{"with fewer workers than none", "VkOptionsTemplate", values{"spec.reflectorsConfig.pod.workers": "-1"}, nil, "workers"},
	{"without an image", "VkOptionsTemplate", values{"spec.containerImage": "null"}, nil, "spec.containerImage: Required value"},
	{"as it is", "Quota", nil, nil, ""},
	{"of nobody", "Quota", values{"spec.user": `""`}, nil, "spec.user"},
	{"of nothing", "Quota", values{"spec.resources": "null"}, nil, "spec.resources: Required value"},
	{"with an unknown enforcement", "Quota", values{"spec.limitsEnforcement": `"Firm"`}, nil, "spec.limitsEnforcement: Unsupported value"},
	// Any fields: the controller judges them, and says what it refuses.
	{"as it is", "ShadowPod", nil, nil, ""},
	{"that is not an object", "ShadowPod", values{"spec.pod": `["a"]`}, nil, "spec.pod"},
	{"with containers of another type", "ShadowPod", values{"spec.pod.containers": `"a"`}, nil, ""},
	{"as it is", "ShadowEndpointSlice", nil, nil, ""},
	{"with a port that is too large for its type", "ShadowEndpointSlice", values{"spec.template.ports[0].port": "4294967296"}, nil, "spec.template.ports[0].port"},
}
