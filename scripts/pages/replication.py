"""The tables of docs/replication.md."""

from pages.cells import averages, metric, select, table

PLANS = ["replicate-peers", "ssr-fig18"]


def peers(cells):
    """Lull and its peers, with a foreground that pauses and one that stays."""
    rows = []
    for system in ("lull", "lull-watch", "rsync", "lsyncd", "syncthing"):
        groups = [select(cells, system=system, foreground=foreground) for foreground in ("pauses", "stays")]
        row = [f"`{system}`", *(averages(groups, metric(name), "{:.0f}") for name in ("p50", "p99", "most"))]
        rows.append(row + [averages(groups, metric("disorder"), "{:.1f}"), averages(groups, metric("kept"), "{:.3f}")])
    head = ["system", "staleness of an edit, median, s", "p99, s", "at most, s", "reads out of order, %", "the foreground keeps"]
    return table(head, rows)


def mounts(cells):
    """Reads in the mounts of four replicas: figure 18."""
    rows = []
    for strategy in ("demand", "push-all", "trip", "trip delta 0"):
        some = [select(cells, strategy=strategy)]
        row = [f"`{strategy}`", *(averages(some, metric(name)) for name in ("response", "hit"))]
        row += [averages(some, metric("misses"), "{:.3f}"), averages(some, metric("stalest"), "{:.1f}")]
        rows.append(row + [averages(some, metric(name), "{:.1f}") for name in ("sent", "control")])
    head = ["strategy", "response time, ms", "of hits, ms", "others, of reads", "stale at most, s", "sent, MB", "control, %"]
    return table(head, rows)


def tables(_plans, cells):
    return {"peers": peers(cells["replicate-peers"]), "mounts": mounts(cells["ssr-fig18"])}
