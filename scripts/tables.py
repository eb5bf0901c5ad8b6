#!/usr/bin/env python3
"""Keeps the tables of docs/kernel-results.md and docs/simulations.md equal to the records in report/.

Usage: LULL=PROGRAM tables.py [--check]

A page has a line <!-- table: NAME --> above each table. Without an option the tables are written
anew; with --check a difference is told, and the exit code is 1. What a cell shows, and what is demanded,
is for the plans to say: the program's `lab report --cells`.
"""

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLANS = [
    *(f"kernel-{name}" for name in ("matrix", "ablation", "latecomer", "return", "filled", "trickle", "cpu")),
    *(f"nice-{name}" for name in ("ablation", "choices", "fig2", "fig6", "fig7", "pareto", "vegasfg")),
    "bench-flows",
    "fill-choices",
    "fill-timeouts",
    "simulator-kernel",
]
FOREGROUNDS = {"cubic": "CUBIC", "reno": "Reno", "bbr": "BBR"}
BACKGROUNDS = {"nice": "Nice", "vegas": "Vegas", "cubic": "CUBIC"}
BUFFERS = {0.25: "¼ BDP", 1: "1 BDP", 4: "4 BDP"}
RATES = {"10mbit": "10 Mbit/s", "100mbit": "100 Mbit/s"}
RTTS = {"20ms": "20 ms", "50ms": "50 ms", "200ms": "200 ms"}
FLOWS = (1, 8, 64)
VARIANTS = {
    "letter": "by the letter",
    "all": "all seven",
    "no_headroom": "without *headroom*",
    "no_gentle": "without *gentle*",
    "no_probation": "without *probation*",
    "no_spaced": "without *spaced*",
    "no_recall": "without *recall*",
    "no_least": "without *least*",
    "no_full": "without *full*",
}


class Cell:
    """A run: the values of the plan's axes, and its metrics."""

    def __init__(self, told):
        self.values, self.metrics = told["values"], told["metrics"]

    def has(self, values):
        return all(self.values.get(name) == value for name, value in values.items())


def metric(name):
    """A metric of a cell; none if it has no such value."""
    return lambda cell: cell.metrics.get(name)


def reports():
    """The plans' cells and verdicts, by name."""
    program = os.environ.get("LULL", ROOT / "target/checked/lull")
    told = subprocess.run(
        [program, "lab", "report", "--cells", "report", *PLANS], cwd=ROOT, stdout=subprocess.PIPE
    )
    if told.returncode:
        sys.exit("lull: what the records show cannot be told: see above")
    plans = {plan["id"]: plan for plan in json.loads(told.stdout)["plans"]}
    for plan in plans.values():
        if plan["quick"]:
            sys.exit(f"lull: of {plan['id']} only the quick subset is recorded")
    return plans


def select(cells, **values):
    return [cell for cell in cells if cell.has(values)]


def known(cells, value):
    return [seen for seen in map(value, cells) if seen is not None]


def mean(cells, value, worst, count):
    """The mean, and the worst; how many are missing of what the page says it is the mean of."""
    seen = known(cells, value)
    if not seen:
        return "—"
    missing = f" [{len(seen)} of {count}]" if len(seen) != count else ""
    return f"{statistics.mean(seen):.2f} ({worst(seen):.2f}){missing}"


def each(cells, value, form="{:.2f}"):
    """One figure after the other, as there are few."""
    return ", ".join("—" if seen is None else form.format(seen) for seen in map(value, cells)) or "—"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_buffer(cells, named, value, worst, count):
    """A row for each of those named by `named`, and number of flows."""
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
    """What requests that join take, a row for each number of flows and share of the answers."""
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
    """The cells that the prototype was measured in, what it kept there, and what is kept now."""
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
        sys.exit("lull: the floor of the prototype is judged otherwise by the plan")
    head = ["foreground", "flows", "demanded (Mbit/s)", "here", ""]
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
    head = [f"{what}: {buffer}" for what in ("kept", "RTT") for buffer in BUFFERS.values()]
    return table(["of the link", "foreground", *head], rows)


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
    """What the plan's checks say of both start orders, which end their names."""
    rows = [[what], ["none below 0.90"], ["mean RTT ≤ 1.10 × alone"], ["both in the same cells"]]
    for order in orders:
        goodput = verdict_of(plan, f"goodput{order}")
        # The share of the cells and the bound for all are two demands of one check.
        share = goodput["met"] >= goodput["share"] * goodput["judged"] - 1e-9
        rows[0].append(met({**goodput, "is_met": share}))
        rows[1].append(none_below(goodput))
        rows[2].append(met(verdict_of(plan, f"RTT{order}")))
        rows[3].append(met(verdict_of(plan, f"goodput and RTT{order}")))
    return table(["demanded from 1 BDP on, in 80 % of the cells", "beside", "joined"], rows)


