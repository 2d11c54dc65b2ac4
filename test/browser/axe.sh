#!/usr/bin/env bash
# Fetches axe-core, which judges whether people with disabilities can use a page, and prints the path of its script.
#
#   test/browser/axe.sh            fetch it unless it is there already
#   test/browser/axe.sh --path     only say where it belongs (exit 1 when it is not there)
#
# npm fetches the package, and what it fetches is checked. The script goes into
# ${SLUICE_CACHE:-~/.cache/sluice}/axe. It is used in tests alone, under its own licence (MPL-2.0).
set -euo pipefail

version=4.14.1
sum=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/axe
script=$cache/axe-$version.js

if [ -e "$script" ]; then
	echo "$script"
	exit 0
fi
if [ "${1:-}" = --path ]; then
	echo "$script"
	exit 1
fi
mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "axe.sh: fetching axe-core $version" >&2
npm pack --silent --pack-destination "$work" "axe-core@$version" >/dev/null
sha512sum --quiet --check <<<"$sum  $work/axe-core-$version.tgz" >&2
tar -xzf "$work/axe-core-$version.tgz" -C "$work" package/axe.min.js
mv "$work/package/axe.min.js" "$script"
echo "$script"
