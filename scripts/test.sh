#!/usr/bin/env bash
# Installs what is missing and runs all tests; arguments go to `cargo test`.
#
# A test that this machine cannot run passes, and is listed at the end with the reason. With
# CI=true such a list fails the run: a machine that skips proves nothing.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh test

LULL_SKIPPED_FILE=$(mktemp "${TMPDIR:-/tmp}/lull-skipped.XXXXXX")
export LULL_SKIPPED_FILE
trap 'rm -f "$LULL_SKIPPED_FILE"' EXIT

# Most tests wait for networks, disks and browsers more than they compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 1))}

# Background jobs of a shell ignore these, and nohup ignores HUP; every test would inherit it.
tests() {
    env --default-signal=HUP,INT,QUIT \
        cargo test "${cargo_flags[@]}" --no-fail-fast "$@" </dev/null
}
# The names of all integration tests that cargo knows, a line each: first `-` or `+`, if their crate is one of the
# arguments.
integration() {
    cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for target in package["targets"]:
        if "test" in target["kind"]:
            print("+" if package["name"] in sys.argv else "-", target["name"])' "$@"
}

# What the calling shell starts has what others leave of the processors, whoever asks for more: Chromium raises its own
# priority, and what begins a session is a group of its own for the scheduler, whose members' priorities count among
# themselves only. Of the first argument's name, and for root; a plain user's has the least priority.
behind_others() {
    renice -n 19 -p "$BASHPID" >/dev/null
    local group
    for group in /sys/fs/cgroup/{cpu/,}"$1"; do
        mkdir "$group" 2>/dev/null || continue
        # Without the controller it has no such file, and where no cgroups are mounted it is any folder.
        if [ -w "$group/cpu.idle" ] && echo 1 >"$group/cpu.idle" && echo "$BASHPID" >"$group/cgroup.procs"; then
            return
        fi
        rmdir "$group"
    done
}

say "tests"
status=0
if [ $# -gt 0 ]; then
    tests "$@" || status=$?
else
    # Those of real links and of what a whole kernel shares run by themselves, and wait most of the time. All others
    # have what they leave of the machine, and are shown after them.
    named=$(integration lull lull-kernel lull-lab lull-transport)
    mapfile -t alone < <(sed -n 's/^+ //p' <<<"$named" | sort -u)
    mapfile -t others < <(sed -n 's/^- //p' <<<"$named" | sort -u | comm -13 <(printf '%s\n' "${alone[@]}") -)
    tests --no-run
    said=$(mktemp "${TMPDIR:-/tmp}/lull-tests.XXXXXX")
    behind=lull-tests.$$
    trap 'rm -f "$LULL_SKIPPED_FILE" "$said"; rmdir /sys/fs/cgroup/{cpu/,}$behind 2>/dev/null || true' EXIT
    (
        behind_others $behind
        tests --lib --bins "${others[@]/#/--test=}" || status=$?
        tests --doc || status=$?
        exit "$status"
    ) >"$said" 2>&1 &
    tests "${alone[@]/#/--test=}" || status=$?
    wait $! || status=$?
    cat "$said"
fi

if [ -s "$LULL_SKIPPED_FILE" ]; then
    say "SKIPPED on this machine, and why"
    sort -u "$LULL_SKIPPED_FILE"
    if [ "${CI:-}" = true ]; then
        die "CI skips no test: give it a machine that can run these"
    fi
fi
exit "$status"
