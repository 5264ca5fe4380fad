"""What tells whether what was kept is fresh: the content of a matrix, and the state of the plans.

A matrix of the caller's may be written to at any time, by other threads too, and plans by other processes. All of this
is asked by every call, so that it costs little: checksums of arrays, stamps of files.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.core.arguments import scipy_matrix
from akx.core.device_arrays import Parts
from akx.core.matrix import Matrix, content_token, there
from akx.core.numba_jit import is_loaded

if TYPE_CHECKING:
    from akx.plandb import PlanDatabase

__all__ = [
    "CONSTANT",
    "GLANCE",
    "SMALL",
    "Copies",
    "Summing",
    "Token",
    "database_of",
    "has_other_threads",
    "is_changing",
    "is_copied",
    "place_of_plans",
    "read",
    "state_of_plans",
    "token_of",
]

#: What tells one content of a matrix from another, and what forms the checksums of arrays for it.
Token = tuple[Any, ...]
Summing = Callable[[Sequence[NDArray[Any]]], list[int]]
#: That of a matrix that cannot change.
CONSTANT: Token = ("akx",)
#: Bytes of a matrix for which one more thread reads along, when its checksum is formed.
_BYTES_PER_READER = 1 << 20
#: Bytes of a pattern that is copied for comparisons, and of a matrix, and where the cache of a matrix has the copies.
SMALL, _COPIED, _COPIES = 1 << 18, 1 << 20, "akx.operator.copies"
#: Entries that are compared at once: what is in between stays in a near cache.
_COMPARED = 1 << 16
#: Seconds for which a file of plans is taken to be unchanged by other processes, and files that are remembered.
GLANCE, _FILES = 0.1, 8
#: By what names them: databases of plans, their stamps, and when they were looked at.
_GLANCED: dict[Any, tuple[PlanDatabase, Token, float]] = {}


def read(A: Any) -> tuple[Any, Any]:
    """What is kept for A, and A as its content is read: its own arrays on a GPU, or a matrix of SciPy.

    Another library's matrix of the host is converted in every call, to see whether it changed. A tuple of arrays is
    another one in each call: what is kept is for its data.
    """
    if isinstance(A, Matrix):
        return A, A
    found = there(A)
    if found is not None:
        return found.owner, found
    return A, scipy_matrix(A)


def token_of(A: Any, threads: int, summing: Summing | None = None) -> Token:
    """The content of A, read by as many threads as its size is worth, or by `summing`; an akx.Matrix cannot change."""
    if isinstance(A, Matrix):
        return CONSTANT
    octets = A.nnz * (A.dtype.itemsize + 4)
    return content_token(A, threads=max(1, min(threads, octets // _BYTES_PER_READER)), summing=summing)


class Copies:
    """Small C-contiguous arrays of a caller's with copies of their `content`, bit for bit: changes are soon seen."""

    def __init__(self, given: tuple[NDArray[Any], ...], content: tuple[NDArray[Any], ...]) -> None:
        self._all = [
            (array, own.tobytes(), memoryview(array).cast("B"))  # type: ignore[arg-type]
            for array, own in zip(given, content, strict=True)
        ]
        self.arrays = tuple(
            np.frombuffer(octets, own.dtype) for (_, octets, _), own in zip(self._all, content, strict=True)
        )

    def are_of(self, *given: NDArray[Any]) -> bool:
        """Whether these are the same arrays, with the same content."""
        for one, (other, octets, view) in zip(given, self._all, strict=True):
            if one is not other or not octets.startswith(view):  # no other comparison of memory is as quick
                return False
        return True


def is_copied(A: Any, matrix: Matrix) -> bool:
    """Whether the arrays of A are those of its canonical matrix, bit for bit; also False where a token is as quick."""
    if isinstance(A, Parts) or A.format != "csr" or A.shape != matrix.shape or matrix.on_device is not None:
        return False
    given, copies = (A.indptr, A.indices, A.data), matrix.cache.get(_COPIES)
    if copies is not None and copies.are_of(*given):
        return True
    if is_loaded() and matrix.nbytes > 4 * _BYTES_PER_READER:
        return False
    own = matrix.indptr, matrix.indices, matrix.data
    is_same = all(map(_is_equal, given, own))
    if is_same and matrix.nbytes <= _COPIED:  # copies are made by a third call: more may come
        matrix.cache[_COPIES] = Copies(given, own) if _COPIES in matrix.cache else None
    return is_same


def _is_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or not one.flags.c_contiguous:
        return False
    kind = np.int32 if one.itemsize == 4 else np.int64  # bits: zeros have signs
    one, other = one.view(kind), other.view(kind)
    pieces = (slice(start, start + _COMPARED) for start in range(0, one.size, _COMPARED))
    return not any(np.count_nonzero(one[piece] != other[piece]) for piece in pieces)


def is_changing(A: Any, threads: int, token: Token) -> bool:
    """Whether another thread has changed A since its content was read; where there is no other, nothing is read."""
    return has_other_threads() and token_of(A, threads) != token


def has_other_threads() -> bool:
    """Whether another thread could change a matrix meanwhile."""
    if threading.active_count() == 1:
        return False
    here = threading.current_thread()
    return any(one is not here and not one.name.startswith("akx-") for one in threading.enumerate())


def database_of(db: Any) -> PlanDatabase:
    """The plan database that is named, by modules that first calls have no need of."""
    from akx.plandb import database_of as named

    return named(db)


def state_of_plans(db: Any) -> tuple[Any, ...]:
    """The database that `db` names and what differs after plans changed: by this process, or 0.1 s ago by others."""
    place = place_of_plans(db)
    found = _GLANCED.get(place)
    if found is None or time.monotonic() - found[2] >= GLANCE:
        database = database_of(db)
        if len(_GLANCED) >= _FILES:
            _GLANCED.clear()
        found = _GLANCED[place] = database, database.file_stamp(), time.monotonic()
    return found[0].path, found[0].generation, found[1]


def place_of_plans(db: Any) -> Any:
    """What decides which file or server `db` names, without a look at the file system."""
    if db is None:
        return tuple(map(os.environ.get, ("AKX_DB", "XDG_DATA_HOME", "HOME")))
    if isinstance(db, str) and "://" in db:
        return db
    return os.path.abspath(db) if isinstance(db, (str, os.PathLike)) else database_of(db)
