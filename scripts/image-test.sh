#!/usr/bin/env bash
# Runs the image of scripts/image.sh with podman, as docs/how-to/containers.md says: an origin, a replica and a proxy, as
# an ordinary user inside, without capabilities and with a read-only root file system. Needs root.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

[ "$(id -u)" = 0 ] || die "run it as root"
command -v podman >/dev/null || die "podman is missing: apt-get install podman crun"
archive=$(ls "${CARGO_TARGET_DIR:-target}"/packages/lull-*.oci.tar) || die "run scripts/image.sh first"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

# Everything is in mount, process and network namespaces, which go with this process.
if [ "${LULL_IMAGE_INNER:-}" != 1 ]; then
    exec env LULL_IMAGE_INNER=1 unshare --mount --pid --net --fork --kill-child --mount-proc "$0" "$@"
fi
ip link set lo up
# crun needs cgroup v2 alone.
[ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup
work=$(mktemp -d "${TMPDIR:-/tmp}/lull-image.XXXXXX")
# crun sets limits that need CAP_SYS_RESOURCE, which some machines lack.
runtime=$(command -v runc || command -v crun)
podman=(podman --runtime "$runtime" --root "$work/storage" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs)
tear_down() {
    status=$?
    [ $status = 0 ] || for name in origin replica web; do "${podman[@]}" logs --tail 5 $name 2>&1 || true; done
    "${podman[@]}" rm --force --all --time 2 >/dev/null 2>&1 || true
    awk -v "below=$work/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r -n 1 umount
    rm -rf --one-file-system "$work"
}
trap tear_down EXIT

# The network of the host, here of the namespace: ports need no set-up.
run() {
    "${podman[@]}" run --network host --pids-limit 0 --cap-drop all --read-only --security-opt no-new-privileges "$@"
}
image=localhost/lull:$version
wait_for() {
    for _ in $(seq 100); do
        curl -sf -o /dev/null "$1" && return
        sleep 0.1
    done
    die "no answer: $1"
}

say "load"
"${podman[@]}" load --quiet --input "$archive"
"${podman[@]}" image inspect --format 'user {{.User}}, ports {{.Config.ExposedPorts}}, volumes {{.Config.Volumes}}' "$image"
run --rm "$image" --version

say "origin and replica"
run --rm --volume origin:/var/lib/lull "$image" origin init /var/lib/lull/origin
run --detach --name origin --volume origin:/var/lib/lull "$image" origin run /var/lib/lull/origin --listen 127.0.0.1:7070
sleep 1
"${podman[@]}" exec origin lull origin ticket /var/lib/lull/origin paris --address 127.0.0.1:7070 >"$work/ticket"
run --rm --interactive --volume replica:/var/lib/lull "$image" replica join - /var/lib/lull/replica <"$work/ticket"
run --detach --name replica --volume replica:/var/lib/lull "$image" replica run /var/lib/lull/replica --http 127.0.0.1:7080
mkdir "$work/public"
echo '<p>hello</p>' >"$work/public/index.html"
chmod -R a+rX "$work/public"
run --rm --volume origin:/var/lib/lull --volume "$work/public:/public:ro" "$image" \
    publish /public --origin /var/lib/lull/origin --wait paris
wait_for http://127.0.0.1:7080/index.html
curl -s http://127.0.0.1:7080/index.html

say "proxy"
run --detach --name web --volume web:/var/lib/lull "$image" \
    web --upstream http://127.0.0.1:7080 --listen 127.0.0.1:8080 --model /var/lib/lull/site.model
wait_for http://127.0.0.1:8080/index.html
curl -s http://127.0.0.1:8080/index.html | grep hello

say "each runs as user 65532, and ends by a signal"
for name in origin replica web; do
    pid=$("${podman[@]}" inspect --format '{{.State.Pid}}' $name)
    [ "$(stat --format %u "/proc/$pid")" = 65532 ] || die "$name runs as another user"
    grep -q '^CapEff:.0*$' "/proc/$pid/status" || die "$name has capabilities"
    "${podman[@]}" stop --time 10 $name >/dev/null
    code=$("${podman[@]}" inspect --format '{{.State.ExitCode}}' $name)
    echo "$name: exit code $code"
    [ "$code" != 137 ] || die "$name had to be killed"
done
say "ok"
