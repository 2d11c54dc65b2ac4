#!/bin/bash
# Builds the user-mode Linux kernel that the interoperability tests boot, and prints its path.
#
#   test/uml/build.sh            build it unless it is there already
#   test/uml/build.sh --path     only say where it belongs (exit 1 when it is not there)
#
# The kernel is Debian's source package with the configuration and the patch beside this file. It
# goes into ${SLUICE_CACHE:-~/.cache/sluice}/uml under a name made of a hash of these inputs, so a
# changed input is a new kernel and an unchanged one costs nothing. Five minutes of two cores the
# first time; no root, except to install build tools that are missing. x86-64 only.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_package=linux-source-6.12
key=$(cat "$here/kernel.config" "$here/host-registers.patch" "$here/build.sh" | sha256sum | cut -c1-16)
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/uml
kernel=$cache/linux-$key

if [ -x "$kernel" ]; then
	echo "$kernel"
	exit 0
fi
if [ "${1:-}" = --path ]; then
	echo "$kernel"
	exit 1
fi
if [ "$(uname -m)" != x86_64 ]; then
	echo "build.sh: user-mode Linux needs x86_64, this is $(uname -m)" >&2
	exit 1
fi

# need TOOL PACKAGE: everything that is missing is installed in one go.
missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need flex flex; need bison bison; need bc bc; need make make; need gcc gcc; need patch patch; need xz xz-utils
need dpkg-deb dpkg
if [ ${#missing[@]} -gt 0 ]; then
	echo "build.sh: installing ${missing[*]}" >&2
	apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" libc6-dev >/dev/null
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The package is kept beside the kernels: a second build, after a change of the configuration, needs no network.
if ! ls "$cache/$source_package"_*.deb >/dev/null 2>&1; then
	(cd "$work" && apt-get -qq download "$source_package" >&2)
	mv "$work/$source_package"_*.deb "$cache/"
fi
package=$(ls -t "$cache/$source_package"_*.deb | head -n 1)
echo "build.sh: building $kernel from $(basename "$package")" >&2

dpkg-deb --extract "$package" "$work"
mkdir "$work/linux"
tar -xJf "$work/usr/src/$source_package.tar.xz" -C "$work/linux" --strip-components=1
cd "$work/linux"
patch --silent --strip=1 <"$here/host-registers.patch"

log=$work/build.log
configure() {
	make -s ARCH=um tinyconfig
	ARCH=um ./scripts/kconfig/merge_config.sh -m .config "$here/kernel.config"
	make -s ARCH=um olddefconfig
	# Kconfig drops silently what lacks a dependency; a test would notice much later.
	while read -r option; do
		grep -qx "$option" .config || { echo "$option did not make it into the configuration"; return 1; }
	done < <(grep '^CONFIG_' "$here/kernel.config")
}
if ! configure >"$log" 2>&1 || ! make -s ARCH=um -j"${SLUICE_BUILD_JOBS:-$(nproc)}" linux >>"$log" 2>&1; then
	tail -n 40 "$log" >&2
	exit 1
fi

strip -o "$work/kernel" linux
mv "$work/kernel" "$kernel"
echo "$kernel"
