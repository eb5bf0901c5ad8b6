#!/usr/bin/env bash
# What a machine without BPF and root sees: as root, runs the tests that need them as a plain user,
# who must pass them all and be told which of them were skipped, and why. It builds as whoever runs
# it; nothing of the build asks for a right.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

# Debian's nobody and nogroup.
plain=65534
# The test binaries, of whichever crate, whose sources match a pattern.
binaries() {
    grep -rlE --include='*.rs' "$1" crates/*/tests |
        sed -E 's#^crates/[^/]+/tests/([^/]+).*#\1#; s/\.rs$//' | sort -u
}

mapfile -t tests < <(binaries 'needs!\(.*(bpf|root)\(')
[ ${#tests[@]} -gt 10 ] || die "no test needs root or BPF any more: has needs! another name?"

if [ "$(id -u)" != 0 ]; then
    echo "This is a plain user already: make test runs the same tests."
    exit 0
fi

room=$(mktemp -d "${TMPDIR:-/tmp}/lull-plain.XXXXXX")
trap 'rm -rf "$room"' EXIT
chown "$plain:$plain" "$room"
skipped=$room/skipped

user=(setpriv --reuid="$plain" --regid="$plain" --clear-groups --no-new-privs)
# A tree in root's own folder is out of a plain user's sight. To look at it is the only right given
# then; it ends at a user namespace, so what makes one is left out.
if ! "${user[@]}" test -r Cargo.toml -a -x "${CARGO_TARGET_DIR:-target}" -a -x "$room"; then
    user+=('--inh-caps=-all,+dac_read_search' --ambient-caps=+dac_read_search
        '--bounding-set=-all,+dac_read_search')
    mapfile -t tests < <(comm -23 <(printf '%s\n' "${tests[@]}") <(binaries user_namespaces))
    echo "A plain user cannot read $PWD: without the tests that make namespaces."
fi
user=(env -u CI HOME="$room" TMPDIR="$room" LULL_SKIPPED_FILE="$skipped" "${user[@]}")

# Cargo builds as root and hands each test to this runner.
runner=$(printf "'%s'," "${user[@]}")
selected=()
for name in "${tests[@]}"; do
    selected+=(--test "$name")
done
say "tests as a plain user"
cargo test "${cargo_flags[@]}" --config "target.'cfg(unix)'.runner = [$runner]" --no-fail-fast \
    "${selected[@]}" -- --quiet </dev/null

say "skipped there, and why"
sort -u "$skipped" | sed 's/^[^ ]*: //' | sort | uniq -c
for name in controls exec_process kernel sockets tokio; do
    grep -q "^$name::.*: not root: " "$skipped" ||
        die "a plain user was not told that tests of '$name' need root: see $0"
done
