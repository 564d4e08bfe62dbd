# The one entry for people and for CI. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

CACHE := $(or $(RAMEN_CACHE),$(HOME)/.cache/ramen)
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
TOOLCHAIN := $(shell scripts/toolchain.sh)
ifneq ($(TOOLCHAIN),)
export RUSTUP_TOOLCHAIN := $(TOOLCHAIN)
endif

VENV := $(CACHE)/venv/bin
DENY := $(CACHE)/tools/bin/cargo-deny
NEXTEST := $(CACHE)/tools/bin/cargo-nextest nextest run
XTASK := cargo xtask
# What `make test` compiles is one selection of packages, programs and tests together: cargo resolves features anew for each
# selection, and would compile most crates once more for programs, for xtask, and for the documentation's tests.
ALL := --workspace --exclude ramen-host
# uv and the interpreters of the test clients come from the venv, whatever the person has installed.
export RAMEN_UV ?= $(VENV)/uv
export RAMEN_TEST_PYTHON ?= $(VENV)/python
export RAMEN_BIN_DIR ?= $(TARGET)/debug
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what is missing (says what and why); a second run does nothing
	@scripts/setup.sh

.PHONY: build
build: ## debug build of all programs, and one ramen-host per CPython found
	@cargo build --quiet
	@$(XTASK) hosts

.PHONY: release
release: ## release build of all programs and hosts
	@cargo build --quiet --release -p ramen-worker
	@cargo build --quiet --release -p ramen-cli
	@$(XTASK) hosts --release

.PHONY: demo
demo: setup build ## the whole thing on this machine, by itself: serve, call, push, break, heal
	@scripts/demo.sh

.PHONY: check
check: setup static build ## the quick inner loop: static checks and the fast tests
	@$(NEXTEST) --profile quick

.PHONY: test
test tests-here: XTASK := RAMEN_BUILT=yes CARGO_MANIFEST_DIR=$(CURDIR)/xtask $(TARGET)/debug/xtask
test: setup everything static docs ## everything, deterministic: static checks, all Rust tests, real Python, foreign clients, docs, fuzz smoke, charts, a real Kubernetes
	@scripts/foreign.sh
	@scripts/lanes.sh here 'make tests-here' cluster e2e/run.sh
	@scripts/leftovers.sh "$(TARGET)"
	@echo 'make test: all levels passed; the lines above name what was left out (SKIPPED), and what went well only at its second try (FLAKY, RERUN)'

.PHONY: everything
everything:
	@cargo build --quiet $(ALL) --bins --tests --examples
	@$(XTASK) hosts

# What needs the processors; beside it run the tests in a cluster, which mostly wait.
.PHONY: tests-here
tests-here:
	@RAMEN_TEST_PYTHONS=all $(NEXTEST) $(ALL) --profile ci
	@cargo test --quiet --doc $(ALL)
	@$(XTASK) fuzz --smoke
	@$(VENV)/python -m pytest e2e --numprocesses 2 --dist loadfile --reruns 1
	@$(MAKE) charts charts-cluster

.PHONY: stress
stress: setup everything ## the Rust tests again and again, many at once and without a second try: finds those that fail now and then (STRESS="--stress-count 10")
	@RAMEN_TEST_PYTHONS=all $(NEXTEST) $(ALL) --profile ci --retries 0 --test-threads 8 $(or $(STRESS),--stress-count 3)

.PHONY: static
static: ## formatting, lints, generated files, dependency rules, file sizes
	@cargo fmt --all --check
	@cargo clippy --quiet --workspace --all-targets -- -D warnings
	@$(XTASK) gen --check
	@$(XTASK) changelog --check
	@$(XTASK) check-size
	@$(XTASK) check-deps
	@$(XTASK) check-dirs
	@$(DENY) --log-level error check bans licenses sources
	@scripts/advisories.sh "$(DENY)"

.PHONY: docs
docs: ## the API documentation, warnings are errors
	@RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --document-private-items

.PHONY: conformance
conformance: setup build ## the official conformance suite of MCP against the gateway and our client, both eras (takes it from npm)
	@cargo build --quiet -p ramen-client --example conformance
	@$(VENV)/python -m pytest e2e/test_conformance.py

.PHONY: protocol
protocol: setup build ## write docs/reference/protocol.md out of what the conformance suite says
	@cargo build --quiet -p ramen-client --example conformance
	@RAMEN_WRITE_PAGES=1 $(VENV)/python -m pytest e2e/test_conformance.py

