"""What it takes a GPU to bring results from one order of rows into another: the least that a reordering costs.

    python -m studies.permuting             into studies/results/h100_permuting.json, and docs/cuda.md
    python -m studies.permuting --table     print the table from the file

Eight vectors of as many rows as matrices of the gallery have, and a random permutation of them, in five ways
(``permuting.cu``): a copy with no permutation, gathered all eight at once or one by one, scattered, and by two kernels
of which the first writes the eight values of a row side by side. Every way is checked to the last bit.
Times are medians of CUDA graphs of twenty rounds, all ways in turns: what fits L2 is there, as it would be for results
that have just been computed. Beside them stands a step of the plan that ``make gpu-bench`` has found for the matrix in
its natural order.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpu, gpu_receipt, markdown, solving

__all__ = ["MATRICES", "WAYS", "main", "measure", "table"]

#: Whose numbers of rows are taken.
MATRICES = ("brick", "shell", "27-point", "mc2depi", "9-point")
#: The ways, as the table has them.
WAYS = {
    "copy": "copy, no permutation",
    "gather_all": "gather, 8 at once",
    "gather_one": "gather, one by one",
    "scatter_all": "scatter",
    "two": "two kernels by rows of 8",
}
VECTORS = 8
_SOURCE = Path(__file__).with_name("permuting.cu")
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "h100_permuting.json"
_THREADS, _TILE, _ROUNDS, _REPEATS = 256, 64, 20, 11
_K = 8

Json = dict[str, Any]


def measure(rows: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Seconds for one of eight vectors, and their spread (interquartile range over median), by the names of WAYS.

    Raises
    ------
    ArithmeticError
        Where a way gives anything but the permuted vectors.
    """
    cupy = import_module("cupy")
    module = cupy.RawModule(code=_SOURCE.read_text(), options=("-std=c++17",))
    order = np.random.default_rng(seed).permutation(rows)
    source, target = cupy.asarray(order.astype(np.uint32)), cupy.asarray(np.argsort(order).astype(np.uint32))
    given = cupy.random.default_rng(seed).random((VECTORS, rows))
    found, beside, count = cupy.empty_like(given), cupy.empty((rows, VECTORS)), np.uint32(rows)
    each, tiles = (-(-rows // _THREADS),), (-(-rows // _TILE),)

    def launch(name: str, blocks: tuple[int], *arguments: Any) -> None:
        module.get_function(name)(blocks, (_THREADS,), (*arguments, count))

    def copy() -> None:
        found[...] = given

    def one_by_one() -> None:
        for v in range(VECTORS):
            launch("gather_one", each, given[v], source, found[v])

    def two() -> None:
        launch("side_by_side", tiles, given, target, beside)
        launch("apart", tiles, beside, found)

    calls: dict[str, Callable[[], None]] = {
        "copy": copy,
        "gather_all": lambda: launch("gather_all", each, given, source, found),
        "gather_one": one_by_one,
        "scatter_all": lambda: launch("scatter_all", each, given, target, found),
        "two": two,
    }
    wanted, graphs, stream = given[:, source], {}, cupy.cuda.Stream(non_blocking=True)
    for name, call in calls.items():
        found.fill(np.nan)
        beside.fill(np.nan)
        call()
        if not bool((found == (given if name == "copy" else wanted)).all()):
            raise ArithmeticError(f"{name} of {rows} rows is wrong")
        with stream:
            stream.begin_capture()
            for _ in range(_ROUNDS):
                call()
            graphs[name] = stream.end_capture()
    cupy.cuda.Device().synchronize()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(_REPEATS + 1):
        for name, graph in graphs.items():
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            with stream:
                begin.record(stream)
                graph.launch(stream)
                end.record(stream)
            end.synchronize()
            if repeat:  # the first one warms
                seconds[name].append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / _ROUNDS / VECTORS)
    quartiles = {name: np.percentile(some, (25, 50, 75)) for name, some in seconds.items()}
    return {name: (float(mid), float((high - low) / mid)) for name, (low, mid, high) in quartiles.items()}


def steps(k: int = _K) -> dict[str, tuple[int, float]]:
    """Rows, and seconds of a step of k, of the matrices that ``make gpu-bench`` has measured in their natural order."""
    entries = json.loads(gpu.HISTORY.read_text())["powers"]
    return {one["matrix"]: (one["rows"], one["best"]["seconds"] / k) for one in entries if one["k"] == k}


def table(document: Json) -> str:
    """A line for each number of rows; the last column is the least of the permutations over a step."""
    head = ["rows", "as of", "a step, us", *WAYS.values(), "the least, of a step"]
    body = []
    for entry in document["permutations"]:
        least = min(found["seconds"] for name, found in entry["ways"].items() if name != "copy")
        figures = [f"{1e6 * entry['ways'][name]['seconds']:.2f}" for name in WAYS]
        step = entry["step_seconds"]
        body.append([f"{entry['rows']:,}", entry["matrix"], f"{1e6 * step:.1f}", *figures, f"{least / step:.0%}"])
    spread = max(found["spread"] for entry in document["permutations"] for found in entry["ways"].values())
    said = f"{solving.origin(document, [document])}; spread {spread:.1%} at most."
    return f"{said}\n\n{markdown.rows(head, body, left={1})}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m studies.permuting", description="Results in another order.")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/cuda.md with the file by default")
    options = parser.parse_args(arguments)
    if not options.table:
        document = gpu.origin_of_table(1)
        found = gpu_receipt.versions().items()
        document["versions"] |= {name: version for name, version in found if name.startswith("cupy")}
        document["vectors"], document["k"], document["permutations"] = VECTORS, _K, []
        for name, (rows, seconds) in sorted(steps().items(), key=lambda one: one[1]):
            if name in MATRICES:
                ways = {way: {"seconds": mid, "spread": spread} for way, (mid, spread) in measure(rows).items()}
                entry = {"matrix": name, "rows": rows, "step_seconds": seconds, "ways": ways}
                document["permutations"].append(entry)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
