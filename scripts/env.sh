# shellcheck shell=bash
# Every script here sources this first: stop at the first error, change to the root of the tree, and add folders of
# programs that are not in a user's PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Tools that scripts/setup.sh installs into the tree.
tools=$PWD/target/tools
[ -z "${CARGO_TARGET_DIR:-}" ] || tools=$CARGO_TARGET_DIR/tools
export PATH="$PATH:$tools/bin:$HOME/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin"

# One profile for the demo, the tests and the lints, so that everything is compiled once.
# shellcheck disable=SC2034 # read by the scripts that source this one
cargo_flags=(--profile checked --workspace)
# In `cargo nextest` a profile is one of .config/nextest.toml.
# shellcheck disable=SC2034
nextest_flags=(--cargo-profile checked)
if [ "${CI:-}" = true ]; then
    cargo_flags+=(--locked)
    nextest_flags+=(--locked)
fi

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf 'lull: %s\n' "$*" >&2
    exit 1
}

# Runs a command as root: as it is, or by sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "not root, and no sudo: run as root: $*"
    fi
}
