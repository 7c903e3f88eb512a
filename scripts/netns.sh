#!/usr/bin/env bash
# Makes a small network out of namespaces of the kernel: hosts 10.213.0.1, .2 and so on, and a switch
# that has an address as well, 10.213.0.254. On the switch the link of host I, from 0, is portI.
#
# usage: scripts/netns.sh make|delete HOST... SWITCH      names of the namespaces
#
# exit: 0 done, 1 failed: most likely we are not allowed to, 2 usage.
set -euo pipefail

usage() {
	sed -n '/^# usage/p' "$0" >&2
	exit 2
}

make() {
	local switch=${!#} i=0 host
	ip netns add "$switch"
	ip -n "$switch" link set lo up
	ip -n "$switch" link add name middle type bridge
	ip -n "$switch" addr add 10.213.0.254/24 dev middle
	ip -n "$switch" link set middle up
	for host in "${@:1:$#-1}"; do
		ip netns add "$host"
		ip -n "$host" link set lo up
		ip -n "$switch" link add name "port$i" type veth peer name eth0 netns "$host"
		ip -n "$switch" link set "port$i" master middle
		ip -n "$switch" link set "port$i" up
		ip -n "$host" addr add "10.213.0.$((i + 1))/24" dev eth0
		ip -n "$host" link set eth0 up
		i=$((i + 1))
	done
}

delete() {
	local name
	for name; do
		ip netns delete "$name" 2>/dev/null || true # links go with it
	done
}

(($# >= 3)) || usage
case $1 in
make | delete) ;;
*) usage ;;
esac
"$(dirname "$0")/iproute2.sh"
"$@"
