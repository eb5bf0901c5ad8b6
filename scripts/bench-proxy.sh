#!/usr/bin/env bash
# Compares `lull web` with nginx as a reverse proxy, in front of the same upstream.
#
#   scripts/bench-proxy.sh [SECONDS] [ROUNDS]      defaults: 10 5
#
# Needs nginx and wrk (Debian: nginx-light, wrk), and a machine that does nothing else. One JSON
# object a line: requests a second, CPU time a request of the proxy, and the latencies that wrk
# saw; then medians over the rounds. Each round runs the proxies one after the other, so that a
# machine that changes its speed changes it for both.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

seconds=${1:-10}
rounds=${2:-5}
connections=${CONNECTIONS:-64}
for program in nginx wrk python3; do
    command -v "$program" >/dev/null || die "no $program: apt-get install nginx-light wrk python3"
done

say "building" >&2
cargo build --release --bin lull >&2
lull=${CARGO_TARGET_DIR:-target}/release/lull

folder=$(mktemp -d "${TMPDIR:-/tmp}/lull-bench.XXXXXX")
pids=()
finish() {
    # Each by its own pid, and only what was started here.
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

origin=18081 nginx=18082 ours=18083
mkdir "$folder/site"
head -c 1024 /dev/urandom >"$folder/site/1k"
head -c 65536 /dev/urandom >"$folder/site/64k"

# start NAME HTTP-BLOCK: nginx with one worker.
start() {
    cat >"$folder/$1.conf" <<CONF
daemon off;
worker_processes 1;
pid $folder/$1.pid;
error_log $folder/$1.log;
events { worker_connections 4096; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    client_body_temp_path $folder/$1-body;
    proxy_temp_path $folder/$1-proxy;
    fastcgi_temp_path $folder/$1-fastcgi;
    uwsgi_temp_path $folder/$1-uwsgi;
    scgi_temp_path $folder/$1-scgi;
    $2
}
CONF
    nginx -e "$folder/$1.log" -c "$folder/$1.conf" -p "$folder" &
    pids+=($!)
}

start origin "server { listen 127.0.0.1:$origin reuseport; root $folder/site; }"
start proxy "upstream origin { server 127.0.0.1:$origin; keepalive 128; }
    server { listen 127.0.0.1:$nginx;
        location / { proxy_pass http://origin; proxy_http_version 1.1;
            proxy_set_header Connection ''; proxy_set_header Host \$host;
            proxy_set_header X-Forwarded-For \$remote_addr; } }"
nginx_pid=$!
"$lull" web --upstream "http://127.0.0.1:$origin" --listen "127.0.0.1:$ours" --threads 1 --plain &
ours_pid=$!
pids+=("$ours_pid")

for port in $origin $nginx $ours; do
    for _ in $(seq 100); do
        if curl -so /dev/null "http://127.0.0.1:$port/1k"; then
            continue 2
        fi
        sleep 0.1
    done
    die "nothing answers on port $port"
done

# CPU time in ticks of a process and its children that have not ended.
ticks() {
    local total=0 pid
    for pid in "$1" $(cat "/proc/$1/task/$1/children"); do
        total=$((total + $(sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }')))
    done
    echo "$total"
}

# The report of wrk as JSON; latencies in microseconds.
cat >"$folder/report.lua" <<'LUA'
done = function(summary, latency)
    io.write(string.format('%d %d %d %d %d\n', summary.requests, summary.duration,
        latency:percentile(50), latency:percentile(99),
        summary.errors.status + summary.errors.read + summary.errors.timeout))
end
LUA

measure() { # NAME PORT PID SIZE ROUND
    local before after report
    before=$(ticks "$3")
    report=$(wrk -t 1 -c "$connections" -d "${seconds}s" -s "$folder/report.lua" \
        "http://127.0.0.1:$2/$4" | tail -n 1)
    after=$(ticks "$3")
    # shellcheck disable=SC2086 # five words
    set -- "$@" $report
    python3 - "$@" "$((after - before))" "$(getconf CLK_TCK)" <<'PY' | tee -a "$folder/results"
import json, sys
name, _, _, size, number, requests, micros, p50, p99, errors, ticks, hertz = sys.argv[1:]
requests = int(requests)
print(json.dumps({
    "proxy": name, "size": size, "round": int(number),
    "requests_per_second": round(requests / (int(micros) / 1e6)),
    "cpu_micros_per_request": round(int(ticks) / int(hertz) * 1e6 / max(requests, 1), 2),
    "p50_micros": int(p50), "p99_micros": int(p99), "errors": int(errors),
}))
PY
}

for round in $(seq "$rounds"); do
    for size in 1k 64k; do
        measure nginx "$nginx" "$nginx_pid" "$size" "$round"
        measure lull "$ours" "$ours_pid" "$size" "$round"
    done
done

python3 - "$folder/results" <<'PY'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for size in ("1k", "64k"):
    def median(proxy, key):
        return statistics.median(
            row[key] for row in rows if (row["proxy"], row["size"]) == (proxy, size))
    keys = ("requests_per_second", "cpu_micros_per_request", "p99_micros")
    print(json.dumps({
        "size": size,
        **{key: {"nginx": median("nginx", key), "lull": median("lull", key),
                 "ratio": round(median("lull", key) / median("nginx", key), 3)} for key in keys},
    }))
PY
