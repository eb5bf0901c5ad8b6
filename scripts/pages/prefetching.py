"""The tables of docs/prefetching-results.md."""

import statistics

from pages.cells import averages, metric, select, table

PLANS = [
    "nice-fig10", "predict-speed", "ssr-fig1", "ssr-fig2", "ssr-fig9", "ssr-fig11", "ssr-fig12", "ssr-fig13", "web-browsers",
    "web-browsers-tls", "web-bytes", "web-knee", "web-proxy",
]

LOADS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
POLICIES = {
    "none": "none",
    "no-avoidance 1": "one file per page, no avoidance",
    "no-avoidance 5": "five files per page, no avoidance",
    "scheduler 1": "one file per page, server at nice 19",
    "scheduler 5": "five files per page, server at nice 19",
    "scheduler 20": "twenty files per page, server at nice 19",
    "monitor 3 ms": "paper's monitor, late from 3 ms",
    "monitor 10 ms": "paper's monitor, late from 10 ms",
    "monitor": "monitor with learned threshold",
    "proxy": "`lull web`, no prefetching",
    "lull web 5": "`lull web`, five files per page",
    "lull web 20": "`lull web`, twenty files per page",
    "lull web nice 5": "`lull web` with a second server at nice 19, five files per page",
    "lull web nice 20": "`lull web` with a second server at nice 19, twenty files per page",
}


def thresholds(cells):
    """Bandwidth, misses and times by static threshold: figure 1."""
    rows = []
    for threshold in (1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001):
        some = [select(cells, threshold=threshold)]
        row = ["no prefetching" if threshold == 1 else str(threshold)]
        row += [averages(some, metric(name)) for name in ("bandwidth", "misses")]
        row += [averages(some, metric(name), "{:.0f}") for name in ("miss", "response")]
        rows.append(row)
    return table(["threshold", "bandwidth, × none", "miss rate", "miss time, ms", "response time, ms"], rows)


def by_load(cells, head, axis, titles, loads, name, form="{:.1f}"):
    """A metric by demand load, with a row for each value of an axis, with its title."""
    rows = []
    for value, title in titles.items():
        some = select(cells, **{axis: value})
        row = [averages([select(some, load=load)], metric(name), form) for load in loads]
        if any(shown != "—" for shown in row):
            rows.append([title] + row)
    return table([head, *map(str, loads)], rows)


def files(cells):
    """Response time by demand load and files per request: figure 2."""
    return by_load(cells, "files per request", "files", {count: str(count) for count in (0, 1, 5)}, LOADS, "response")


def managed(cells, *shown):
    """By prefetch policy: figures 9 and 10."""
    return by_load(cells, "prefetching", "policy", POLICIES, (0.1, 0.3, 0.5, 0.7, 0.9), *shown)


def scheduled(cells):
    """The proxy's scheduler beside a server at nice 19: figures 9 and 10."""
    rows = []
    for policy in ("none", "scheduler 20", "proxy", "lull web 20", "lull web nice 20"):
        row = [POLICIES[policy]]
        for load in (0.1, 0.5, 0.9):
            some = [select(cells, policy=policy, load=load)]
            row += [averages(some, metric("response"), "{:.1f}"), averages(some, metric("ahead"), "{:.2f}")]
        rows.append(row)
    head = [f"{name} at {load}" for load in (0.1, 0.5, 0.9) for name in ("ms", "prefetched")]
    return table(["prefetching", *head], rows)


def tails(cells):
    """p99 of demand beside the proxy's scheduler: figure 9."""
    policies = ("none", "scheduler 20", "proxy", "lull web 20", "lull web nice 20")
    loads = (0.1, 0.3, 0.5, 0.7, 0.9)
    return by_load(cells, "prefetching", "policy", {policy: POLICIES[policy] for policy in policies}, loads, "p99")


def bursty(cells):
    """Response times of a bursty log, and prefetched throughput: figure 11."""
    rows = []
    for policy, title in POLICIES.items():
        some = [select(cells, policy=policy)]
        if not some[0]:
            continue
        row = [title, *(averages(some, metric(name), "{:.1f}") for name in ("response", "p99"))]
        rows.append(row + [averages(some, metric("of_none")), averages(some, metric("ahead"), "{:.1f}")])
    return table(["prefetching", "response time, ms", "p99, ms", "× none", "prefetched, Mbit/s"], rows)


BROWSERS = {
    "none": "none",
    "lull": "`lull web`",
    "lull-100": "links under the pointer (`--min-benefit 100`)",
    "eager": "rules, eager",
    "moderate": "rules, moderate",
    "instant.page": "instant.page",
    "quicklink": "quicklink",
    "immediate": "rules, immediate",
}


