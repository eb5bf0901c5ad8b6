#!/usr/bin/env bash
# Installs the packages of scripts/packages.sh in clean systems, uses them as a newcomer does, upgrades them while a job
# runs, and removes them. Needs root, BPF, and a mirror of Debian.
#
#   scripts/packages-test.sh [SYSTEM…]     default: bookworm trixie rpm
#
# bookworm and trixie are Debian 12 and 13 with the .deb. rpm is Debian 13 with the .rpm and Debian's rpm(8), without its
# database of packages: dependencies are compared with the libraries that are there.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

[ "$(id -u)" = 0 ] || die "run it as root: it makes root file systems"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
deb=$(ls "${CARGO_TARGET_DIR:-target}"/packages/lull_*.deb) || die "run scripts/packages.sh first"
rpm=$(ls "${CARGO_TARGET_DIR:-target}"/packages/lull-*.rpm) || die "run scripts/packages.sh first"
[ $# -gt 0 ] || set -- bookworm trixie rpm

# Everything is in mount and process namespaces, which go with this process.
if [ "${LULL_PACKAGES_INNER:-}" != 1 ]; then
    exec env LULL_PACKAGES_INNER=1 unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/lull-packages.XXXXXX")
tear_down() {
    # What is mounted in a system goes first: nothing of this machine may be removed with it.
    awk -v "below=$work/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r -n 1 umount
    rm -rf --one-file-system "$work"
}
trap tear_down EXIT

# The paths of a system, without what is mounted in it and what every installation changes.
paths() {
    (cd "$1" && find . -xdev ! -path './proc/*' ! -path './sys/*' ! -path './tmp/*' ! -path './newcomer/*' ! -path './dev/net/*' \
        ! -path './var/lib/dpkg/*' ! -path './var/lib/rpm/*' ! -path './var/log/*' ! -path './var/cache/*' ! -path './etc/*-' |
        sort)
}

inside() {
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$root" "$@"
}

# A newcomer: a member of the group, without any right of root.
newcomer() {
    inside setpriv --reuid=1000 --regid=1000 --init-groups --inh-caps=-all --bounding-set=-all sh -c "$1"
}

install_package() {
    if [ "$system" = rpm ]; then
        cp "$rpm" "$root/tmp/lull.rpm"
        libraries=$(inside rpm --query --package --requires /tmp/lull.rpm | grep -o '^lib[^(]*' | sort -u)
        [ -n "$libraries" ] || die "the .rpm names no library that it needs"
        for library in $libraries; do
            inside ldconfig -p | grep -q "	$library " || die "the .rpm needs $library, which is in no package here"
        done
        inside rpm --install --force-debian --nodeps /tmp/lull.rpm
        inside rpm --verify --nodeps lull
    else
        cp "$deb" "$root/tmp/lull.deb"
        inside dpkg --install /tmp/lull.deb
    fi
}

upgrade_package() {
    if [ "$system" = rpm ]; then
        inside rpm --upgrade --force-debian --nodeps --force /tmp/lull.rpm
        return
    fi
    dpkg-deb --raw-extract "$deb" "$work/next"
    sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
    dpkg-deb --build --root-owner-group "$work/next" "$root/tmp/next.deb" >/dev/null
    rm -r "$work/next"
    inside dpkg --install /tmp/next.deb
}

remove_package() {
    if [ "$system" = rpm ]; then
        inside rpm --erase --force-debian lull
        # An .rpm has no purge: the group stays, because users may be in it.
        inside groupdel lull
    else
        inside dpkg --purge lull
    fi
}

for system in "$@"; do
    release=$system packages=libelf1,zlib1g
    [ "$system" != rpm ] || release=trixie packages=libelf1,zlib1g,rpm
    root=$work/$system
    say "Debian $release for $system: a clean system"
    mmdebstrap --quiet --variant=minbase --include=$packages "$release" "$root"
    # A mount point: the emulator makes mounts private from the root on.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    # Of its own: purge removes what Lull has pinned.
    mount -t bpf bpf "$root/sys/fs/bpf"
    inside useradd --create-home --home-dir /newcomer --uid 1000 newcomer
    mkdir -p "$root/dev/net" "$root/run/netns"
    paths "$root" >"$work/before"

    say "install"
    install_package
    inside lull --version
    inside test -f /usr/share/man/man1/lull-exec.1.gz
    inside test -f /usr/lib/systemd/system/lull-serve.socket
    inside bash -c '. /usr/share/bash-completion/completions/lull; complete -p lull' | grep -q lull
    inside getent group lull >/dev/null
    [ -z "$(inside sh -c 'cd /usr/lib/systemd/system && grep -ho "^ExecStart=[^ ]*" lull-* | sort -u | grep -v =/usr/bin/lull')" ] ||
        die "a unit starts another program"
    if command -v systemd-analyze >/dev/null; then
        units=$(cd packaging/systemd && echo * | sed 's/@/@test/g')
        # Units of systemd itself are not in a minimal system.
        # shellcheck disable=SC2086
        faults=$(systemd-analyze verify --man=no --root="$root" $units 2>&1 | grep -v 'not found\|Failed to load\|Failed to add dependency' || true)
        [ -z "$faults" ] || die "$faults"
    fi

    say "use as an ordinary user"
    inside usermod --append --groups lull newcomer
    inside lull kernel serve &
    server=$!
    # The socket is there before it belongs to the group.
    for _ in $(seq 100); do
        [ "$(stat --format %a "$root/run/lull.sock" 2>/dev/null)" = 660 ] && break
        sleep 0.1
    done
    newcomer 'lull doctor' || die "lull doctor finds a problem"
    mkfifo "$root/newcomer/input"
    chown 1000 "$root/newcomer/input"
    cp scripts/transfer.pl "$root/tmp/"
    newcomer 'cd /newcomer && exec lull exec -- perl /tmp/transfer.pl <input >out 2>&1' &
    job=$!
    exec 3>"$root/newcomer/input"
    for _ in $(seq 100); do
        newcomer 'lull top --once --json --interval 0.5' >"$work/view"
        grep -q '"process":"perl"' "$work/view" && break
        sleep 0.1
    done
    grep -q '"process":"perl"' "$work/view" || die "lull top does not show the job: $(cat "$work/view")"
    say "an ordinary user's upload yields to another one over a slow link"
    cp scripts/upload.pl scripts/newcomer.sh "$root/tmp/"
    [ -e "$root/dev/net/tun" ] || mknod "$root/dev/net/tun" c 10 200
    inside lull lab emulate --rate 4mbit --rtt 40ms --right 2 -- sh /tmp/newcomer.sh

    say "upgrade while the job runs"
    upgrade_package
    newcomer 'lull top --once --json --interval 0.5' >"$work/view"
    grep -q '"process":"perl"' "$work/view" || die "the job left the background: $(cat "$work/view")"
    exec 3>&-
    wait "$job" || die "the job failed: $(cat "$root/newcomer/out")"
    grep -q '^lull: sent ' "$root/newcomer/out" || die "no summary: $(cat "$root/newcomer/out")"

    say "remove"
    kill "$server"
    wait "$server" || true
    inside gpasswd --delete newcomer lull >/dev/null
    remove_package
    paths "$root" >"$work/after"
    diff "$work/before" "$work/after" || die "the package left something, see above"
    ! inside getent group lull || die "the package left the group"
    tear_down
    mkdir -p "$work"
done
say "ok"
