"""Tables of docs/downloads.md."""

from pages.cells import metric, table

PLANS = ["video-call"]

COLUMNS = [
    ("p99 of the delay up, ms above alone", "up_more", "{:.0f}"),
    ("down", "down_more", "{:.0f}"),
    ("mean up, ms above alone", "up_mean", "{:.1f}"),
    ("down", "down_mean", "{:.1f}"),
    ("loss up, points above alone", "up_loss", "{:.1f}"),
    ("down", "down_loss", "{:.1f}"),
    ("background up, Mbit/s", "background_up", "{:.1f}"),
    ("down", "background_down", "{:.1f}"),
]


def call(cells):
    def row(cell):
        seen = [(metric(name)(cell), form) for _, name, form in COLUMNS]
        return ["—" if value is None else form.format(value) for value, form in seen]

    return table(
        ["background", "buffer, BDP", *(title for title, _, _ in COLUMNS)],
        [[f"`{cell.values['control']}`", str(cell.values["buffer"]), *row(cell)] for cell in cells],
    )


def tables(_plans, cells):
    return {"call": call(cells["video-call"])}
