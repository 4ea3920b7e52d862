"""What was spent, as a table, CSV or a JSON document. Totals of the ledger in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from orchestrator.report_json import document
from orchestrator.report_text import Column, Screen, exact_money, harmless, money, table, wrap


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


HEADS = {"job": "job", "day": "day (UTC)", "provider": "provider"}
CSV_HEAD = "key,name,compute_usd,storage_usd,unserved_usd,upper_bound_usd,total_usd,open,notional"


def cost_lines(
    rows: Sequence[Spent], names: Mapping[str, str], by: str, screen: Screen
) -> list[str]:
    """Return a line for each key and one for all; a growing total is marked with "+"."""
    if not rows:
        return ["nothing was spent yet."]
    columns = (
        Column(HEADS[by], floor=12, keep=95),
        Column("compute $", right=True, keep=40),
        Column("storage $", right=True, keep=30),
        Column("never trained $", right=True, keep=20),
        Column("total $", right=True),
    )
    body = [_row(_named(row.key, names), row) for row in rows]
    body.append(
        (
            "all",
            _plain(sum((row.compute_usd for row in rows), Decimal(0))),
            _plain(sum((row.storage_usd for row in rows), Decimal(0))),
            _plain(sum((row.unserved_usd for row in rows), Decimal(0))),
            _plain(sum((row.total_usd for row in rows), Decimal(0))),
        )
    )
    lines = table(columns, body, screen.width)
    if any(row.open for row in rows):
        lines.append("+ still grows: a machine of it is not proven gone")
    if any(row.notional for row in rows):
        lines.append("* a notional price: nobody bills it")
    bound = sum((row.upper_bound_usd for row in rows), Decimal(0))
    if bound > 0:
        lines += wrap(
            f"launches never answered may have cost up to {money(bound)} more; their names are "
            "watched and ended if they appear",
            screen.width,
        )
    return lines


def _row(name: str, row: Spent) -> tuple[str, ...]:
    grows = ("*" if row.notional else "") + ("+" if row.open else "")
    return (
        name,
        _plain(row.compute_usd),
        _plain(row.storage_usd),
        _plain(row.unserved_usd),
        _plain(row.total_usd) + grows,
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
            ]
        )
    return text.getvalue().splitlines()


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
            }
            for row in rows
        ],
    )
