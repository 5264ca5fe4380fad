"""What a streamed matrix gains where some of it stays on the GPU, and where the processor does a share of the rows.

    python -m studies.hybrid                       three matrices of some 600 MB, k = 8, into h100_hybrid.json
    python -m studies.hybrid --only 27-point       one matrix, merged into the file
    python -m studies.hybrid --table               the table of docs/cuda.md from the file

The matrices are those of the gallery on finer grids, larger than the processor's caches; the budget of the GPU's memory
is a fraction of the matrix in CSR. Each of these is the best of some settings, checked against the reference, and timed
from the host's memory to the host's memory, medians of calls in turns:

    products        one power per pass, the matrix sent for each: streamed plain products
    products, stay  the same, with what there is room for kept on the GPU from call to call
    products, share the same, the processor doing some of the rows: hybrid plain products (Rennich)
    powers          as many powers per pass as fit, the matrix sent once a pass
    powers, stay    the same, with what there is room for kept on the GPU
    powers, share   the same, the processor doing some of the rows

The processor's variant and the order of its powers are those that are fastest with a first share; then the share goes
up or down while that helps.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from akx.backends import reference
from akx.backends.cuda.schedules.stream.options import FRONTS, SHARES
from akx.backends.schedule import as_coefficients
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import elements, gallery, markdown, planned, solving
from benchmarks.steps_gpu import parsed

__all__ = ["FRACTIONS", "MATRICES", "RESULTS", "K", "main", "measure", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "h100_hybrid.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
#: By name, lanes per row and what makes the matrix.
MATRICES: dict[str, tuple[int, Callable[[], Any]]] = {
    "9-point": (1, lambda: gallery.stencil((2400, 2400), 9)),
    "27-point": (4, lambda: gallery.stencil((120, 120, 120), 27)),
    "shell": (8, lambda: elements.shell((410, 410))),
}
FRACTIONS = (0.25, 0.5, 0.8)
K = 8
_HOSTS = ("csr16", "sell16", "bell16")
#: Where the search for a share begins.
_FIRST = 0.15
_CALLS = 7

Json = dict[str, Any]


class Bench:
    """Plans of one matrix, timed once each and checked."""

    def __init__(self, name: str, A: Any) -> None:
        from akx.backends.cuda.device.facts import cuda_device
        from akx.backends.cuda.schedules.stream.schedule import SCHEDULE

        self.name, self.matrix, self.device, self.schedule = name, Matrix.from_any(A), cuda_device(), SCHEDULE
        self.by = as_coefficients(np.ones(K), np.zeros(K), np.zeros(K), self.matrix.dtype)
        self.x = np.random.default_rng(7).standard_normal((1, self.matrix.n))
        self.truth = reference.reference(self.matrix, self.x, self.by)

    def timed(self, plan: Plan) -> Json | None:
        """Median seconds of a call and what it took; None where the plan is not feasible."""
        from akx.backends.cuda.device.launch import Event, default_stream

        if self.schedule.feasible(plan, self.matrix, self.device) is not None:
            return None
        gc.collect()
        try:
            program: Any = self.schedule.prepare(self.matrix, plan)
        except AkxError as refusal:
            print(f"{self.name}  {plan.label()}: {refusal}", file=sys.stderr)
            return None
        held = program.pinned_vectors(1)
        held[:] = np.nan
        held[0] = self.x
        times, begin, end = [], Event(), Event()
        for _ in range(_CALLS + 1):
            begin.record(default_stream())
            program.queue(1, self.by)
            end.record(default_stream())
            end.synchronize()
            times.append(end.seconds_since(begin))
        error = self.truth.error_ratio(held)
        if not error <= 1:
            raise ArithmeticError(f"{plan.label()} is wrong for {self.name}: {error}")
        seconds, window = float(np.median(times[1:])), program.window
        spread = float(np.ptp(times[1:])) / seconds
        staying = window.kept / window.chunks
        said = f"{self.name}  {seconds * 1e3:.2f} ms ({spread:.0%})  stays {staying:.0%}  {plan.label()}"
        print(said, file=sys.stderr, flush=True)
        return {"seconds": seconds, "spread": spread, "stays": staying, "error": error, "plan": plan.label()}

    def best(self, plans: Sequence[Plan]) -> tuple[Plan, Json] | None:
        """The fastest of the feasible ones."""
        tried = [(plan, found) for plan in plans if (found := self.timed(plan)) is not None]
        return min(tried, key=lambda pair: pair[1]["seconds"], default=None)

    def shared(self, plan: Plan) -> Json | None:
        """The best share of the processor's."""

        def of(share: float, host: str, front: str = FRONTS[0]) -> Plan:
            return plan.replace(options={**plan.options, "share": share, "host": host, "front": front})

        first = self.best([of(_FIRST, host) for host in _HOSTS])
        if first is None:
            return None
        (chosen, best), at = first, SHARES.index(_FIRST)
        host, front = chosen.typed.host, FRONTS[0]
        for other in FRONTS[1:] if plan.k_per_pass > 1 else ():
            found = self.timed(of(_FIRST, host, other))
            if found is not None and found["seconds"] < best["seconds"]:
                best, front = found, other
        for step in (1, -1):
            for share in SHARES[at + 1 :] if step > 0 else SHARES[1:at][::-1]:
                found = self.timed(of(share, host, front))
                if found is None or found["seconds"] >= best["seconds"]:
                    break
                best = found
            if f"share={_FIRST}" not in best["plan"]:  # it went up, so it need not go down
                break
        return best


