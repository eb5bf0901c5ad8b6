#!/usr/bin/env bash
# Checks formatting, clippy, documentation and scripts.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh lint
scripts/docs.sh

# A folder of their own, so that they and a test run do not wait for each other, and the development profile,
# whose procedural macros compile fastest. Nothing is linked or run here.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/lint
lint_flags=(--workspace)
[ "${CI:-}" != true ] || lint_flags+=(--locked)

say "formatting"
cargo fmt --all --check

say "clippy"
# Includes the targets of `cargo fuzz`. Nothing is linked, so the library named here need not exist.
CUSTOM_LIBFUZZER_PATH=/nowhere/libnone.a \
    cargo clippy "${lint_flags[@]}" --features lull-fuzz/libfuzzer --all-targets -- -D warnings

say "rustdoc"
RUSTDOCFLAGS="-D warnings" cargo doc "${lint_flags[@]}" --no-deps

say "scripts"
shellcheck -x scripts/*.sh .ci/run

if command -v cargo-deny >/dev/null; then
    scripts/deny.sh licenses bans sources
else
    echo "cargo-deny is not installed: \`make deny\` checks licences and sources of the dependencies"
fi
