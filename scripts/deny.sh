#!/usr/bin/env bash
# Holds the dependencies against deny.toml. Without arguments all of it, and installs cargo-deny
# if it is missing, which takes some minutes; the advisories are fetched from the network.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

if ! command -v cargo-deny >/dev/null; then
    say "installing cargo-deny"
    cargo install --locked cargo-deny
fi
say "dependencies"
cargo deny --workspace check "$@"
