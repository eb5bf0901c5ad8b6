"""Cells from `lull lab report --cells`, and tables of them in Markdown."""

import statistics

FOREGROUNDS = {"cubic": "CUBIC", "reno": "Reno", "bbr": "BBR"}
BACKGROUNDS = {"nice": "Nice", "vegas": "Vegas", "cubic": "CUBIC"}
BUFFERS = {0.25: "¼ BDP", 1: "1 BDP", 4: "4 BDP"}
RATES = {"10mbit": "10 Mbit/s", "100mbit": "100 Mbit/s"}
RTTS = {"20ms": "20 ms", "50ms": "50 ms", "200ms": "200 ms"}
FLOWS = (1, 8, 64)


class Cell:
    """A run: the values of the plan's axes, and its metrics."""

    def __init__(self, told):
        self.values, self.metrics = told["values"], told["metrics"]

    def has(self, values):
        return all(self.values.get(name) == value for name, value in values.items())


def metric(name):
    """A metric of a cell; none if it has no such value."""
    return lambda cell: cell.metrics.get(name)


def select(cells, **values):
    return [cell for cell in cells if cell.has(values)]


def known(cells, value):
    return [seen for seen in map(value, cells) if seen is not None]


def mean(cells, value, worst, count):
    """The mean and the worst value; the number of values, if it differs from the page's."""
    seen = known(cells, value)
    if not seen:
        return "—"
    missing = f" [{len(seen)} of {count}]" if len(seen) != count else ""
    return f"{statistics.mean(seen):.2f} ({worst(seen):.2f}){missing}"


def each(cells, value, form="{:.2f}"):
    """All figures in a row, because there are few."""
    return ", ".join("—" if seen is None else form.format(seen) for seen in map(value, cells)) or "—"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def averages(groups, value, form="{:.2f}", average=statistics.mean):
    """The means over repetitions in a row, for groups of cells."""
    means = (known(cells, value) for cells in groups)
    return ", ".join(form.format(average(seen)) if seen else "—" for seen in means)


def by_flows(cells, flows, name, **values):
    """A metric's mean for each number of flows."""
    return averages([select(cells, flows=count, **values) for count in flows], metric(name))
