#!/usr/bin/env bash
# Installs what the tests need and runs all of them. The Go tests come first, with the race
# detector; then the tests with real clients, which need Python environments.
set -euo pipefail
cd "$(dirname "$0")/.."

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
go list ./... | grep -v /interop | xargs go test -race -timeout 15m

step "python environments"
wait "$venvs" && code=0 || code=$?
tail -n 5 .cache/venvs.log
if [ "$code" -ne 0 ]; then
	printf 'venvs: exit %s; the tests with real clients decide what that means\n' "$code"
fi

step "go test, real clients"
go test -timeout 20m -v ./interop/... 2>&1 | grep -E '^(=== RUN|--- |\s+--- |ok|FAIL|PASS|panic|\?|.*_test\.go:)' | grep -v '^=== RUN'
