"""What a call costs on a GPU beside its kernels: the host's time, and the look at a matrix that may have changed.

    python -m benchmarks.host_time                      four matrices of the gallery, beside CuPy (needs it)
    python -m benchmarks.host_time --only brick tuma1   others, into the same file
    python -m benchmarks.host_time --table              print the table from the file

k = 8, x and V on the device, values general (:func:`benchmarks.answer.general`). *Each* is the user's clock around a
call that is waited for, *row* that of calls one after another, waited for once; both are medians of rounds, with the
quartiles of rows as ``spread``. *Host* is the time until a call returns.

===========  ====================================================================================================
call         what
===========  ====================================================================================================
kernel       ``P(x, out=V)``: one launch of the kept plan, nothing looked at
matrix       ``matrix_powers(M, x, 8)`` with an ``akx.Matrix``, which cannot change
as it is     ``matrix_powers(A, x, 8)`` of CuPy's CSR, ``AKX_PREPARE=auto``: products of its arrays, not prepared
prepared     the same with ``AKX_PREPARE=always``: the kept plan, and a look at A
from host    the same, SciPy's A and ``backend="cuda"``
cupy         a loop of eight ``A @ v`` that keeps all vectors
===========  ====================================================================================================

``check`` is the look alone, in a row; ``upload`` and ``pinned`` are bytes a second of the values to the device, from an
array of NumPy and from page-locked memory.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import each, markdown, solving
from benchmarks.answer import general
from benchmarks.matrices import Case

__all__ = ["CALLS", "RESULTS", "main", "measured", "table", "times"]

RESULTS = Path(__file__).resolve().parent / "results" / "host_time.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
CALLS = ("kernel", "matrix", "as it is", "prepared", "from host", "cupy")
_USUAL = ("pentadiagonal", "mc2depi", "brick", "7-point")
_K = 8
#: Rounds, and calls of each.
_ROUNDS, _CALLS = 5, 40

Json = dict[str, Any]


def times(call: Callable[[], object], wait: Callable[[], object], *, rounds: int = _ROUNDS) -> Json:
    """``first`` and ``second`` call; ``each``, ``row`` and ``host`` of later ones; ``spread`` of a row: seconds."""
    early = [_seconds(call, wait) for _ in range(6)]
    single, rows, host = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        single += [_seconds(call, wait) for _ in range(_CALLS)]
        begin = time.perf_counter()
        for _ in range(_CALLS):
            call()
        wait()
        rows.append((time.perf_counter() - begin) / _CALLS)
        begin = time.perf_counter()
        call()
        host.append(time.perf_counter() - begin)
        wait()
    low, _, high = statistics.quantiles(rows, n=4)
    median = {"each": statistics.median(single), "row": statistics.median(rows), "host": statistics.median(host)}
    return {"first": early[0], "second": early[1], **median, "spread": [low, high]}


def _median(call: Callable[[], object], wait: Callable[[], object]) -> float:
    return statistics.median(_seconds(call, wait) for _ in range(9))


def _seconds(call: Callable[[], object], wait: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begin


def measured(case: Case) -> Json:
    """``matrix``, ``rows``, ``nnz``; ``calls`` by name as :func:`times` has them; ``check``, ``upload``, ``pinned``."""
    cupy, on_gpu = import_module("cupy"), import_module("cupyx.scipy.sparse")
    import akx
    from akx.backends.cuda.device.callers import stream_of
    from akx.backends.cuda.device.memory import empty, to_device
    from akx.backends.cuda.device.pool import pinned
    from akx.backends.cuda.matrix.canonical import there
    from akx.backends.cuda.matrix.content import Comparison, host_word, sums_of

    wait = cupy.cuda.Device().synchronize
    H = general(case.load())
    x, found = cupy.asarray(np.random.default_rng(0).random(H.shape[0])), Json()
    M, A = akx.Matrix.from_any(H), on_gpu.csr_matrix(H)
    P = akx.MatrixPowers(M, _K, backend="cuda")
    V = P(x)
    wait()
    found["kernel"] = times(lambda: P(x, out=V), wait)
    found["matrix"] = times(lambda: akx.matrix_powers(M, x, _K), wait)
    was = os.environ.get("AKX_PREPARE")
    try:
        for name, word, given in (("as it is", "auto", A), ("prepared", "always", A), ("from host", "always", H)):
            os.environ["AKX_PREPARE"] = word
            akx.clear_cache()
            found[name] = times(lambda given=given: akx.matrix_powers(given, x, _K, backend="cuda"), wait)
    finally:
        os.environ.pop("AKX_PREPARE")
        if was is not None:
            os.environ["AKX_PREPARE"] = was
    found["cupy"] = times(lambda: _loop(A, x), wait)
    arrays = there(A).on_device  # type: ignore[union-attr]
    known = to_device(np.array(sums_of(arrays), dtype=np.uint64))
    comparison, stream = Comparison(arrays, known, host_word()), stream_of(1)
    check = times(lambda: comparison.queue(stream), wait)["row"]
    target, locked = empty(H.data.shape, H.data.dtype), pinned(H.data.shape, H.data.dtype)
    locked[:] = H.data
    upload, from_pinned = (H.data.nbytes / _median(lambda of=of: target.set(of), wait) for of in (H.data, locked))
    sizes = {"matrix": case.name, "rows": H.shape[0], "nnz": int(H.nnz)}
    return {**sizes, "calls": found, "check": check, "upload": upload, "pinned": from_pinned}


def _loop(A: Any, x: Any) -> list[Any]:
    vectors = [x]
    for _ in range(_K):
        vectors.append(A @ vectors[-1])
    return vectors


def table(document: Json) -> str:
    """Microseconds of a row of calls, and of a second one in brackets; a line for each matrix."""
    head = ["matrix", "entries", *CALLS, "the look at A alone", "upload, GB/s", "from pinned memory"]
    entries = document["host_time"]
    body = []
    for entry in entries:
        calls = [entry["calls"][name] for name in CALLS]
        shown = [f"{1e6 * one['row']:.0f} ({1e6 * one['second']:.0f})" for one in calls]
        rates = [f"{entry[name] / 1e9:.1f}" for name in ("upload", "pinned")]
        body.append([entry["matrix"], f"{entry['nnz']:,}", *shown, f"{1e6 * entry['check']:.0f}", *rates])
    said = (
        f"{solving.origin(document, entries)}. Microseconds a call in a row of them, and of a second one in brackets."
    )
    return f"{said}\n\n{markdown.rows(head, body, left=(0,))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    return each.run(
        arguments, measured, table, name="host_time", description="Calls beside their kernels.", entries="host_time",
        results=RESULTS, page=_PAGE, usual=_USUAL, gpu=True,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
