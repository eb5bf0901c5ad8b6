#!/usr/bin/env bash
# Uploads under `lull exec` beside an upload that fills the link all the time: none may fail that would survive without
# Lull. scp of 5 MB with ServerAliveInterval 15, PUTs of 60 MB to Apache with Debian's time limits and to a server that
# closes a connection after 20 s without data, as S3 does, and PUTs of 200 kB to Apache and nginx. The link has 2 Mbit/s
# up, 60 ms and 256 kB of buffer. Needs root and BPF.
#
#   scripts/survival.sh [SECONDS [LULL [COUNT]]]     default: 600, target/checked/lull, and each PUT of 60 MB once
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

export LONG=${1:-600}
LULL=$(realpath "${2:-${CARGO_TARGET_DIR:-target}/checked/lull}")
export LULL
count=${3:-1}

if [ -z "${SURVIVAL_FOLDER:-}" ]; then
    [ "$(id -u)" = 0 ] || die "run it as root: it makes network namespaces and loads BPF"
    for tool in apache2 nginx sshd scp curl python3; do
        command -v $tool >/dev/null || die "$tool is missing: apt-get install apache2-bin nginx-light openssh-server openssh-client curl python3"
    done
    SURVIVAL_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/lull-survival.XXXXXX")
    export SURVIVAL_FOLDER
    trap 'rm -rf --one-file-system "$SURVIVAL_FOLDER"' EXIT
    chmod 755 "$SURVIVAL_FOLDER"
    "$LULL" lab emulate --rate 20mbit --rate-up 2mbit --rtt 60ms --buffer 256kB --right 2 -- "$0" "$LONG" "$LULL" "$count"
    exit
fi

there=$SURVIVAL_FOLDER
at_server() {
    ip netns exec right1 "$@"
}

mkdir -m 777 "$there/dav"
mkdir "$there/logs"
head -c 5000000 /dev/urandom >"$there/medium"
truncate -s 60000000 "$there/large"
head -c 200000 /dev/urandom >"$there/small"

# Apache as Debian has it: its modules and the limits of reqtimeout.conf.
cat >"$there/apache.conf" <<END
ServerRoot $there
ServerName localhost
PidFile $there/apache.pid
ErrorLog $there/apache.log
Listen 8081
Timeout 300
KeepAlive On
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so
LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so
LoadModule reqtimeout_module /usr/lib/apache2/modules/mod_reqtimeout.so
RequestReadTimeout header=20-40,minrate=500
RequestReadTimeout body=10,minrate=500
DavLockDB $there/logs/lock
User nobody
Group nogroup
DocumentRoot $there/dav
<Directory $there/dav>
Dav On
</Directory>
END
chmod 777 "$there/logs"
at_server apache2 -f "$there/apache.conf" -D FOREGROUND &
cat >"$there/nginx.conf" <<END
daemon off; pid $there/nginx.pid; error_log $there/nginx.log; worker_processes 1; user root;
events { worker_connections 64; }
http {
    access_log off; client_max_body_size 1g; client_body_temp_path $there/logs; proxy_temp_path $there/logs;
    fastcgi_temp_path $there/logs; uwsgi_temp_path $there/logs; scgi_temp_path $there/logs;
    server { listen 8082; location / { proxy_pass http://127.0.0.1:8081; proxy_request_buffering on; } }
}
END
at_server nginx -c "$there/nginx.conf" &
at_server python3 -c 'import socket, threading
def serve(connection):
    connection.settimeout(20)
    with connection, connection.makefile("rb") as stream:
        lines = iter(stream.readline, b"\r\n")
        fields = dict(line.strip().lower().split(b": ", 1) for line in lines if b": " in line)
        if b"expect" in fields:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        left = int(fields[b"content-length"])
        while left:
            got = stream.read1(min(left, 65536))
            if not got:
                return
            left -= len(got)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
listener = socket.create_server(("", 8083))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()' 2>/dev/null &
ssh-keygen -q -t ed25519 -N '' -f "$there/host"
ssh-keygen -q -t ed25519 -N '' -f "$there/user"
mkdir -p /run/sshd
at_server "$(command -v sshd)" -D -e -f /dev/null -p 2222 -h "$there/host" -o PidFile=none -o StrictModes=no \
    -o "AuthorizedKeysFile=$there/user.pub" -o UsePAM=no -o PermitRootLogin=yes -o Subsystem="sftp internal-sftp" \
    2>"$there/sshd.log" &
# The foreground, from the same host to another one.
ip netns exec right2 python3 -c 'import socket
listener = socket.create_server(("", 5001))
while True:
    server = listener.accept()[0]
    while server.recv(1 << 16):
        pass' &
for port in 2222 8081 8082 8083; do
    for _ in $(seq 100); do
        at_server bash -c ": </dev/tcp/127.0.0.1/$port" 2>/dev/null && break
        sleep 0.1
    done
done

python3 -c 'import socket, sys, time
end = time.monotonic() + float(sys.argv[2])
client = socket.create_connection((sys.argv[1], 5001))
client.setsockopt(6, 13, b"cubic")
client.settimeout(5)
total = 0
while time.monotonic() < end:
    try:
        total += client.send(bytes(65536))
    except TimeoutError:
        pass
print(f"foreground: {total * 8 / float(sys.argv[2]) / 1e6:.2f} Mbit/s")' "$LULL_RIGHT_2" "$LONG" &
foreground=$!
sleep 2

# Runs a job until the foreground ends. It fails if it ends before with an error; a short one is repeated.
job() {
    local name=$1 status=0 count=0 begin=$SECONDS
    shift
    while kill -0 "$foreground" 2>/dev/null; do
        "$LULL" exec --quiet -- "$@" >"$there/$name.out" 2>&1 || status=$?
        if [ $status != 0 ] && [ ! -e "$there/over" ]; then
            echo "$name: FAILED after $((SECONDS - begin)) s: exit code $status: $(tail -n 2 "$there/$name.out")"
            return 1
        fi
        count=$((count + 1))
    done
    echo "$name: done $count times in $((SECONDS - begin)) s"
}

put=(curl -sSf --no-progress-meter -T)
job scp scp -q -F /dev/null -i "$there/user" -P 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
    -o ServerAliveInterval=15 -o ServerAliveCountMax=3 "$there/medium" "root@$LULL_RIGHT_1:$there/dav/scp" &
jobs=($!)
job apache-small "${put[@]}" "$there/small" "http://$LULL_RIGHT_1:8081/small" &
jobs+=($!)
job nginx-small "${put[@]}" "$there/small" "http://$LULL_RIGHT_1:8082/through" &
jobs+=($!)
large=()
for number in $(seq "$count"); do
    job "apache-$number" "${put[@]}" "$there/large" "http://$LULL_RIGHT_1:8081/large$number" &
    large+=($!)
    job "s3-$number" "${put[@]}" "$there/large" "http://$LULL_RIGHT_1:8083/" &
    large+=($!)
done
wait $foreground
failed=0
# A large one has survived if it still runs when the foreground ends: 60 MB take four minutes alone.
sleep 10
: >"$there/over"
for one in "${large[@]}"; do
    pkill -P "$one" || true
    wait "$one" || failed=1
done
# What the others still have to send takes up to this long.
deadline=$((SECONDS + 5000000 * 8 / 1800000 + 120))
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
cmp "$there/medium" "$there/dav/scp" || failed=1
[ $failed = 0 ] || die "jobs fail in the background"
