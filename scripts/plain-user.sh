#!/usr/bin/env bash
# As root, runs the tests that need root or BPF as a plain user. They must pass, and report which of them
# were skipped and why. The build runs as the caller: nothing in it needs a privilege.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh test

# Debian's nobody and nogroup.
plain=65534

# A filter of cargo-nextest for the integration tests in files that match a pattern. Their names begin with
# the path of the file below tests/it.
tests_in_files() {
    local modules
    modules=$(grep -rlE --include='*.rs' "$1" crates/*/tests/it |
        sed -E 's#^.*/tests/it/##; s/\.rs$//; s#/mod$##; s#/#::#g' | sort -u | paste -sd '|')
    echo "(binary(it) & test(/^($modules)::/))"
}

if [ "$(id -u)" != 0 ]; then
    echo "This is a plain user already: make test runs the same tests."
    exit 0
fi

room=$(mktemp -d "${TMPDIR:-/tmp}/lull-plain.XXXXXX")
trap 'rm -rf "$room"' EXIT
chown "$plain:$plain" "$room"
skipped=$room/skipped

filter=$(tests_in_files 'needs!\(.*(bpf|root)\(')
user=(setpriv --reuid="$plain" --regid="$plain" --clear-groups --no-new-privs)
# A plain user may not be able to read a tree in root's own folder. The test then gets one privilege, to
# read it. That privilege ends at a user namespace, so tests that make one are left out.
if ! "${user[@]}" test -r Cargo.toml -a -x "${CARGO_TARGET_DIR:-target}" -a -x "$room"; then
    user+=('--inh-caps=-all,+dac_read_search' --ambient-caps=+dac_read_search
        '--bounding-set=-all,+dac_read_search')
    filter="$filter - $(tests_in_files 'user_namespaces')"
    echo "A plain user cannot read $PWD: without the tests that make namespaces."
fi
user=(env -u CI HOME="$room" TMPDIR="$room" LULL_SKIPPED_FILE="$skipped" "${user[@]}")

say "tests as a plain user"
runner=$(printf "'%s'," "${user[@]}")
cargo nextest run "${nextest_flags[@]}" --config "target.'cfg(unix)'.runner = [$runner]" \
    --filterset "$filter" --status-level fail </dev/null

say "skipped there, and why"
sort -u "$skipped" | sed 's/^[^ ]*: //' | sort | uniq -c
for name in controls exec_process kernel sockets tokio; do
    grep -qE "^it::$name::.*: not root: " "$skipped" ||
        die "a plain user was not told that tests of '$name' need root: see $0"
done
