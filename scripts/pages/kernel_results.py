"""The tables of docs/kernel-results.md."""

import statistics
import sys

from pages.cells import (
    BACKGROUNDS,
    BUFFERS,
    FLOWS,
    FOREGROUNDS,
    RATES,
    RTTS,
    each,
    known,
    mean,
    metric,
    select,
    table,
)

PLANS = [
    f"kernel-{name}" for name in ("matrix", "ablation", "latecomer", "return", "filled", "trickle", "cpu")
]
VARIANTS = {
    "letter": "as published",
    "all": "all seven",
    "no_headroom": "without *headroom*",
    "no_gentle": "without *gentle*",
    "no_probation": "without *probation*",
    "no_spaced": "without *spaced*",
    "no_recall": "without *recall*",
    "no_least": "without *least*",
    "no_full": "without *full*",
}


def by_buffer(cells, named, value, worst, count):
    """A row for each name in `named` and each number of flows."""
    axis, names = named
    rows = [
        [name, str(flows)]
        + [
            mean(select(cells, **{axis: which}, flows=flows, buffer=buffer), value, worst, count)
            for buffer in BUFFERS
        ]
        for which, name in names.items()
        for flows in FLOWS
    ]
    return table([axis, "flows", *BUFFERS.values()], rows)


def by_foreground(cells, value, worst):
    return by_buffer(cells, ("foreground", FOREGROUNDS), value, worst, 6)


def by_percentile(cells):
    """Latency of requests that join, a row for each number of flows and each percentile."""
    rows = [
        [str(flows), title]
        + [mean(select(cells, flows=flows, buffer=b), metric(name), max, 18) for b in BUFFERS]
        for flows in FLOWS
        for name, title in (
            ("latency_joined", "mean"),
            ("latency_p95_joined", "95th"),
            ("latency_p99_joined", "99th"),
        )
    ]
    return table(["flows", "", *BUFFERS.values()], rows)


def by_background(cells, value, worst):
    return by_buffer(cells, ("background", BACKGROUNDS), value, worst, 18)


def by_variant(cells, value, worst):
    head = [f"{flows} flows: {buffer}" for flows in (8, 64) for buffer in BUFFERS.values()]
    rows = []
    for variant, title in VARIANTS.items():
        row = [title]
        for flows in (8, 64):
            for buffer in BUFFERS:
                some = select(cells, variant=variant, flows=flows, buffer=buffer)
                some = [cell for cell in some if cell.values["rtt"] != "200ms"]
                row.append(mean(some, value, worst, 6))
        rows.append([f"**{entry}**" for entry in row] if variant == "all" else row)
    return table(["", *head], rows)


def by_variant_far(cells, value, worst):
    rows = []
    for variant, title in VARIANTS.items():
        some = select(cells, variant=variant, rtt="200ms", flows=8)
        if some:
            rows.append(
                [title, *(mean(select(some, buffer=buffer), value, worst, 3) for buffer in (1, 4))]
            )
    return table(["", BUFFERS[1], BUFFERS[4]], rows)


def by_rtt_and_buffer(cells, value):
    """A figure for each number of flows."""
    rows = []
    for distance, title in RTTS.items():
        for buffer, buffer_title in BUFFERS.items():
            row = [title, buffer_title]
            for foreground in FOREGROUNDS:
                path = {"rtt": distance, "buffer": buffer, "foreground": foreground}
                seen = (each(select(cells, flows=flows, **path), value) for flows in FLOWS)
                row.append(", ".join(seen))
            rows.append(row)
    return table(["RTT", "buffer", *FOREGROUNDS.values()], rows)


def times(cells):
    """Seconds to 80 % and to 90 %, one buffer after the other, in the order of `BUFFERS`."""
    rows = []
    for rate, title in RATES.items():
        for distance, distance_title in RTTS.items():
            for foreground, name in FOREGROUNDS.items():
                row = [title, distance_title, name]
                for flows in FLOWS:
                    path = {"rate": rate, "rtt": distance, "foreground": foreground, "flows": flows}
                    some = [cell for buffer in BUFFERS for cell in select(cells, buffer=buffer, **path)]
                    row += [each(some, metric(share), "{:.0f}") for share in ("to_80", "to_90")]
                rows.append(row)
    head = [f"{flows}: to {share} %" for flows in FLOWS for share in (80, 90)]
    return table(["rate", "RTT", "foreground", *head], rows)


