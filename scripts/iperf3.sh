#!/usr/bin/env bash
# Installs iperf3, a peer of bench/link, where it is missing: as root on a system with apt.
#
# usage: scripts/iperf3.sh
#
# exit: 0 it is there, or cannot be installed here, which is said on stderr: the benchmark then leaves its rows
# out and says so, too.
set -uo pipefail

command -v iperf3 >/dev/null || "$(dirname "$0")/apt.sh" iperf3 || true
