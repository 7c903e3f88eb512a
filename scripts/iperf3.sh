#!/usr/bin/env bash
# Installs iperf3, a peer of bench/link, where it is missing: as root on a system with apt.
#
# usage: scripts/iperf3.sh
#
# exit: 0 it is there, or cannot be installed here, which is said on stderr: the benchmark then leaves its rows
# out and says so, too.
set -uo pipefail

command -v iperf3 >/dev/null && exit 0
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends iperf3 >/dev/null; }
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
	echo "iperf3: not there, and only root on a system with apt can install it" >&2
	exit 0
fi
install || { apt-get update -qq && install; } || echo "iperf3: it cannot be installed: the package registry is out of reach" >&2
exit 0
