module github.com/sluice-net/sluice

go 1.26.3

require (
	github.com/fsnotify/fsnotify v1.10.1 // the gateway follows its manifests
	github.com/gaissmai/bart v0.30.0 // longest prefix over 100 000 pod routes, lock-free to read
	github.com/go-logr/logr v1.4.3 // the interface through which controller-runtime logs
	github.com/google/go-cmp v0.7.0 // differences in test failures
	github.com/google/nftables v0.3.0 // the node agent's table of address translation
	github.com/mdlayher/netlink v1.11.2 // the kernel's interface to networks, in the node agent
	github.com/prometheus/client_golang v1.25.0 // metrics, at the edge only
	github.com/spf13/pflag v1.0.10 // flags as in Kubernetes
	go.uber.org/goleak v1.3.0 // tests: no goroutine outlives Run
	go.yaml.in/yaml/v3 v3.0.5 // line numbers in messages about manifests
	golang.org/x/sys v0.49.0 // recvmmsg, sendmmsg, socket options
	golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446 // the tunnel, embedded unchanged
	gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237 // TCP/IP for the gateway's own addresses, and for pods in tests
	k8s.io/api v0.37.2 // Secret, and the types embedded in our kinds
	k8s.io/apiextensions-apiserver v0.37.2 // CRDs: which kinds are gateway templates
	k8s.io/apimachinery v0.37.2 // what a Kubernetes type is made of
	k8s.io/client-go v0.37.2 // the API server: informers in the gateway, and what controller-runtime is built on
	k8s.io/klog/v2 v2.140.0 // client-go logs through it: joined to our log
	pgregory.net/rapid v1.3.0 // property tests
	sigs.k8s.io/controller-runtime v0.25.2 // the loop around each reconciler
	sigs.k8s.io/yaml v1.6.0 // YAML as an API server reads it
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/evanphx/json-patch/v5 v5.9.11 // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.27.1 // indirect
	github.com/go-openapi/swag/cmdutils v0.27.1 // indirect
	github.com/go-openapi/swag/conv v0.27.1 // indirect
	github.com/go-openapi/swag/fileutils v0.27.1 // indirect
	github.com/go-openapi/swag/jsonutils v0.27.1 // indirect
	github.com/go-openapi/swag/loading v0.27.1 // indirect
	github.com/go-openapi/swag/mangling v0.27.1 // indirect
	github.com/go-openapi/swag/netutils v0.27.1 // indirect
	github.com/go-openapi/swag/pools v0.27.1 // indirect
	github.com/go-openapi/swag/stringutils v0.27.1 // indirect
	github.com/go-openapi/swag/typeutils v0.27.1 // indirect
	github.com/go-openapi/swag/yamlutils v0.27.1 // indirect
	github.com/google/btree v1.1.3 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/mdlayher/socket v0.6.0 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/exp v0.0.0-20260410095643-746e56fc9e2f // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.15.0 // indirect
	golang.zx2c4.com/wintun v0.0.0-20230126152724-0fa3db229ce2 // indirect
	gomodules.xyz/jsonpatch/v2 v2.4.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)
