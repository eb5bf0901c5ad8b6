#!/usr/bin/env bash
# Draws from the records in report/ the page, the figures of README.md, and the tables in docs/.
#
#   scripts/report.sh                      draws them
#   scripts/report.sh --check              writes nothing, and fails where one of them differs from the records
#   scripts/report.sh --check-if-changed   the same, if records, plans, tables or figures changed since they were drawn
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
check=${1:-}
# What the check compares, as one digest. Drawing writes it to the file of that name. Of the documentation only the tables
# and figures count, so that a change of its text draws nothing again.
digest() {
    {
        git ls-files -z -- report plans scripts/tables.py scripts/pages ':!report/drawn.sha256' | sort -z | xargs -0 sha256sum
        # shellcheck disable=SC2016 # the variables are those of awk
        git ls-files -z -- docs README.md | sort -z |
            xargs -0 awk '/^<!-- table:/ { table = 1 } /^$/ { table = 0 } table || /^!\[/ { print FILENAME ":" $0 }'
    } | sha256sum | cut -d ' ' -f 1
}
case $check in
    '' | --check) ;;
    --check-if-changed)
        if [ "$(digest)" = "$(cat report/drawn.sha256 2>/dev/null)" ]; then
            say "the report: nothing changed since it was drawn"
            exit 0
        fi
        ;;
    *) die "usage: scripts/report.sh [--check | --check-if-changed]" ;;
esac

if [ -z "${LULL:-}" ]; then
    scripts/setup.sh report
    say "building"
    cargo build "${cargo_flags[@]}" --bin lull --bin lull-lab
    LULL=${CARGO_TARGET_DIR:-target}/checked/lull
fi
export LULL

drawn=$(mktemp -d "${TMPDIR:-/tmp}/lull-report.XXXXXX")
trap 'rm -r "$drawn"' EXIT
say "the page and the figures"
"$LULL" lab report report --figures "$drawn/figures" >/dev/null &
"$LULL" lab report report --out "$drawn/page" >/dev/null
wait $!
page=$drawn/page/index.html
mapfile -t figures < <(sed -n 's|^!\[.*](\(report/.*\.svg\))$|\1|p' README.md)

if [ -n "$check" ]; then
    status=0
    # Compared is the page, not its compression, which differs from one gzip to another; nor what it
    # says of the commit that drew it, which is never the one that keeps it.
    compared() {
        sed 's/ (another than this page[^)]*)//g; s|<footer><p>Made by .*</footer>||'
    }
    cmp -s <(gzip -dc report/index.html.gz | compared) <(compared <"$page") || {
        echo "report/index.html.gz is not what the records show"
        status=1
    }
    for figure in "${figures[@]}"; do
        cmp -s "$drawn/figures/$(basename "$figure")" "$figure" || {
            echo "$figure is not what the records show"
            status=1
        }
    done
    scripts/tables.py --check || status=1
    [ "$status" = 0 ] || die "what the repository shows of its records is old: make report"
else
    cp "$page" report/index.html
    gzip -9nc "$page" >report/index.html.gz
    for figure in "${figures[@]}"; do
        cp "$drawn/figures/$(basename "$figure")" "$figure"
        echo "$figure"
    done
    scripts/tables.py
    digest >report/drawn.sha256
fi
