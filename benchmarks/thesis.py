"""The thesis' tables 6.1 and 6.2 and figures 6.6 to 6.8 beside akx's figures, as docs/thesis.md.

    python -m benchmarks.thesis            write the page from the result files
    python -m benchmarks.thesis --check    exit code 1 where the page is not what the results say
    python -m benchmarks.thesis --ghosts   first work out the ghost zones that fit the budgets (no GPU; a minute)
    python -m benchmarks.thesis --shared   first measure the pentadiagonal matrix in shared memory (GPU)

The streamed runs are those of :mod:`benchmarks.stream` in h100.json; what else is needed is kept in thesis.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.partition.base import Partition
from akx.partition.cuts import cut_rows
from akx.partition.ghost import ghost_zones
from benchmarks import markdown
from benchmarks.gpu import HISTORY
from benchmarks.matrices import select

__all__ = ["ghosts_within", "main", "page"]

EXTRA = HISTORY.with_name("thesis.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "thesis.md"
#: Table 6.1: matrix, ours for it, k, speed-up, share of communication, flops over needed flops.
TABLE_1 = (
    ("pwtk", "shell", 15, 4.92, 0.91, 1.30),
    ("2d9pt", "9-point", 34, 4.98, 0.84, 1.10),
    ("cfd2", "", 7, 3.79, 0.90, 1.20),
    ("rajat31", "", 15, 3.49, 0.87, 1.03),
    ("xenon2", "", 5, 2.85, 0.87, 1.23),
    ("mc2depi", "mc2depi", 11, 3.53, 0.78, 1.02),
    ("Cube_Coup", "", 8, 3.98, 0.88, 1.22),
    ("cant", "brick", 14, 5.70, 0.93, 1.16),
    ("shipsec1", "", 6, 2.88, 0.93, 1.24),
    ("gearbox", "", 7, 3.21, 0.96, 1.26),
)
#: Table 6.2: k, flops over needed flops, thread blocks.
TABLE_2 = (
    (2, 1.02, 1024), (3, 1.04, 1024), (4, 1.06, 1024), (5, 1.08, 1024), (6, 1.10, 1024), (10, 1.19, 1026),
    (15, 1.30, 1132), (20, 1.80, 2036), (30, 2.20, 2017),
)  # fmt: skip
_GHOST_POWERS = (8, 15, 24, 28, 34, 39)
_PER_SM = (1, 2, 3, 4)

Json = dict[str, Any]


def ghosts_within(matrix: Matrix, k: int, budget: int, most_blocks: int = 4096) -> tuple[int, float] | None:
    """Contiguous blocks that, each with its k-step ghost zone, fit a budget: how many, and their redundancy.

    A block takes values and 16-bit columns of the rows it computes, and three vectors on its closure; only one block is
    on the device at a time, with nothing on its way. None where not even `most_blocks` do.
    """
    size, blocks = matrix.dtype.itemsize, 4
    while blocks <= most_blocks:
        cuts = cut_rows(matrix.indptr, blocks)
        zones = ghost_zones(matrix.indptr, matrix.indices, Partition(None, cuts), k)
        entries = zones.entries[:, :k].sum(axis=1)
        rows = zones.ptr[:, k + 1] - zones.ptr[:, 0]
        taken = int((entries * (size + 2) + 3 * rows * size).max())
        if taken <= budget:
            return blocks, zones.redundancy
        blocks = max(blocks + 1, int(1.25 * blocks))
        own = float(np.diff(matrix.indptr[cuts]).max()) * (size + 2)
        if own < 0.02 * budget:  # the ghosts alone are beyond it
            return None
    return None


def measure_ghosts(fraction: float) -> list[Json]:
    """Of every matrix of ours that stands for one of the thesis, for several k."""
    found = []
    for _, name, thesis_k, *_ in TABLE_1:
        if not name:
            continue
        matrix = Matrix.from_any(select([name])[0].load())
        budget = int(fraction * matrix.csr_bytes)
        for k in sorted({*_GHOST_POWERS, thesis_k}):
            fit = ghosts_within(matrix, k, budget)
            blocks, redundancy = fit if fit is not None else (None, None)
            found.append({"matrix": name, "fraction": fraction, "k": k, "blocks": blocks, "redundancy": redundancy})
            print(found[-1], file=sys.stderr, flush=True)
    return found


def measure_shared() -> Json:
    """The schedule `ghost` on the pentadiagonal matrix beside the best plain sweep, both on the device, by events."""
    from akx.backends import registry
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.device.memory import empty, to_device
    from akx.backends.cuda.timing import DeviceCall
    from akx.backends.schedule import as_coefficients
    from akx.core.plan import Plan
    from akx.tuner.measure import interleave
    from benchmarks.gpu import provenance

    device, schedule = cuda_device(), registry.get("cuda", "ghost")
    matrix = Matrix.from_any(select(["pentadiagonal"])[0].load())
    x = to_device(np.random.default_rng(3).standard_normal((1, matrix.n)))
    variant = str(schedule.space(matrix, device, 8)[0].default)
    entries = []
    for k, *_ in TABLE_2:
        one = np.ones(k)
        coefficients = as_coefficients(one, 0 * one, 0 * one, matrix.dtype)
        plans = [Plan("cuda", "sweep", f"sell16-{lanes}", "natural", k) for lanes in (1, 2)]
        for per_sm in _PER_SM:
            options = {"blocks_per_sm": per_sm, "block": 256}
            plan = Plan("cuda", "ghost", variant, "natural", k, k, options=options)
            if schedule.feasible(plan, matrix, device) is None:
                plans.append(plan)
        calls, made = [], []
        for plan in plans:
            try:
                program: Any = registry.get("cuda", plan.schedule).prepare(matrix, plan)
                call = DeviceCall.of(program, x, empty((k + 1, 1, matrix.n), matrix.dtype), coefficients)
                call()
            except AkxError as refusal:
                print(f"{plan.label()}: {refusal}", file=sys.stderr, flush=True)
                continue
            calls.append(call)
            made.append(plan)
        times = [one.seconds for one in interleave(calls)]
        baseline = min(time for plan, time in zip(made, times, strict=True) if plan.schedule == "sweep")
        for plan, time in zip(made, times, strict=True):
            if plan.schedule == "ghost":
                per_sm = plan.typed.blocks_per_sm
                redundancy = schedule.traffic(plan, matrix, device).redundancy
                entries.append({
                    "k": k, "blocks_per_sm": per_sm, "blocks": per_sm * device.sms, "baseline_seconds": baseline,
                    "seconds": time, "speedup": baseline / time, "redundancy": redundancy, "plan": plan.label(),
                })  # fmt: skip
                print(entries[-1], file=sys.stderr, flush=True)
    origin = provenance()
    return {"commit": origin["commit"], "date": origin["date"], "machine": origin["machine"], "entries": entries}


def page(document: Json, extra: Json) -> str:
    """The page."""
    streamed = document.get("stream", [])
    commits = ", ".join(dict.fromkeys(one.get("commit", "")[:10] for one in streamed))
    parts = [
        _HEAD,
        f"Streamed runs: commits {commits}.",
        "## Table 6.1: a quarter of the matrix on the device",
        _table_1(streamed),
        _MISSING,
    ]
    parts += ["## Figure 6.6: performance and the bound of eq. 6.2", _figure_6(streamed)]
    parts += ["## Speed-up over k, and the share of the bound", _curves(streamed)]
    parts += ["## Ghost zones at the same budget", _GHOSTS, _ghost_table(streamed, extra.get("ghosts", []))]
    parts += ["## Table 6.2, figures 6.7 and 6.8: the pentadiagonal matrix in shared memory"]
    parts += [_shared(extra.get("shared", {}).get("entries", [])), *_tuned(document)]
    return "\n\n".join(parts) + "\n"


_HEAD = """# The thesis' experiments, here

