# `make` alone lists the targets. `run`, `build` and `lint` need Go and make; what the tests and
# the benchmark need besides is installed by scripts/install-test-deps. The benchmark in bench/ is
# a module of its own, so that its libraries are not those of the sidecar.

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE    ?= tidegate:$(VERSION)
FUZZTIME ?= 2m
REPORT   ?= bin/faults.md

# VCS stamping fails in a checkout owned by someone else; the version is set by -X anyway.
BUILD_FLAGS = -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)"
# The race detector needs cgo, whatever the environment says. Nothing cached: the tests that build the
# sidecar depend on code that go test does not see. Allocations are counted without it, which makes some.
RACE_TEST = CGO_ENABLED=1 go test -race -count=1
# The benchmark, built; it measures bin/sidecar and runs the Go benchmarks from here.
BENCH = bin/bench
# The gofmt of the very Go that builds; it need not be in PATH.
GOFMT = "$$(go env GOROOT)/bin/gofmt"
SHELL_SCRIPTS = .ci/run $(wildcard scripts/*)

.DEFAULT_GOAL := help
.PHONY: help run build test test-all chaos bench bench-quick build-bench lint fuzz plots cover docker clean test-deps

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: build ## Build the sidecar and serve the built-in example (needs only Go)
	@bin/sidecar serve

build: ## Build bin/sidecar, static and stripped
	CGO_ENABLED=0 go build $(BUILD_FLAGS) -o bin/sidecar ./cmd/sidecar

test: test-deps ## Run the tests with the race detector, long ones in their short form
	$(RACE_TEST) -short -timeout 9m ./...
	go test -count=1 -run 'Allocat' ./internal/local ./internal/httpapi
	cd bench && $(RACE_TEST) -short -timeout 9m ./...

test-all: test-deps ## Run the tests with the race detector, the long forms too
	$(RACE_TEST) -timeout 60m ./...
	cd bench && $(RACE_TEST) -timeout 60m ./...

chaos: test-deps ## Run the fault suite in full, on an idle machine; results in REPORT (default bin/faults.md)
	@mkdir -p $(dir $(REPORT))
	go test -count=1 -timeout 30m ./internal/chaos -args -strict -report $(abspath $(REPORT))

bench: build-bench ## Measure the sidecar against yardsticks beside it, 10 minutes on an idle machine; results in bench/results
	$(BENCH)

bench-quick: build-bench ## The same in 2 minutes, with fewer and shorter runs; results in bin/bench-quick
	$(BENCH) -quick -out bin/bench-quick

lint: ## Check format, vet, staticcheck, import directions, Lua and shell syntax
	@files=$$($(GOFMT) -l .) && if [ -n "$$files" ]; then echo "gofmt would change:" && echo "$$files" && exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	cd bench && go vet ./... && go tool -modfile=../go.mod staticcheck ./...
	go test -count=1 ./internal/arch
	@for file in $(SHELL_SCRIPTS); do \
		"$$(sed -n '1s/^#!.*[ /]//p' "$$file")" -n "$$file" || exit 1; \
	done

fuzz: ## Run every fuzz target for FUZZTIME (default 2m) each, up to the first finding
	@scripts/fuzz $(FUZZTIME)

plots: ## Draw the figures of docs/choosing.md again
	go run ./docs/plots

cover: test-deps ## Report how much of the code the short tests run, in cover.out too
	go test -short -timeout 9m -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -n 1

docker: ## Build the container image
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

clean: ## Remove what the other targets left
	rm -rf bin cover.out

build-bench: build
	@command -v wrk >/dev/null && command -v redis-server >/dev/null || scripts/install-test-deps
	cd bench && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../$(BENCH) .

test-deps:
	@scripts/install-test-deps
