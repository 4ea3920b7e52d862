"""What was spent, as a table, CSV or a JSON document. Totals of the ledger in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from jobs.plain import harmless
from orchestrator.billed import Bill, Billed, total
from orchestrator.report_json import billed_body, document
from orchestrator.report_text import Column, Screen, exact_money, money, table, wrap
from orchestrator.views import JobView


class Spent(Protocol):
    """One line of the answer; the ledger's `Total` has these."""

    @property
    def key(self) -> str:
        """Job id, day or provider."""

    @property
    def compute_usd(self) -> Decimal:
        """Paid for the machines' time."""

    @property
    def storage_usd(self) -> Decimal:
        """Paid for their disks."""

    @property
    def total_usd(self) -> Decimal:
        """Both."""

    @property
    def unserved_usd(self) -> Decimal:
        """Of it, for machines that never trained."""

    @property
    def upper_bound_usd(self) -> Decimal:
        """Beside it: what launches never answered may have cost at the most."""

    @property
    def open(self) -> bool:
        """Whether it still grows."""

    @property
    def notional(self) -> bool:
        """Whether some of it is a made-up price."""

    @property
    def billed(self) -> Billed:
        """What the provider charged, as far as that is known."""


HEADS = {"job": "job", "day": "day (UTC)", "provider": "provider"}
CSV_HEAD = (
    "key,name,compute_usd,storage_usd,unserved_usd,upper_bound_usd,total_usd,open,notional,"
    "bill,billed_usd,billed_estimate_usd,bill_differs"
)


def cost_lines(
    rows: Sequence[Spent], names: Mapping[str, str], by: str, screen: Screen
) -> list[str]:
    """Return a line for each key and one for all; a growing total is marked with "+"."""
    if not rows:
        return ["nothing was spent yet."]
    columns: tuple[Column, ...] = (
        Column(HEADS[by], floor=12, keep=95),
        Column("compute $", right=True, keep=40),
        Column("storage $", right=True, keep=30),
        Column("never trained $", right=True, keep=20),
        Column("total $", right=True),
    )
    everything = total(row.billed for row in rows)
    told = everything.state is not Bill.NONE
    if told:
        columns += (Column("billed $", right=True, keep=60),)
    body = [_row(_named(row.key, names), row, told=told) for row in rows]
    body.append(
        (
            "all",
            _plain(sum((row.compute_usd for row in rows), Decimal(0))),
            _plain(sum((row.storage_usd for row in rows), Decimal(0))),
            _plain(sum((row.unserved_usd for row in rows), Decimal(0))),
            _plain(sum((row.total_usd for row in rows), Decimal(0))),
            *((bill_cell(everything),) if told else ()),
        )
    )
    lines = table(columns, body, screen.width)
    if any(row.open for row in rows):
        lines.append("+ still grows: a machine of it is not proven gone")
    if any(row.notional for row in rows):
        lines.append("* a notional price: nobody bills it")
    if any(row.billed.differs for row in rows):
        lines += wrap(
            "! billed and estimated differ by more than 5 %: look at the account's own bill",
            screen.width,
        )
    bound = sum((row.upper_bound_usd for row in rows), Decimal(0))
    if bound > 0:
        lines += wrap(
            f"launches never answered may have cost up to {money(bound)} more; their names are "
            "watched and ended if they appear",
            screen.width,
        )
    return lines


def bill_cell(billed: Billed) -> str:
    """Return "0.41", "0.41, rest pending", "pending", "not answered", or "-"."""
    known = billed.known
    word = {Bill.PENDING: "pending", Bill.UNANSWERED: "not answered"}.get(billed.state, "")
    if known is None:
        return word or "-"
    mark = "!" if billed.differs else ""
    return f"{_plain(known)}{mark}" + (f", rest {word}" if word else "")


def billed_fields(job: JobView) -> list[tuple[str, str]]:
    """Return the line of one job about its bill; none where nobody will tell."""
    billed = job.billed
    if billed.state is Bill.NONE or job.closed_at is None:
        return []
    known = billed.known
    if known is None:
        waits = {Bill.PENDING: "pending: the provider settles it by the hour"}
        return [("billed", waits.get(billed.state, "not answered: it is asked again"))]
    text = bill_cell(billed).replace(_plain(known), money(known), 1).replace("!", "", 1)
    if billed.differs:
        text += f", but {money(billed.estimate_usd)} was estimated: look at the account's own bill"
    return [("billed", text)]


def _row(name: str, row: Spent, *, told: bool) -> tuple[str, ...]:
    grows = ("*" if row.notional else "") + ("+" if row.open else "")
    return (
        name,
        _plain(row.compute_usd),
        _plain(row.storage_usd),
        _plain(row.unserved_usd),
        _plain(row.total_usd) + grows,
        *((bill_cell(row.billed),) if told else ()),
    )


def _plain(usd: Decimal) -> str:
    return money(usd).removeprefix("$")


def _named(key: str, names: Mapping[str, str]) -> str:
    return f"{harmless(names[key])} #{key}" if key in names else key


def cost_csv(rows: Sequence[Spent], names: Mapping[str, str], by: str) -> list[str]:
    """Return CSV lines with a head; money with six decimals, names quoted where needed."""
    import csv
    import io

    _ = by
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD.split(","))
    for row in rows:
        writer.writerow(
            [
                row.key,
                names.get(row.key, ""),
                exact_money(row.compute_usd),
                exact_money(row.storage_usd),
                exact_money(row.unserved_usd),
                exact_money(row.upper_bound_usd),
                exact_money(row.total_usd),
                "yes" if row.open else "no",
                "yes" if row.notional else "no",
                *_bill_cells(row.billed),
            ]
        )
    return text.getvalue().splitlines()


def _bill_cells(billed: Billed) -> list[str]:
    known = billed.known
    return [
        str(billed.state),
        "" if known is None else exact_money(known),
        "" if known is None else exact_money(billed.estimate_usd),
        "yes" if billed.differs else "no",
    ]


def cost_document(
    rows: Sequence[Spent], names: Mapping[str, str], by: str, now: float
) -> dict[str, Any]:
    """Return the answer of `gpujob cost --json`."""
    return document(
        "cost",
        now,
        by=by,
        total_usd=exact_money(sum((row.total_usd for row in rows), Decimal(0))),
        rows=[
            {
                "key": row.key,
                "name": names.get(row.key),
                "compute_usd": exact_money(row.compute_usd),
                "storage_usd": exact_money(row.storage_usd),
                "unserved_usd": exact_money(row.unserved_usd),
                "upper_bound_usd": exact_money(row.upper_bound_usd),
                "total_usd": exact_money(row.total_usd),
                "open": row.open,
                "notional": row.notional,
                **billed_body(row.billed),
            }
            for row in rows
        ],
    )
