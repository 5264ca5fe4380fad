"""Plain products of matrices in dense blocks on a GPU, beside cuSPARSE: ``python -m benchmarks.products``.

    python -m benchmarks.products                 brick, shell, tetrahedra and wind, into h100_products.json
    python -m benchmarks.products --only wind     one matrix, merged into the file
    python -m benchmarks.products --table         the table of docs/cuda.md from the file

k = 8 products in a CUDA graph, timed in turns by events: every variant of `sweep` that fits, each algorithm of cuSPARSE
for CSR and, where the matrix is made of blocks of one size, for these. Results of all are checked. `wind` has nodes of
1 to 6 unknowns, as many of each as the wind tunnel model of Rennich (NVIDIA, "Block SpMV on GPU") has, on a grid of
nine points. `prepare_seconds` is from a CSR matrix in the host's memory, of which
nothing is known, to a program; `translate_seconds` from the pattern on the device to the arrays of its blocks, and
`translate_and_place_seconds` until values that are there too are in their places, the host waiting for both;
`update_seconds` are for new values from the device, timed there as a product's are, and `update_and_wait_seconds` those
of a host that queues one and waits for it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx.backends import registry
from akx.backends.cuda.schedules.sweep.options import BLOCKS
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.tuner.trial.problem import Problem
from benchmarks import markdown, planned, preparing
from benchmarks.elements import brick, shell, tetrahedra
from benchmarks.gpu import HISTORY as POWERS

__all__ = ["MATRICES", "RESULTS", "main", "measure", "table", "wind"]

RESULTS = POWERS.with_name("h100_products.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
K = 8
#: Nodes of the wind tunnel model by their unknowns (Rennich, the last page).
_WIND = {1: 4701, 2: 1230, 3: 1237, 4: 17, 5: 148, 6: 34373}
_REPEATS, _UPDATES = 3, 21

Json = dict[str, Any]


def wind(seed: int = 4, counts: Mapping[int, int] = _WIND) -> sparse.csr_array:
    """Nodes of 1 to 6 unknowns, in no order, on a grid of nine points: 217,918 rows, 10.3 million entries.

    `counts`: how many nodes have so many unknowns each.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.permutation(np.repeat(list(counts), list(counts.values())))
    wide = int(np.ceil(np.sqrt(sizes.size)))
    line = sparse.diags_array([np.ones(wide)] * 3, offsets=[-1, 0, 1], shape=(wide, wide))
    near = sparse.csr_array(sparse.kron(line, line))[: sizes.size, : sizes.size]
    rows = int(sizes.sum())
    spread = sparse.csr_array((np.ones(rows), (np.arange(rows), np.repeat(np.arange(sizes.size), sizes))))
    A = sparse.csr_array(spread @ near @ spread.T)
    A.sort_indices()
    A.data = rng.standard_normal(A.nnz) / 64.0
    return A


#: How matrix data comes by and steps follow one another: as in the labels, and as a plan says it.
_HOW: dict[str, dict[str, Option]] = {
    "": {},
    " once": {"once": True},
    " early": {"early": True},
    " once early": {"once": True, "early": True},
    " once early keep=16": {"once": True, "early": True, "keep": 16},
}
#: What is measured.
MATRICES = {"brick": brick, "shell": shell, "tetrahedra": tetrahedra, "wind": wind}


def measure(name: str, A: Any, seconds: float) -> Json:
    """One entry."""
    from akx.backends.cuda.baselines.calls import calls as cusparse_calls
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.timing import DeviceProblem
    from akx.tuner.measure import Precision, interleave

    matrix = Matrix.from_any(A)
    problem = Problem(matrix, K, basis="monomial", start_vectors=1, seed=0)
    device, schedule = DeviceProblem(problem), registry.get("cuda", "sweep")
    variants = next(one for one in schedule.space(matrix, cuda_device(), K) if one.name == "variant").choices
    calls: dict[str, Any] = {}
    for variant, (said, how), block in product(variants, _HOW.items(), BLOCKS):
        plan = Plan("cuda", "sweep", str(variant), k=K, k_per_pass=1, options={**how, "block": block})
        if schedule.feasible(plan, matrix, cuda_device()) is None:
            program, what = schedule.prepare(matrix, plan), f"{plan.label()} for {name}"
            calls[f"{variant}{said} {block}"] = planned.checked_call(device, problem, program, what)
    x = (np.random.default_rng(0).integers(0, 2, matrix.n) * 2 - 1) / np.sqrt(matrix.n)
    calls |= {label: call for label, (call, _) in cusparse_calls(matrix, x, K).items()}
    found = interleave(list(calls.values()), Precision(relative=0.01, seconds=seconds * len(calls), rounds_min=7))
    times = {label: {"seconds": one.seconds / K, "spread": one.spread} for label, one in zip(calls, found, strict=True)}
    best = min((label for label in times if label.startswith("vbell")), key=lambda label: times[label]["seconds"])
    return {
        "matrix": name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": K,
        "times": times,
        **_costs(matrix, best.split()[0], times[best]["seconds"]),
    }


