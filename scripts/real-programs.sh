#!/usr/bin/env bash
# Downloads with real programs, with and without `lull exec`, over an emulated link, and prints a table. Each program
# must end with the same exit code and have the same bytes, also where the file is missing. A download in the
# foreground fills the link when each program starts. Needs root and BPF.
#
#   scripts/real-programs.sh [OPTION…] [PROGRAM[:MODES]…]    default: all programs that are below
#
#   --no-install   use the programs that are here
#   --modes LIST   of exec (IPv4), exec6 (IPv6) and pid (moved after the start), for programs without modes of their
#                  own; default: exec,exec6,pid
#   --size BYTES   of the file, default 10000000
#   --beside SECS  how long the foreground fills the link, default 10
#   --rate RATE    of the link, default 20mbit
#   --lull FILE    the program under test; default: target/checked/lull
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

known=(curl curl-h2 wget aria2 chromium git rsync sftp scp apt pip restic skopeo podman)
install=yes
# The second run, on the emulated link, has them from the first.
export MODES=${MODES:-exec,exec6,pid} SIZE=${SIZE:-10000000} BESIDE=${BESIDE:-10} RATE=${RATE:-20mbit}
export LULL=${LULL:-${CARGO_TARGET_DIR:-target}/checked/lull}
while [ $# -gt 0 ]; do
    case $1 in
        --no-install) install=no ;;
        --modes) MODES=$2 && shift ;;
        --size) SIZE=$2 && shift ;;
        --beside) BESIDE=$2 && shift ;;
        --rate) RATE=$2 && shift ;;
        --lull) LULL=$2 && shift ;;
        -*) die "unknown option $1: see the head of $0" ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- "${known[@]}"
for name in "$@"; do
    [[ " ${known[*]} " = *" ${name%%:*} "* ]] || die "unknown program '$name': one of ${known[*]}"
done
wants() {
    [[ " $PROGRAMS " = *" $1"[\ :]* ]]
}
export PROGRAMS="$*"
LULL=$(realpath "$LULL")

if [ -z "${REAL_PROGRAMS_FOLDER:-}" ]; then
    [ "$(id -u)" = 0 ] || die "run it as root: it makes network namespaces and loads BPF"
    if [ $install = yes ]; then
        # A server and a client of each kind.
        apt-get -q update
        DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends --no-remove \
            nginx-light curl wget aria2 chromium git rsync openssh-client openssh-server openssh-sftp-server \
            python3 python3-pip restic skopeo podman docker-registry umoci
    fi
    REAL_PROGRAMS_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/lull-programs.XXXXXX")
    export REAL_PROGRAMS_FOLDER
    trap 'rm -rf --one-file-system "$REAL_PROGRAMS_FOLDER"' EXIT
    chmod 755 "$REAL_PROGRAMS_FOLDER"
    "$LULL" lab emulate --rate "$RATE" --rtt 20ms --buffer 1bdp -- "$0" "$@"
    exit
fi

# From here on in the network namespace of the client.
there=$REAL_PROGRAMS_FOLDER/there
mkdir -p "$there"/{files,ssh,apt,pypi/simple/lullblob,state}

at_server() {
    ip netns exec right1 "$@"
}

make_files() {
    head -c "$SIZE" /dev/urandom >"$there/files/blob"
    # Sparse: the foreground never receives all of it.
    truncate -s 4G "$there/files/foreground"
    cat >"$there/files/page.html" <<'END'
<!doctype html><p id="sum">none</p><script>
fetch(location.hash.slice(1)).then(async (response) => {
  let sum = 0x811c9dc5;
  for (const byte of new Uint8Array(await response.arrayBuffer())) sum = Math.imul(sum ^ byte, 0x01000193) >>> 0;
  document.getElementById("sum").textContent = response.status + " " + sum;
});
</script>
END
}

serve_http() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server -keyout "$there/key" -out "$there/certificate" 2>/dev/null
    cat >"$there/nginx.conf" <<END
daemon off; pid $there/nginx.pid; error_log $there/nginx.log; worker_processes 1; user root;
events { worker_connections 256; }
http {
    access_log off; sendfile on; client_body_temp_path $there/state; proxy_temp_path $there/state;
    fastcgi_temp_path $there/state; uwsgi_temp_path $there/state; scgi_temp_path $there/state;
    default_type application/octet-stream; types { text/html html; }
    server { listen 8000; listen [::]:8000; root $there; autoindex on; }
    server {
        listen 8443 ssl http2; listen [::]:8443 ssl http2; root $there;
        ssl_certificate $there/certificate; ssl_certificate_key $there/key;
    }
}
END
    at_server nginx -c "$there/nginx.conf" &
}

