# shellcheck shell=bash
# Sourced by the scripts that package the programs, with their arguments: [--no-build] [PROFILE].
# shellcheck disable=SC2034 # read by the scripts that source this one
build=yes
if [ "${1:-}" = --no-build ]; then
    build=no
    shift
fi
profile=${1:-release}
if [ $# -gt 1 ] || [[ $profile = -* ]]; then
    die "unknown arguments '$*': see the head of $0"
fi
target=${CARGO_TARGET_DIR:-target}
out=$target/packages
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
[ -n "$version" ] || die "Cargo.toml names no version"
