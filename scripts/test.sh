#!/usr/bin/env bash
# Installs what the tests need and runs all of them. What mostly waits runs beside what computes: the tests with real
# clients and the soak beside Go tests that compute. Goroutines run under the race detector.
# Each step prints its results in one piece; what fails does not keep the rest from running.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache

failed=0
step() { printf '\n== %s\n' "$*"; }

# try FLAG-OR-PACKAGE... runs tests, but for the searches for planted faults, which take long and test the judges.
# What a crash prints is cut short.
try() {
	$yields go test -skip Planted -timeout 40m "$@" 2>&1 | cut -c1-400 | awk '/^goroutine [0-9]+ gp=/ { dump = 1 } /^(ok|FAIL|---|\?)/ { dump = 0 } !dump' || failed=1
}

# later NAME COMMAND... starts a step in the background. Its output is kept until collect NAME waits for it, which fails
# as the command did.
declare -A pids
later() {
	local name=$1
	shift
	step "$name, in the background"
	"$@" >".cache/$name.log" 2>&1 &
	pids[$name]=$!
}
collect() {
	local code=0
	wait "${pids[$1]}" || code=$?
	step "$1"
	cat ".cache/$1.log"
	return "$code"
}

# The end of the script before its time ends what runs in the background, too.
trap 'trap - INT TERM; kill 0' INT TERM

# Steps with this before them leave the processors to what runs in the background: they compute, and real clients and the
# soak have timeouts of a few seconds. What only computes yields to both.
yields="nice -n 5"
yields_to_all="nice -n 10"

# A program under the race detector sleeps for a second when its main function has returned. The tests start hundreds of
# processes that are this program, and each test binary is one. A fiftieth of that is enough for the goroutines that are left.
export GORACE=atexit_sleep_ms=20

step "format"
unformatted=$(git ls-files -co --exclude-standard '*.go' | grep -v '\.pb\.go$' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted" >&2
	exit 1
fi

scripts/iproute2.sh || true # tests that need it say what its absence means

# real_clients installs what the tests with real clients need, and runs them as soon as all of it is there.
real_clients() {
	local venvs packages code=0
	scripts/venvs.sh >.cache/venvs.log 2>&1 &
	venvs=$!
	# interop/slurm and interop/page say what it means if these fail.
	{ scripts/slurm.sh || true; scripts/chromium.sh; } >.cache/packages.log 2>&1 &
	packages=$!
	wait "$venvs" || code=$?
	tail -n 5 .cache/venvs.log
	wait "$packages" || true
	cat .cache/packages.log
	if [ "$code" -ne 0 ]; then
		printf 'venvs: exit %s; the tests with real clients decide what that means\n' "$code"
	fi
	go test -timeout 40m ./interop/...
}
later real-clients real_clients

step "vet"
go vet ./... || failed=1

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

collect real-clients || failed=1

# The soak kills the leader of a job for a minute, and waits most of the time. So do the tests of commands, the longest of
# all others; the searches for planted faults compute.
later soak go run ./bench/soak -for 60s -times=false
mapfile -t planted < <(git grep -lE 'func Test.*Planted' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's,^,./,')
later planted-faults $yields_to_all go test -run Planted -timeout 40m "${planted[@]}"

step "go test -race, all else but the real clients"
mapfile -t others < <(comm -23 <(go list ./... | grep -v /interop | sort) <(go list "${virtual[@]}" "${pure[@]/#/./}" | sort))
try -race "${others[@]}"

# Under the race detector these tests have played a slice of their cases: see internal/lab/search.
step "go test, all cases of searches"
mapfile -t searching < <(git grep -l 'search\.Pick\b' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's,^,./,')
names=$(git grep -hp 'search\.Pick\b' -- '*_test.go' | sed -n 's/^func \(Test[A-Za-z]*\)(.*/\1/p' | sort -u | paste -sd '|')
try -run "^($names)\$" "${searching[@]}"

collect soak || failed=1
collect planted-faults || failed=1

if [ "$failed" -ne 0 ]; then
	step "some tests failed, see above"
	exit 1
fi
step "all tests passed"
