# Two commands do everything on a fresh machine: `make demo` and `make test`.
GO      ?= go
BIN     := bin/serry
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 10s
SCHEDULES ?= 100000
LAUNCHES ?= 20000
LINKS ?= 20000
TRANSFERS ?= 100000
COLLECTIVES ?= 100000
DRILLS ?= 200
STORIES ?= 1000000
DURATION ?= 1m
HEALTHY ?= 1h

.DEFAULT_GOAL := help
.PHONY: help build test demo bench bench-coord bench-mesh bench-client bench-restart bench-cli bench-detect bench-durable bench-cost bench-checksum bench-kernel bench-link bench-collective bench-transfer bench-stacks attack soak-failover soak-train soak-transfer fleets links transfers cliques locks launchers preempt stress fuzz gen clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/serry
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN) ./cmd/serry

test: ## install what tests need, then run all of them
	scripts/test.sh

demo: build ## run a small job: a rank is killed, then its coordinator; the job goes on
	scripts/demo.sh

bench: bench-coord ## run all benchmarks against peers

bench-coord: build ## coordination service beside the stock one, one table of ratios
	scripts/venvs.sh jax-new
	$(GO) run ./bench/coord

bench-mesh: ## meshes and plans beside jax
	scripts/venvs.sh jax-new
	$(GO) run ./bench/mesh

bench-client: build ## our client beside the stock one, against the same server
	scripts/venvs.sh jax-new
	$(GO) run ./bench/client

bench-cli: build ## the commands against a job of 10,000 tasks
	$(GO) run ./bench/cli

bench-restart: build ## a killed worker is back: serry run beside torchrun
	scripts/venvs.sh torch
	$(GO) run ./bench/restart -serry $(BIN)

bench-detect: build ## how soon all are told of a killed task, and of a lost host; needs root
	scripts/iproute2.sh
	$(GO) run ./bench/detect -serry $(BIN)

bench-durable: build ## what it costs to outlive a crash: memory, file, etcd and the stock service
	scripts/venvs.sh jax-new
	$(GO) run ./bench/durable -serry $(BIN)

bench-cost: ## what events cost in jobs of 100 to 10,000 tasks: no more than what they touch
	$(GO) run ./bench/cost

bench-checksum: ## what the checksums of streams cost, with them and without in turn
	$(GO) run ./bench/checksum

bench-kernel: ## vector kernels beside portable ones, in turn
	$(GO) test ./internal/kernel -run '^$$' -bench Vectors -benchtime 300x

bench-link: ## links beside bare Go sockets and iperf3, on loopback
	scripts/iperf3.sh
	$(GO) run ./bench/link

bench-collective: build ## collectives over links and through shared memory, beside torch's Gloo, Open MPI and jax
	scripts/venvs.sh torch mpi jax-new
	$(GO) run ./bench/collective -serry $(BIN)

bench-transfer: ## transfers beside bare sockets, iperf3, copies of memory, JAX's transfer server, Mooncake and NIXL
	scripts/iperf3.sh
	scripts/ibverbs.sh
	scripts/venvs.sh jax-new mooncake nixl
	$(GO) run ./bench/transfer -python .cache/venv/jax-new/bin/python -mooncake .cache/venv/mooncake/bin/python -nixl .cache/venv/nixl/bin/python

bench-stacks: build ## Python stacks of a process: serry beside py-spy, time and right answers; what sampling costs
	scripts/venvs.sh py-spy jax-new
	$(GO) run ./bench/stacks -serry $(BIN)

.PHONY: scenarios
scenarios: build ## what serry says, and how soon, when a rank of a real jax job crashes, hangs or is slow
	scripts/venvs.sh jax-new jax-0.9.2 tf
	$(GO) run ./bench/scenarios -serry $(BIN)

.PHONY: shots
shots: ## pictures of the main states of the page, in out/shots, by a real browser
	scripts/chromium.sh
	$(GO) test ./interop/page -run TestShots -count 1 -v -shots $(CURDIR)/out/shots

.PHONY: bench-page
bench-page: ## the page of 10,000 ranks in a real browser, 100 viewers of it, and a rank of jax that sleeps: each figure beside its bar
	scripts/chromium.sh
	scripts/venvs.sh jax-new
	$(GO) test ./interop/page -run 'TestBars|TestRealJob' -count 1 -v -bars

