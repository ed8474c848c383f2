# What a contributor types. `make demo` and `make test` work on a fresh Debian with git, make and a network.
SHELL := /bin/sh
export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO ?= cargo
# Named, so that what runs while building is not linked statically as well.
STATIC_TARGET := x86_64-unknown-linux-gnu
# Warnings are errors where they are looked at, in `make lint`; a newer compiler's new warning breaks no build.

.PHONY: help demo test build appliance-image lint bench bench-datapath soak mutants capture-demo chroot-test clean

help: ## List what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

demo: ## Show the main job on an emulated disk group (about 90 s, no privileges)
	@scripts/bootstrap build
	$(CARGO) build --release --locked --bin forebay
	target/release/forebay demo $(DEMO_FLAGS)

test: ## Run every test; installs the real peers that they talk to
	@scripts/bootstrap test
	scripts/test

build: ## Build the binary
	@scripts/bootstrap build
	$(CARGO) build --release --locked --bin forebay

appliance-image: ## Build the image of an appliance for virtual machines, into target/appliance-image
	@scripts/bootstrap image
	RUSTFLAGS="-C target-feature=+crt-static" CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=symbols \
		$(CARGO) build --release --locked --bin forebay --target $(STATIC_TARGET) --target-dir target/static
	scripts/appliance-image target/static/$(STATIC_TARGET)/release/forebay target/appliance-image

lint: ## Formatting and clippy, warnings as errors
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bench: ## Measure speed: ratios to a peer where there is one, and a hash of each result
	@scripts/bootstrap test
	scripts/bench $(BENCH)

bench-datapath: ## Measure the data path against nbdkit, alternating, with fio
	@scripts/bootstrap test
	scripts/bench-datapath

soak: ## Look for faults for MINUTES (60): seeds, kills, fuzzing
	@scripts/bootstrap test
	scripts/soak $(or $(MINUTES),60)

mutants: ## Plant each bug of mutants/ and show within how many seeds it is found
	@scripts/bootstrap build
	scripts/mutants $(PATCHES)

capture-demo: build ## Record anew what the demo plays (root, PostgreSQL)
	scripts/capture-demo

chroot-test: ## Try both README commands in a minimal Debian chroot (root, debootstrap)
	scripts/chroot-test

clean: ## Remove what was built
	$(CARGO) clean
