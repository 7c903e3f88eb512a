#!/usr/bin/env bash
# Installs what the tests need and runs all of them. The Go tests come first, with the race
# detector; then the tests with real clients, which need Python environments. What fails does not
# keep the rest from running.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
step() { printf '\n== %s\n' "$*"; }

# race PACKAGE... runs tests with the race detector. The detector of Go 1.26 can break itself in tests
# that run in virtual time (a crash inside its runtime, never a report): packages in which it did are
# run once more without it. A failed test or a race found is a failure, as ever.
race() {
	local log=.cache/race.log
	if go test -race -timeout 15m "$@" 2>&1 | tee "$log" | cut -c1-400 | awk '/^goroutine [0-9]+ gp=/ { dump = 1 } /^(ok|FAIL|---|\?)/ { dump = 0 } !dump'; then
		return
	fi
	if ! grep -qE '^(SIGSEGV|ThreadSanitizer: CHECK)' "$log" || grep -qE 'DATA RACE|^--- FAIL' "$log"; then
		failed=1
		return
	fi
	printf 'the race detector broke, not a test: once more without it\n'
	awk '$1 == "FAIL" && NF > 1 { print $2 }' "$log" | xargs go test -timeout 15m || failed=1
}

step "format and vet"
unformatted=$(git ls-files -co --exclude-standard '*.go' | grep -v '\.pb\.go$' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet ./...

step "python environments, in the background"
mkdir -p .cache
scripts/venvs.sh >.cache/venvs.log 2>&1 &
venvs=$!

step "go test -race, all but the real clients"
mapfile -t packages < <(go list ./... | grep -v /interop)
race "${packages[@]}"

step "a minute of clients while the leader is killed"
go run ./bench/soak -for 60s || failed=1

step "python environments"
wait "$venvs" && code=0 || code=$?
tail -n 5 .cache/venvs.log
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
