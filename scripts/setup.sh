#!/usr/bin/env bash
# Installs what Lull needs and this machine has not: Debian packages, and the Rust toolchain.
#
#   scripts/setup.sh          to build, to run the demo and the tests
#   scripts/setup.sh lint     and to check the scripts
#
# Touches nothing when nothing is missing.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

missing=()

# need PACKAGE WHAT…: each WHAT is a file (an absolute path) or a program.
need() {
    local package=$1 what
    shift
    for what in "$@"; do
        case $what in
            /*) [ -e "$what" ] && continue ;;
            *) command -v "$what" >/dev/null && continue ;;
        esac
        missing+=("$package")
        return
    done
}

# To build: the linker, the compiler for BPF, and what libbpf links to.
need gcc gcc cc
need libc6-dev /usr/include/stdio.h
need make make
need pkg-config pkg-config
need clang clang
need libelf-dev /usr/include/libelf.h
need zlib1g-dev /usr/include/zlib.h
need ca-certificates /etc/ssl/certs/ca-certificates.crt

# To run the demo and the tests: namespaces and links, and programs that know nothing of Lull.
need iproute2 ip tc
need util-linux unshare setsid
need ethtool ethtool
need iperf3 iperf3
need rsync rsync
need python3 python3

if [ "${1:-}" = lint ]; then
    need shellcheck shellcheck
fi

apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
apt_updated=no

apt_update() {
    if [ $apt_updated = no ]; then
        as_root "${apt[@]}" update || echo "lull: apt-get update failed; trying with the old lists" >&2
        apt_updated=yes
    fi
}

# apt-get install, after one apt-get update. Never asks, never removes a package.
apt_install() {
    apt_update
    as_root "${apt[@]}" install -y --no-install-recommends --no-remove "$@"
}

# Whether the distribution has PACKAGE.
apt_has() {
    command -v apt-get >/dev/null || return 1
    apt_update
    local policy
    policy=$(LC_ALL=C apt-cache policy "$1")
    [[ $policy =~ Candidate:\ [0-9] ]]
}

if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's names). \
There is no apt-get here: install them with this machine's package manager, then run it again."
    say "installing ${missing[*]}"
    apt_install "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
fi

# Rust. rustup follows rust-toolchain.toml by itself; a Rust without rustup must be new enough.
wanted=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)

rust_is_there() {
    local have
    have=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    [ -n "$have" ] && cargo --version >/dev/null 2>&1 || return 1
    [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ]
}

install_toolchain() {
    say "installing Rust $wanted"
    rustup toolchain install "$wanted" --profile minimal --component rustfmt --component clippy ||
        die "rustup could not install Rust $wanted: see above"
}

if ! rust_is_there; then
    if command -v rustup >/dev/null; then
        install_toolchain
    elif apt_has rustup; then
        say "installing rustup"
        apt_install rustup || die "apt-get could not install rustup. If Debian's own rustc or cargo \
is in the way, remove it, then run it again."
        install_toolchain
    fi
    rust_is_there || die "Rust $wanted or newer is missing, and this distribution has no rustup: \
install it from https://rustup.rs, then run it again."
fi
