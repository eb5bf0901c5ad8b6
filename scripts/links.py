#!/usr/bin/env python3
"""Checks the links of the built book: each leads to a file of the book, and to an element with that id.

Usage: links.py FOLDER
"""

import re
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

# All pages on one page, a page for no address, and the list of pages: mdBook writes them.
WRITTEN_BY_MDBOOK = {"print.html", "404.html", "toc.html"}


@cache
def ids(page):
    return set(re.findall(r'\bid="([^"]+)"', page.read_text()))


def broken(page, href):
    if re.match(r"[a-z]+:", href):
        return False
    path, _, anchor = unquote(href).partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor) and target.suffix == ".html" and anchor not in ids(target)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    book = Path(sys.argv[1]).resolve()
    pages = [page for page in sorted(book.rglob("*.html")) if page.name not in WRITTEN_BY_MDBOOK]
    links = [(page, href) for page in pages for href in re.findall(r'<a [^>]*?href="([^"]+)"', page.read_text())]
    wrong = [f"{page.relative_to(book)}: {href} leads nowhere" for page, href in links if broken(page, href)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(pages)} pages, {len(links)} links, {len(wrong)} broken")
    if wrong or not links:
        sys.exit(1)


if __name__ == "__main__":
    main()
