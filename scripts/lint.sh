#!/usr/bin/env bash
# Checks formatting, clippy, documentation and scripts.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh lint
scripts/docs.sh

# The profile and folder of the tests, so that build scripts and procedural macros are compiled once. Cargo works on one
# of both at a time: the tests' build, then these.
say "formatting"
cargo fmt --all --check

say "clippy"
# Includes the targets of `cargo fuzz`. Nothing is linked, so the library named here need not exist.
CUSTOM_LIBFUZZER_PATH=/nowhere/libnone.a \
    cargo clippy "${cargo_flags[@]}" --features lull-fuzz/libfuzzer --all-targets -- -D warnings

say "rustdoc"
RUSTDOCFLAGS="-D warnings" cargo doc "${cargo_flags[@]}" --no-deps

say "scripts"
shellcheck -x scripts/*.sh .ci/run

if command -v cargo-deny >/dev/null; then
    scripts/deny.sh licenses bans sources
else
    echo "cargo-deny is not installed: \`make deny\` checks licences and sources of the dependencies"
fi
