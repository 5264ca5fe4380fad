"""What ``akx plans verify`` says: a line for each plan, and why where one does not hold or is aged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from akx.plandb import aged
from akx.report.tables import print_line, print_rows
from akx.report.units import ID_DIGITS, duration, half_width, ratio

if TYPE_CHECKING:
    from akx.report.plans.verification import Verification

__all__ = ["print_verifications"]


def print_verifications(found: Sequence[Verification], console: Console) -> None:
    """What ``akx plans verify`` says: a line for each plan, and why where one does not hold or is aged."""
    rows = []
    for one in found:
        key, speedup = one.record.key, "-" if one.speedup is None else ratio(one.speedup)
        rows.append(
            (
                one.record.id[:ID_DIGITS],
                str(key.k),
                key.basis,
                "-" if one.seconds is None else duration(one.seconds),
                duration(one.record.seconds),
                speedup + half_width(one.spread),
                ratio(one.record.speedup),
                one.state,
                one.record.plan.label(),
            )
        )
    columns = {
        "id": "left", "k": "right", "basis": "left", "time now": "right", "time then": "right",
        "speed-up now": "right", "speed-up then": "right", "state": "left", "plan": "left",
    }  # fmt: skip
    print_rows(columns, rows, console)
    said: dict[str, list[str]] = {}
    for one in found:
        reasons = [f"aged: {'; '.join(why)}"] if (why := aged(one.record)) else []
        for text in [*reasons, *([f"{one.state}: {one.reason}"] if one.reason else [])]:
            said.setdefault(text, []).append(one.record.id[:ID_DIGITS])
    for text, ids in said.items():
        print_line(f"{', '.join(ids)} {text}", console)