def demanded_of_latecomers(plan):
    rows = []
    for name, title, bound in (
        ("goodput in the first ten seconds", "goodput in the first ten seconds", "0.90"),
        ("goodput", "goodput later", "0.90"),
        ("RTT", "mean RTT ≤ 1.10 × alone, later", ""),
    ):
        verdict = verdict_of(plan, name)
        share = verdict["met"] >= verdict["share"] * verdict["judged"] - 1e-9
        below = none_below(verdict) if bound else ""
        rows.append([title, met({**verdict, "is_met": share}), below])
    return table(["demanded in 80 % of the cells", "", "below 0.90, which none may be"], rows)


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
    backgrounds = ("Nice", "as much, fixed", "more, fixed")
    head = [title for name in backgrounds for title in (f"{name}: time", "of the link")]
    return table(["rate", "RTT", "foreground", "requests alone: of the link", *head], rows)


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
    """Seconds of processor time for a gigabyte, over the repetitions that nothing disturbed."""
    cells = [cell for cell in cells if cell.metrics["others"] < 0.1]
    rows = []
    for name, title in (
        ("nice", "Nice, s/GB"),
        ("cubic", "CUBIC, s/GB"),
        ("reno", "Reno, s/GB"),
        ("ratio", "Nice / CUBIC"),
        ("ratio_process", "Nice / CUBIC, the process alone"),
    ):
        seen = known(cells, metric(name))
        figures = (statistics.median(seen), min(seen), max(seen))
        rows.append([title, *(f"{figure:.2f}" for figure in figures)])
    return table(["", "median", "least", "most"], rows)


def averages(groups, value, form="{:.2f}"):
    """One mean over repetitions after the other, for groups of cells."""
    means = (known(cells, value) for cells in groups)
    return ", ".join(form.format(statistics.mean(seen)) if seen else "—" for seen in means)


def by_flows(cells, flows, name, **values):
    """A metric's mean for each number of flows."""
    return averages([select(cells, flows=count, **values) for count in flows], metric(name))


def widths(cells):
    """What is said of Nice, by how many packets path and buffer hold."""
    cases = {"3 ×": "11 packets", "as it is": "28", "12 ×": "64", "24 ×": "138"}
    few, crowds, many = (1, 16, 100), (8, 16, 64), (16, 100)
    rows = [
        [f"{title}, {', '.join(map(str, flows[:-1]))} and {flows[-1]} flows"]
        + [by_flows(cells, flows, name, case=case, background=background) for case in cases]
        for title, background, name, flows in (
            ("latency of router prioritization beside Nice", "nice", "of_priority", few),
            ("latency of none beside Nice", "nice", "slowdown", many),
            ("beside Vegas(1, 3)", "vegas", "slowdown", many),
            ("beside Reno", "reno", "slowdown", many),
            ("beside Nice", "nice", "slowdown", crowds),
            ("beside Nice with windows of a packet at least", "nosub1", "slowdown", crowds),
            ("what Nice reaps, of router prioritization", "nice", "reaped", few),
        )
    ]
    rows = [[row[0], *(shown if set(shown) != set("—, ") else "" for shown in row[1:])] for row in rows]
    return table(["", *cases.values()], rows)


def vegas(cells):
    cases = {
        "as it is": "α = 1, β = 3",
        "Vegas(3, 6)": "3 and 6",
        "Vegas(6, 12)": "6 and 12",
        "Vegas(20, 40)": "20 and 40",
        "Vegas never steps back": "grows as Reno, never steps back",
    }
    some = select(cells, background="vegas")
    rows = [
        ["latency of none beside 1, 16 and 100 flows"]
        + [by_flows(some, (1, 16, 100), "slowdown", case=case) for case in cases],
        ["what one reaps, of router prioritization"]
        + [by_flows(some, (1,), "reaped", case=case) for case in cases],
    ]
    return table(["", *cases.values()], rows)


def red(choices, plain):
    """Nice under RED, over the path of figure 7 and over a wider one."""
    rows = [
        [title, by_flows(cells, (16, 100), "of_priority", background="nice", **values)]
        for title, cells, values in (
            ("28 packets in path and buffer", plain, {}),
            ("138", choices, {"case": "24 ×, RED"}),
        )
    ]
    return table(["", "latency of router prioritization beside 16 and 100 Nice flows, under RED"], rows)


