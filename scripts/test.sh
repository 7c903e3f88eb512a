#!/usr/bin/env bash
# Installs what the tests need and runs all of them. The Go tests come first, those with goroutines under the race
# detector; then the tests with real clients, which need Python environments. What fails does not
# keep the rest from running.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
step() { printf '\n== %s\n' "$*"; }

# try FLAG-OR-PACKAGE... runs tests, but for the searches for planted faults, which take long and test the judges.
# What a crash prints is cut short.
try() {
	go test -skip Planted -timeout 15m "$@" 2>&1 | cut -c1-400 | awk '/^goroutine [0-9]+ gp=/ { dump = 1 } /^(ok|FAIL|---|\?)/ { dump = 0 } !dump' || failed=1
}

step "format and vet"
unformatted=$(git ls-files -co --exclude-standard '*.go' | grep -v '\.pb\.go$' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet ./...

step "python environments, Slurm and Chromium, in the background"
mkdir -p .cache
scripts/venvs.sh >.cache/venvs.log 2>&1 &
venvs=$!
# interop/slurm and interop/page say what it means if these fail.
{ scripts/slurm.sh || true; scripts/chromium.sh; } >.cache/packages.log 2>&1 &
packages=$!
scripts/iproute2.sh || true # tests that need it say what its absence means

# The race detector finds nothing where one goroutine computes, and takes five to ten times as long. What it checks of
# unsafe pointers stays.
step "go test, what starts no goroutine"
pure=(coord internal/crc32c internal/kernel internal/schedule mesh mesh/form mesh/restore transfer/internal/match)
try -gcflags=-d=checkptr "${pure[@]/#/./}"

# The race detector of Go 1.26 breaks itself where two processors run timers of one bubble of
# testing/synctest (golang/go#78156): they share one context of its. One processor for each test
# binary keeps it whole, and it finds the same races; the machine's others run other packages.
step "go test -race, what runs in virtual time"
mapfile -t virtual < <(git grep -l '"testing/synctest"' -- '*.go' | xargs -n 1 dirname | sort -u | grep -v ^interop | sed 's,^,./,')
try -race -cpu 1 "${virtual[@]}"

step "go test -race, all else but the real clients"
mapfile -t others < <(comm -23 <(go list ./... | grep -v /interop | sort) <(go list "${virtual[@]}" "${pure[@]/#/./}" | sort))
try -race "${others[@]}"

# The soak waits most of the time, so the searches run beside it.
step "a minute of clients while the leader is killed, in the background"
go run ./bench/soak -for 60s -times=false >.cache/soak.log 2>&1 &
soak=$!

step "go test, planted faults"
mapfile -t planted < <(git grep -lE 'func Test.*Planted' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's,^,./,')
go test -run Planted -timeout 15m "${planted[@]}" || failed=1

step "a minute of clients while the leader is killed"
wait "$soak" || failed=1
tail -n 40 .cache/soak.log

step "python environments, Slurm and Chromium"
wait "$venvs" && code=0 || code=$?
tail -n 5 .cache/venvs.log
wait "$packages" || true
cat .cache/packages.log
if [ "$code" -ne 0 ]; then
	printf 'venvs: exit %s; the tests with real clients decide what that means\n' "$code"
fi

step "go test, real clients"
go test -timeout 25m ./interop/... || failed=1

if [ "$failed" -ne 0 ]; then
	step "some tests failed, see above"
	exit 1
fi
step "all tests passed"
