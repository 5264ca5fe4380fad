"""What it takes to order large matrices by breadth-first levels, on a GPU and by all cores.

    python -m benchmarks.ordering                     all of them, into h200_ordering.json, and docs/cuda.md
    python -m benchmarks.ordering --only tetrahedra   one of them, merged into the file
    python -m benchmarks.ordering --table             print the table from the file

Of each matrix, in random order: seconds from its arrays on the device to its rows by levels, the look at symmetry
included, and from there to P A P^T; the same on the host by all cores, and the order by one. Both orders are compared:
they are the same. Medians of three, compiled before; the host's are of one run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx.core.errors import VerificationError
from akx.core.matrix import Matrix
from akx.core.process import available_cores
from benchmarks import gpu, markdown, planned, solving
from benchmarks.elements import tetrahedra
from benchmarks.gallery import stencil

__all__ = ["MATRICES", "main", "measured", "table"]

_RESULTS = gpu.RESULTS.with_name("h200_ordering.json")
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
_ENTRIES, _REPEATS = "ordering", 3
#: All in random order.
MATRICES: dict[str, Callable[[], sparse.csr_array]] = {
    "7-point, 200^3": lambda: stencil((200, 200, 200), 7, shuffled=31),
    "7-point, 256^3": lambda: stencil((256, 256, 256), 7, shuffled=31),
    "tetrahedra": lambda: tetrahedra(),
}

Json = dict[str, Any]


def measured(name: str, A: sparse.csr_array) -> Json:
    """The entry of a matrix. Raises :class:`VerificationError` where device and host do not agree."""
    from akx.backends.cpu.level_order import ordered_rows
    from akx.backends.cuda.device.launch import default_stream
    from akx.backends.cuda.matrix import level_order
    from akx.partition.permutation import permute

    matrix = Matrix.from_any(A, copy=False)
    there, found = level_order.sent(matrix), []
    for _ in range(1 + _REPEATS):
        times = [time.perf_counter()]
        ordered = level_order.ordered_there(*there.on_device[:2])
        if ordered is None:
            raise VerificationError("there is no order", expected="levels", found=name)
        times.append(time.perf_counter())
        level_order.permuted(there, ordered.order)
        default_stream().synchronize()
        times.append(time.perf_counter())
        found.append(np.diff(times))
    there_seconds = [float(statistics.median(one)) for one in zip(*found[1:], strict=True)]
    del there
    small = stencil((30, 40), 9)
    for threads in (1, 2):
        permute(small.indptr, small.indices, ordered_rows(small.indptr, small.indices, "levels", threads))
    times = [time.perf_counter()]
    order = ordered_rows(matrix.indptr, matrix.indices, "levels")
    times.append(time.perf_counter())
    permute(matrix.indptr, matrix.indices, order)
    times.append(time.perf_counter())
    if not np.array_equal(ordered_rows(matrix.indptr, matrix.indices, "levels", 1), order):
        raise VerificationError("another order", expected="that of one thread", found=name)
    times.append(time.perf_counter())
    if not np.array_equal(ordered.order.get(), order):
        raise VerificationError("another order", expected="that of the host", found=name)
    size = {"rows": matrix.n, "entries": matrix.nnz, "levels": ordered.level_ptr.size - 1, "cores": available_cores()}
    return {"matrix": name, **size, "device_seconds": there_seconds, "host_seconds": np.diff(times).tolist()}


def table(document: Json) -> str:
    """A line for each matrix."""
    cores = max(entry["cores"] for entry in document[_ENTRIES])
    head = ["matrix", "rows", "entries", "levels"]
    head += [f"{where}: {what}, ms" for where in ("GPU", f"{cores} cores") for what in ("order", "P A P^T")]
    body = []
    for entry in document[_ENTRIES]:
        sizes = [f"{entry[what]:,}" for what in ("rows", "entries", "levels")]
        seconds = [*entry["device_seconds"], *entry["host_seconds"]]
        body.append([entry["matrix"], *sizes, *(f"{1e3 * one:,.0f}" for one in seconds)])
    return f"{solving.origin(document, document[_ENTRIES])}.\n\n{markdown.rows([*head, 'one core: order, ms'], body)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ordering", description="Rows by levels.")
    parser.add_argument("--only", nargs="+", choices=list(MATRICES), help="some of the matrices")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/cuda.md with the file by default")
    options = parser.parse_args(arguments)
    document = planned.known(options.output, _ENTRIES)
    for name in () if options.table else options.only or MATRICES:
        origin = gpu.origin_of_table(available_cores())
        document = solving.keep(options.output, document, _ENTRIES, measured(name, MATRICES[name]()), origin)
        print(document[_ENTRIES][-1], file=sys.stderr, flush=True)
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(document), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
