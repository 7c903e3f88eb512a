#!/usr/bin/env bash
# Installs packages of Debian, as root on a system with apt. Scripts that call it at the same time wait for each other: apt fails
# where another apt fetches its lists.
#
# usage: scripts/apt.sh PACKAGE...
#
# exit: 0 they are there, 3 they cannot be installed here, which is said on stderr.
set -uo pipefail

say() { echo "apt: $*" >&2; }

install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null; }

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
	say "$*: not there, and only root on a system with apt can install it"
	exit 3
fi
exec 9>"${TMPDIR:-/tmp}/serry-apt.lock"
flock 9
say "installing $*"
install "$@" 2>/dev/null || { apt-get update -qq && install "$@"; } || {
	say "$*: cannot be installed: the package registry is out of reach, or does not have it"
	exit 3
}
