"""Calls with the default number of threads on a quiet and on a busy machine: ``python -m studies.busy``.

    python -m studies.busy                 every matrix, into studies/results/busy.json, then the table
    python -m studies.busy --only wang4    one matrix, merged into the file
    python -m studies.busy --table         the table of docs/kernels.md from the file

On the busy machine there is one process for each core that does nothing but count. Values are uniformly random, the
plan is that of an untuned call, k = 8. The contenders have the time of whole turns, one after another, in several
rounds: `P(x, out=V)` with the default threads and with one, and SciPy's products one after another into the columns of
V. A turn's figure is its time over its calls, so that calls that wait for milliseconds count; of these, the median over
the rounds. `fixed` is a call that never changes its number of threads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import akx
from akx.backends.cpu.thread_team import Team
from akx.backends.host import default_threads
from benchmarks import markdown, record, solving
from benchmarks.matrices import select

__all__ = ["RESULTS", "main", "measure", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "busy.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
MATRICES = ("cavity14", "sherman5", "bcsstk16", "bcsstk25", "wang4", "ct2010", "ex40", "brick", "mc2depi", "9-point")
_K, _TURN, _ROUNDS = 8, 0.4, 7

Json = dict[str, Any]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that count for ever."""
    counting = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        time.sleep(0.5 if processes else 0.0)
        yield
    finally:
        for process in counting:
            process.kill()
            process.wait()


def measure(name: str, A: Any, *, fixed: bool = False) -> list[Json]:
    """An entry for the quiet and one for the busy machine."""
    rng = np.random.default_rng(0)
    A = A.copy()
    A.data = rng.uniform(-1.0, 1.0, A.nnz) / np.diff(A.indptr).max()
    x, V = rng.standard_normal(A.shape[0]), np.empty((A.shape[0], _K + 1), order="F")
    P, alone = akx.MatrixPowers(A, _K), akx.MatrixPowers(A, _K, threads=1)

    def products() -> None:
        V[:, 0] = x
        for j in range(_K):
            V[:, j + 1] = A @ V[:, j]

    calls: dict[str, Callable[[], object]] = {
        "default": lambda: P(x, out=V),
        "one thread": lambda: alone(x, out=V),
        "SciPy": products,
    }
    if fixed:
        calls["fixed"] = lambda: _without_judgement(P, x, V)
    entries = []
    for others in (0, default_threads()):
        with busy(others):
            turns: dict[str, list[float]] = {name: [] for name in calls}
            for number in range(_ROUNDS + 1):
                for contender, call in calls.items():
                    seconds = _turn(call)
                    if number:  # the first warms up
                        turns[contender].append(seconds)
        figures = {contender: statistics.median(seconds) for contender, seconds in turns.items()}
        best = min(seconds for contender, seconds in figures.items() if contender != "default")
        entries.append(
            {
                "matrix": name,
                "rows": A.shape[0],
                "nnz": A.nnz,
                "plan": P.plan.label(),
                "busy": others,
                "turns": turns,
                "seconds": figures,
                "over_best": figures["default"] / best,
                "over_scipy": figures["default"] / figures["SciPy"],
            }
        )
    return entries


def _without_judgement(P: akx.MatrixPowers, x: Any, V: Any) -> None:
    judge = Team._judge
    Team._judge = lambda *arguments: None  # type: ignore[method-assign]
    try:
        P(x, out=V)
    finally:
        Team._judge = judge  # type: ignore[method-assign]


def _turn(call: Callable[[], object]) -> float:
    """Seconds of a call, the mean over a turn."""
    count, begin = 0, time.perf_counter()
    while (now := time.perf_counter()) < begin + _TURN or count == 0:
        call()
        count += 1
    return (now - begin) / max(count, 1)


def table(document: Json) -> str:
    """The table of the page."""
    head = [
        "matrix",
        "entries",
        "plan",
        "others",
        "default, ms",
        "one thread, ms",
        "SciPy, ms",
        "over best",
        "over SciPy",
    ]
    body = []
    for entry in document["busy"]:
        times = [f"{1e3 * entry['seconds'][name]:.3g}" for name in ("default", "one thread", "SciPy")]
        ratios = [f"{entry[name]:.2f}" for name in ("over_best", "over_scipy")]
        plan = f"`{entry['plan'].split(' ')[0]}`"
        body.append([entry["matrix"], f"{entry['nnz']:,}", plan, str(entry["busy"]), *times, *ratios])
    parts = [f"{solving.origin(document, document['busy'])}; k = {_K}, medians of {_ROUNDS} turns."]
    for others in sorted({entry["busy"] for entry in document["busy"]}):
        ratios = [entry["over_best"] for entry in document["busy"] if entry["busy"] == others]
        parts.append(
            f"Beside {others} busy processes the default takes {record.geometric_mean(ratios):.2f} of the time of the "
            f"better of one thread and SciPy in the geometric mean, {max(ratios):.2f} at most."
        )
    return "\n\n".join([*parts, markdown.rows(head, body, left=(0, 2))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the file and the table; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m studies.busy", description="Threads on a busy machine.")
    parser.add_argument("--only", action="append", metavar="MATRIX")
    parser.add_argument("--fixed", action="store_true", help="also calls that always have all threads")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args(arguments)
    document = json.loads(options.output.read_text()) if options.output.exists() else {"busy": []}
    if not options.table:
        origin = record.provenance(default_threads())
        for case in select(options.only or MATRICES):
            for entry in measure(case.name, case.load(), fixed=options.fixed):
                figures = "  ".join(f"{who} {1e3 * seconds:.3g} ms" for who, seconds in entry["seconds"].items())
                print(f"{case.name}, {entry['busy']} others: {figures}", file=sys.stderr, flush=True)
                entry |= {"commit": origin["commit"], "date": origin["date"]}
                same = (case.name, entry["busy"])
                kept = [one for one in document["busy"] if (one["matrix"], one["busy"]) != same]
                document = {**origin, "busy": sorted([*kept, entry], key=lambda one: (one["busy"], one["nnz"]))}
                solving.save(options.output, document)
    page = markdown.page_for(options.output, options.docs, usual=RESULTS, page=PAGE)
    markdown.show(table(document), "busy", page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