def floor(cells, judged):
    """The prototype's cells, its goodput there, and the goodput now."""
    rows = [
        [
            RATES[cell.values["rate"]],
            RTTS[cell.values["rtt"]],
            BUFFERS[cell.values["buffer"]],
            FOREGROUNDS[cell.values["foreground"]],
            str(cell.values["flows"]),
            f"{cell.values['floor']}",
            f"{cell.metrics['beside']:.2f}",
            "met" if cell.metrics["beside"] >= cell.values["floor"] else "missed",
        ]
        for cell in cells
        if cell.values["floor"]
    ]
    if [row[-1] for row in rows].count("met") != judged["met"]:
        sys.exit("lull: the plan judges the prototype's goodput differently")
    head = ["foreground", "flows", "minimum (Mbit/s)", "here", ""]
    return table(["rate", "RTT", "buffer", *head], rows)


def trickled(cells):
    rows = []
    for trickle in sorted({cell.values["trickle"] for cell in cells}):
        for foreground, name in FOREGROUNDS.items():
            some = [select(cells, trickle=trickle, foreground=foreground, buffer=b) for b in BUFFERS]
            row = [f"{100 * trickle:g} %", name]
            for value in ("kept", "rtt"):
                row += [each(cells, metric(value)) for cells in some]
            rows.append(row)
    head = [f"{what}: {buffer}" for what in ("goodput kept", "RTT") for buffer in BUFFERS.values()]
    return table(["part of the link", "foreground", *head], rows)


def verdict_of(plan, name):
    return next(verdict for verdict in plan["verdicts"] if verdict["name"] == name)


def met(verdict):
    if not verdict["judged"]:
        return "—"
    return f"{verdict['met']} of {verdict['judged']}" + ("" if verdict["is_met"] else ": missed")


def none_below(verdict):
    below = sorted(judged["value"] for judged in verdict["beyond"])
    if not below:
        return "0 below"
    shown = ", ".join(f"{value:.3f}" for value in below[:6])
    return f"{len(below)} below ({shown}{', …' if len(below) > 6 else ''}): missed"


def demanded(plan, what, orders):
    """The results of the plan's checks for both start orders, which end their names."""
    rows = [[what], ["none below 0.90"], ["mean RTT ≤ 1.10 × alone"], ["both in the same cells"]]
    for order in orders:
        goodput = verdict_of(plan, f"the foreground keeps its goodput ({order})")
        # One check has two conditions: the share of the cells, and the bound for all of them.
        share = goodput["met"] >= goodput["share"] * goodput["judged"] - 1e-9
        rows[0].append(met({**goodput, "is_met": share}))
        rows[1].append(none_below(goodput))
        rows[2].append(met(verdict_of(plan, f"the mean RTT is at most 1.10 of alone ({order})")))
        rows[3].append(met(verdict_of(plan, f"goodput and RTT hold in the same cells ({order})")))
    return table(["target from 1 BDP, in 80 % of the cells", "beside", "joined"], rows)


def demanded_of_latecomers(plan):
    rows = []
    for name, title, bound in (
        ("the foreground keeps its goodput in the first ten seconds", "goodput in the first ten seconds", "0.90"),
        ("the foreground keeps its goodput", "goodput later", "0.90"),
        ("the mean RTT is at most 1.10 of alone", "mean RTT ≤ 1.10 × alone, later", ""),
    ):
        verdict = verdict_of(plan, name)
        share = verdict["met"] >= verdict["share"] * verdict["judged"] - 1e-9
        below = none_below(verdict) if bound else ""
        rows.append([title, met({**verdict, "is_met": share}), below])
    return table(["target in 80 % of the cells", "", "below 0.90 (none allowed)"], rows)


def latecomers(cells):
    rows = []
    for foreground, title in FOREGROUNDS.items():
        for flows in FLOWS:
            row = [title, str(flows)]
            for buffer in (1, 4):
                some = select(cells, foreground=foreground, flows=flows, buffer=buffer)
                row += [each(some, metric(name)) for name in ("arrival", "kept", "rtt")]
            rows.append(row)
    head = [f"{BUFFERS[b]}: {what}" for b in (1, 4) for what in ("first 10 s", "later", "RTT")]
    return table(["foreground", "flows", *head], rows)


