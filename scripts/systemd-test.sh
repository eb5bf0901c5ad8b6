#!/usr/bin/env bash
# Boots Debian 13 with systemd as process 1 of its own namespaces, installs the .deb of scripts/packages.sh there, and
# uses each unit: the server for ordinary users, the slice, the exporter, a proxy, an origin and a replica. Then it
# upgrades while a unit runs in the background, and purges. Needs root, BPF, and a mirror of Debian. No other program of
# this machine may use Lull meanwhile.
#
#   scripts/systemd-test.sh [RELEASE]     default: trixie
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

[ "$(id -u)" = 0 ] || die "run it as root: it makes a root file system"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
deb=$(ls "${CARGO_TARGET_DIR:-target}"/packages/lull_*.deb) || die "run scripts/packages.sh first"
release=${1:-trixie}

# Everything is in mount and process namespaces, which go with this process.
if [ "${LULL_SYSTEMD_INNER:-}" != 1 ]; then
    exec env LULL_SYSTEMD_INNER=1 unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi

# The kernel has each name once, and the system below has its own record of what is loaded.
! grep -qw lull /proc/sys/net/ipv4/tcp_available_congestion_control ||
    die "'lull' is loaded on this machine: end its programs, and run 'lull kernel unload'"
hierarchy=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$hierarchy" ] || die "cgroup v2 is not mounted"
work=$(mktemp -d "${TMPDIR:-/tmp}/lull-systemd.XXXXXX")
cgroup=$hierarchy/$(basename "$work")
root=$work/root
init=
tear_down() {
    status=$?
    [ $status = 0 ] || tail -n 40 "$work/console" 2>/dev/null || true
    [ -z "$init" ] || kill -KILL "$init" 2>/dev/null || true
    [ -z "$init" ] || wait "$init" 2>/dev/null || true
    # Its processes end with process 1, a little later.
    for _ in $(seq 100); do
        find "$cgroup" -depth -type d -exec rmdir {} \; 2>/dev/null || true
        [ -d "$cgroup" ] || break
        sleep 0.1
    done
    # What is mounted in the system goes first: nothing of this machine may be removed with it.
    awk -v "below=$work/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r -n 1 umount
    rm -rf --one-file-system "$work"
}
trap tear_down EXIT

say "Debian $release with systemd"
# No udev: devices are those of this machine.
mmdebstrap --quiet --variant=minbase --include=libelf1,zlib1g,systemd,systemd-sysv,dbus "$release" "$root"
cp scripts/transfer.pl "$root/usr/local/bin/transfer.pl"
cp "$deb" "$root/opt/lull.deb"
chroot "$root" useradd --create-home --uid 1000 newcomer
: >"$root/etc/machine-id"
for unit in systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service systemd-remount-fs.service \
    getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer systemd-firstboot.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

# Process 1 has its own cgroup namespace, so the whole hierarchy is its own. It cannot change settings of this machine.
mkdir "$cgroup"
cat >"$work/boot" <<END
set -e
echo \$\$ >"$cgroup/cgroup.procs"
exec unshare --cgroup --net --uts --ipc --mount --pid --fork --kill-child sh -c '
    set -e
    mount --bind "$root" "$root"
    mount -t proc none "$root/proc"
    mount -t tmpfs none "$root/run"
    mount -t tmpfs -o mode=755 none "$root/dev"
    for device in null zero full random urandom tty; do
        touch "$root/dev/\$device"
        mount --bind /dev/\$device "$root/dev/\$device"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 none "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount -t sysfs -o ro none "$root/sys"
    mount -t cgroup2 none "$root/sys/fs/cgroup"
    mount -t bpf none "$root/sys/fs/bpf"
    cd "$root"
    mount --move . /
    exec env -i container=lull PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --log-target=console --show-status=no
'
END
sh "$work/boot" >"$work/console" 2>&1 </dev/null &
init=$!

# unshare starts process 1 as its only child.
is_booted() {
    process_1=$(cut -d ' ' -f 1 "/proc/$init/task/$init/children")
    [ "$(cat "/proc/$process_1/comm")" = systemd ] && at_root test -S /run/systemd/private
}

at_root() {
    nsenter --target "$process_1" --all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
}

