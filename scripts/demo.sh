#!/usr/bin/env bash
# A job of four workers that loses one of them, goes on, and takes it back. Everything is real:
# processes, sockets, SIGKILL.
set -euo pipefail
cd "$(dirname "$0")/.."
go build -o bin/train ./examples/train

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
say() { printf '\033[1m== %s\033[0m\n' "$*"; }

# Task 2 is killed by whoever reads what the first of the others reports, at step 100.
assassin() {
	local line victim
	while IFS= read -r line; do
		printf '%s\n' "$line"
		[[ $line == *"step 100 "* ]] || continue
		victim=$(<"$dir/2")
		say "kill -9 $victim: task 2 is gone, the others close ranks; serry starts it again"
		kill -9 "$victim"
	done
}

say "serry run -n 4 --restart failed -- train: four workers train a small network together"
bin/serry run -n 4 --restart failed -- \
	sh -c 'echo $$ >"$1/$SERRY_TASK"
		[ "$SERRY_LIFE" = 1 ] || sleep 4 # as long as a large program takes to load
		exec bin/train -steps 300 -pace 70ms' worker "$dir" > >(assassin)
say "all ranks finished"
