#!/usr/bin/env python3
"""Keeps the tables of docs/ that records show equal to the records in report/.

Usage: LULL=PROGRAM tables.py [--check]

A page has a line <!-- table: NAME --> above each table. Without an option the tables are written
anew; with --check a difference is told, and the exit code is 1. What a cell shows, and what is demanded,
is for the plans to say: the program's `lab report --cells`.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

# The modules stand in the tree, and nothing else is to.
sys.dont_write_bytecode = True

from pages import kernel_results, prefetching, replication, simulations, theorem  # noqa: E402
from pages.cells import Cell  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "docs/kernel-results.md": kernel_results,
    "docs/prefetching-results.md": prefetching,
    "docs/replication.md": replication,
    "docs/simulations.md": simulations,
    "docs/theorem.md": theorem,
}


def reports():
    """The plans' cells and verdicts, by name."""
    program = os.environ.get("LULL", ROOT / "target/checked/lull")
    names = [name for page in PAGES.values() for name in page.PLANS]
    command = [program, "lab", "report", "--cells", "report", *names]
    told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE)
    if told.returncode:
        sys.exit("lull: what the records show cannot be told: see above")
    plans = {plan["id"]: plan for plan in json.loads(told.stdout)["plans"]}
    for plan in plans.values():
        if plan["quick"]:
            sys.exit(f"lull: of {plan['id']} only the quick subset is recorded")
    return plans


def written(path, made):
    """The page with each table behind its mark."""
    unused = dict(made)

    def replaced(match):
        name = match[1]
        if name not in made:
            sys.exit(f"lull: {path}: there is no table '{name}'")
        unused.pop(name, None)
        return f"<!-- table: {name} -->\n{made[name]}\n"

    page = re.sub(r"<!-- table: (.*) -->\n(?:\|.*\n)*", replaced, path.read_text())
    for name in unused:
        sys.exit(f"lull: {path} has no place for the table {name}")
    return page


def main():
    options = sys.argv[1:]
    if options not in ([], ["--check"]):
        sys.exit(__doc__.strip())
    plans = reports()
    cells = {name: [Cell(told) for told in plan["cells"]] for name, plan in plans.items()}
    for name, page in PAGES.items():
        path = ROOT / name
        expected = written(path, page.tables(plans, cells))
        if not options:
            path.write_text(expected)
        elif path.read_text() != expected:
            sys.exit(f"lull: the tables of {name} are not those of report/: scripts/tables.py writes them")


if __name__ == "__main__":
    main()