def _costs(matrix: Matrix, variant: str, seconds: float) -> Json:
    """Seconds to prepare the variant, and for new values from the device; and in products of so many seconds."""
    from akx.backends.cuda.device.memory import to_device

    plan = Plan("cuda", "sweep", variant, k=K, k_per_pass=1)
    program, data = registry.get("cuda", "sweep").prepare(matrix, plan), to_device(matrix.data)
    prepared = statistics.median(preparing.seconds_to_prepare(matrix, plan, _REPEATS))
    waited = statistics.median(preparing.timed(lambda: program.update_values(data), _UPDATES))
    updated = _queued(lambda: program.update_values(data))
    translated, placed = _translating(matrix, int(variant.removeprefix("vbell-")))
    return {
        "variant": variant,
        "prepare_seconds": prepared,
        "update_seconds": updated,
        "update_and_wait_seconds": waited,
        "translate_seconds": translated,
        "translate_and_place_seconds": placed,
        "translate_products": translated / seconds,
        "translate_and_place_products": placed / seconds,
        "prepare_products": prepared / seconds,
        "update_products": updated / seconds,
    }


def _translating(matrix: Matrix, lanes: int) -> tuple[float, float]:
    """Seconds from the pattern on the device to its arrays there; and to these with values that are there too."""
    from akx.backends.cuda.device.memory import empty, to_device
    from akx.backends.cuda.value_compression.new_values import Places
    from akx.backends.cuda.variants.translate import DeviceVbell, translated

    pointer, index = (to_device(one.astype(np.uint32)) for one in (matrix.indptr, matrix.indices))
    data = to_device(matrix.data)

    def translate() -> DeviceVbell:
        found = translated(pointer, index, lanes)
        assert isinstance(found, DeviceVbell)
        return found

    def translate_and_place() -> None:
        entry = translate().entry
        Places(entry=entry).fill(empty(entry.size, matrix.dtype), data)

    alone, both = (statistics.median(preparing.timed(call, _UPDATES)) for call in (translate, translate_and_place))
    return alone, both


def _queued(call: Callable[[], object]) -> float:
    """Seconds that each of many calls takes on the device, one right behind the other: by events, as a product's."""
    from akx.backends.cuda.device.launch import Event

    def once() -> float:
        begin, end = Event(), Event()
        begin.record()
        for _ in range(_UPDATES):
            call()
        end.record()
        end.synchronize()
        return end.seconds_since(begin) / _UPDATES

    return statistics.median([once() for _ in range(_REPEATS + 1)][1:])


def table(document: Json) -> str:
    """The table of the page: microseconds of a product, and gains."""
    head = ["matrix", "vbell", "us", "best other", "us", "cuSPARSE CSR, us", "BSR, us", "over CSR", "over BSR"]
    body = []
    for entry in document["products"]:
        times = {label: one["seconds"] * 1e6 for label, one in entry["times"].items()}

        def least(keep: Any, times: dict[str, float] = times) -> str:
            return min((label for label in times if keep(label)), key=lambda label: times[label])

        ours = least(lambda label: label.startswith("vbell"))
        other = least(lambda label: not label.startswith(("vbell", "cusparse")))
        csr = least(lambda label: label.startswith("cusparse") and "bsr" not in label)
        bsr = min((time for label, time in times.items() if "bsr" in label), default=None)
        row = [entry["matrix"], ours, f"{times[ours]:.1f}", other, f"{times[other]:.1f}", f"{times[csr]:.1f}"]
        gain = "" if bsr is None else f"{bsr / times[ours]:.2f}"
        body.append([*row, "" if bsr is None else f"{bsr:.1f}", f"{times[csr] / times[ours]:.2f}", gain])
    origin = f"{planned.measured_on(document, 'products')}: medians, one product of {K} in a graph.\n\n"
    return origin + markdown.rows(head, body, left=(0, 1, 3))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 3 without a GPU."""
    parser = planned.command_line("benchmarks.products", "Plain products of matrices in blocks.", RESULTS, PAGE)
    parser.add_argument("--seconds", type=float, default=0.15, help="to time each call")
    parser.set_defaults(only=list(MATRICES))
    options = parser.parse_args(arguments)
    document = planned.known(options.output, "products")
    if not options.table:
        if not planned.has_gpu("products"):
            return planned.NO_DEVICE
        from benchmarks import gpu

        origin = gpu.provenance()
        for name in options.only:
            entry = measure(name, MATRICES[name](), options.seconds)
            best = sorted(entry["times"].items(), key=lambda item: item[1]["seconds"])[:6]
            print(name, {label: f"{one['seconds'] * 1e6:.1f} us" for label, one in best}, file=sys.stderr, flush=True)
            kept = [one for one in document["products"] if one["matrix"] != name]
            entry |= {"commit": origin["commit"], "date": origin["date"]}
            document = {**origin, "products": [*kept, entry]}
            options.output.write_text(json.dumps(document, indent=1) + "\n")
    planned.write_table(options.docs, document, "products", table)
    print(table(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
