#!/usr/bin/env bash
# Checks the dependencies against deny.toml: all of it, or the checks that the arguments name. It installs cargo-deny if
# that is missing, which takes some minutes. Advisories come from the network.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

if ! command -v cargo-deny >/dev/null; then
    say "installing cargo-deny"
    cargo install --locked cargo-deny
fi
say "dependencies"
cargo deny --workspace check "$@"
