"""What ``akx tune --replay`` says: the plan, its share of the best on record, and how the search came to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from akx.report.tables import print_pairs, print_rows
from akx.report.units import count, counted, duration, ratio, share

if TYPE_CHECKING:
    from akx.tuner import ReplayResult

__all__ = ["print_replay"]


def print_replay(found: ReplayResult, console: Console) -> None:
    """The plan chosen beside the best on record, the steps of the search, and what the recording does not have."""
    recording, key, counts = found.recording, found.recording.key, found.counts
    whole = ", the whole space" if recording.exhaustive else ""
    name = recording.matrix_name or f"unnamed matrix {key.fingerprint[:12]}"
    made = f"{counts.complete} complete, {counts.pruned} pruned, {counts.failed} failed; seed {found.settings.seed}"
    why = "infeasible: the whole space was measured" if recording.exhaustive else "which count as infeasible"
    missing = (
        f"{count(found.missing)} of the plans asked for, {why}" if found.missing else "none of the plans asked for"
    )
    print_pairs(
        [
            ("recording", f"{recording.path}: {counted(len(recording.trials), 'plan')}{whole}"),
            ("matrix", f"{name}, {key.dtype}"),
            ("device", key.device_class),
            ("powers", f"k = {key.k}, {key.basis} basis"),
            ("baseline", f"{found.baseline.plan.label()}: {duration(found.baseline.seconds)}"),
            ("best on record", f"{found.optimum.plan.label()}: {duration(found.optimum.seconds)}"),
            ("plan", f"{found.plan.label()}: {duration(found.seconds)}"),
            ("share", f"{share(found.share)} of the best on record, {ratio(found.speedup)} over the baseline"),
            (
                "search",
                f"{duration(found.search_seconds)} ({made}), ended by: {found.stopped}",
            ),
            ("not on record", missing),
            *(("note", text) for text in found.notes),
        ],
        console,
    )
    if found.steps:
        console.print()
        rows = [(count(step.trials), duration(step.seconds), share(step.share)) for step in found.steps]
        print_rows({"trials": "right", "after": "right", "share": "right"}, rows, console)