def vegas_foreground(choices, plain):
    rows = []
    for title, foreground, by in (("Reno", "reno", ""), ("Vegas(1, 3)", "vegas", "by Vegas")):
        some = select(plain, background="nice", foreground=foreground, flows=100)
        row = [title, averages([select(some, spare=spare) for spare in (0.2, 1, 5)], metric("of_priority"))]
        names = [
            ", ".join(part for part in ("24 ×", by, spare) if part) for spare in ("S = 0.2", "", "S = 5")
        ]
        some = select(choices, background="nice", flows=100)
        row.append(averages([select(some, case=name) for name in names], metric("of_priority")))
        rows.append(row)
    some = select(choices, background="nice", flows=100, case="by Vegas(10, 20), S = 5")
    rows.append(["Vegas(10, 20), S = 5", averages([some], metric("of_priority")), ""])
    return table(["documents by", "28 packets in path and buffer", "138"], rows)


def ablated(cells):
    """Nice without each part, as a multiple of the whole Nice's latency."""
    flows = (4, 16, 64)
    rows = [
        [title]
        + [by_flows(cells, flows, "of_nice", background=background, speed=speed) for speed in (6, 24)]
        for background, title in (
            ("nodetector", "without the detector"),
            ("nohalving", "without multiplicative decrease"),
            ("nosub1", "without windows below one"),
            ("renobase", "on Reno"),
            ("refined", "with our refinements"),
        )
    ]
    return table(["4, 16 and 64 flows", "28 packets in path and buffer", "138"], rows)


def pareto(cells):
    flows = (1, 4, 16, 64)
    rows = [
        [title, by_flows(cells, flows, "reaped", background="nice", foreground=foreground)]
        for foreground, title in (
            ("trace", "the trace"),
            ("pareto", "12 sources of 100 kbit/s"),
            ("3 sources", "3 of 400 kbit/s"),
            ("an eighth on", "12 of 400 kbit/s, on for an eighth of the time"),
        )
    ]
    return table(["foreground", "what 1, 4, 16 and 64 Nice flows reap, of router prioritization"], rows)


def figure_6(plain, under_red):
    spares = (0.5, 1, 2, 5, 10)

    def latency(cells, background):
        seen = [select(cells, background=background, spare=spare) for spare in spares]
        return [statistics.mean(known(some, metric("latency"))) for some in seen]

    rows = []
    for title, above, below in (
        ("Nice, of router prioritization", "nice", "priority"),
        ("Reno, of Nice", "reno", "nice"),
        ("Vegas(1, 3), of Nice", "vegas", "nice"),
        ("Vegas(0, 0), of Nice", "vegas00", "nice"),
    ):
        for queue, cells in (("RED", under_red), ("drop-tail", plain)):
            pairs = zip(latency(cells, above), latency(cells, below))
            rows.append([f"{title}: {queue}", *(f"{over / under:.3g}" for over, under in pairs)])
    return table(["S", *(f"{spare:g}" for spare in spares)], rows)


def bursts(cells):
    """What depends on how fast the trace's stand-in sends a burst, without classes and beside one flow."""
    printed = {
        "SACK": {"cost": "2.3", "growth": "93", "throughput": "1017"},
        "TCP-Background": {"cost": "2.3", "growth": "93", "throughput": "1017"},
    }
    rates = {"10mbit": "bursts at 10 Mbit/s", "5mbit": "at 5", "2.5mbit": "at 2.5"}
    leasts = {"1s": "", "200ms": ", 200 ms"}
    rows = []
    for protocol in printed:
        for name, title, form in (
            ("cost", "the trace's throughput lost, %", "{:.1f}"),
            ("growth", "its delay grows by, %", "{:.0f}"),
            ("throughput", "KiB/s", "{:.0f}"),
        ):
            row = [f"{protocol}: {title}", printed[protocol][name]]
            for least in leasts:
                for rate in rates:
                    some = select(cells, protocol=protocol, classes="one", burst=rate, least=least)
                    row.append(averages([some], metric(name), form))
            rows.append(row)
    head = [f"{title}{least}" for least in leasts.values() for title in rates.values()]
    return table(["", "paper", *head], rows)


