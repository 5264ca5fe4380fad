"""What each idea in the CPU kernels is worth: the same matrix and powers with and without it, timed in turns.

    python -m studies.ablations                       into studies/results/ablations.json (five minutes)
    python -m studies.ablations --only prefetch

`ratio` is the time without over the time with, medians of one run; above 1 the idea pays. Both sides are plain library
calls; where an idea is no plan parameter, the side without it has it taken out of a prepared program.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import record
from benchmarks.clock import Call, Settings, interleave
from benchmarks.contest import start_vector
from benchmarks.gallery import GALLERY, small, stencil

__all__ = ["ABLATIONS", "main", "measure"]

_RESULTS = Path(__file__).resolve().parent / "results" / "ablations.json"
_K = 8
_BLOCK = 512 * 1024


@dataclass(frozen=True)
class Ablation:
    """One idea: what it is, the matrices to try it on, and the calls with and without it."""

    idea: str
    matrices: tuple[str, ...]
    sides: Callable[[sparse.csr_array], tuple[Call, Call]]


def _call(matrix: sparse.csr_array, **plan: Any) -> Any:
    """(operator, call into a result array of its own) of a plan on two threads, wavefront in SELL unless said."""
    import akx
    from akx.core.plan import Plan

    settings = {"schedule": "wavefront", "variant": "sell16", "k_per_pass": _K, "block_bytes": _BLOCK, "threads": 2}
    chosen = {**settings, **plan}
    if chosen["schedule"] == "sweep":
        chosen |= {"k_per_pass": 1, "block_bytes": 0}
    operator = akx.MatrixPowers(matrix, _K, plan=Plan("cpu", k=_K, **chosen))
    x = start_vector(matrix.shape[0], matrix.dtype)
    out = np.zeros((matrix.shape[0], _K + 1), dtype=matrix.dtype, order="F")
    return operator, partial(operator, x, out=out)


def _plans(with_it: dict[str, Any], without: dict[str, Any]) -> Callable[[sparse.csr_array], tuple[Call, Call]]:
    return lambda matrix: (_call(matrix, **with_it)[1], _call(matrix, **without)[1])


def _listening(matrix: sparse.csr_array) -> tuple[Call, Call]:
    """Without: the members are sent away before every call."""
    from akx.backends.cpu.thread_team import team

    _, call = _call(matrix, schedule="sweep")

    def woken() -> object:
        team(2).send_away()
        return call()

    return call, woken


def _prefetch(matrix: sparse.csr_array) -> tuple[Call, Call]:
    """Without: the lists of what to fetch during which task are empty."""
    (_, call), (operator, plain) = _call(matrix), _call(matrix)
    plain()
    for program in operator._prepared.programs.values():
        program._tasks = program._tasks._replace(soon_last=program._tasks.soon_first)
        program._job = None
    return call, plain


ABLATIONS = {
    "listening": Ablation(
        "members of a team listen for the next call, instead of sleeping", ("grid-100", "grid-200"), _listening
    ),
    "prefetch": Ablation(
        "a wavefront asks for its next block while it works on the one at hand", ("7-point", "shell"), _prefetch
    ),
    "narrow-indices": Ablation(
        "16-bit column indices instead of 32-bit ones", ("shell", "9-point"), _plans({}, {"variant": "sell"})
    ),
    "node-blocks": Ablation(
        "one index per dense block instead of one per entry", ("brick", "shell"), _plans({"variant": "bell16"}, {})
    ),
    "diagonals": Ablation("diagonals instead of sliced ELL", ("9-point", "7-point"), _plans({"variant": "dia"}, {})),
    "wavefront": Ablation(
        "the wavefront instead of the sweep, in one variant", ("9-point", "7-point"), _plans({}, {"schedule": "sweep"})
    ),
    "shares": Ablation(
        "a share of the rows per thread, begun where shares meet, instead of every block cut between threads",
        ("9-point", "7-point"),
        _plans({"options": {"split": "contiguous"}}, {"options": {"split": "interleaved"}}),
    ),
}


def _matrix(name: str, reduced: bool) -> sparse.csr_array:
    if name.startswith("grid-"):
        side = 20 if reduced else int(name.removeprefix("grid-"))
        return stencil((side, side), 9)
    return small(name) if reduced else GALLERY[name]()


def measure(names: Sequence[str], *, reduced: bool = False, settings: Settings | None = None) -> list[dict[str, Any]]:
    """``idea``, ``name``, ``matrix``, ``with_seconds``, ``without_seconds``, ``spread`` of both, ``ratio`` of each."""
    entries = []
    for name in names:
        for where in ABLATIONS[name].matrices:
            sides = dict(zip(("with", "without"), ABLATIONS[name].sides(_matrix(where, reduced)), strict=True))
            for call in sides.values():
                call()
            timed = interleave(sides, settings, keep=tuple(sides))
            entries.append(
                {
                    "name": name,
                    "idea": ABLATIONS[name].idea,
                    "matrix": where,
                    "k": _K,
                    "with_seconds": timed["with"].seconds,
                    "without_seconds": timed["without"].seconds,
                    "spread": {side: timing.spread for side, timing in timed.items()},
                    "ratio": timed["without"].seconds / timed["with"].seconds,
                }
            )
    return entries


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the file; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m studies.ablations", description="What each idea is worth.")
    parser.add_argument("--only", action="append", choices=sorted(ABLATIONS))
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    options = parser.parse_args(arguments)
    entries = measure(options.only or list(ABLATIONS))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({**record.provenance(2), "ablations": entries}, indent=1) + "\n")
    for entry in entries:
        print(f"{entry['name']:15} {entry['matrix']:10} {entry['ratio']:.2f}x", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
