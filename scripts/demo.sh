#!/usr/bin/env bash
# A job of four workers, with three coordinators behind it. It loses a worker, goes on, and takes it
# back; then it loses the coordinator that leads, and goes on. Everything is real: processes, sockets,
# SIGKILL.
set -euo pipefail
cd "$(dirname "$0")/.."
go build -o bin/train ./examples/train

dir=$(mktemp -d)
finish() {
	kill -9 $(cat "$dir"/*.pid) 2>/dev/null || true # the coordinators
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT
say() { printf '\033[1m== %s\033[0m\n' "$*"; }

# free prints ports on which nobody listens.
free() {
	local port want=$1
	while ((want > 0)); do
		port=$((20000 + RANDOM % 10000))
		[[ " ${taken:=} " == *" $port "* ]] && continue
		(: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
		taken+=" $port"
		want=$((want - 1))
	done
	printf '%s\n' $taken
}
mapfile -t port < <(free 6)
names=(a b c)
service=127.0.0.1:${port[0]},127.0.0.1:${port[1]},127.0.0.1:${port[2]}
peers=a=127.0.0.1:${port[3]},b=127.0.0.1:${port[4]},c=127.0.0.1:${port[5]}

# coordinator I starts one of the three, and tells what it has to say about who leads.
coordinator() {
	local name=${names[$1]}
	bin/serry serve --tasks 4 --recoverable --listen "127.0.0.1:${port[$1]}" \
		--peers "$peers" --name "$name" --data-dir "$dir/$name" \
		2> >(tee -a "$dir/$name.log" | tidings "$name" >&3) >"$dir/$name.out" &
	echo $! >"$dir/$name.pid"
	disown # its end is no news
}
exec 3>&1

# tidings NAME passes on lines about leadership, in short.
tidings() {
	sed -nuE "s/.*msg=\"?(leader is gone|standing by|leading)\"? (peer=[^ ]* )?term=([0-9]+).*/coordinator $1: \1, term \3/p"
}

# leader prints the name of the coordinator of the latest term.
leader() {
	local name term best=0 found=
	for name in "${names[@]}"; do
		term=$(sed -n 's/.*msg=leading term=\([0-9]*\).*/\1/p' "$dir/$name.log" | tail -n 1)
		((${term:-0} > best)) && best=$term found=$name
	done
	echo "$found"
}

# fate reads what the first of the workers reports, and strikes.
fate() {
	local line victim i
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		*"step 100 "*)
			victim=$(<"$dir/task2")
			say "kill -9 $victim: rank 2 is gone, the others close ranks; serry starts it again"
			kill -9 "$victim"
			;;
		*"step 240 "*)
			victim=$(leader)
			say "kill -9 $(<"$dir/$victim.pid"): coordinator $victim, which leads, is gone; another takes over"
			kill -9 "$(<"$dir/$victim.pid")"
			;;
		*"step 300 "*)
			say "serry serve --name $victim: it is started again, and stands by"
			for i in 0 1 2; do [[ ${names[$i]} == "$victim" ]] && coordinator $i; done
			;;
		esac
	done
}

say "serry serve --peers a=...,b=...,c=...: three coordinators, one leads, two stand by"
for i in 0 1 2; do coordinator $i; done
until grep -qs msg=leading "$dir"/*.log; do sleep 0.1; done

say "serry run -n 4 --service A,B,C --restart failed -- train: four workers train a small network"
bin/serry run -n 4 --service "$service" --restart failed -- \
	sh -c 'echo $$ >"$1/task$SERRY_TASK"
		[ "$SERRY_LIFE" = 1 ] || sleep 4 # as long as a large program takes to load
		exec bin/train -steps 360 -pace 70ms' worker "$dir" > >(fate)
say "all ranks finished"
