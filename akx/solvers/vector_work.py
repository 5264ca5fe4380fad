"""The vector work of a solve: which backend's, whether it is compiled, and norms of what is extreme."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
from akx.backends.selection import HOST, backend_of, is_usable
from akx.backends.vectors import Vectors
from akx.core.matrix import Matrix
from akx.core.numba_jit import is_loaded
from akx.core.process import resolve_threads
from akx.operator import tiers
from akx.operator.background_compile import is_noted, notes_of
from akx.operator.cache import CACHE
from akx.operator.lookup import cache_of
from akx.solvers.registry import SOLVERS
from akx.solvers.scaling import norm_of, scaled

if TYPE_CHECKING:
    from pathlib import Path


__all__ = [
    "checked_norm",
    "compiling_job",
    "is_compiled",
    "is_lower",
    "is_queued",
    "is_rented",
    "make_work",
    "scaled_in",
    "solve_once",
]

#: Steps after which a solver has done all that it does.
_STEPS = 16
#: By solver and types, the notes that its vector work is compiled; none where that is known.
_NOTES: dict[tuple[Any, ...], tuple[Path | None, ...]] = {}


def scaled_in(work: Any, v: Any, exponent: int) -> Any:
    """2^exponent v, where v is."""
    return v if exponent == 0 else work.from_host(scaled(work.to_host(v), exponent))


def checked_norm(work: Any, norm: float, v: Any) -> float:
    """The norm of v: the one found as the root of a sum of squares, or a scaled one where these are extreme."""
    low, high = _sound(work.dtype)
    return norm if low <= norm <= high else norm_of(work.to_host(v))


@lru_cache(maxsize=8)
def _sound(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Norms whose squares have all their digits."""
    facts = np.finfo(dtype)
    return float(np.sqrt(float(facts.tiny)) / float(facts.eps)), float(np.sqrt(float(facts.max)))


def make_work(backend: str, dtype: np.dtype[Any], n: int, threads: int | None, *, plain: bool = False) -> Vectors:
    """The vector work of a backend, for vectors of n entries; NumPy's where that is asked for."""
    if plain:
        resolve_threads(threads)
        return NumpyVectors(dtype)
    return backend_of(backend).vectors(dtype, n, threads)


def is_lower(work: Vectors, W: Any, x: Any, r: Any, y: Any, of_y: Any) -> bool:
    """Whether <x, A x> - 2 Re <b, x> is less for x than for y, by their residuals, for a Hermitian A; W: two rows."""
    W[0], W[1] = x, r
    work.add(W[0], -1.0, y)
    work.add(W[1], 1.0, of_y)
    return bool(work.dot(W, 0, 1).real > 0)  # the difference is -Re <x - y, r + r_y>


def is_compiled(method: str, matrix: Matrix) -> bool:
    """Whether the vector work of a solver is compiled for these types: else it would wait for the compiler."""
    if not is_loaded():
        return False
    key = method, matrix.dtype, matrix.index_dtype, matrix.value_error > 0
    notes = _NOTES.get(key)
    if notes is None:
        notes = _NOTES[key] = notes_of(compiling_job(method)[0], matrix)
    if notes and not is_noted(notes):
        return False
    _NOTES[key] = ()
    return True


def is_rented(matrix: Matrix, backend: str) -> bool:
    """Whether the next solve with a canonical matrix begins with plain products on a device."""
    if backend == HOST or tiers.setting() != tiers.AUTO or cache_of(matrix) is not CACHE:
        return False
    from akx.operator.device_products import device_rent

    return is_usable(backend) and device_rent(matrix, "solve", backend) is not None


def compiling_job(method: str) -> tuple[tuple[str, ...], str, str, str]:
    """What compiles all that a solver of that name needs for vectors (:data:`akx.tuner.warmup.host_code.Job`)."""
    return (f"{method} solver",), __name__, "solve_once", method


def solve_once(method: str, matrix: Matrix, vectors: int) -> None:
    """A few steps of a solver."""
    SOLVERS[method](matrix, np.ones(matrix.n, dtype=matrix.dtype), maxiter=_STEPS)


def is_queued(matrix: Matrix, backend: str) -> bool:
    """Whether a solver for that matrix queues its work on a device."""
    return make_work(backend, matrix.dtype, matrix.n, None, plain=backend == HOST).on_device
