"""The tables of docs/simulations.md."""

import statistics

from pages.cells import (
    RTTS,
    averages,
    by_flows,
    each,
    known,
    mean,
    metric,
    select,
    table,
)

PLANS = [
    *(f"nice-{name}" for name in ("ablation", "choices", "fig2", "fig6", "fig7", "pareto", "vegasfg")),
    "bench-flows",
    "fill-choices",
    "fill-timeouts",
    "simulator-kernel",
]


def widths(cells):
    """Results of Nice by the number of packets in path and buffer."""
    cases = {"3 ×": "11 packets", "as it is": "28", "12 ×": "64", "24 ×": "138"}
    few, crowds, many = (1, 16, 100), (8, 16, 64), (16, 100)
    rows = [
        [f"{title}, {', '.join(map(str, flows[:-1]))} and {flows[-1]} flows"]
        + [by_flows(cells, flows, name, case=case, background=background) for case in cases]
        for title, background, name, flows in (
            ("latency beside Nice, × router prioritization", "nice", "of_priority", few),
            ("latency beside Nice, × none", "nice", "slowdown", many),
            ("beside Vegas(1, 3)", "vegas", "slowdown", many),
            ("beside Reno", "reno", "slowdown", many),
            ("beside Nice", "nice", "slowdown", crowds),
            ("beside Nice with windows of at least a packet", "nosub1", "slowdown", crowds),
            ("bytes of Nice, × router prioritization", "nice", "reaped", few),
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
        "Vegas never steps back": "Reno's growth, never steps back",
    }
    some = select(cells, background="vegas")
    rows = [
        ["latency beside 1, 16 and 100 flows, × none"]
        + [by_flows(some, (1, 16, 100), "slowdown", case=case) for case in cases],
        ["bytes of one flow, × router prioritization"]
        + [by_flows(some, (1,), "reaped", case=case) for case in cases],
    ]
    return table(["", *cases.values()], rows)


def red(choices, plain):
    """Nice under RED, over the path of figure 7 and over one that holds more packets."""
    rows = [
        [title, by_flows(cells, (16, 100), "of_priority", background="nice", **values)]
        for title, cells, values in (
            ("28 packets in path and buffer", plain, {}),
            ("138", choices, {"case": "24 ×, RED"}),
        )
    ]
    return table(["", "latency beside 16 and 100 Nice flows under RED, × router prioritization"], rows)


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
    """Latency of Nice without each part, as a multiple of Nice's."""
    flows = (4, 16, 64)
    rows = [
        [title]
        + [by_flows(cells, flows, "of_nice", background=background, speed=speed) for speed in (6, 24)]
        for background, title in (
            ("nodetector", "without the detector"),
            ("nohalving", "without multiplicative decrease"),
            ("nosub1", "without windows below one"),
            ("renobase", "on Reno"),
            ("refined", "with Lull's refinements"),
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
    return table(["foreground", "bytes of 1, 4, 16 and 64 Nice flows, × router prioritization"], rows)


def figure_6(plain, under_red):
    spares = (0.5, 1, 2, 5, 10)

    def latency(cells, background):
        seen = [select(cells, background=background, spare=spare) for spare in spares]
        return [statistics.mean(known(some, metric("latency"))) for some in seen]

    rows = []
    for title, above, below in (
        ("Nice, × router prioritization", "nice", "priority"),
        ("Reno, × Nice", "reno", "nice"),
        ("Vegas(1, 3), × Nice", "vegas", "nice"),
        ("Vegas(0, 0), × Nice", "vegas00", "nice"),
    ):
        for queue, cells in (("RED", under_red), ("drop-tail", plain)):
            pairs = zip(latency(cells, above), latency(cells, below))
            rows.append([f"{title}: {queue}", *(f"{over / under:.3g}" for over, under in pairs)])
    return table(["S", *(f"{spare:g}" for spare in spares)], rows)


def bursts(cells):
    """Results by the burst rate of the trace's stand-in, without classes and beside one flow."""
    printed = {
        "SACK": {"cost": "2.3", "growth": "93", "throughput": "1017"},
        "TCP-Background": {"cost": "2.3", "growth": "93", "throughput": "1017"},
    }
    rates = {"10mbit": "bursts at 10 Mbit/s", "5mbit": "at 5", "2.5mbit": "at 2.5"}
    leasts = {"1s": "", "200ms": ", 200 ms"}
    rows = []
    for protocol in printed:
        for name, title, form in (
            ("cost", "throughput that the trace loses, %", "{:.1f}"),
            ("growth", "growth of its delay, %", "{:.0f}"),
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
    """Results by minimum timeout."""
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
    """Cost of a packet and of a flow in the simulator, on one core."""
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
    return table(["flows", "per packet, ns", "per event, ns", "× 10 flows", "memory per flow, kB"], rows)


def beside_the_kernel(cells):
    """The same dumbbell in the simulator, and with the kernel over the emulator."""
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
    head = ["share beside CUBIC", "queueing delay alone, ms", "queueing delay beside CUBIC, ms"]
    return table(["control", "flows", "RTT", *head], rows)


def tables(_plans, cells):
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