serve_ssh() {
    ssh-keygen -q -t ed25519 -N '' -f "$there/ssh/host"
    ssh-keygen -q -t ed25519 -N '' -f "$there/ssh/user"
    mkdir -p /run/sshd
    at_server "$(command -v sshd)" -D -e -f /dev/null -p 2222 -h "$there/ssh/host" -o PidFile=none -o StrictModes=no \
        -o "AuthorizedKeysFile=$there/ssh/user.pub" -o UsePAM=no -o PermitRootLogin=yes \
        -o Subsystem="sftp internal-sftp" 2>"$there/ssh/log" &
    ssh_options=(-i "$there/ssh/user" -F /dev/null -o Port=2222 -o StrictHostKeyChecking=no -o LogLevel=ERROR
        -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes)
}

serve_git() {
    git init -q "$there/git/repo"
    cp "$there/files/blob" "$there/git/repo/"
    git -C "$there/git/repo" add blob
    git -C "$there/git/repo" -c user.name=a -c user.email=a@example.org commit -q -m blob
    at_server git -c safe.directory='*' daemon --export-all --base-path="$there/git" --reuseaddr --listen=0.0.0.0 --listen=:: \
        2>"$there/git/log" &
}

serve_rsync() {
    printf 'use chroot = no\nreverse lookup = no\n[files]\npath = %s\n' "$there/files" >"$there/rsyncd.conf"
    for family in 4 6; do
        at_server rsync --daemon --no-detach -$family --port 8730 --config "$there/rsyncd.conf" 2>/dev/null &
    done
}

make_apt() {
    mkdir -p "$there/deb/DEBIAN"
    printf 'Package: lullblob\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: test\n' \
        >"$there/deb/DEBIAN/control"
    cp "$there/files/blob" "$there/deb/"
    dpkg-deb --build -Znone "$there/deb" "$there/apt/lullblob.deb" >/dev/null
    (
        cd "$there/apt"
        cat ../deb/DEBIAN/control
        echo "Filename: ./lullblob.deb"
        echo "Size: $(stat -c %s lullblob.deb)"
        echo "SHA256: $(sha256sum lullblob.deb | cut -d ' ' -f 1)"
    ) >"$there/apt/Packages"
}

make_wheel() {
    python3 - "$there/files/blob" "$there/pypi/simple/lullblob/lullblob-1-py3-none-any.whl" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[2], "w") as wheel:
    wheel.write(sys.argv[1], "lullblob/blob")
    wheel.writestr("lullblob-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: lullblob\nVersion: 1\n")
    wheel.writestr("lullblob-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("lullblob-1.dist-info/RECORD", "")
END
    echo '<a href="lullblob-1-py3-none-any.whl">lullblob</a>' >"$there/pypi/simple/lullblob/index.html"
}

make_restic() {
    export RESTIC_PASSWORD=blob
    restic -q --no-cache -r "$there/restic" init
    restic -q --no-cache -r "$there/restic" backup "$there/files/blob"
}

serve_images() {
    local umoci=(umoci --log error)
    "${umoci[@]}" init --layout "$there/image"
    "${umoci[@]}" new --image "$there/image:1"
    "${umoci[@]}" unpack --image "$there/image:1" "$there/bundle"
    cp "$there/files/blob" "$there/bundle/rootfs/"
    "${umoci[@]}" repack --image "$there/image:1" "$there/bundle"
    cat >"$there/registry.yml" <<END
version: 0.1
log: { level: error, accesslog: { disabled: true } }
storage: { filesystem: { rootdirectory: $there/registry } }
http: { addr: ":5000" }
END
    at_server docker-registry serve "$there/registry.yml" 2>"$there/registry.log" &
    mkdir -p "$there/containers"
    echo '{"default":[{"type":"insecureAcceptAnything"}]}' >"$there/containers/policy.json"
    wait_for 5000
    at_server skopeo --policy "$there/containers/policy.json" copy -q --dest-tls-verify=false \
        "oci:$there/image:1" docker://127.0.0.1:5000/blob:1
}

wait_for() {
    for _ in $(seq 100); do
        at_server bash -c ": </dev/tcp/127.0.0.1/$1" 2>/dev/null && return
        sleep 0.1
    done
    die "no server listens at port $1: see $there"
}

set_up() {
    make_files
    serve_http
    wait_for 8000
    if wants sftp || wants scp || wants restic; then
        serve_ssh
        wait_for 2222
    fi
    if wants git; then serve_git && wait_for 9418; fi
    if wants rsync; then serve_rsync && wait_for 8730; fi
    if wants apt; then make_apt; fi
    if wants pip; then make_wheel; fi
    if wants restic; then make_restic; fi
    if wants skopeo || wants podman; then serve_images; fi
}

