#!/bin/sh
# Builds the product as it ships, then the bench, and measures. Arguments go to the bench: scenarios (postgres sqlite odbc cap
# demo; queue for all of the durable queue, or one part of it: queue-append queue-http queue-others queue-start queue-purge
# queue-drain queue-limit queue-beside; isolation for all of it, or one part: isolation-pile-up isolation-overload isolation-storm
# isolation-fairness isolation-gate; without any everything, the queue in short rounds), --quick, --json FILE, --rounds N,
# --callers 1,16; --help lists them.
#
# Two builds, so that nothing the bench asks of a shared dependency gets into the product. Other stores are built only for
# `queue-others`.
set -eu
cd "$(dirname "$0")/.."
features=
case " $* " in
*" queue-others "*) features="--features compare" ;;
esac
cargo build --quiet --release --package spillgate
# shellcheck disable=SC2086 # no feature is no argument
cargo build --quiet --release --package spillgate-bench $features
target=${CARGO_TARGET_DIR:-target}
exec "$target/release/spillgate-bench" "$@"
