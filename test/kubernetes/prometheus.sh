#!/usr/bin/env bash
# Fetches Debian's Prometheus, which scrapes the metrics of clusters in the long tests, and prints the path of the program.
#
#   test/kubernetes/prometheus.sh            fetch it unless it is there already
#   test/kubernetes/prometheus.sh --path     only say where it belongs (exit 1 when it is not there)
#
# The package is unpacked into ${SLUICE_CACHE:-~/.cache/sluice}/prometheus, not installed: no service starts. apt checks
# what it fetches.
set -euo pipefail

cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/prometheus
program=$cache/usr/bin/prometheus

if [ -e "$program" ]; then
	echo "$program"
	exit 0
fi
if [ "${1:-}" = --path ]; then
	echo "$program"
	exit 1
fi
mkdir -p "$(dirname "$cache")"
work=$(mktemp -d "$cache.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "prometheus.sh: fetching Prometheus" >&2
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download prometheus >&2)
dpkg-deb --extract "$work"/prometheus_*.deb "$work/unpacked"
rm -rf "$cache"
mv "$work/unpacked" "$cache"
echo "$program"
