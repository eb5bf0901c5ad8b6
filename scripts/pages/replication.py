"""The tables of docs/replication-results.md."""

from pages.cells import averages, metric, select, table

PLANS = ["replicate-peers", "replicate-speed", "ssr-fig18"]


def peers(cells):
    """Lull and its peers, with a foreground that pauses and one that does not."""
    rows = []
    for system in ("lull", "lull-watch", "rsync", "lsyncd", "syncthing"):
        groups = [select(cells, system=system, foreground=foreground) for foreground in ("pauses", "stays")]
        row = [f"`{system}`", *(averages(groups, metric(name), "{:.0f}") for name in ("p50", "p99", "most"))]
        rows.append(row + [averages(groups, metric("disorder"), "{:.1f}"), averages(groups, metric("kept"), "{:.3f}")])
    head = ["system", "staleness of an edit, median, s", "p99, s", "maximum, s", "reads out of order, %", "goodput the foreground keeps"]
    return table(head, rows)


def mounts(cells):
    """Reads in the mounts of four replicas: figure 18."""
    rows = []
    for strategy in ("demand", "push-all", "trip", "trip delta 0"):
        some = [select(cells, strategy=strategy)]
        row = [f"`{strategy}`", *(averages(some, metric(name)) for name in ("response", "hit"))]
        row += [averages(some, metric("misses"), "{:.3f}"), averages(some, metric("stalest"), "{:.1f}")]
        rows.append(row + [averages(some, metric(name), "{:.1f}") for name in ("sent", "control")])
    head = ["strategy", "response time, ms", "hits, ms", "waiting reads, part of reads", "maximum staleness, s", "sent, MB", "control, %"]
    return table(head, rows)


def rates(cells, what, names):
    """Medians and 99th percentiles by writes per second."""
    rows = []
    for rate in sorted({cell.values["rate"] for cell in select(cells, what=what)}):
        some = [select(cells, what=what, rate=rate)]
        rows.append([f"{rate:,}", *(averages(some, metric(name), "{:.1f}") for name in names)])
    return table(["writes per second", "median, ms", "p99, ms"], rows)


def processor(cells):
    """Processor time and delivery time of an invalidation, by replicas."""
    rows = []
    for replicas in sorted({cell.values["replicas"] for cell in select(cells, what="processor")}):
        some = [select(cells, what="processor", replicas=replicas)]
        rows.append([f"{replicas:,}", *(averages(some, metric(name), "{:.0f}") for name in ("cpu", "all_cpu", "told_p99"))])
    return table(["replicas", "processor time of the origin, µs", "with the writes and the replica, µs", "at the last replica, p99, ms"], rows)


def limits(cells):
    """Results of one number each."""
    memory, mount = [select(cells, what="memory")], [select(cells, what="mount")]
    rows = [
        ["peak memory with a million objects and 100 replicas", "1,024 MiB", averages(memory, metric("resident"), "{:.0f} MiB")],
        ["a warm file in a mount, × a pass-through mount", "1.3", averages(mount, metric("ratio"))],
        ["the same on one processor", "1.3", averages(mount, metric("ratio_on_one"))],
    ]
    return table(["measurement", "target", "here"], rows)


def tables(_plans, cells):
    speed = cells["replicate-speed"]
    return {
        "peers": peers(cells["replicate-peers"]),
        "mounts": mounts(cells["ssr-fig18"]),
        "writes": rates(speed, "writes", ("write_p50", "write_p99")),
        "fan-out": rates(speed, "fan-out", ("told_p50", "told_p99")),
        "processor": processor(speed),
        "limits": limits(speed),
    }
