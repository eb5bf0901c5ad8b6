# shellcheck shell=bash
# Sourced by the scripts that package the programs, with their arguments: [--no-build] [PROFILE].
# shellcheck disable=SC2034 # read by the scripts that source this one
build=yes
if [ "${1:-}" = --no-build ]; then
    build=no
    shift
fi
profile=${1:-dist}
if [ $# -gt 1 ] || [[ $profile = -* ]]; then
    die "unknown arguments '$*': see the head of $0"
fi
target=${CARGO_TARGET_DIR:-target}
out=$target/packages
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
[ -n "$version" ] || die "Cargo.toml names no version"

# Builds programs of the package lull. With the profile dist the linker merges equal functions and shortens relocations,
# if the linker and the C library of this machine can do that.
build_programs() {
    local program option try link=()
    if [ "$profile" = dist ]; then
        try=$(mktemp -d)
        echo 'fn main() {}' >"$try/main.rs"
        for option in --icf=all -z,pack-relative-relocs; do
            if rustc -C "link-arg=-Wl,$option" -o "$try/main" "$try/main.rs" 2>/dev/null && "$try/main"; then
                link+=(-C "link-arg=-Wl,$option")
            fi
        done
        rm -r "$try"
    fi
    for program in "$@"; do
        cargo rustc --profile "$profile" --package lull --bin "$program" -- "${link[@]}"
    done
}