# Sets `command`: how a program downloads a file from a host ("blob", or "missing", which is not there) into a folder.
command_of() {
    local program=$1 host=$2 file=$3 out=$4 plain=${2//[][]/}
    local url=http://$host:8000
    case $program in
        curl) command=(curl -fsS -o "$out/blob" "$url/files/$file") ;;
        # TLS and HTTP/2, and no older version.
        curl-h2)
            command=(sh -c "version=\$(curl -fsSk --http2 -w '%{http_version}' -o '$out/blob' 'https://$host:8443/files/$file') && \
                [ \$version = 2 ]") ;;
        wget) command=(wget -q -O "$out/blob" "$url/files/$file") ;;
        aria2) command=(aria2c -q -x16 -s16 -k1M -d "$out" -o blob "$url/files/$file") ;;
        chromium)
            command=(sh -c "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                --disable-background-networking --disable-component-update --disable-sync --user-data-dir='$out.profile' \
                --virtual-time-budget=60000 --dump-dom '$url/files/page.html#$file' 2>/dev/null >'$out/page'") ;;
        git)
            [ "$file" = missing ] || file=repo
            command=(git clone -q "git://$host/$file" "$out/repo") ;;
        rsync) command=(rsync -a "rsync://$host:8730/files/$file" "$out/blob") ;;
        sftp) command=(sftp -q "${ssh_options[@]}" "root@$host:$there/files/$file" "$out/blob") ;;
        scp) command=(scp -q "${ssh_options[@]}" "root@$host:$there/files/$file" "$out/blob") ;;
        apt)
            mkdir -p "$out.apt"/{lists/partial,archives/partial,parts}
            echo "deb [trusted=yes] $url/apt ./" >"$out.apt/sources.list"
            [ "$file" = missing ] || file=lullblob
            cat >"$out.apt/conf" <<END
Dir::Etc { SourceList "$out.apt/sources.list"; SourceParts "$out.apt/parts"; };
Dir::State::Lists "$out.apt/lists"; Dir::Cache "$out.apt"; Acquire::Languages "none"; APT::Sandbox::User "root";
END
            command=(env -C "$out" "APT_CONFIG=$out.apt/conf" sh -c "apt-get -q update && apt-get -q download $file") ;;
        pip)
            [ "$file" = missing ] || file=lullblob
            command=(python3 -m pip download -q --no-deps --no-cache-dir --disable-pip-version-check -d "$out"
                --index-url "$url/pypi/simple" --trusted-host "$plain" "$file") ;;
        restic)
            [ "$file" = missing ] || file=latest
            command=(restic -q --no-cache -r "sftp:server:$there/restic"
                -o "sftp.command=ssh ${ssh_options[*]} root@$plain -s sftp" restore "$file" --target "$out") ;;
        skopeo)
            command=(skopeo --policy "$there/containers/policy.json" copy -q --src-tls-verify=false
                "docker://$host:5000/$file:1" "dir:$out") ;;
        podman)
            command=(podman --root "$out.storage" --runroot "$REAL_PROGRAMS_FOLDER/r" --storage-driver vfs --cgroup-manager cgroupfs
                pull -q --tls-verify=false --signature-policy "$there/containers/policy.json" "$host:5000/$file:1") ;;
    esac
}

# One number for all files of a folder, without what differs from run to run.
digest_of() {
    (cd "$1" && find . -type f ! -path '*/.git/*' -print0 | sort -z | xargs -0 -r sha256sum | sha256sum)
}

# Stops the processes of a group once one of them has a connection. Other connections here belong to the foreground.
stop_with_connection() {
    for _ in $(seq 500); do
        if ss -Htnp state established | grep -v "pid=${foreground:-0}," | grep -q users:; then
            kill -STOP -- "-$1"
            return
        fi
        sleep 0.01
    done
    return 1
}

# Runs `command` in a mode; sets `code` and `seconds`.
run_in_mode() {
    local mode=$1 summary=$2 begin=$EPOCHREALTIME
    code=0
    case $mode in
        plain) "${command[@]}" >"$summary.out" 2>&1 || code=$? ;;
        exec | exec6) "$LULL" exec --json="$summary" -- "${command[@]}" >"$summary.out" 2>&1 || code=$? ;;
        pid)
            setsid "${command[@]}" >"$summary.out" 2>&1 &
            local pid=$!
            # Otherwise it may end before it is moved: on a busy machine that takes longer than the transfer.
            if stop_with_connection "$pid"; then
                "$LULL" exec --pid "$pid" --children >"$summary.moved" 2>&1 || echo "not moved" >>"$summary.moved"
                kill -CONT -- "-$pid"
            else
                echo "no connection was seen" >"$summary.moved"
            fi
            wait "$pid" || code=$?
            ;;
    esac
    seconds=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
}

