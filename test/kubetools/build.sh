#!/usr/bin/env bash
# Builds the Kubernetes that the tests run, and prints the folder of its programs: etcd, kube-apiserver,
# kube-controller-manager, kubectl for the tests of the controllers, and kube-scheduler, kubelet, kube-proxy for whole
# clusters. What else a node needs are packages of the distribution: containerd, runc, the CNI plugins.
#
#   test/kubetools/build.sh            build what is not there yet
#   test/kubetools/build.sh --path     only say where they belong (exit 1 when they are not there)
#
# They are built from the modules in go.mod beside this file, which is apart from the project's own: the versions of a
# cluster are not those of its clients. They go into ${SLUICE_CACHE:-~/.cache/sluice}/kube under a name made of a hash
# of these inputs. Some nine minutes of two cores the first time.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
key=$(cat "$here/go.mod" "$here/go.sum" "$here/build.sh" | sha256sum | cut -c1-16)
dir=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/kube/$key

if [ -e "$dir/complete" ]; then
	echo "$dir"
	exit 0
fi
if [ "${1:-}" = --path ]; then
	echo "$dir"
	exit 1
fi
echo "build.sh: building Kubernetes and etcd into $dir, some minutes the first time" >&2
mkdir -p "$dir"
cd "$here"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
ld="-s -w"
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	ld+=" -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*} -X $p.gitTreeState=clean -X $p.buildDate=1970-01-01T00:00:00Z"
done
go build -buildvcs=false -trimpath -tags notest,grpcnotrace -ldflags "$ld" -o "$dir/" \
	k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl,kubelet,kube-proxy}
go build -buildvcs=false -trimpath -ldflags "-s -w" -o "$dir/etcd" go.etcd.io/etcd/server/v3
touch "$dir/complete"
echo "$dir"
