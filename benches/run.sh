#!/bin/sh
# Builds the product as it ships, then the bench, and measures. Arguments go to the bench: scenarios (postgres sqlite odbc cap
# demo; all without one), --quick, --json FILE, --rounds N, --callers 1,16; --help lists them.
#
# Two builds, so that nothing the bench asks of a shared dependency gets into the product.
set -eu
cd "$(dirname "$0")/.."
cargo build --quiet --release --package spillgate
cargo build --quiet --release --package spillgate-bench
target=${CARGO_TARGET_DIR:-target}
exec "$target/release/spillgate-bench" "$@"
