#!/usr/bin/env bash
# Installs what the tests need and runs all of them. The Go tests come first, with the race
# detector; then the tests with real clients, which need Python environments. What fails does not
# keep the rest from running.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
step() { printf '\n== %s\n' "$*"; }

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
go list ./... | grep -v /interop | xargs go test -race -timeout 15m || failed=1

step "go test -race, once more with grpc-go as the transport"
SERRY_TRANSPORT=grpc go test -race -timeout 15m ./server ./client ./preempt || failed=1

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
