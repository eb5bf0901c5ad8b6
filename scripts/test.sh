#!/usr/bin/env bash
# Installs what is missing and runs all tests; arguments go to `cargo test`.
#
# A test that this machine cannot run passes, and is listed at the end with the reason. With
# CI=true such a list fails the run: a machine that skips proves nothing.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh test

LULL_SKIPPED_FILE=$(mktemp "${TMPDIR:-/tmp}/lull-skipped.XXXXXX")
export LULL_SKIPPED_FILE
trap 'rm -f "$LULL_SKIPPED_FILE"' EXIT

# Most tests wait for networks, disks and browsers more than they compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 1))}

say "tests"
status=0
# Background jobs of a shell ignore these, and nohup ignores HUP; every test would inherit it.
env --default-signal=HUP,INT,QUIT \
    cargo test "${cargo_flags[@]}" --no-fail-fast "$@" </dev/null || status=$?

if [ -s "$LULL_SKIPPED_FILE" ]; then
    say "SKIPPED on this machine, and why"
    sort -u "$LULL_SKIPPED_FILE"
    if [ "${CI:-}" = true ]; then
        die "CI skips no test: give it a machine that can run these"
    fi
fi
exit "$status"
