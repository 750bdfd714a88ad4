# Everything a newcomer, a developer or CI runs. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help demo test lint deny golden tools clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## A directory of Gateway API objects, served by a real Envoy, on this machine
	@scripts/demo

test: ## Everything that CI runs: lint, deny, and all tests with a real Envoy
	@scripts/test

lint: ## Format and clippy, warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

deny: ## Licences, versions and sources of all dependencies
	@scripts/deny

golden: ## Rewrite the translator's golden files; read the difference before you commit it
	UPDATE_GOLDEN=1 cargo test --locked -p heliograph-translator-core --test golden

tools: ## Find or install Envoy, Redis and cargo-deny, and print their paths
	@scripts/tools envoy
	@scripts/tools redis-server
	@scripts/tools cargo-deny

clean: ## Delete what was built; the cache of tools stays
	cargo clean