# Runs a program once; sets code, seconds and digest, and `received`, the megabytes that came in the background.
run_program() {
    local program=$1 mode=$2 file=$3 beside=$4
    local out=$REAL_PROGRAMS_FOLDER/here/$program.$mode.$file host=$LULL_RIGHT_1
    [ "$mode" != exec6 ] || host="[$LULL_RIGHT_1_V6]"
    mkdir -p "$out"
    command_of "$program" "$host" "$file" "$out"
    local foreground=
    if [ "$beside" -gt 0 ]; then
        curl -s --max-time "$beside" -o /dev/null "http://$LULL_RIGHT_1:8000/files/foreground" &
        foreground=$!
        sleep 0.5
    fi
    run_in_mode "$mode" "$out.summary"
    [ -z "$foreground" ] || wait "$foreground" || true
    # podman keeps it in layers, and without the file there is nothing.
    if [ "$program" = podman ] && [ $code = 0 ]; then
        podman --root "$out.storage" --runroot "$REAL_PROGRAMS_FOLDER/r" --storage-driver vfs images -q --no-trunc >"$out/image"
    fi
    digest=$(digest_of "$out")
    received=-
    if [ -s "$out.summary" ]; then
        received=$(python3 -c 'import json, sys
summary = json.load(open(sys.argv[1]))
print(round(summary["tcp_bytes_received"] / 1e6, 1) if summary["received_in_the_background"] else 0)' "$out.summary")
    fi
}

failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# Compares a program with itself, and prints a line of the table.
check() {
    local program=$1 mode=$2 wanted_code=$3 wanted_digest=$4 missing_code=$5 plain_seconds=$6
    run_program "$program" "$mode" blob "$BESIDE"
    local row="$code | $received | $seconds"
    [ "$code" = "$wanted_code" ] || fail "$program, $mode: exit code $code, not $wanted_code: $(tail -n 3 "$REAL_PROGRAMS_FOLDER/here/$program.$mode.blob.summary.out")"
    [ "$digest" = "$wanted_digest" ] || fail "$program, $mode: other bytes"
    if [ "$mode" != pid ] && ! awk -v got="$received" -v size="$SIZE" 'BEGIN { exit !(got * 1e6 >= size * 0.95) }'; then
        fail "$program, $mode: $received MB of $SIZE bytes came in the background"
    fi
    if [ "$mode" = pid ] && ! grep -q 'in the background now' "$REAL_PROGRAMS_FOLDER/here/$program.$mode.blob.summary.moved"; then
        fail "$program: not moved: $(cat "$REAL_PROGRAMS_FOLDER/here/$program.$mode.blob.summary.moved")"
    fi
    local missing=-
    if [ "$mode" = exec ]; then
        run_program "$program" "$mode" missing 0
        missing=$code
        [ "$code" = "$missing_code" ] || fail "$program: exit code $code for a missing file, not $missing_code"
    fi
    printf '| %s | %s | %s | %s | %s |\n' "$program" "$mode" "$row" "$plain_seconds" "$missing"
}

set_up
mkdir "$REAL_PROGRAMS_FOLDER/here"
echo "| program | mode | exit code | MB in the background | seconds, $BESIDE of them beside a foreground | seconds alone without Lull | exit code without the file |"
echo "|---|---|---|---|---|---|---|"
for word in $PROGRAMS; do
    program=${word%%:*} modes=$MODES
    [ "$program" = "$word" ] || modes=${word#*:}
    run_program "$program" plain missing 0
    missing_code=$code
    run_program "$program" plain blob 0
    plain_code=$code plain_digest=$digest plain_seconds=$seconds
    if [ "$code" != 0 ]; then
        fail "$program does not work here: $(tail -n 3 "$REAL_PROGRAMS_FOLDER/here/$program.plain.blob.summary.out")"
        continue
    fi
    for mode in ${modes//,/ }; do
        # Names of images may not contain an IPv6 address.
        [[ "$mode $program" != "exec6 skopeo" && "$mode $program" != "exec6 podman" ]] || continue
        check "$program" "$mode" "$plain_code" "$plain_digest" "$missing_code" "$plain_seconds"
    done
done
[ $failures = 0 ] || die "$failures failures, see above"
