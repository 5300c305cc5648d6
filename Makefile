# Everything a contributor or CI runs. `make` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Modules of go.work. `go test ./...` at the root would reach none of them: there is no module at the root.
MODULES := api proto hub agent test
TEST_FLAGS ?= -race
E2E_FLAGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

include hack/clusters.mk

##@ run

.PHONY: demo
demo: ## a hub, two clusters and a region, a fleet, leases and pages through them (DETACH=1 returns once it is up)
	@hack/demo/up

.PHONY: demo-down
demo-down: ## remove everything the demo made, but the caches
	@hack/demo/down

##@ test

.PHONY: test
test: packages ## unit tests of every module with the race detector, controllers against a real kube-apiserver
	@KUBEBUILDER_ASSETS=$$(hack/envtest-assets) && export KUBEBUILDER_ASSETS && \
	failed=; for m in $(MODULES); do \
	  [ $$m = test ] && continue; \
	  echo "== $$m"; (cd $$m && go test $(TEST_FLAGS) ./...) || failed="$$failed $$m"; \
	done; \
	echo "== test"; (cd test && go test $(TEST_FLAGS) $$(go list ./... | grep -v /e2e)) || failed="$$failed test"; \
	echo "== hack"; (cd hack && GOWORK=off go test ./...) || failed="$$failed hack"; \
	[ -z "$$failed" ] || { echo "make test: failed in:$$failed" >&2; exit 1; }; echo "make test: every module passed"

.PHONY: test-clients
test-clients: ## the clients of docs/leasing.md against a real hub and Squid; apart from make test, as it installs 300 MB of them
	@hack/packages $(TEST_PACKAGES) $(CLIENT_PACKAGES)
	@cd hub && SHOAL_TEST_CLIENTS=1 go test -count=1 -timeout=30m ./internal/leaseapi/crawlers

.PHONY: e2e
e2e: packages ## the whole story on real clusters
	@hack/e2e $(E2E_FLAGS)

.PHONY: bench
bench: ## figures of the design, one BENCH line each: name value unit ratio
	@cd hub && go test -run='^$$' -bench='EngineScale' -benchtime=2s ./internal/lease | grep -E '^(BENCH|FAIL|ok)'
	@cd hub && go test -run='^$$' -bench='JournalValkey' -benchtime=1x ./internal/keeper/valkey | grep -E '^(BENCH|FAIL|ok)'
	@cd hub && go test -run='^$$' -bench='JournalReplay' -benchtime=1x -timeout=30m ./internal/keeper/disk | grep -E '^(BENCH|FAIL|ok)'
	@cd hub && go test -run='^$$' -bench='LeaseUnary|LeaseStream|LeaseP99|Watches' -benchtime=1x ./internal/leaseapi | grep -E '^(BENCH|FAIL|ok)'
	@cd hub && go test -run='^$$' -bench='Yield' -benchtime=1x ./internal/lease | grep -E '^(BENCH|FAIL|ok)'
	@cd hub && go test -run='^$$' -bench='Placement$$' ./internal/placement | grep -E '^(BENCH|FAIL|ok)'
	@cd agent && go test -run='^$$' -bench='ReconcileNoop' -benchtime=5x ./internal/controller/proxy/faultmatrix | grep -E '^(BENCH|FAIL|ok)'
	@cd agent && go test -run='^$$' -bench='ProbeCost' -benchtime=1x ./internal/probe | grep -E '^(BENCH|FAIL|ok)'
	@export KUBEBUILDER_ASSETS=$$(hack/envtest-assets) && cd agent && go test -run='^$$' -bench='Agent$$' -benchtime=1x . | grep -E '^(BENCH|FAIL|ok)'

.PHONY: matrix
matrix: ## every case of the fault matrix, over every provider (make test plays one in thirteen)
	@cd agent && SHOAL_FAULT_MATRIX_WHOLE=1 go test -count=1 -v -run='FaultMatrix|FakeProvider|TestPods' -timeout=30m ./internal/controller/proxy/faultmatrix ./internal/provider/gcp | grep -E '^(fault matrix|--- FAIL|FAIL|ok)'

SEED ?= 0
KILLS ?= 100
JOURNAL ?= disk
HUB ?= half
.PHONY: crash
crash: packages ## kill a hub KILLS times under 64 clients and hold it to what it answered (SEED=0 draws one; JOURNAL=disk or valkey; HUB=half or whole)
	@if [ $(HUB) = whole ]; then KUBEBUILDER_ASSETS=$$(hack/envtest-assets); export KUBEBUILDER_ASSETS; fi; \
	cd test && go test -count=1 -v -timeout=60m -run='^TestCrash$$' ./crash -seed=$(SEED) -kills=$(KILLS) -journal=$(JOURNAL) -hub=$(HUB)

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## every fuzz target of every module for FUZZTIME each
	@for m in $(MODULES); do (cd $$m && \
	  grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
	    for f in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' "$$file"); do \
	      echo "== $$m $$file $$f"; go test -run='^$$' -fuzz="^$$f\$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	    done; done); done

.PHONY: deflake
deflake: packages ## run one package's tests until they fail: PKG=./internal/lease MODULE=hub RUN=.
	@cd $(MODULE) && KUBEBUILDER_ASSETS=$$(../hack/envtest-assets) && export KUBEBUILDER_ASSETS && \
	  while go test -race -count=1 -run='$(or $(RUN),.)' $(PKG); do :; done

##@ build

.PHONY: build
build: ## the four programs, into bin/
	@hack/build

.PHONY: generate
generate: ## everything that is generated: protocol, deep copies, CRDs, chart copies
	@hack/generate

.PHONY: fmt
fmt: ## format every module
	@lint=$$(hack/tool golangci-lint); for m in $(MODULES); do (cd $$m && "$$lint" fmt --config ../.golangci.yml); done

.PHONY: lint
lint: ## linters over every module, and the rules that no linter knows
	@hack/lint

.PHONY: tidy
tidy: ## go.mod of every module, without the workspace
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy); done; go work sync

.PHONY: verify
verify: ## generating, tidying and linting leave a clean tree
	@hack/verify

.PHONY: packages
packages:
	@hack/packages $(TEST_PACKAGES)

# What the tests call by name and Go cannot build.
TEST_PACKAGES := squid redis-server

# What the programs of docs/leasing.md are written for.
CLIENT_PACKAGES := curl jq python3-requests python3-aiohttp python3-scrapy nodejs npm chromium
