"""``akx tune --replay``: a search over what ``--record`` wrote, on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from akx.cli.inputs import check_amount, check_seconds, refuse
from akx.cli.output import data_console, emit_json

if TYPE_CHECKING:
    from akx.cli.tune import TuneRequest

__all__ = ["run_replay"]


def run_replay(request: TuneRequest, *, as_json: bool) -> int:
    """Search over a recording, print what was found, and return the exit code 0."""
    fixed, nothing = "the recording says it", "nothing is measured and nothing is kept"
    refuse(
        "--replay",
        (
            ("--k", request.k, fixed),
            ("--backend", None if request.backend == "auto" else request.backend, fixed),
            ("--basis", request.basis, fixed),
            ("--dtype", request.dtype, fixed),
            ("--threads", request.threads, fixed),
            ("--variable", request.variable, fixed),
            ("--memory-budget", request.memory_budget, fixed),
            ("--fraction", request.fraction, fixed),
            ("--value-error", request.value_error, fixed),
            ("--for", request.solver, "it searches for one plan"),
            ("--db", request.db, nothing),
            ("--retune", request.retune, nothing),
            ("--fresh", request.fresh, nothing),
            ("--record", request.record, nothing),
            ("--storage", request.storage, "it searches alone"),
            ("--exhaustive", request.exhaustive, nothing),
        ),
    )
    check_amount("--trials", request.trials, 100)
    check_amount("--calls", request.calls, 1000)
    check_seconds(request.seconds)
    from akx.tuner import replay

    found = replay(request.file, trials=request.trials, seconds=request.seconds, seed=request.seed, calls=request.calls)
    if as_json:
        emit_json(found.to_json())
    else:
        from akx.report.tuning.replay_tables import print_replay

        print_replay(found, data_console())
    return 0
