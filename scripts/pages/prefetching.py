"""The tables of docs/prefetching-results.md."""

import statistics

from pages.cells import averages, metric, select, table

PLANS = [
    "nice-fig10", "predict-speed", "ssr-fig1", "ssr-fig2", "ssr-fig9", "ssr-fig11", "ssr-fig12", "ssr-fig13", "web-browsers",
    "web-knee", "web-proxy",
]

LOADS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
POLICIES = {
    "none": "none",
    "no-avoidance 1": "one file for each page, whatever happens",
    "no-avoidance 5": "five",
    "scheduler 1": "one, by a server at nice 19",
    "scheduler 5": "five, by such a server",
    "monitor 3 ms": "the paper's monitor, late from 3 ms on",
    "monitor 10 ms": "late from 10 ms on",
    "monitor": "the monitor that finds its threshold",
}


def thresholds(cells):
    """What a static threshold does to bandwidth, misses and time: figure 1."""
    rows = []
    for threshold in (1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001):
        some = [select(cells, threshold=threshold)]
        row = ["nothing is fetched ahead" if threshold == 1 else str(threshold)]
        row += [averages(some, metric(name)) for name in ("bandwidth", "misses")]
        row += [averages(some, metric(name), "{:.0f}") for name in ("miss", "response")]
        rows.append(row)
    return table(["threshold", "bandwidth, of none", "miss rate", "miss time, ms", "response time, ms"], rows)


def by_load(cells, head, axis, titles, loads, name, form="{:.1f}"):
    """A metric by how much demand there is, with a row for each of an axis' values, which have titles."""
    rows = []
    for value, title in titles.items():
        some = select(cells, **{axis: value})
        rows.append([title] + [averages([select(some, load=load)], metric(name), form) for load in loads])
    return table([head, *map(str, loads)], rows)


def files(cells):
    """Response time by demand, with so many files for each request: figure 2."""
    return by_load(cells, "files", "files", {count: str(count) for count in (0, 1, 5)}, LOADS, "response")


def managed(cells, *shown):
    """For each way to manage what is fetched ahead: figures 9 and 10."""
    return by_load(cells, "fetched ahead", "policy", POLICIES, (0.1, 0.3, 0.5, 0.7, 0.9), *shown)


def bursty(cells):
    """What a log that comes in bursts waits, and what is fetched meanwhile: figure 11."""
    rows = []
    for policy, title in POLICIES.items():
        some = [select(cells, policy=policy)]
        row = [title, *(averages(some, metric(name), "{:.1f}") for name in ("response", "p99"))]
        rows.append(row + [averages(some, metric("of_none")), averages(some, metric("ahead"), "{:.1f}")])
    return table(["fetched ahead", "response time, ms", "p99, ms", "× none", "ahead, Mbit/s"], rows)


BROWSERS = {
    "none": "none",
    "lull": "`lull web`",
    "lull-100": "what is pointed at (`--least-worth 100`)",
    "eager": "rules, eager",
    "moderate": "rules, moderate",
    "instant.page": "instant.page",
    "quicklink": "quicklink",
    "immediate": "rules, immediate",
}


def browsers(cells):
    """What visitors wait for, and what it costs, by what prefetches."""
    rows = []
    for policy, title in BROWSERS.items():
        some = [select(cells, policy=policy)]
        row = [title, *(averages(some, metric(name)) for name in ("hits", "ready"))]
        names = ("load", "saved", "hit_load", "hit_without")
        row += [averages(some, metric(name), "{:.0f}") if policy != "none" or name == "load" else "" for name in names]
        rows.append(row + [averages(some, metric(name), "{:.1f}") if policy != "none" else "" for name in ("more", "wasted")])
    head = ["prefetching", "hits", "ready", "until loaded, ms", "saved, ms", "a hit, ms", "the same without", "kB more a navigation"]
    return table([*head, "kB more a hit"], rows)


def by_hand(cells):
    """`lull web` beside thresholds that were set by hand: figure 13."""
    titles = {"nps": "`lull web`, paper's budget", "shipped": "`lull web`, as shipped", "proxy": "`lull web`, nothing is fetched"}
    rows = []
    for policy in ("none", "0.5", "0.3", "0.1", "0.03", "0.01", "nps", "shipped", "proxy"):
        some = [select(cells, policy=policy)]
        row = [titles.get(policy, policy), averages(some, metric("response"), "{:.0f}")]
        rows.append(row + [averages(some, metric(name), "{:.3f}") for name in ("hits", "demand", "ahead")])
    return table(["threshold", "response time, ms", "hits, of requests", "demand, Mbit/s", "ahead, Mbit/s"], rows)


def lists(cells):
    """Lists that come with pages, under Reno and under Nice: figure 10 of TCP Nice."""
    rows = []

    def latency(network, prefetching):
        return statistics.mean(map(metric("latency"), select(cells, network=network, prefetching=prefetching)))

    for network in ("cable", "modem"):
        for prefetching in ("none", "conservative-reno", "conservative-nice", "aggressive-reno", "aggressive-nice"):
            some = [select(cells, network=network, prefetching=prefetching)]
            row = [network, prefetching.replace("-reno", ", Reno").replace("-nice", ", Nice")]
            # As the plan's checks have it: of the means, not the mean of each trial's.
            of_none = latency(network, prefetching) / latency(network, "none")
            row += [f"{latency(network, prefetching):.0f}", f"{of_none:.2f}"]
            rows.append(row + [averages(some, metric(name)) for name in ("hits", "demand", "ahead")])
    head = ["network", "prefetching", "response time, ms", "× none", "hits, of requests", "demand, of the link", "ahead, of the link"]
    return table(head, rows)


