#!/usr/bin/env bash
# Installs Slurm, which interop/slurm runs jobs under, where it is missing: as root on a system with apt. No daemon of
# the packages is started; the tests start their own, in a temporary folder.
#
# usage: scripts/slurm.sh
#
# exit: 0 it is there, 3 it cannot be installed here.
set -uo pipefail

readonly packages=(slurmctld slurmd slurm-client munge iproute2) policy=/usr/sbin/policy-rc.d

there() {
	local program
	for program in slurmctld slurmd srun sbatch munged ip; do
		command -v "$program" >/dev/null || return 1
	done
}

exec 9>"${TMPDIR:-/tmp}/serry-slurm-$(id -u).lock" # one installation at a time
flock 9
PATH=$PATH:/usr/sbin
there && exit 0
if [[ $(id -u) -eq 0 && ! -e $policy ]] && command -v apt-get >/dev/null; then
	printf '#!/bin/sh\nexit 101\n' >"$policy" # packages ask it whether they may start daemons
	chmod +x "$policy"
	trap 'rm -f "$policy"' EXIT
fi
"$(dirname "$0")/apt.sh" "${packages[@]}" && there && exit 0
exit 3
