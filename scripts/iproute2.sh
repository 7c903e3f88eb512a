#!/usr/bin/env bash
# Installs iproute2, whose ip command makes hosts out of network namespaces (scripts/netns.sh, bench/internal/proc), where it is
# missing: as root on a system with apt.
#
# usage: scripts/iproute2.sh
#
# exit: 0 it is there, 3 it is not, and cannot be installed here, which is said on stderr.
set -uo pipefail

command -v ip >/dev/null || "$(dirname "$0")/apt.sh" iproute2