def measure(name: str, fractions: Sequence[float]) -> list[Json]:
    """The entries of a matrix, one for each fraction."""
    lanes, make = MATRICES[name]
    bench, found = Bench(name, make()), []
    for fraction in fractions:
        entry: Json = {"matrix": name, "rows": bench.matrix.n, "nnz": bench.matrix.nnz, "k": K, "fraction": fraction}
        for what, depth in (("products", 1), ("powers", K)):
            plan = Plan("cuda", "stream", f"sell16-{lanes}", "natural", K, depth, options={"fraction": fraction})
            while bench.schedule.feasible(plan, bench.matrix, bench.device) is not None and plan.k_per_pass > 1:
                plan = plan.replace(k_per_pass=-(-plan.k_per_pass // 2))
            for kind, stays in (("", False), (", stay", True)):
                one = bench.timed(plan.replace(options={**plan.options, "stays": stays}))
                if one is not None:
                    entry[what + kind] = one
            shared = bench.shared(plan)
            if shared is not None:
                entry[what + ", share"] = shared
        found.append(entry)
    return found


def table(document: Json) -> str:
    """The table of the page."""
    kinds = [what + kind for what in ("products", "powers") for kind in ("", ", stay", ", share")]
    head = ["matrix", "budget", *(f"{kind}, ms" if kind == kinds[0] else kind for kind in kinds), "share", "gain"]
    body = []
    for entry in sorted(document["hybrid"], key=lambda one: (list(MATRICES).index(one["matrix"]), one["fraction"])):
        times = [f"{1e3 * entry[kind]['seconds']:.2f}" if kind in entry else "" for kind in kinds]
        share = (
            "" if kinds[-1] not in entry else str(parsed(entry[kinds[-1]]["plan"], entry["k"]).options.get("share", ""))
        )
        ours = min(entry[kind]["seconds"] for kind in kinds if kind in entry)
        gain = min(entry[kind]["seconds"] for kind in ("products", "powers")) / ours
        body.append([entry["matrix"], f"{entry['fraction']:.0%}", *times, share, f"{gain:.2f}"])
    said = (
        f"{planned.measured_on(document, 'hybrid')}, {document['machine'].get('cores', '?')} cores: medians of a call."
    )
    return f"{said}\n\n" + markdown.rows(head, body, left=(0,))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 3 without a GPU."""
    parser = planned.command_line(
        "studies.hybrid", "Time what stays on the GPU, and shares of the processor.", RESULTS, PAGE
    )
    parser.add_argument("--fraction", type=float, nargs="+", default=list(FRACTIONS), help="of the matrix in CSR")
    parser.set_defaults(only=list(MATRICES))
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.only if name not in MATRICES]:
        parser.error(f"no matrix {', '.join(unknown)}")
    document = planned.known(options.output, "hybrid")
    if not options.table:
        if not planned.has_gpu("hybrid"):
            return planned.NO_DEVICE
        from akx.backends.host import default_threads, host_device
        from benchmarks import gpu

        origin = gpu.provenance()
        origin["machine"] |= {"processor": host_device().name, "cores": default_threads()}
        for name in options.only:
            for entry in measure(name, options.fraction):
                document = solving.keep(options.output, document, "hybrid", entry, origin, ("matrix", "fraction"))
    planned.write_table(options.docs, document, "hybrid", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
