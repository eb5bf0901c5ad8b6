#!/usr/bin/env bash
# Formatting, clippy, docs and scripts: what a review should not have to talk about.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh lint

say "formatting"
cargo fmt --all --check

say "clippy"
cargo clippy "${cargo_flags[@]}" --all-targets -- -D warnings

say "docs"
RUSTDOCFLAGS="-D warnings" cargo doc "${cargo_flags[@]}" --no-deps

say "scripts"
shellcheck -x scripts/*.sh .ci/run

if command -v cargo-deny >/dev/null; then
    scripts/deny.sh licenses bans sources
else
    echo "cargo-deny is not installed: \`make deny\` checks licences and sources of the dependencies"
fi
