#!/usr/bin/env bash
# Builds the Liqo whose network TestRealLiqo takes over, and prints the folder of what it needs: liqoctl, the chart, and an
# archive of the image of each program, under the name that the chart gives it.
#
#   test/liqo/build.sh            build what is not there yet
#   test/liqo/build.sh --path     only say where it belongs (exit 1 when it is not there)
#
# The source is the module as published, of the hash below, with the dependencies of its own go.sum. Nothing of it gets
# into this project. It goes into ${SLUICE_CACHE:-~/.cache/sluice}/liqo under a name made of a hash of this file. Some ten
# minutes of processors the first time. Left out are the programs for metrics, telemetry and uninstallation.
set -euo pipefail

version=v1.2.0
sum=h1:2KOA/pMeIz/2+HglNF/YcfAdn3iQH1wRRIbUm2TvzfM=
# Packages below cmd. An image has the name of its package.
programs=(liqo-controller-manager ipam webhook crd-replicator proxy fabric virtual-kubelet gateway gateway/wireguard gateway/geneve)

key=$(sha256sum <"${BASH_SOURCE[0]}" | cut -c1-16)
dir=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/liqo/$key
if [ -e "$dir" ] || [ "${1:-}" = --path ]; then
	echo "$dir"
	test -e "$dir"
	exit
fi
mkdir -p "$(dirname "$dir")"
work=$(mktemp -d "$dir.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off

module=$(cd "$work" && go mod download -json "github.com/liqotech/liqo@$version") || { echo "$module" >&2; exit 1; } # it has the error
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\?$/\1/p" <<<"$module"; }
if [ "$(field Sum)" != "$sum" ]; then
	echo "build.sh: Liqo $version has the hash $(field Sum), and must have $sum" >&2
	exit 1
fi
echo "build.sh: building Liqo $version into $dir, some minutes the first time" >&2
mkdir -p "$work/bin" "$work/out"
(cd "$(field Dir)" && go build -buildvcs=false -trimpath -ldflags "-s -w" -o "$work/bin/" ./cmd/liqoctl "${programs[@]/#/./cmd/}")

# pack NAME makes an archive as `docker save` does. A program lies where the chart looks for it, and has a /tmp, which some
# write to.
pack() {
	local program=${1##*/} image=$work/image
	rm -rf "$image"
	mkdir -p "$image/layer/usr/bin" "$image/layer/tmp"
	chmod 1777 "$image/layer/tmp"
	ln "$work/bin/$program" "$image/layer/usr/bin/"
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$image/layer" -cf "$image/layer.tar" .
	printf '{"architecture": "%s", "os": "linux", "config": {"Entrypoint": ["/usr/bin/%s"], "WorkingDir": "/", "Env": ["PATH=/usr/bin"]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
		"$(go env GOARCH)" "$program" "$(sha256sum <"$image/layer.tar" | cut -d' ' -f1)" >"$image/config.json"
	printf '[{"Config": "config.json", "RepoTags": ["ghcr.io/liqotech/%s:%s"], "Layers": ["layer.tar"]}]' "$1" "$version" >"$image/manifest.json"
	tar -C "$image" -cf "$work/out/$program.tar" config.json layer.tar manifest.json
}
for program in "${programs[@]}"; do pack "$program"; done
mv "$work/bin/liqoctl" "$work/out/"
cp -r "$(field Dir)/deployments/liqo" "$work/out/chart"
chmod -R u+w "$work/out"
mv -T "$work/out" "$dir" 2>/dev/null || test -e "$dir" # somebody else was faster
echo "$dir"