LONG = "15:00 to 15:55"


def end_to_end(cells, loads=("unloaded", "loaded server", "loaded network"), buffers=("16kB", "64kB")):
    """By what is loaded: figure 12."""
    rows = []
    for load in loads:
        for buffer in buffers:
            for policy, title in (
                ("none", "none"),
                ("no-avoidance", "without avoidance"),
                ("no-avoidance 70", "70 files a page"),
                ("nps", "`lull web`"),
            ):
                whole, before = (
                    [select(cells, load=load, buffer=buffer, policy=policy, trained=trained)] for trained in ("whole", "before")
                )
                row = [load, buffer.replace("kB", " kB"), title, averages(whole, metric("response"), "{:.0f}")]
                for some in (whole, before):
                    row += ["" if policy == "none" else averages(some, metric("change"), "{:+.0f} %"), averages(some, metric("hits"))]
                rows.append(row)
    head = ["loaded", "buffer", "fetched ahead", "response time, ms", "against none", "hits", "trained on what was before", "hits"]
    return table(head, rows)


def proxies(cells):
    """`lull web` as a proxy, beside nginx. Medians, as in the plan's checks."""
    rows = []
    for thing in ("1 kB", "64 kB"):
        for proxy, title in (("nginx", "nginx"), ("plain", "`lull web --plain`"), ("lull", "`lull web`")):
            some = [select(cells, object=thing)]
            row = [thing, title]
            for name, form in (("rate", "{:,.0f}"), ("cpu", "{:.1f}"), ("p99", "{:.1f}"), ("carried", "{:.1f}"), ("idle", "{:.1f}")):
                row.append(averages(some, metric(f"{proxy}_{name}"), form, statistics.median))
            rows.append(row)
    head = ["object", "proxy", "requests a second", "processor, µs a request", "p99 at 70 % of wrk's, ms", "of the open loop's"]
    return table([*head, "an idle connection, kB"], rows)


def munging(cells):
    """What it adds to a page to put the script into it, by how the page comes. Medians as well."""
    rows = []
    for kind in ("page", "page in gzip", "page in gzip as zstd", "page in br", "page in br as zstd", "page in zstd"):
        some = [select(cells, object=kind)]
        title = "plain" if kind == "page" else kind.removeprefix("page in ").replace(" as zstd", ", for who takes zstd")
        added = [averages(some, metric(name), "{:.2f}", statistics.median) for name in ("munging", "munging_cpu")]
        rows.append([title, averages(some, metric("page"), "{:.2f}", statistics.median), *added])
    return table(["the page comes", "by `--plain`, ms", "munging adds for each 100 kB, ms", "of the processor, ms"], rows)


def knee(cells):
    """Demand beside `lull web`'s prefetching, by how near the server is to its knee."""
    rows = []
    for load in (0.2, 0.5, 0.9):
        some = [select(cells, load=load)]
        row = [str(load), *(averages(some, metric(name), "{:.1f}") for name in ("none_p99", "nps_p99"))]
        row += [averages(some, metric(name)) for name in ("p99", "p99_middle", "mean")]
        rows.append(row + [averages(some, metric(name), "{:.4f}") for name in ("hits", "ahead")])
    head = ["demand, of the knee", "p99 without, ms", "with, ms", "× without", "by the turn in the middle", "mean of all, × without"]
    return table([*head, "hits, of requests", "fetched ahead, of the knee"], rows)


def speed(cells):
    """What predictors cost a processor."""
    rows = []
    for predictor, title in (("ppm=2/10", "PPM-2/10"), ("default", "the default")):
        some = [select(cells, predictor=predictor)]
        row = [title, averages(some, metric("lines"), "{:,.0f}")]
        row += [averages(some, metric(name), "{:.1f}") for name in ("p50", "p99")]
        rows.append(row + [averages(some, metric("resident"), "{:.0f}")])
    return table(["predictor", "lines a second", "a hint list, median, µs", "p99, µs", "memory, MiB"], rows)


def tables(_plans, cells):
    return {
        "thresholds": thresholds(cells["ssr-fig1"]),
        "files": files(cells["ssr-fig2"]),
        "managed-response": managed(cells["ssr-fig9"], "response"),
        "managed-ahead": managed(cells["ssr-fig9"], "ahead", "{:.3f}"),
        "bursty": bursty(cells["ssr-fig11"]),
        "by-hand": by_hand(cells["ssr-fig13"]),
        "lists": lists(cells["nice-fig10"]),
        "end-to-end": end_to_end([cell for cell in cells["ssr-fig12"] if cell.values["from"] != LONG]),
        "most-of-an-hour": end_to_end(select(cells["ssr-fig12"], **{"from": LONG}), ("unloaded", "loaded network"), ("64kB",)),
        "browsers": browsers(cells["web-browsers"]),
        "knee": knee(cells["web-knee"]),
        "proxies": proxies(cells["web-proxy"]),
        "munging": munging(cells["web-proxy"]),
        "predict-speed": speed(cells["predict-speed"]),
    }