# As a service of its own, as if started by an administrator or a login.
run() {
    at_root systemd-run --quiet --pipe --wait --collect "$@" </dev/null
}

wait_until() {
    local what=$1
    shift
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    die "not in time: $what"
}

wait_until "systemd runs" is_booted
state=$(at_root systemctl is-system-running --wait || true)
say "systemd $(at_root systemctl --version | head -n 1 | cut -d ' ' -f 2) is process 1: $state"
[ "$state" = running ] || at_root systemctl --failed --no-pager

say "install"
at_root dpkg --install /opt/lull.deb
at_root usermod --append --groups lull newcomer
at_root systemctl enable --now lull-serve.socket
[ "$(at_root stat --format '%a %G' /run/lull.sock)" = "660 lull" ] || die "the socket is of others"

say "an ordinary user runs a program in the background"
as_newcomer=(run --uid=newcomer --property=WorkingDirectory=~)
"${as_newcomer[@]}" lull doctor
"${as_newcomer[@]}" lull exec -- perl /usr/local/bin/transfer.pl >"$work/said" 2>&1 || die "$(cat "$work/said")"
cat "$work/said"
grep -q '^lull: sent ' "$work/said" || die "no summary"

say "a unit in lull-background.slice"
# Its congestion control, and then it stays with an open connection.
cat >"$root/usr/local/bin/sender" <<'END'
use Socket;
socket(my $listener, PF_INET, SOCK_STREAM, 0); bind($listener, sockaddr_in(0, INADDR_LOOPBACK)); listen($listener, 1);
socket(my $client, PF_INET, SOCK_STREAM, 0); connect($client, getsockname($listener)); accept(my $server, $listener);
syswrite($client, "x" x 2000);
open(my $out, ">", "/run/sender.out"); print $out unpack("Z*", getsockopt($client, 6, 13)), "\n"; close($out);
sleep(1000);
END
cat >"$root/etc/systemd/system/sender.service" <<'END'
[Service]
ExecStart=/usr/bin/perl /usr/local/bin/sender
END
mkdir "$root/etc/systemd/system/sender.service.d"
# The drop-in of docs/how-to/background.md.
sed -n '/^\[Unit\]/,/^```/p' docs/how-to/background.md | sed '/^```/,$d' >"$root/etc/systemd/system/sender.service.d/override.conf"
cat "$root/etc/systemd/system/sender.service.d/override.conf"
at_root systemctl daemon-reload
at_root systemctl start sender.service
wait_until "the sender has connected" at_root test -s /run/sender.out
at_root cat /run/sender.out
[ "$(at_root cat /run/sender.out)" = lull ] || die "the unit is not in the background"
at_root lull jobs
at_root lull jobs | grep -q '^slice  lull-background.slice  running ' || die "lull jobs does not list the slice"
at_root lull jobs pause lull-background.slice
at_root grep -q 'frozen 1' /sys/fs/cgroup/lull.slice/lull-background.slice/cgroup.events || die "the slice is not paused"
at_root lull jobs resume lull-background.slice
cat >"$root/usr/local/bin/congestion" <<'END'
use Socket;
socket(my $listener, PF_INET, SOCK_STREAM, 0); bind($listener, sockaddr_in(0, INADDR_LOOPBACK)); listen($listener, 1);
socket(my $client, PF_INET, SOCK_STREAM, 0); connect($client, getsockname($listener));
print unpack("Z*", getsockopt($client, 6, 13));
END
[ "$(run --slice=lull-background.slice perl /usr/local/bin/congestion)" = lull ] || die "systemd-run --slice is not in the background"

say "the session of a user"
cat >"$root/etc/systemd/system/session.service" <<'END'
[Service]
Type=oneshot
User=newcomer
Slice=user-1000.slice
StandardOutput=file:/run/session.out
ExecStart=/usr/bin/perl /usr/local/bin/congestion
END
mkdir "$root/etc/systemd/system/session.service.d"
# The drop-in of docs/how-to/background.md for user@1000.service.
{
    echo '[Service]'
    grep '^ExecStartPre=+/usr/bin/lull kernel slice /user.slice/user-1000.slice$' docs/how-to/background.md
} >"$root/etc/systemd/system/session.service.d/override.conf"
at_root systemctl daemon-reload
at_root systemctl start session.service
[ "$(at_root cat /run/session.out)" = lull ] || die "the session is not in the background"