def browsers(cells):
    """Waiting times of visitors, and additional bytes, by prefetcher."""
    rows = []
    for policy, title in BROWSERS.items():
        some = [select(cells, policy=policy)]
        row = [title, *(averages(some, metric(name)) for name in ("hits", "ready"))]
        names = ("load", "saved", "hit_load", "hit_without")
        row += [averages(some, metric(name), "{:.0f}") if policy != "none" or name == "load" else "" for name in names]
        rows.append(row + [averages(some, metric(name), "{:.1f}") if policy != "none" else "" for name in ("more", "wasted")])
    head = ["prefetching", "hits", "ready", "until loaded, ms", "saved, ms", "hits, ms", "the same without, ms", "added kB per navigation"]
    return table([*head, "added kB per hit"], rows)


def browsers_tls(cells):
    """The same over TLS and HTTP/2, for two sites."""
    titles = BROWSERS | {"lull-0.2": "`lull web --min-benefit 0.2`"}
    rows = []
    for site in ("lesson", "shop"):
        for policy, title in titles.items():
            some = [select(cells, site=site, policy=policy)]
            if policy == "lull-100":
                continue
            row = [site, title, *(averages(some, metric(name)) for name in ("hits", "ready"))]
            row += [averages(some, metric(name), "{:.0f}") if policy != "none" or name == "load" else "" for name in ("load", "saved")]
            rows.append(row + [averages(some, metric(name), "{:.1f}") if policy != "none" else "" for name in ("more", "wasted")])
    head = ["site", "prefetching", "hits", "ready", "until loaded, ms", "saved, ms", "added kB per navigation", "added kB per hit"]
    return table(head, rows)


def site_bytes(cells):
    """Bytes that a site sends in a day."""
    rows = []
    for sessions in ("one page", "real"):
        for policy, title in (("none", "none"), ("lull", "`lull web`")):
            some = [select(cells, sessions=sessions, policy=policy)]
            row = [sessions, title, *(averages(some, metric(name), "{:.0f}") for name in ("demand", "ahead"))]
            rows.append(row + [averages(some, metric(name)) for name in ("bytes", "hits")])
    return table(["sessions", "prefetching", "requested, MB", "prefetched, MB", "× none", "hits, part of requests"], rows)


def by_hand(cells):
    """`lull web` compared with thresholds set by hand: figure 13."""
    titles = {"nps": "`lull web`, paper's budget", "shipped": "`lull web`, as shipped", "proxy": "`lull web`, no prefetching"}
    rows = []
    for policy in ("none", "0.5", "0.3", "0.1", "0.03", "0.01", "nps", "shipped", "proxy"):
        some = [select(cells, policy=policy)]
        row = [titles.get(policy, policy), averages(some, metric("response"), "{:.0f}")]
        rows.append(row + [averages(some, metric(name), "{:.3f}") for name in ("hits", "demand", "ahead")])
    return table(["threshold", "response time, ms", "hits, part of requests", "demand, Mbit/s", "prefetched, Mbit/s"], rows)


def lists(cells):
    """Lists that come with pages, under Reno and under Nice: figure 10 of TCP Nice."""
    rows = []

    def latency(network, prefetching):
        return statistics.mean(map(metric("latency"), select(cells, network=network, prefetching=prefetching)))

    for network in ("cable", "modem"):
        for prefetching in ("none", "conservative-reno", "conservative-nice", "aggressive-reno", "aggressive-nice"):
            some = [select(cells, network=network, prefetching=prefetching)]
            row = [network, prefetching.replace("-reno", ", Reno").replace("-nice", ", Nice")]
            # As in the plan's checks: the ratio of the means, not the mean of the trials' ratios.
            of_none = latency(network, prefetching) / latency(network, "none")
            row += [f"{latency(network, prefetching):.0f}", f"{of_none:.2f}"]
            rows.append(row + [averages(some, metric(name)) for name in ("hits", "demand", "ahead")])
    head = ["network", "prefetching", "response time, ms", "× none", "hits, part of requests", "demand, part of the link", "prefetched, part of the link"]
    return table(head, rows)


LONG = "15:00 to 15:55"


def end_to_end(cells, loads=("unloaded", "loaded server", "loaded network"), buffers=("16kB", "64kB")):
    """By loaded resource: figure 12."""
    rows = []
    for load in loads:
        for buffer in buffers:
            for policy, title in (
                ("none", "none"),
                ("no-avoidance", "no avoidance"),
                ("no-avoidance 70", "70 files per page"),
                ("nps", "`lull web`, paper's budget"),
                ("lull", "`lull web`, as shipped"),
                ("perfect", "strict priority, the same hints"),
            ):
                whole, before = (
                    [select(cells, load=load, buffer=buffer, policy=policy, trained=trained)] for trained in ("whole", "before")
                )
                if not any((*whole, *before)):
                    continue
                row = [load, buffer.replace("kB", " kB"), title, averages(whole, metric("response"), "{:.0f}")]
                for some in (whole, before):
                    row += ["" if policy == "none" else averages(some, metric("change"), "{:+.0f} %"), averages(some, metric("hits"))]
                rows.append(row)
    head = ["loaded", "buffer", "prefetching", "response time, ms", "against none", "hits", "trained on earlier data", "hits"]
    return table(head, rows)


