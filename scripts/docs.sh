#!/usr/bin/env bash
# Builds the documentation as a book, into target/book, and checks its links. `cargo test -p lull-tidy` checks its words.
#
#   scripts/docs.sh            builds it
#   scripts/docs.sh --write    first generates the pages that are made from the code: docs/reference/
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
case ${1:-} in
    '') ;;
    --write)
        say "generating docs/reference/ from the code"
        LULL_WRITE_REFERENCE=1 scripts/test.sh -p lull -- reference
        ;;
    *) die "usage: scripts/docs.sh [--write]" ;;
esac
scripts/setup.sh docs
say "the book"
mdbook build docs
scripts/links.py target/book
echo "target/book/index.html"
