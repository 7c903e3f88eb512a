#!/usr/bin/env bash
# Installs libibverbs, which Mooncake's transfer engine (a peer of bench/transfer) links against, where it is missing: as root on a
# system with apt.
#
# usage: scripts/ibverbs.sh
#
# exit: 0 it is there, or cannot be installed here, which is said on stderr.
set -uo pipefail

ldconfig -p 2>/dev/null | grep -q 'libibverbs\.so\.1' || "$(dirname "$0")/apt.sh" libibverbs1 || true
