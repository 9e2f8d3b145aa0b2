# The recipes. CI calls `make check` and `make test`, nothing else.

CARGO ?= cargo
# cargo's own runner: tests of one program share its database servers, which take seconds to start.
RUNNER := test
# Rules about the code base itself: shape, edges, licences and sources.
RULES := --test house_rules --test edges --test dependencies

.PHONY: help demo test check bench

help:
	@echo "make demo    the fleet example on 127.0.0.1:8080, with calls to paste"
	@echo "make test    installs what the tests need below .test-tools, then runs every test"
	@echo "make check   format, lints, house rules, licences, documentation"
	@echo "make bench   the product beside hand-written floors that do the same work (its feature compare is built by hand only)"

# A debug build with optimised dependencies: several times faster to build than a release, and fast enough to look at.
demo:
	$(CARGO) run --locked --quiet -- demo

test:
	./deploy/test-tools.sh
	$(CARGO) $(RUNNER) --workspace --locked --no-fail-fast

# Documentation is that of the house: module heads may point at private rooms.
# The rules are run over the whole workspace so that nothing is built here that `make test` would build once more.
# Generated files (schemas, reference, OpenAPI, metric names) are compared by tests of the crates that make them.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --document-private-items --locked --quiet
	$(CARGO) $(RUNNER) --workspace --locked $(RULES)

bench:
	./benches/run.sh
