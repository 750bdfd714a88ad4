# The commands of the project. `make` without a target lists them.
.DEFAULT_GOAL := help
.PHONY: help demo demo-redis images install release bench bench-store bench-files test e2e conformance lint deny fuzz golden metrics tools clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## A directory of Gateway API objects, served by a real Envoy, on this machine
	@scripts/demo

demo-redis: ## The programs apart: Redis, a translator, three distributors, three Envoys, and a change that reaches all
	@scripts/demo-redis

images: ## The images of the programs, by docker or podman; REGISTRY=… pushes them, KIND=… loads them into that cluster of kind
	@scripts/images

install: ## The charts, into the cluster that kubectl means; REGISTRY=… if the images are there
	@scripts/install

release: ## Programs, packaged charts, checksums and bills of materials of VERSION=…, into target/release-artefacts; images: make images
	@scripts/release

bench: ## Ours, go-control-plane and Envoy Gateway with the same clients, in two hours; the tables go into docs/benchmarks.md
	@scripts/bench

bench-store: ## The store in Redis against the naive way; a table for docs/benchmarks.md
	REDIS_SERVER=$$(scripts/tools redis-server) cargo bench --locked -p heliograph-store --bench redis

bench-files: ## One changed file in directories of different sizes; a table for docs/benchmarks.md
	cargo bench --locked -p heliograph-translator --bench files

test: ## Everything that CI runs: lint, deny, and all tests with a real Envoy
	@scripts/test

e2e: ## Our end-to-end cases in the cluster that KUBECONFIG names; installs the system there
	@scripts/e2e

conformance: ## The official suite of Gateway API in the cluster that KUBECONFIG names, and a table for each profile
	@scripts/conformance

lint: ## Format, clippy with warnings as errors, and the workflows
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	actionlint=$$(scripts/tools actionlint) && "$$actionlint" -shellcheck= -pyflakes= .github/workflows/*.yaml

deny: ## Licences, versions and sources of all dependencies
	@scripts/deny

fuzz: ## Random bytes for the request decoder and the session, chosen by coverage; needs a nightly Rust and cargo-fuzz
	@scripts/fuzz

golden: ## Rewrite the golden files of the translator, reports and helio, and docs/reference; read the difference before you commit it
	UPDATE_GOLDEN=1 cargo test --locked -p heliograph-gateway --test golden --test infra --test crds --test reference
	UPDATE_GOLDEN=1 cargo test --locked -p heliograph-report --test report
	UPDATE_GOLDEN=1 cargo test --locked -p heliograph-translator -p heliograph-distributor --test reference
	UPDATE_GOLDEN=1 cargo test --locked -p heliograph-loadtest --lib -- the_page_of_the_program
	UPDATE_GOLDEN=1 cargo test --locked -p helio --bin helio -- golden the_page_of_the_program

metrics: ## Rewrite docs/metrics.md from the metrics of the programs; read the difference before you commit it
	cargo build --locked --workspace --bins
	PROMETHEUS=$$(scripts/tools prometheus) REDIS_SERVER=$$(scripts/tools redis-server) KUBERNETES=$$(scripts/tools kubernetes) \
	GATEWAY_API_CRDS=$$(scripts/tools crds) UPDATE_GOLDEN=1 cargo test --locked -p heliograph-tests --test observe every_panel

tools: ## Find or install Envoy, Redis, Prometheus, Kubernetes, CRDs, helm and what checks the source, and print their paths
	@scripts/tools envoy
	@scripts/tools redis-server
	@scripts/tools prometheus
	@scripts/tools kubernetes
	@scripts/tools crds
	@scripts/tools helm
	@scripts/tools operator-crds
	@scripts/tools cargo-deny
	@scripts/tools cargo-cyclonedx
	@scripts/tools actionlint
	@scripts/tools peer || true
	@scripts/tools envoy-gateway || true

clean: ## Delete what was built; the cache of tools stays
	cargo clean
