#!/usr/bin/env bash
# Formatting, clippy, docs and scripts: what a review should not have to talk about.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh lint

say "formatting"
cargo fmt --all --check

say "clippy"
# And what `cargo fuzz` builds: nothing of it is linked here, so nobody needs the library that it would link.
CUSTOM_LIBFUZZER_PATH=/nowhere/libnone.a \
    cargo clippy "${cargo_flags[@]}" --features lull-fuzz/libfuzzer --all-targets -- -D warnings

say "docs"
RUSTDOCFLAGS="-D warnings" cargo doc "${cargo_flags[@]}" --no-deps

say "scripts"
shellcheck -x scripts/*.sh .ci/run

if command -v cargo-deny >/dev/null; then
    scripts/deny.sh licenses bans sources
else
    echo "cargo-deny is not installed: \`make deny\` checks licences and sources of the dependencies"
fi
