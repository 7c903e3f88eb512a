#!/usr/bin/env bash
# Installs iproute2, whose ip command makes hosts out of network namespaces (scripts/netns.sh, bench/internal/proc), where it is
# missing: as root on a system with apt.
#
# usage: scripts/iproute2.sh
#
# exit: 0 it is there, 1 it is not, and cannot be installed here, which is said on stderr.
set -uo pipefail

command -v ip >/dev/null && exit 0
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends iproute2 >/dev/null; }
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
	echo "iproute2: not there, and only root on a system with apt can install it" >&2
	exit 1
fi
echo "iproute2: installing" >&2
install || { apt-get update -qq && install; } || {
	echo "iproute2: it cannot be installed: the package registry is out of reach" >&2
	exit 1
}
