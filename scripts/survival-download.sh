#!/usr/bin/env bash
# Downloads under `lull exec` beside a download that fills the link all the time: none may fail that would survive without
# Lull. 5 MB and 200 kB by curl with --speed-time from nginx, whose send_timeout is the usual 60 s, 5 MB by scp with
# ServerAliveInterval 15 and by apt. The link has 4 Mbit/s down, 60 ms and 256 kB of buffer. Needs root and BPF.
#
#   scripts/survival-download.sh [SECONDS [LULL]]     default: 600 and target/checked/lull
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

export LONG=${1:-600}
LULL=$(realpath "${2:-${CARGO_TARGET_DIR:-target}/checked/lull}")
export LULL

if [ -z "${SURVIVAL_FOLDER:-}" ]; then
    [ "$(id -u)" = 0 ] || die "run it as root: it makes network namespaces and loads BPF"
    for tool in nginx sshd scp curl python3; do
        command -v $tool >/dev/null || die "$tool is missing: apt-get install nginx-light openssh-server openssh-client curl python3"
    done
    SURVIVAL_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/lull-survival.XXXXXX")
    export SURVIVAL_FOLDER
    trap 'rm -rf --one-file-system "$SURVIVAL_FOLDER"' EXIT
    chmod 755 "$SURVIVAL_FOLDER"
    "$LULL" lab emulate --rate 4mbit --rtt 60ms --buffer 256kB --right 2 -- "$0" "$LONG" "$LULL"
    exit
fi

there=$SURVIVAL_FOLDER
at_server() {
    ip netns exec right1 "$@"
}

mkdir "$there"/{files,logs,here}
head -c 5000000 /dev/urandom >"$there/files/large"
head -c 200000 /dev/urandom >"$there/files/small"
cat >"$there/nginx.conf" <<END
daemon off; pid $there/nginx.pid; error_log $there/nginx.log; worker_processes 1; user root;
events { worker_connections 64; }
http {
    access_log off; client_body_temp_path $there/logs; proxy_temp_path $there/logs;
    fastcgi_temp_path $there/logs; uwsgi_temp_path $there/logs; scgi_temp_path $there/logs;
    server { listen 8083; send_timeout 60s; root $there/files; }
}
END
at_server nginx -c "$there/nginx.conf" &
ssh-keygen -q -t ed25519 -N '' -f "$there/host"
ssh-keygen -q -t ed25519 -N '' -f "$there/user"
mkdir -p /run/sshd
at_server "$(command -v sshd)" -D -e -f /dev/null -p 2222 -h "$there/host" -o PidFile=none -o StrictModes=no \
    -o "AuthorizedKeysFile=$there/user.pub" -o UsePAM=no -o PermitRootLogin=yes -o Subsystem="sftp internal-sftp" \
    2>"$there/sshd.log" &
# The foreground, from another host.
ip netns exec right2 python3 -c 'import socket
listener = socket.create_server(("", 5001))
while True:
    server = listener.accept()[0]
    try:
        while server.send(bytes(65536)):
            pass
    except OSError:
        pass' &
for port in 2222 8083; do
    for _ in $(seq 100); do
        at_server bash -c ": </dev/tcp/127.0.0.1/$port" 2>/dev/null && break
        sleep 0.1
    done
done

python3 -c 'import socket, sys, time
end = time.monotonic() + float(sys.argv[2])
client = socket.create_connection((sys.argv[1], 5001))
client.settimeout(5)
total = 0
while time.monotonic() < end:
    try:
        total += len(client.recv(65536))
    except TimeoutError:
        pass
print(f"foreground: {total * 8 / float(sys.argv[2]) / 1e6:.2f} Mbit/s")' "$LULL_RIGHT_2" "$LONG" &
foreground=$!
sleep 2

# Runs a job until the foreground ends. It fails if it ends before with an error; a short one is repeated.
jobs=()
start() {
    repeat "$@" &
    jobs+=($!)
}
repeat() {
    local name=$1 status=0 count=0 begin=$SECONDS
    shift
    while kill -0 "$foreground" 2>/dev/null; do
        "$LULL" exec --quiet -- "$@" >"$there/$name.out" 2>&1 || status=$?
        if [ $status != 0 ]; then
            echo "$name: FAILED after $((SECONDS - begin)) s: exit code $status: $(tail -n 2 "$there/$name.out")"
            return 1
        fi
        count=$((count + 1))
    done
    echo "$name: done $count times in $((SECONDS - begin)) s"
}

url=http://$LULL_RIGHT_1:8083
start scp scp -q -F /dev/null -i "$there/user" -P 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
    -o ServerAliveInterval=15 -o ServerAliveCountMax=3 "root@$LULL_RIGHT_1:$there/files/large" "$there/here/scp"
# curl gives up with less than a byte per second for half a minute, apt after 30 s without a byte.
start curl-large curl -sSf --speed-time 30 --speed-limit 1 -o "$there/here/large" "$url/large"
start curl-small curl -sSf --speed-time 30 --speed-limit 1 -o "$there/here/small" "$url/small"
start apt /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "$url/large" "$there/here/apt"
wait $foreground
# What is left takes up to this long alone.
deadline=$((SECONDS + 15000000 * 8 / 3600000 + 120))
failed=0
for one in "${jobs[@]}"; do
    while kill -0 "$one" 2>/dev/null && [ $SECONDS -lt $deadline ]; do
        sleep 1
    done
    if kill -0 "$one" 2>/dev/null; then
        echo "a job does not end"
        failed=1
    else
        wait "$one" || failed=1
    fi
done
for name in scp large apt; do
    cmp "$there/files/large" "$there/here/$name" || failed=1
done
[ $failed = 0 ] || die "jobs fail in the background"