def timeouts(cells):
    """What depends on the least timeout."""
    printed = {
        ("one", "throughput", "Reno"): "820",
        ("one", "throughput", "SACK"): "1007",
        ("one", "throughput", "TCP-Background"): "1013",
        ("250 kB", "sharing", "SACK"): "0.023",
        ("250 kB", "sharing", "TCP-Background"): "0.097",
        ("1 MB", "sharing", "SACK"): "0.078",
        ("1 MB", "sharing", "TCP-Background"): "0.123",
        ("250 kB", "throughput", "SACK"): "518",
        ("250 kB", "throughput", "TCP-Background"): "531",
        ("1 MB", "throughput", "SACK"): "508",
        ("1 MB", "throughput", "TCP-Background"): "528",
        ("250 kB, one queue", "throughput", "SACK"): "367",
        ("250 kB, one queue", "throughput", "TCP-Background"): "427",
        ("1 MB, one queue", "throughput", "SACK"): "354",
        ("1 MB, one queue", "throughput", "TCP-Background"): "458",
        ("30 s", "sharing", "SACK"): "",
        ("30 s", "sharing", "TCP-Background"): "",
        ("300 s", "sharing", "SACK"): "",
        ("300 s", "sharing", "TCP-Background"): "",
        ("3000 s", "sharing", "SACK"): "",
        ("3000 s", "sharing", "TCP-Background"): "",
    }
    leasts = ("1s", "200ms", "870ms", "1130ms", "1700ms")
    rows = []
    for (beside, name, protocol), paper in printed.items():
        unit, form = ("KiB/s", "{:.0f}") if name == "throughput" else ("sharing", "{:.3f}")
        traffic = "one flow" if beside == "one" else f"five flows, {beside}"
        row = [f"{traffic}, {unit}: {protocol}", paper]
        for least in leasts:
            some = select(cells, beside=beside, protocol=protocol, least=least)
            row.append(averages([some], metric(name), form))
        rows.append(row)
    return table(["", "paper", "1 s", "200 ms", "0.87 s", "1.13 s", "1.7 s"], rows)


def speed(dumbbells):
    """What a packet costs the simulator on one core, and a flow."""
    rows = []
    for flows in (10, 100, 1000, 10000):
        cells = [select(dumbbells, flows=flows)]
        rows.append(
            [
                f"{flows:,}",
                averages(cells, metric("packet_ns"), "{:.0f}"),
                averages(cells, metric("event_ns"), "{:.0f}"),
                averages(cells, metric("factor")),
                averages(cells, lambda cell: cell.metrics["memory"] / 1000, "{:.1f}"),
            ]
        )
    return table(["flows", "a packet, ns", "an event, ns", "of 10 flows", "memory of a flow, kB"], rows)


def beside_the_kernel(cells):
    """The same dumbbell simulated, and by the kernel over the emulator."""
    rows = []
    for control, title in (("cubic", "CUBIC"), ("reno", "Reno"), ("bbr", "BBR"), ("nice", "Nice")):
        for flows in (1, 8):
            for distance in ("20ms", "50ms"):
                some = select(cells, control=control, flows=flows, rtt=distance)
                both = [select(some, network=network) for network in ("simulator", "emulator")]
                row = [title, str(flows), RTTS[distance]]
                for name, form in (("share", "{:.2f}"), ("waits_alone", "{:.1f}"), ("waits", "{:.1f}")):
                    row.append(averages(both, metric(name), form))
                rows.append(row)
    head = ["share beside CUBIC", "packets wait alone, ms", "beside CUBIC, ms"]
    return table(["control", "flows", "RTT", *head], rows)


def simulated_tables(cells):
    choices = cells["nice-choices"]
    return {
        "speed": speed(cells["bench-flows"]),
        "simulator-kernel": beside_the_kernel(cells["simulator-kernel"]),
        "widths": widths(choices),
        "vegas": vegas(choices),
        "red": red(choices, cells["nice-fig7"]),
        "vegas-foreground": vegas_foreground(choices, cells["nice-vegasfg"]),
        "ablated": ablated(cells["nice-ablation"]),
        "pareto": pareto(cells["nice-pareto"]),
        "figure-6": figure_6(cells["nice-fig2"], cells["nice-fig6"]),
        "bursts": bursts(cells["fill-choices"]),
        "timeouts": timeouts(cells["fill-timeouts"]),
    }


def kernel_tables(plans, cells):
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
            "goodput ≥ 0.97 less what the smallest windows send",
            (" beside", " joined"),
        ),
        "link-alone": by_foreground(nice, alone, min),
        "times": times(nice),
        "floor": floor(nice, verdict_of(plans["kernel-matrix"], "floor of the prototype")),
        "requests-mean": by_foreground(requests, latency, max),
        "requests-p95": by_foreground(requests, metric("latency_p95"), max),
        "requests-p99": by_foreground(requests, metric("latency_p99"), max),
        "requests-joined": by_percentile(requests),
        "demanded-requests": demanded(
            plans["kernel-matrix"],
            "0.97 of what a request gets of the link alone (its size over its time), less the smallest windows",
            (" of requests", " of requests joined"),
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
    for name, made in (
        ("docs/kernel-results.md", kernel_tables(plans, cells)),
        ("docs/simulations.md", simulated_tables(cells)),
    ):
        path = ROOT / name
        expected = written(path, made)
        if not options:
            path.write_text(expected)
        elif path.read_text() != expected:
            sys.exit(f"lull: the tables of {name} are not those of report/: scripts/tables.py writes them")


if __name__ == "__main__":
    main()