def proxies(cells):
    """`lull web` as a proxy, compared with nginx. Medians, as in the plan's checks."""
    rows = []
    for thing in ("1 kB", "64 kB"):
        for proxy, title in (("nginx", "nginx"), ("plain", "`lull web --plain`"), ("lull", "`lull web`")):
            some = [select(cells, object=thing)]
            row = [thing, title]
            for name, form in (("rate", "{:,.0f}"), ("cpu", "{:.1f}"), ("p99", "{:.1f}"), ("carried", "{:.1f}"), ("second", "{:.1f}"), ("idle", "{:.1f}")):
                row.append(averages(some, metric(f"{proxy}_{name}"), form, statistics.median))
            rows.append(row)
    head = ["object", "proxy", "requests per second", "processor time per request, µs", "p99 at 70 % of wrk's rate, ms", "at 70 % of the open-loop rate, ms", "the same by h2load"]
    return table([*head, "memory per idle connection, kB"], rows)


def munging(cells):
    """Time added by munging, by the page's encoding. Medians as well."""
    rows = []
    for kind in ("page", "page in gzip", "page in gzip as zstd", "page in br as gzip", "page in br as zstd", "page in zstd"):
        some = [select(cells, object=kind)]
        title = "plain" if kind == "page" else kind.removeprefix("page in ").replace(" as ", ", sent as ")
        added = [averages(some, metric(name), "{:.2f}", statistics.median) for name in ("munging", "munging_cpu")]
        rows.append([title, averages(some, metric("page"), "{:.2f}", statistics.median), *added])
    return table(["encoding of the page", "time with `--plain`, ms", "added by munging per 100 kB, ms", "added processor time, ms"], rows)


def knee(cells):
    """Demand beside `lull web`'s prefetching, by load relative to the knee, with one server and with a second one."""
    rows = []
    for load in (0.2, 0.5, 0.9):
        for run, title in (("nps", "one"), ("nice", "a second at nice 19")):
            some = [select(cells, load=load)]
            row = [str(load), title, *(averages(some, metric(name), "{:.1f}") for name in ("none_p99", f"{run}_p99"))]
            row += [averages(some, metric(f"{run}_{name}")) for name in ("p99_of_none", "p99_middle", "mean")]
            rows.append(row + [averages(some, metric(f"{run}_{name}"), "{:.4f}") for name in ("hits", "ahead")])
    head = ["demand, part of the knee", "servers", "p99 without, ms", "p99 with, ms", "p99, × without", "middle turn, × without", "mean of all, × without"]
    return table([*head, "hits, part of requests", "prefetched, part of the knee"], rows)


def speed(cells):
    """Processor time and memory of predictors."""
    rows = []
    for predictor, title in (("ppm=2/10", "PPM-2/10"), ("default", "the default")):
        some = [select(cells, predictor=predictor)]
        row = [title, averages(some, metric("lines"), "{:,.0f}")]
        row += [averages(some, metric(name), "{:.1f}") for name in ("p50", "p99")]
        rows.append(row + [averages(some, metric("resident"), "{:.0f}")])
    return table(["predictor", "lines per second", "hint list, median, µs", "hint list, p99, µs", "memory, MiB"], rows)


def tables(_plans, cells):
    return {
        "thresholds": thresholds(cells["ssr-fig1"]),
        "files": files(cells["ssr-fig2"]),
        "scheduled": scheduled(cells["ssr-fig9"]),
        "managed-response": managed(cells["ssr-fig9"], "response"),
        "managed-ahead": managed(cells["ssr-fig9"], "ahead", "{:.3f}"),
        "managed-p99": tails(cells["ssr-fig9"]),
        "bursty": bursty(cells["ssr-fig11"]),
        "by-hand": by_hand(cells["ssr-fig13"]),
        "lists": lists(cells["nice-fig10"]),
        "end-to-end": end_to_end([cell for cell in cells["ssr-fig12"] if cell.values["from"] != LONG]),
        "most-of-an-hour": end_to_end(select(cells["ssr-fig12"], **{"from": LONG}), ("unloaded", "loaded network"), ("64kB",)),
        "browsers": browsers(cells["web-browsers"]),
        "browsers-tls": browsers_tls(cells["web-browsers-tls"]),
        "bytes": site_bytes(cells["web-bytes"]),
        "knee": knee(cells["web-knee"]),
        "proxies": proxies(cells["web-proxy"]),
        "munging": munging(cells["web-proxy"]),
        "predict-speed": speed(cells["predict-speed"]),
    }