M. Mehri Dehnavi, *Krylov Subspace Techniques on Graphic Processing Units* (McGill, 2012), ch. 6, ran on a GTX 480; akx
ran on an H100. Both compare with streamed or plain products of their own on the same machine, so ratios may be set side
by side and times may not. Written by `python -m benchmarks.thesis` from `benchmarks/results/h100.json` and
`thesis.json`; no figure is typed by hand. The thesis' figures 6.6 to 6.8 are at hand as text alone: of them only what
its tables and its text say is here."""

_MISSING = """\
`shell` stands for pwtk (a shell with six unknowns a node), `brick` for cant (a brick with three); 2d9pt and mc2depi are
the matrices themselves, by their formulas. cfd2, rajat31, xenon2, Cube_Coup, shipsec1 and gearbox are not here: they
are files of a collection, and akx generates its matrices. Communication is the thesis' share of the time that its
streamed products spend on copies."""

_GHOSTS = """\
The thesis sends each block with its k-step ghost zone and computes the zone again; akx slides a window over the rows,
in which the rows before a block are still there and those behind it are waited for: nothing is sent or computed twice.
A block of r rows with reach u needs r + 2 k u rows on the device and has a redundancy of about 1 + k u / r; the window
needs about k (C + u) rows for chunks of C rows, and has redundancy 1. Of a budget of R rows that leaves r = R - 2 k u
to a block, nothing from k = R / 2u on, where the window goes on to k = R / u."""


def _best(streamed: list[Json], name: str) -> Json | None:
    mine = [one for one in streamed if one["matrix"] == name and one["k"] < 40 and one["fraction"] == 0.25]
    return max(mine, key=lambda one: one["speedup"], default=None)


def _table_1(streamed: list[Json]) -> str:
    rows = []
    for theirs, name, k, speedup, share, flops in TABLE_1:
        best = _best(streamed, name)
        ours = ["not here", "", "", "", ""]
        if best is not None:
            part = best["speedup"] / best["bound"]
            ours = [name, str(best["k"]), f"{best['speedup']:.2f}", f"{part:.0%}", f"{best['redundancy']:.2f}"]
        rows.append([theirs, str(k), f"{speedup:.2f}", f"{share:.0%}", f"{flops:.2f}", *ours])
    head = [
        "thesis", "k", "speed-up", "communication", "flops", "akx", "best k", "speed-up", "of the bound", "flops",
    ]  # fmt: skip
    return markdown.rows(head, rows)


def _figure_6(streamed: list[Json]) -> str:
    rows = []
    for _, name, *_ in TABLE_1:
        best = _best(streamed, name) if name else None
        if best is None:
            continue
        flops = 2.0 * _entries(name) * best["k"]
        plain = flops / best["baseline_seconds"] / 1e9
        ours = flops / best["seconds"] / 1e9
        rows.append([name, str(best["k"]), f"{plain:.1f}", f"{ours:.1f}", f"{plain * best['bound']:.1f}"])
    note = (
        "Gflop/s from host memory to host memory, at the best k below 40. The bound adds the bytes of both directions, "
        "which the bus moves at once: it can be passed."
    )
    return f"{note}\n\n" + markdown.rows(["matrix", "k", "streamed products", "akx", "upper bound"], rows)


def _curves(streamed: list[Json]) -> str:
    powers = sorted({one["k"] for one in streamed if one["fraction"] == 0.25 and one["k"] < 40})
    by = {(one["matrix"], one["k"]): one for one in streamed if one["fraction"] == 0.25}
    rows = []
    for _, name, *_ in TABLE_1:
        if not name:
            continue
        cells = []
        for k in powers:
            one = by.get((name, k))
            cells.append("" if one is None else f"{one['speedup']:.2f} ({one['speedup'] / one['bound']:.0%})")
        rows.append([name, *cells])
    return markdown.rows(["matrix", *(f"k = {k}" for k in powers)], rows)


def _ghost_table(streamed: list[Json], ghosts: list[Json]) -> str:
    if not ghosts:
        return "Not worked out yet: `python -m benchmarks.thesis --ghosts`."
    powers = sorted({one["k"] for one in ghosts})
    by = {(one["matrix"], one["k"]): one for one in ghosts}
    rows = []
    for name in dict.fromkeys(one["matrix"] for one in ghosts):
        cells = []
        for k in powers:
            one = by.get((name, k))
            if one is None:
                cells.append("")
            else:
                cells.append("no room" if one["blocks"] is None else f"{one['redundancy']:.2f} ({one['blocks']})")
        ours = {round(one["redundancy"], 2) for one in streamed if one["matrix"] == name}
        rows.append([name, *cells, ", ".join(f"{value:.2f}" for value in sorted(ours))])
    note = (
        "Redundancy of ghost zones (and how many blocks there must be) with a quarter of the matrix as budget, one "
        "block on the device at a time; and of the window, for every k that was measured."
    )
    return f"{note}\n\n" + markdown.rows(["matrix", *(f"k = {k}" for k in powers), "window"], rows)


def _shared(entries: list[Json]) -> str:
    head = ["k", "thesis: flops", "blocks", *(f"akx, {n} per SM" for n in _PER_SM), "blocks", "flops"]
    by = {(one["k"], one["blocks_per_sm"]): one for one in entries}
    rows = []
    for k, flops, blocks in TABLE_2:
        mine = [by.get((k, per_sm)) for per_sm in _PER_SM]
        best = max((one for one in mine if one is not None), key=lambda one: one["speedup"], default=None)
        cells = ["" if one is None else f"{one['speedup']:.2f}" for one in mine]
        last = ["", ""] if best is None else [str(best["blocks"]), f"{best['redundancy']:.2f}"]
        rows.append([str(k), f"{flops:.2f}", str(blocks), *cells, *last])
    measured = (
        "akx: speed-up of `ghost` over the fastest plain sweep, all on the device, for each number of thread blocks "
        "per multiprocessor; blocks and flops over needed flops are those of the fastest."
        if entries
        else "akx's side is not measured yet: `python -m benchmarks.thesis --shared` on a GPU."
    )
    theirs = "The thesis' best is 1.4 times the plain products, at k = 15 with three thread blocks per multiprocessor."
    return f"{theirs} {measured}\n\n" + markdown.rows(head, rows)


def _tuned(document: Json) -> list[str]:
    """What the tuner found for the pentadiagonal matrix, beside the plain settings of the table."""
    mine = [one for one in document["powers"] if one["matrix"] == "pentadiagonal" and "sweep" in one]
    if not mine:
        return []
    best = max(mine, key=lambda one: one["k"])
    over = best["sweep"] / best["best"]["seconds"]
    return [
        "That is in blocks of one entry and with nothing held in registers. "
        f"Tuned, k = {best['k']} is {over:.1f} times as fast as the fastest plain sweep: `{best['plan']}`."
    ]


def _entries(name: str) -> int:
    """Entries of a matrix of the gallery, as a result file knows them."""
    powers = json.loads(HISTORY.read_text())["powers"]
    return int(next(one["nnz"] for one in powers if one["matrix"] == name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, do it, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thesis", description="Write docs/thesis.md.")
    parser.add_argument("--ghosts", action="store_true", help="work out the ghost zones first")
    parser.add_argument("--shared", action="store_true", help="measure shared memory first, on a GPU")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 where the page is out of date"
    )
    options = parser.parse_args(arguments)
    extra: Json = json.loads(EXTRA.read_text()) if EXTRA.exists() else {}
    if options.ghosts:
        extra["ghosts"] = measure_ghosts(0.25)
    if options.shared:
        extra["shared"] = measure_shared()
    if options.ghosts or options.shared:
        EXTRA.write_text(json.dumps(extra, indent=1) + "\n")
    return markdown.keep(PAGE, page(json.loads(HISTORY.read_text()), extra), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
