"""What a second thread is worth after a pause: does the system leave both threads on one core?

    python -m studies.cores                        dw8192 and memplus at k = 8 (four minutes with another)
    python -m studies.cores --before ../old-akx    and, in turns with it, another checkout of akx
    python -m studies.cores --table                print the table from the file

Between looks the process sleeps half a second, so that its members sleep too and the system chooses a core for them
anew. A look is 41 calls of the predicted plan on one thread, then 101 on two; of both the median counts. Switches are
those of all threads of the process from one task to another, in a call on two threads: there are none where each has a
core of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "cores.json"
_MATRICES = ("dw8192", "memplus")
_K = 8
#: Times that each checkout is started for a matrix, looks of each, and seconds before a look.
_TURNS, _LOOKS, _PAUSE = 8, 12, 0.5
_CALLS_ALONE, _CALLS_TOGETHER = 41, 101

Json = dict[str, Any]


def looks(name: str, count: int, pause: float = _PAUSE) -> list[Json]:
    """So many looks: seconds of a call ``alone`` and ``together``, and ``switches`` in a call."""
    from akx.tuner.model.predict import predict
    from benchmarks import samplers

    matrix = samplers.made(name)
    plan = predict(matrix, _K, backend="cpu", threads=2)
    alone, together = (_call(matrix, plan.replace(threads=threads)) for threads in (1, 2))
    found = []
    for _ in range(count):
        time.sleep(pause)
        one = _seconds(alone, _CALLS_ALONE)
        before = _switches()
        two = _seconds(together, _CALLS_TOGETHER)
        found.append({"alone": one, "together": two, "switches": (_switches() - before) / _CALLS_TOGETHER})
    return found


def summary(found: Sequence[Json]) -> Json:
    """Seconds together over alone, ``ratio`` {``median``, ``high``, ``most``}, the share ``slower``; ``switches``."""
    ratios = [look["together"] / look["alone"] for look in found]
    return {
        "looks": len(found),
        "ratio": {
            "median": median(ratios),
            "high": float(np.quantile(ratios, 0.9)),
            "most": max(ratios),
        },
        "slower": sum(ratio > 1.0 for ratio in ratios) / len(ratios),
        "switches": float(np.mean([look["switches"] for look in found])),
    }


def compare(name: str, checkouts: Sequence[Path], turns: int, count: int) -> list[Json]:
    """The same looks with each checkout of akx, in turns, each in a process of its own."""
    seen: dict[Path, list[Json]] = {checkout: [] for checkout in checkouts}
    for _ in range(turns):
        for checkout in checkouts:
            command = [sys.executable, __file__, "--matrix", name, "--looks", str(count)]
            told = subprocess.run(
                command, env=os.environ | {"PYTHONPATH": str(checkout)}, stdout=subprocess.PIPE, text=True, check=True
            )
            seen[checkout] += json.loads(told.stdout)
    return [{"matrix": name, "commit": _commit(checkout), **summary(seen[checkout])} for checkout in checkouts]


def table(document: Json) -> str:
    """A line for each matrix and checkout."""
    from benchmarks import markdown, solving

    ratio = "two threads over one, median"
    head = ["matrix", "commit", "looks", ratio, "nine of ten below", "looks with two slower", "switches a call"]
    body = [
        [
            entry["matrix"],
            entry["commit"][:10] + ("+changes" if entry["commit"].endswith("+changes") else ""),
            str(entry["looks"]),
            f"{entry['ratio']['median']:.2f}",
            f"{entry['ratio']['high']:.2f}",
            f"{entry['slower']:.0%}",
            f"{entry['switches']:.2f}",
        ]
        for entry in document["found"]
    ]
    return f"{solving.origin(document, [document])}.\n\n{markdown.rows(head, body, left=(0, 1))}"


def _call(matrix: Any, plan: Any) -> Callable[[], None]:
    from akx.backends import registry
    from akx.backends.schedule import as_coefficients

    program = registry.get(plan.backend, plan.schedule).prepare(matrix, plan)
    coefficients = as_coefficients(np.ones(plan.k), np.zeros(plan.k), np.zeros(plan.k), matrix.dtype)
    x, out = np.ones((1, matrix.n)), np.empty((plan.k + 1, 1, matrix.n))
    program.run(x, out, coefficients)
    return lambda: program.run(x, out, coefficients)


def _seconds(call: Callable[[], None], times: int) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def _switches() -> int:
    """Times that a thread of this process has left a core to another task, of its own accord or not."""
    count = 0
    for task in Path("/proc/self/task").glob("*/status"):
        count += sum(int(line.split()[1]) for line in task.read_text().splitlines() if "ctxt_switches" in line)
    return count


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+changes"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Look, compare and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m studies.cores", description="Two threads after a pause.")
    parser.add_argument("--before", type=Path, help="another checkout of akx")
    parser.add_argument("--matrix", choices=_MATRICES, help="with --looks")
    parser.add_argument("--looks", type=int, help="that many at one matrix, with the akx that is imported, as JSON")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/kernels.md with the file by default")
    options = parser.parse_args(arguments)
    if options.looks:
        print(json.dumps(looks(options.matrix or _MATRICES[0], options.looks)))
        return 0
    from benchmarks import markdown, record

    if not options.table:
        here = Path(__file__).resolve().parents[1]
        checkouts = [here] if options.before is None else [options.before.resolve(), here]
        found = [entry for name in _MATRICES for entry in compare(name, checkouts, _TURNS, _LOOKS)]
        options.output.write_text(json.dumps({**record.provenance(2), "found": found}, indent=1) + "\n")
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
