"""What the benchmarks of solvers share: real matrices as they are, solvers by name, and blocks of tables in pages.

A solver is akx's of that name where there is one, else SciPy's of the same method; which of them it was is part of
every entry of a result file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

import akx
import akx.solvers
from akx.core.errors import ArgumentError
from akx.solvers.preconditioners import Preconditioner, solve_folded
from benchmarks.matrices import REAL

__all__ = ["RESTART", "find", "keep", "load", "origin", "run", "save"]

#: Steps are those of a prepared matrix; what comes before, :mod:`benchmarks.answer` measures.
os.environ.setdefault("AKX_PREPARE", "always")

#: Of restarted GMRES, whoever's it is.
RESTART = 30
_SCIPY = {"cg": linalg.cg, "minres": linalg.minres, "gmres": linalg.gmres, "bicgstab": linalg.bicgstab}

Json = dict[str, Any]


def load(name: str, folder: Path = REAL) -> sparse.csr_array:
    """A real matrix by name, not scaled. Raises FileNotFoundError where it is not there."""
    for path in sorted(folder.glob(f"{name}*")):
        stem = path.name.split(".")[0]
        if stem not in (name, f"{name}_lower"):
            continue
        matrix = sparse.csr_array(akx.read_matrix(path))
        if stem != name:
            matrix = sparse.csr_array(matrix + matrix.T - sparse.diags_array(matrix.diagonal()))
        return matrix
    raise FileNotFoundError(f"no matrix {name} in {folder}")


def find(name: str) -> tuple[Callable[..., Any], str] | None:
    """A solver and whose it is, ``"akx"`` or ``"SciPy"``; None where nobody has it."""
    own = getattr(akx.solvers, "SOLVERS", {}).get(name)
    if own is not None:
        return own, "akx"
    return (_SCIPY[name], "SciPy") if name in _SCIPY else None


def run(
    name: str,
    A: Any,
    b: Any,
    *,
    rtol: float,
    most: int,
    M: Any = None,
    s: int | None = None,
    threads: int | None = None,
) -> Json | None:
    """Solve once.

    Parameters
    ----------
    name : str
        Of the solver: ``"cg"``, ``"ca_cg"``, ...
    A, b
        The system.
    rtol : float
        Tolerance of ||b - A x|| relative to ||b||.
    most : int
        Steps after which it is given up: of one product, for bicgstab of two.
    M : optional
        Preconditioner. A communication-avoiding solver that does not take it is given A with M folded in.
    s : int, optional
        Steps of a basis, for the communication-avoiding solvers.
    threads : int, optional
        For akx's solvers; SciPy's have one.

    Returns
    -------
    dict or None
        ``solver``, ``by``, ``info``, ``iterations``, ``residual`` (true, relative to b's norm), ``converged``,
        ``seconds``, and for akx's ``reason``, ``passes``, ``products``, ``s``, ``notes``; None without such a solver.
    """
    found = find(name)
    if found is None:
        return None
    solver, whose = found
    limit: Json = {"maxiter": most}
    if "gmres" in name:
        limit = {"maxiter": -(-most // RESTART), "restart": RESTART}
    begin = time.perf_counter()
    if whose == "SciPy":
        x, info, extra = _scipys(solver, A, b, rtol=rtol, M=M, **limit)
    else:
        if s is not None:
            limit["s"] = s
        x, info, extra = _ours(solver, A, b, rtol=rtol, M=M, threads=threads, **limit)
    seconds = time.perf_counter() - begin
    norm = float(np.linalg.norm(b))
    residual = float(np.linalg.norm(b - A @ x)) / norm if norm else 0.0
    # SciPy's word is of the recurrence; a residual a little above the target counts as converged for it alone.
    converged = bool(info == 0 and residual <= rtol * (1.0 + 1e-6 if whose == "akx" else 10.0))
    return {
        "solver": name,
        "by": whose,
        "info": int(info),
        "residual": residual,
        "converged": converged,
        "seconds": seconds,
        **extra,
    }


def _scipys(solver: Any, A: Any, b: Any, **options: Any) -> tuple[Any, int, Json]:
    count = 0

    def callback(_: Any) -> None:
        nonlocal count
        count += 1

    if "restart" in options:
        options["callback_type"] = "pr_norm"
    with np.errstate(all="ignore"):
        x, info = solver(A, b, callback=callback, **options)
    return x, info, {"iterations": count}


def _ours(solver: Any, A: Any, b: Any, *, M: Any, **options: Any) -> tuple[Any, int, Json]:
    try:
        x, info, stats = solver(A, b, M=M, return_stats=True, **options)
    except ArgumentError:
        if not isinstance(M, Preconditioner) or not M.folds:
            raise
        x, info, stats = solve_folded(solver, A, b, M=M, return_stats=True, **options)  # type: ignore[misc]
    return (
        x,
        info,
        {
            "iterations": stats.iterations,
            "reason": stats.reason,
            "products": stats.products,
            "passes": stats.matrix_passes,
            "s": _counts(stats.s),
            "notes": stats.notes[:5],
        },
    )


def _counts(values: Sequence[int]) -> dict[str, int]:
    """How often each value occurs."""
    return {str(value): values.count(value) for value in sorted(set(values))}


def save(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON in one step: a reader finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(path)


def keep(
    path: Path,
    document: Mapping[str, Any],
    name: str,
    entry: Json,
    origin: Json,
    of: Sequence[str] = ("matrix",),
) -> Json:
    """Write a document of one list, `name`, with an entry in place of the one that is the same in `of`, and return it.

    Machine and versions are those of `origin`; the entry says besides which commit it is of, and of when.
    """
    stamped = entry | {"commit": origin["commit"], "date": origin["date"]}
    others = [one for one in document[name] if any(one[key] != entry[key] for key in of)]
    found: Json = {**origin, name: [*others, stamped]}
    save(path, found)
    return found


def origin(document: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]) -> str:
    """Where and when the entries of a file were measured, in words."""
    machine, found = document["machine"], list(entries)
    commits = dict.fromkeys(str(entry["commit"])[:10] for entry in found)
    dates = sorted({str(entry["date"])[:10] for entry in found})
    gpu = machine.get("gpu", machine["processor"])
    chip = "" if gpu == machine["processor"] else f"one {gpu}, with "
    return (
        f"Measured on {chip}{machine['processor']}, {machine['threads']} threads, "
        f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}, {' and '.join(dates)}"
    )
