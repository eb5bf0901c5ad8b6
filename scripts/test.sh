#!/usr/bin/env bash
# Installs missing tools and runs the tests.
#
#   scripts/test.sh             the tests that every change must pass
#   scripts/test.sh --full      these and the long ones; see scripts/test-full.sh
#   scripts/test.sh ARGUMENT…   the tests that the arguments of `cargo nextest run` select
#
# A test that this machine cannot run passes and is listed at the end with the reason. With CI=true such a
# list fails the run: a machine that skips tests proves nothing. .config/nextest.toml has the groups and tiers.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh test

LULL_SKIPPED_FILE=$(mktemp "${TMPDIR:-/tmp}/lull-skipped.XXXXXX")
export LULL_SKIPPED_FILE
trap 'rm -f "$LULL_SKIPPED_FILE"' EXIT

profile=default
if [ "${1:-}" = --full ]; then
    profile=full
    shift
fi
status=0
say "tests"
# Background jobs of a shell ignore these signals, and nohup ignores HUP. Every test would inherit that.
env --default-signal=HUP,INT,QUIT \
    cargo nextest run "${nextest_flags[@]}" --profile "$profile" "$@" </dev/null || status=$?
if [ $# = 0 ]; then
    say "examples in the documentation"
    cargo test "${cargo_flags[@]}" --doc --quiet || status=$?
fi

if [ -s "$LULL_SKIPPED_FILE" ]; then
    say "SKIPPED on this machine, and why"
    sort -u "$LULL_SKIPPED_FILE"
    if [ "${CI:-}" = true ]; then
        die "CI skips no test: give it a machine that can run these"
    fi
fi
exit "$status"
