# Sluice's tasks. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO    ?= go
# Without the path of the source in the binaries, another clone finds them in the build cache.
export GOFLAGS += -trimpath
# Without cgo, which only the race detector needs, commands and tests share it as well.
export CGO_ENABLED ?= 0
TOOL  := $(GO) tool -modfile=tools.mod
# Programs and images of one build know each other by these two. sluice.local is no registry: the images go to the nodes.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
REGISTRY ?= sluice.local
BUILD := CGO_ENABLED=0 $(GO) build -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION) -X main.registry=$(REGISTRY)"
FUZZTIME ?= 30s

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t18

# An interrupt ends the tests even where it is ignored, which is so in the background.
TEST := env --default-signal=INT bash .ci/test

check: ## while you work: build, lint, unit tests without control planes (3 minutes)
	@bash .ci/test check

test: ## before a commit, and in CI: everything that a change can break; as root all of it (half an hour to an hour: test/README.md)
	@$(TEST)

test-all: ## before a release: also what takes long, other systems, known vulnerabilities (hours)
	@$(TEST) all

demo: ## two clusters with one pod CIDR talk to each other, on loopback; KEEP=1 leaves them running
	@echo "make demo: downloads and compiles two programs; the first time that takes a minute or two"
	@$(BUILD) -v -o bin/ ./cmd/gateway ./bench/demo 2>&1 | awk '/[ :]/ { print; next } ++n % 50 == 0 { print "make demo: " n " packages compiled" }'
	@bin/demo -gateway bin/gateway $(if $(KEEP),-keep)

build: ## build the commands into bin/; sluicectl, liqoctl and kubectl-liqo are one program
	$(BUILD) -o bin/ ./cmd/...
	@cd bin && for name in sluicectl kubectl-liqo kubectl_complete-liqo; do ln -sf liqoctl $$name; done

man: build ## the manual pages of liqoctl, into bin/man
	bin/liqoctl man bin/man

lint: ## formatting, spelling, and what .ci/vet finds
	bash .ci/lint

fuzz: ## every fuzz target for FUZZTIME (30s)
	bash .ci/fuzz $(FUZZTIME)

generate: ## deepcopy functions, CRDs and roles from the code, deploy/manifests and the chart's README from the chart
	@# Embedded metadata, or an API server prunes the labels of the gateways' Deployments; short
	@# descriptions, or the largest CRDs do not fit into kubectl's annotation.
	$(TOOL) controller-gen object crd:generateEmbeddedObjectMeta=true,maxDescLen=160 paths=./api/... output:crd:dir=deploy/crds
	$(TOOL) controller-gen rbac:roleName=liqo-controller paths=./controlplane/network/... paths=./controlplane/foreigncluster paths=./controlplane/manager output:rbac:dir=deploy/chart/files
	$(TOOL) controller-gen rbac:roleName=liqo-controller-authentication,fileName=role-authentication.yaml paths=./controlplane/authentication/... output:rbac:dir=deploy/chart/files
	$(TOOL) controller-gen rbac:roleName=liqo-controller-offloading,fileName=role-offloading.yaml paths=./controlplane/offloading/... output:rbac:dir=deploy/chart/files
	$(TOOL) controller-gen rbac:roleName=liqo-controller-services,fileName=role-services.yaml paths=./controlplane/services/... output:rbac:dir=deploy/chart/files
	$(GO) test -count=1 ./admin/release -run '^Test(Chart|Manifests)$$' -update

kube: ## build the Kubernetes control plane that the tests run (once, cached)
	@bash test/kubetools/build.sh

e2e: export SLUICE_REQUIRE = kube,root
e2e: build kube ## everything with real kernels and real clusters, also what takes long (root)
	bash test/uml/build.sh
	bash test/liqo/build.sh
	$(GO) test -count=1 -timeout 30m -v ./test/e2e -e2e.rekey
	$(GO) test -count=1 -timeout 10m ./test/document ./test/lab/... ./test/labctl/... ./test/uml/...
	$(GO) test -count=1 -p 1 -timeout 5h -v ./test/kubelab ./test/kubernetes -kubernetes.long -kubernetes.liqo

kernel-interop: build ## the gateway against a real kernel's WireGuard and Geneve (root; builds that kernel once, cached)
	bash test/uml/build.sh
	$(GO) test -count=1 -timeout 20m -run 'Kernel' -v ./test/e2e/...

bench: ## stage benchmarks; the comparison with what one would run instead needs root, see bench/README.md
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./geneve ./nat/... ./tunnel ./dataplane/...

IMAGES := $(GO) run ./deploy/images/mkimages --version $(VERSION) --registry $(REGISTRY) $(if $(PLATFORM),--platform $(PLATFORM))

images: ## container images for this machine's platform, into bin/images; PLATFORM=linux/amd64,linux/arm64
	$(IMAGES)

images-load: ## the same, and into the nodes: TO=containerd, TO=k3s or TO=kind:CLUSTER
	$(IMAGES) --load $(or $(TO),$(error say into which nodes: TO=containerd, TO=k3s or TO=kind:CLUSTER))

lab: kube ## two Kubernetes clusters of two nodes each, connected by Sluice, left running to explore (root)
	$(GO) run ./test/labctl up

lab-down: ## remove what `make lab` left
	$(GO) run ./test/labctl down

.PHONY: help check test test-all demo build lint fuzz generate e2e kernel-interop bench man images images-load lab lab-down kube
