"""The tables of packets in docs/theorem.md. Tests of crates/sim have those of the fluid model."""

from pages.cells import averages, metric, select, table

PLANS = ["nice-theorem1"]

PARTS = {0.25: "¼", 0.5: "½", 0.75: "¾"}


def signed(groups, name, form="{:.2f}"):
    """Means with a minus sign, as elsewhere on the page."""
    return averages(groups, metric(name), form).replace("-", "−")


def by_counts(cells):
    """Reno's loss beside 64 Nice flows by each count, and the number of overflows and reactions."""
    rows = []
    for threshold in (0.1, 0.4):
        for buffer, reno in ((0.75, 2), (0.75, 4), (0.75, 16), (0.5, 4), (0.5, 16)):
            if (buffer, threshold) == (0.5, 0.4):
                continue
            some = select(cells, buffer=buffer, reno=reno)
            beside = select(some, background="nice", nice=64, threshold=threshold)
            # Without Nice there is no threshold: one cell represents all.
            none = select(some, background="none")
            row = [f"B = {PARTS[buffer]} BDP, m = {reno}, t = {threshold}"]
            row += [signed([beside], name) for name in ("packets", "packets_reaction")]
            row.append(signed([beside], "packets_second", "{:.3f}"))
            row += [signed([beside, none], name, "{:.0f}") for name in ("overflows", "reactions")]
            rows.append(row)
    head = ["loss of packets per overflow", "per reaction", "per second"]
    return table(["", *head, "overflows with, without", "reactions with, without"], rows)


def few_reno(cells):
    """Loss of packets per reaction of one, two and four Reno flows beside 64 Nice flows."""
    rows = []
    for buffer, part in PARTS.items():
        row = [f"B = {part} BDP"]
        for threshold in (0.1, 0.2, 0.4):
            some = select(cells, background="nice", nice=64, buffer=buffer, threshold=threshold)
            row.append(signed([select(some, reno=reno) for reno in (1, 2, 4)], "packets_reaction"))
        rows.append(row)
    return table(["", "t = 0.1", "t = 0.2", "t = 0.4"], rows)


def tables(_plans, cells):
    runs = cells["nice-theorem1"]
    return {"counts": by_counts(runs), "few-reno": few_reno(runs)}
