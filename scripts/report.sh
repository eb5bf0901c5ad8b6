#!/usr/bin/env bash
# Draws from the records in report/ what the repository shows of them: the page, the figures of
# README.md, and the tables of docs/kernel-results.md.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh report

say "building"
cargo build "${cargo_flags[@]}" --bin lull
lull=${CARGO_TARGET_DIR:-target}/checked/lull

say "the page"
"$lull" lab report report

say "figures"
mapfile -t figures < <(sed -n 's|^!\[.*](\(report/.*\.svg\))$|\1|p' README.md)
drawn=$(mktemp -d)
trap 'rm -r "$drawn"' EXIT
"$lull" lab report --figures "$drawn" >/dev/null
for figure in "${figures[@]}"; do
    cp "$drawn/$(basename "$figure")" "$figure"
    echo "$figure"
done

say "tables"
LULL=$lull scripts/kernel-tables.py