.PHONY: conformance-client
conformance-client: setup ## the protocol's conformance suite against our client alone (takes it from npm)
	@cargo build --quiet -p ramen-client --example conformance
	@$(VENV)/python -m pytest e2e/test_conformance.py -k our_client

.PHONY: bench
bench: ## the benchmark table against its peers; writes target/bench/*.json and the plot in docs (BENCH="--help" for more)
	@scripts/setup.sh --bench
	@cargo build --quiet --release -p ramen-worker
	@cargo build --quiet --release -p ramen-cli
	@$(XTASK) hosts --release --python "$$($(VENV)/python -c 'import sys; print(sys._base_executable)')"
	@cargo run --quiet --release -p ramen-bench -- $(BENCH)

.PHONY: bench-gateway
bench-gateway: ## the gateway, the bridge and the client against their goals and peers; writes target/bench/gateway.json (BENCH="--help" for more)
	@scripts/setup.sh --bench-gateway
	@cargo build --quiet --release -p ramen-worker
	@cargo build --quiet --release -p ramen-gateway
	@cargo build --quiet --release -p ramen-cli
	@$(XTASK) hosts --release --python "$$($(VENV)/python -c 'import sys; print(sys._base_executable)')"
	@RAMEN_BENCH_CONTEXTFORGE="$${RAMEN_BENCH_CONTEXTFORGE:-$(CACHE)/contextforge/bin/python}" cargo run --quiet --release -p ramen-bench -- gateway $(BENCH)

.PHONY: fuzz
fuzz: ## fuzz every target for a minute each (FUZZ="json_rpc --seconds 600" for one)
	@$(XTASK) fuzz $(FUZZ)

.PHONY: gen
gen: ## write the generated pages of docs/reference
	@$(XTASK) gen

.PHONY: fmt
fmt: ## format the Rust code
	@cargo fmt --all

.PHONY: lock
lock: ## pin the requirements of tests and benchmarks anew, from the Python index and from npm
	@for dir in e2e bench bench/contextforge; do \
	  { echo '# Written by `make lock` from requirements.in.'; \
	    $(RAMEN_UV) pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate $$dir/requirements.in \
	      $$( [ $$dir = bench ] && echo -c e2e/requirements.txt ); } >$$dir/requirements.tmp; \
	  mv $$dir/requirements.tmp $$dir/requirements.txt; \
	done
	@scripts/lock-foreign.sh

.PHONY: clean
clean: ## remove what builds made here (the caches below ~/.cache/ramen stay)
	@cargo clean --quiet
	@rm -rf fuzz/target

# ---- charts ----
.PHONY: charts
charts: setup ## the Helm charts: lint, schema, security, rights, alert rules, the examples of docs/cluster
	@charts/tests/tools.sh
	@command -v go >/dev/null && e2e/cluster/cluster build helm judge >/dev/null || echo 'charts: no Go to build helm and the judge of statuses with'
	@$(VENV)/python -m pytest -c e2e/pytest.ini --rootdir charts/tests charts/tests --ignore charts/tests/test_cluster.py

.PHONY: charts-cluster
charts-cluster: setup ## the charts and the examples of docs/cluster against a real API server (under a minute)
	@$(VENV)/python -m pytest -c e2e/pytest.ini --rootdir charts/tests charts/tests/test_cluster.py

# ---- the cluster -----------------------------------------------------------------------------------------------------
.PHONY: cluster-up
cluster-up: ## a real Kubernetes on this machine, for tests (TIER=2|3|4, NAME=…); prints its kubeconfig
	@e2e/cluster/cluster up --name $(or $(NAME),test) --tier $(or $(TIER),4)

.PHONY: cluster-down
cluster-down: ## end it, leaving nothing
	@e2e/cluster/cluster down --name $(or $(NAME),test)

.PHONY: e2e
e2e: setup build ## the tests in a real Kubernetes alone (the first run builds it: 20 minutes)
	@scripts/lanes.sh cluster e2e/run.sh

.PHONY: images
images: build ## build the images by their Containerfiles (buildah, as root) and compare them with the tests' own; prints the folder
	@scripts/images.sh

.PHONY: bench-cluster
bench-cluster: setup ## the benchmark on a real cluster: pushes, new groups, a thousand groups; writes target/bench/cluster.json (BENCH="--help" for more)
	@cargo build --quiet --release -p ramen-operator
	@cargo build --quiet --release -p ramen-worker
	@cargo build --quiet --release -p ramen-e2e --bin bench_cluster
	@$(XTASK) hosts --release
	@RAMEN_BIN_DIR="$(TARGET)/release" e2e/bench.sh $(BENCH)