say "exporter, origin, replica and proxy"
fetch() {
    # shellcheck disable=SC2016 # Perl's variables
    at_root perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new($ARGV[0]) or exit 1;
        print $s "GET $ARGV[1] HTTP/1.0\r\nHost: localhost\r\n\r\n"; print while <$s>' "$@"
}
at_root systemctl enable --now lull-exporter.service
wait_until "the exporter listens" fetch 127.0.0.1:9848 /metrics
fetch 127.0.0.1:9848 /metrics | grep -q 'lull-background.slice' || die "the exporter does not show the slice"
mkdir -p "$root/etc/lull"
at_root mkdir -p /var/lib/lull-origin /var/lib/lull-replica /opt/public
at_root lull origin init /var/lib/lull-origin/files
echo 'OPTIONS=--listen 127.0.0.1:7070' >"$root/etc/lull/origin-files.conf"
at_root systemctl enable --now lull-origin@files.service
make_ticket() {
    at_root lull origin ticket /var/lib/lull-origin/files paris --address 127.0.0.1:7070 >"$work/ticket"
}
wait_until "the origin answers" make_ticket
at_root lull replica join - /var/lib/lull-replica/paris <"$work/ticket"
echo 'OPTIONS=--http 127.0.0.1:7080' >"$root/etc/lull/replica-paris.conf"
at_root systemctl enable --now lull-replica@paris.service
at_root sh -c 'echo hello >/opt/public/index.html'
wait_until "the replica answers" fetch 127.0.0.1:7080 /
at_root lull publish /opt/public --origin /var/lib/lull-origin/files --wait paris
fetch 127.0.0.1:7080 /index.html | grep -q hello || die "the replica does not have the file"
echo 'OPTIONS=--upstream http://127.0.0.1:7080 --listen 127.0.0.1:8080 --model /var/lib/lull-web/site.model' >"$root/etc/lull/web-site.conf"
at_root systemctl enable --now lull-web@site.service
wait_until "the proxy listens" fetch 127.0.0.1:8080 /index.html
fetch 127.0.0.1:8080 /index.html | grep -q hello || die "the proxy does not have the page"
at_root systemctl reload lull-web@site.service
services="lull-exporter lull-origin@files lull-replica@paris lull-web@site"
for service in lull-origin@files lull-replica@paris lull-web@site; do
    pid=$(at_root systemctl show --property=MainPID --value $service)
    [ "$(at_root stat --format %u "/proc/$pid")" -gt 1000 ] || die "$service runs as root"
done
# shellcheck disable=SC2086
at_root systemctl is-active $services

say "upgrade while the unit runs"
dpkg-deb --raw-extract "$deb" "$work/next"
sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
dpkg-deb --build --root-owner-group "$work/next" "$root/opt/next.deb" >/dev/null
before=$(at_root systemctl show --property=MainPID sender.service lull-web@site.service | sort -u)
at_root dpkg --install /opt/next.deb
sleep 1
after=$(at_root systemctl show --property=MainPID sender.service lull-web@site.service | sort -u)
[ "$(comm -12 <(echo "$before") <(echo "$after") | grep -c MainPID)" = 1 ] ||
    die "the upgrade restarts the proxy, and not the unit of others: $before / $after"
# shellcheck disable=SC2086
at_root systemctl is-active $services
at_root lull jobs | grep -q '^slice  lull-background.slice  running ' || die "the slice left the background"

say "purge"
at_root systemctl stop sender.service
at_root dpkg --purge lull
for left in /run/lull.sock /etc/lull /var/lib/lull-web /var/lib/private/lull-web /var/lib/lull-origin \
    /var/lib/private/lull-origin /var/lib/lull-replica /var/lib/private/lull-replica /sys/fs/bpf/lull; do
    ! at_root test -e $left || die "purge left $left"
done
! at_root systemctl list-units --all --no-legend 'lull*' | grep -v 'not-found\|lull.slice\|lull-background.slice' || die "purge left units"
! at_root find /etc/systemd/system -name 'lull*' | grep . || die "purge left units"
say "ok"
