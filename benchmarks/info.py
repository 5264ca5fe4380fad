"""Seconds that ``akx info FILE`` takes, as a user sees them: a process of its own, reading the file included.

    python -m benchmarks.info                    the matrices of the gallery (three minutes)
    python -m benchmarks.info --only shell       one, into the same file
    python -m benchmarks.info --table            print the table from the file

Each matrix is written as SciPy's ``.npz`` without compression, and ``python -m akx info FILE`` is run some times, its
code compiled before; the median counts, and ``peak_bytes`` is the largest resident set. `read_seconds` is what reading
the file takes alone.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from benchmarks import each, markdown, solving
from benchmarks.gallery import GALLERY
from benchmarks.matrices import Case

__all__ = ["RESULTS", "main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "info.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
_TIMES = 3

Json = dict[str, Any]


def measured(name: str, A: Any, folder: Path, times: int = _TIMES) -> Json:
    """``matrix``, ``rows``, ``nnz``, ``seconds`` of each run, ``read_seconds``, and ``peak_bytes``.

    Raises
    ------
    subprocess.CalledProcessError
        Where ``akx info`` fails.
    """
    A = sp.csr_array(A)
    path = folder / f"{name}.npz"
    sp.save_npz(path, A, compressed=False)
    begin = time.perf_counter()
    sp.load_npz(path)
    read = time.perf_counter() - begin
    seconds, peak = [], 0
    command = [sys.executable, "-m", "akx", "info", str(path)]
    for _ in range(1 + times):  # the first compiles what it needs
        begin = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, command, said)
        seconds.append(time.perf_counter() - begin)
        peak = max(peak, 1024 * usage.ru_maxrss)
    path.unlink()
    return {
        "matrix": name,
        "rows": A.shape[0],
        "nnz": int(A.nnz),
        "seconds": statistics.median(seconds[1:]),
        "all": seconds[1:],
        "read_seconds": read,
        "peak_bytes": peak,
    }


def table(document: Json) -> str:
    """A line for each matrix, by its entries."""
    head = ["matrix", "rows", "entries", "seconds", "least", "most", "of it reading", "memory, GB"]
    entries = sorted(document["info"], key=lambda entry: (entry["nnz"], entry["matrix"]))
    body = [
        [
            entry["matrix"],
            f"{entry['rows']:,}",
            f"{entry['nnz']:,}",
            f"{entry['seconds']:.1f}",
            f"{min(entry['all']):.1f}",
            f"{max(entry['all']):.1f}",
            f"{entry['read_seconds']:.1f}",
            f"{entry['peak_bytes'] / 1e9:.1f}",
        ]
        for entry in entries
    ]
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(head, body)}"


def _entry(case: Case) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        return measured(case.name, case.load(), Path(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    return each.run(
        arguments, _entry, table, name="info", description="Seconds of akx info.", entries="info", results=RESULTS,
        page=_PAGE, usual=sorted(GALLERY),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
