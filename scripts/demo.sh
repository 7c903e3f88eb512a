#!/usr/bin/env bash
# A job of four workers that loses one of them and goes on. Everything is real: processes, sockets,
# SIGKILL.
set -euo pipefail
cd "$(dirname "$0")/.."
go build -o bin/train ./examples/train

dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
say() { printf '\033[1m== %s\033[0m\n' "$*"; }

say "serry serve: the coordination service, for four tasks that may fail and come back"
bin/serry serve --tasks 4 --recoverable --listen 127.0.0.1:0 --log-level warn >"$dir/serve" &
until address=$(awk 'NR == 1 { print $NF }' "$dir/serve") && [ -n "$address" ]; do :; done
echo "serving on $address"

declare -A pid
start() {
	bin/train -address "$address" -task "$1" -tasks 4 -steps 200 >>"$dir/out" &
	pid[$1]=$!
}
# wait_for N waits until step N has been reported.
wait_for() { until grep -q "step *$1 .*loss" "$dir/out"; do sleep 0.1; done; }

say "four workers train a small network together"
: >"$dir/out"
tail -n +1 -f "$dir/out" &
for i in 0 1 2 3; do start "$i"; done
wait_for 60

say "kill -9: rank 2 is gone, the others close ranks"
kill -9 "${pid[2]}"
wait_for 120

say "rank 2 comes back"
start 2
for i in 0 1 3 2; do wait "${pid[$i]}"; done
say "all ranks finished"