.PHONY: soak-healthy
soak-healthy: build ## an hour of four jax processes that train, save and compile at random: no alarm; HEALTHY=5m for less
	scripts/venvs.sh jax-new
	$(GO) run ./bench/healthy -serry $(BIN) -for $(HEALTHY)

bench-loss: build ## how soon the members of a clique know that one is lost, and go on; cut links need root
	$(GO) run ./bench/loss -serry $(BIN)

attack: build ## a real jax job beside strangers who do all they can at its ports, in three scenes of a minute
	scripts/venvs.sh jax-new
	$(GO) run ./bench/attack -serry $(BIN)

soak-failover: build ## ten minutes of clients while leaders are killed and stopped, and a disk stands still
	$(GO) run ./bench/soak -serry $(BIN)

fleets: ## SCHEDULES jobs through crashes and cuts, in virtual time; a twentieth as many on real files, up to 500 on a real etcd
	$(GO) test ./internal/lab/storm -run 'TestFleets|TestFilesOfFleets|TestEtcdOfFleets' -schedules $(SCHEDULES) -timeout 3h -v

preempt: ## STORIES random histories of preemption rounds, and all small ones
	$(GO) test ./preempt/internal/pact -stories $(STORIES) -everything -timeout 3h -v

stress: ## every transport with full sockets and many callers, for DURATION each
	$(GO) test -race ./wire/stream -run TestOneWriter -lasts $(DURATION) -timeout 3h -v
	$(GO) test -race ./internal/lab/stress -lasts $(DURATION) -timeout 3h -v

links: ## LINKS jobs whose tasks send each other messages through kills, cuts, new lives and fail-overs, in virtual time
	$(GO) test ./link -run TestLinksInTheStorm -schedules $(LINKS) -timeout 3h -v

soak-transfer: ## 500 cuts of real links, and kills of receivers, in the middle of transfers of 1 GiB, and one of 5 GiB; needs root
	scripts/iproute2.sh
	$(GO) run ./bench/cuts
	$(GO) test ./transfer -run TestHugeBuffer -huge 5368709120 -timeout 1h -v

soak-train: build ## 200 kills of workers of a real training in steps: none is lost or made twice, parameters are equal after each
	$(GO) run ./bench/steps -serry $(BIN)

transfers: ## TRANSFERS schedules of processes that transfer buffers through loss, cuts, kills and new lives, in virtual time: machines, then whole engines
	$(GO) test ./transfer/internal/match -run TestTransfersInTheStorm -schedules $(TRANSFERS) -timeout 3h -v
	$(GO) test ./transfer -run TestEnginesInTheStorm -schedules $(TRANSFERS) -timeout 5h -v

cliques: ## COLLECTIVES jobs whose tasks run collective operations, and a quarter as many that train in steps, through kills, cuts, new lives and fail-overs, in virtual time; a fault at every step of every operation
	$(GO) test ./collective -run 'TestFaultAtEveryStep|TestLossInARing' -every 1 -timeout 5h -v
	$(GO) test ./collective -run TestLargeExchange -large -timeout 1h -v
	$(GO) test ./internal/lab/storm -run 'TestCliques|TestSteps' -collectives $(COLLECTIVES) -timeout 5h -v

locks: ## the tests of cliques in a build that checks the order of locks
	$(GO) test -tags lockrank ./internal/lockrank ./collective -timeout 3h

launchers: ## LAUNCHES jobs with launchers, hosts and tasks killed at every step, in virtual time; DRILLS with real processes
	$(GO) test ./launch -run TestLaunchersInTheStorm -schedules $(LAUNCHES) -timeout 3h -v
	$(GO) test ./cmd/serry -run TestDrills -drills $(DRILLS) -timeout 3h -v

fuzz: ## fuzz every decoder and the machine for FUZZTIME each
	scripts/fuzz.sh $(FUZZTIME)

gen: ## generate code from the .proto files, and the vector kernels
	$(GO) run ./internal/gen
	$(GO) run ./internal/gen/avx2

clean: ## remove what the build made; virtual environments stay
	rm -rf bin out
