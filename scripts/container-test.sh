#!/usr/bin/env bash
# Runs containers below a cgroup that `lull kernel slice` has put into the background, as docs/how-to/background.md says, with
# podman and with containerd: the connections that a program in the container opens and accepts must be in the background.
# A runtime that is missing is named and left out. Needs root, BPF, and a mirror of Debian.
#
#   scripts/container-test.sh [LULL]     default: target/checked/lull
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

[ "$(id -u)" = 0 ] || die "run it as root: it makes a root file system"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
LULL=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/checked/lull}")

# Everything is in mount and process namespaces, which go with this process. Connections are over loopback.
if [ "${LULL_CONTAINERS_INNER:-}" != 1 ]; then
    exec env LULL_CONTAINERS_INNER=1 unshare --mount --pid --fork --kill-child --mount-proc "$0" "$LULL"
fi
# The runtimes need cgroup v2 alone.
[ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup
work=$(mktemp -d "${TMPDIR:-/tmp}/lull-containers.XXXXXX")
parent=$(basename "$work")
# Other programs of this machine may load and unload `lull` meanwhile.
control=lull_${work##*.}
# Names have lower-case letters only.
control=${control,,}
containerd=
tear_down() {
    [ -z "$containerd" ] || kill "$containerd" 2>/dev/null || true
    [ -z "$containerd" ] || wait "$containerd" 2>/dev/null || true
    find "/sys/fs/cgroup/$parent" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    "$LULL" kernel unload --force --name "$control" >/dev/null 2>&1 || true
    awk -v "below=$work/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r -n 1 umount
    rm -rf --one-file-system "$work"
}
trap tear_down EXIT

say "a root file system with perl"
root=$work/root
mmdebstrap --quiet --variant=essential trixie "$root"
# Prints the congestion control of a connection that it opens and of the accepted one, and the accepted one's window clamp.
cat >"$root/usr/bin/congestions" <<'END'
use Socket;
socket(my $listener, PF_INET, SOCK_STREAM, 0); bind($listener, sockaddr_in(0, INADDR_LOOPBACK)); listen($listener, 1);
socket(my $client, PF_INET, SOCK_STREAM, 0); connect($client, getsockname($listener)); accept(my $server, $listener);
syswrite($client, "x" x 200_000); sysread($server, my $buffer, 100_000);
print join(" ", map { unpack("Z*", getsockopt($_, 6, 13)) } $client, $server), " ", unpack("I", getsockopt($server, 6, 10)), "\n";
END
# The clamp without Lull.
usual=$(chroot "$root" /usr/bin/perl /usr/bin/congestions)
test_in() {
    local what=$1 found
    shift
    found=$("$@" 2>"$work/errors") || die "$what fails: $(tail -n 3 "$work/errors")"
    echo "$what: $found"
    [ "${found% *}" = "$control $control" ] || die "$what is not in the background"
    [ "${found##* }" != "${usual##* }" ] || die "what $what receives is not in the background"
}

"$LULL" kernel load --algorithm lull --name "$control"
"$LULL" kernel slice --cc "$control" "/$parent"
# crun sets limits that need CAP_SYS_RESOURCE, which some machines lack.
runtime=$(command -v runc || command -v crun || true)
tested=0
if command -v podman >/dev/null && [ -n "$runtime" ]; then
    say "podman"
    podman=(podman --runtime "$runtime" --root "$work/storage" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs)
    run=("${podman[@]}" run --rm --network host --pids-limit 0)
    test_in podman "${run[@]}" --cgroup-parent "/$parent" --rootfs "$root" /usr/bin/perl /usr/bin/congestions
    found=$("${run[@]}" --rootfs "$root" /usr/bin/perl /usr/bin/congestions)
    [[ $found != *$control* ]] || die "podman without --cgroup-parent is in the background"
    # Its container is in a cgroup of its own: either Lull finds it, or it says what to do.
    found=$("$LULL" exec --cc "$control" -- "${run[@]}" --rootfs "$root" /usr/bin/perl /usr/bin/congestions 2>"$work/errors")
    echo "lull exec -- podman run: $found"
    cat "$work/errors"
    [ "${found% *}" = "$control $control" ] || grep -q 'in the foreground stays:.*libpod' "$work/errors" ||
        die "lull exec does not say that the container stays in the foreground"
    tested=1
else
    say "podman or runc is missing: not tested"
fi
if command -v containerd >/dev/null && command -v ctr >/dev/null && command -v runc >/dev/null; then
    say "containerd"
    cat >"$work/containerd.toml" <<END
version = 2
root = "$work/containerd"
state = "$work/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "$work/containerd.sock"
END
    containerd --config "$work/containerd.toml" >"$work/containerd.log" 2>&1 &
    containerd=$!
    for _ in $(seq 100); do
        ctr --address "$work/containerd.sock" version >/dev/null 2>&1 && break
        sleep 0.1
    done
    # The machine may have no controller for processors in this hierarchy.
    test_in containerd ctr --address "$work/containerd.sock" run --rm --net-host --cpu-shares 0 --cgroup "/$parent/one" --rootfs "$root" one \
        /usr/bin/perl /usr/bin/congestions
    tested=1
else
    say "containerd, ctr or runc is missing: not tested"
fi
[ $tested = 1 ] || die "no container runtime is here: apt-get install podman containerd runc"
say "ok"