def filled(cells):
    rows = []
    for rate, title in RATES.items():
        for distance in ("50ms", "200ms"):
            for foreground, name in FOREGROUNDS.items():
                path = {"rate": rate, "rtt": distance, "foreground": foreground}
                asked = each(select(cells, background="nice", **path), metric("asked"))
                row = [title, RTTS[distance], name, asked]
                for background in ("nice", "like nice", "fixed"):
                    some = select(cells, background=background, **path)
                    row += [each(some, metric(name)) for name in ("latency", "filled")]
                rows.append(row)
    backgrounds = ("Nice", "fixed, same rate", "fixed, higher rate")
    head = [title for name in backgrounds for title in (f"{name}: time", "part of the link")]
    return table(["rate", "RTT", "foreground", "requests alone: part of the link", *head], rows)


def returns(cells):
    rows = []
    for rate, distance in (("10mbit", "50ms"), ("100mbit", "200ms")):
        for flows in (1, 8):
            row = [RATES[rate], RTTS[distance], str(flows)]
            for variant in ("all", "no_recall", "letter"):
                some = select(cells, rate=rate, rtt=distance, flows=flows, variant=variant)
                row.append(each(some, metric("to_80"), "{:.0f} s"))
            rows.append(row)
    titles = (VARIANTS[variant] for variant in ("all", "no_recall", "letter"))
    return table(["rate", "RTT", "flows", *titles], rows)


def processor(cells):
    """Seconds of processor time per gigabyte, over the undisturbed repetitions."""
    cells = [cell for cell in cells if cell.metrics["others"] < 0.1]
    rows = []
    for name, title in (
        ("nice", "Nice, s/GB"),
        ("cubic", "CUBIC, s/GB"),
        ("reno", "Reno, s/GB"),
        ("ratio", "Nice / CUBIC"),
        ("ratio_process", "Nice / CUBIC, process only"),
    ):
        seen = known(cells, metric(name))
        figures = (statistics.median(seen), min(seen), max(seen))
        rows.append([title, *(f"{figure:.2f}" for figure in figures)])
    return table(["", "median", "minimum", "maximum"], rows)


def tables(plans, cells):
    matrix, ablation = cells["kernel-matrix"], cells["kernel-ablation"]
    nice = select(matrix, background="nice", kind="bulk")
    requests = select(matrix, background="nice", kind="requests")
    user = select(matrix, background="nice_user", kind="bulk")
    bulk, short = select(matrix, kind="bulk"), select(matrix, kind="requests")
    kept, joined, rtt = metric("kept"), metric("kept_joined"), metric("rtt")
    latency, alone = metric("latency"), metric("used_alone")
    return {
        "goodput-beside": by_foreground(nice, kept, min),
        "goodput-joined": by_foreground(nice, joined, min),
        "rtt-beside": by_foreground(nice, rtt, max),
        "demanded-bulk": demanded(
            plans["kernel-matrix"],
            "goodput ≥ 0.97 less the rate of the smallest windows",
            ("beside", "joined"),
        ),
        "link-alone": by_foreground(nice, alone, min),
        "times": times(nice),
        "floor": floor(nice, verdict_of(plans["kernel-matrix"], "the foreground keeps at least the prototype's goodput")),
        "requests-mean": by_foreground(requests, latency, max),
        "requests-p95": by_foreground(requests, metric("latency_p95"), max),
        "requests-p99": by_foreground(requests, metric("latency_p99"), max),
        "requests-joined": by_percentile(requests),
        "demanded-requests": demanded(
            plans["kernel-matrix"],
            "a request's size over its time ≥ 0.97 of alone, less the rate of the smallest windows",
            ("requests", "requests joined"),
        ),
        "compared-goodput": by_background(bulk, kept, min),
        "compared-rtt": by_background(bulk, rtt, max),
        "compared-requests": by_background(short, latency, max),
        "user-beside": by_rtt_and_buffer(user, kept),
        "user-joined": by_rtt_and_buffer(user, joined),
        "user-alone": by_rtt_and_buffer(user, alone),
        "ablation-beside": by_variant(ablation, kept, min),
        "ablation-joined": by_variant(ablation, joined, min),
        "ablation-alone": by_variant(ablation, alone, min),
        "ablation-far": by_variant_far(ablation, alone, min),
        "latecomer": latecomers(cells["kernel-latecomer"]),
        "demanded-latecomers": demanded_of_latecomers(plans["kernel-latecomer"]),
        "trickle": trickled(cells["kernel-trickle"]),
        "filled": filled(cells["kernel-filled"]),
        "return": returns(cells["kernel-return"]),
        "processor": processor(cells["kernel-cpu"]),
    }
