"""Public calls on a GPU by the wall clock, beside cuSPARSE's graphs and the loop that users write.

=============  ====================================================================================================
contestant     a call
=============  ====================================================================================================
``akx``        ``P(x, out=V)``, P made of the plan that is in a database
``longer``     the same, P made of the plan of a longer search, where one was asked for
``untuned``    the same, P made with no plan in any database
``cusparse_*`` one launch of a graph of k products, for each algorithm of :mod:`akx.backends.cuda.baselines`
``cupy``       ``v = A @ v``, k times, all vectors kept; where CuPy is there
=============  ====================================================================================================

x, V and A are on the device, and every contestant has vectors of its own. They take turns (:mod:`benchmarks.clock`).
*In a row* is a batch of calls one behind the other, waited for once; *latency* that of calls of which each is waited
for. Nothing is timed that was not right: V is judged by the componentwise bound, and so are the products of cuSPARSE.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx import MatrixPowers
from akx.backends.device_lock import device_lock
from akx.backends.reference import Reference, reference
from akx.backends.schedule import as_coefficients
from akx.backends.selection import device_of
from akx.core.errors import VerificationError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks.clock import Call, Settings, Timing, interleave
from benchmarks.contest import start_vector
from benchmarks.record import is_csr

__all__ = ["AKX", "LONGER", "LOOP", "UNTUNED", "Figures", "measure"]

AKX, LONGER, UNTUNED, LOOP = "akx", "longer", "untuned", "cupy"
_IN_A_ROW = Settings(seconds=0.7, rounds_min=5, rounds_max=15, sample_seconds=4e-3, pause_seconds=0.0)
_LATENCY = Settings(seconds=0.3, rounds_min=5, rounds_max=9, sample_seconds=2e-3, pause_seconds=0.0, hopeless=3.0)
#: Calls after which an operator has recorded its graph.
_EARLY = 8


@dataclass(frozen=True)
class Figures:
    """What was found for one matrix and k.

    Attributes
    ----------
    row, latency : dict of str to Timing
        By contestant: seconds of a call in a row, and of one that is waited for.
    plans : dict of str to Plan
        Of akx's contestants.
    error : float
        The largest componentwise error of these over its bound, at most 1.
    refused : tuple of str
        Contestants that are left out, and why.
    """

    row: dict[str, Timing]
    latency: dict[str, Timing]
    plans: dict[str, Plan]
    error: float
    refused: tuple[str, ...]


def measure(matrix: Matrix, k: int, databases: dict[str, Any], backend: str = "cuda") -> Figures:
    """Time all contestants.

    Parameters
    ----------
    matrix : Matrix
    k : int
    databases : dict of str to PlanDatabase
        Where akx's contestants have their plans from, by name.
    backend : str
        Of akx.

    Raises
    ------
    VerificationError
        A result of akx is wrong.
    """
    x = start_vector(matrix.n, matrix.dtype)
    coefficients = as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
    wanted, error, plans = reference(matrix, x[None, :], coefficients), 0.0, dict[str, Plan]()
    with _device() as (there, wait), contextlib.ExitStack() as ends:
        calls, refused = _others(matrix, x, wanted, ends)
        for name, database in databases.items():
            P, held = MatrixPowers(matrix, k, backend=backend, db=database), there(x)
            V = P(held)
            found = np.ascontiguousarray((V if isinstance(V, np.ndarray) else V.get()).T)[:, None, :]
            off = wanted.error_ratio(found)
            if not off <= 1:
                raise VerificationError(
                    f"plan {P.plan.label()}", expected="an error within the bound", found=f"{off:.3g}"
                )
            error, plans[name] = max(error, off), P.plan
            calls = {name: partial(P, held, out=V), **calls}
        del wanted
        for call in list(calls.values()) * _EARLY:
            call()
        wait()
        waited = {name: partial(_waited, call, wait) for name, call in calls.items()}
        with device_lock(device_of(backend)).alone():
            row = interleave(calls, _IN_A_ROW, keep=_kept(calls), wait=wait)
            latency = interleave(waited, _LATENCY, keep=_kept(calls))
    return Figures(row, latency, plans, error, refused)


def _kept(names: Collection[str]) -> list[str]:
    return [name for name in names if name in (AKX, LONGER, UNTUNED) or is_csr(name)]


def _waited(call: Call, wait: Call) -> None:
    call()
    wait()


@contextlib.contextmanager
def _device() -> Iterator[tuple[Callable[[NDArray[Any]], Any], Call]]:
    """What brings an array to the device, CuPy's where it is there; and what waits for the device."""
    from akx.backends.cuda.device.memory import to_device
    from akx.backends.cuda.device.runtime import runtime

    cupy = _cupy()
    with runtime().active() as live:
        yield to_device if cupy is None else cupy.asarray, live.driver.cuCtxSynchronize


def _others(
    matrix: Matrix, x: NDArray[Any], wanted: Reference, ends: contextlib.ExitStack
) -> tuple[dict[str, Call], tuple[str, ...]]:
    """Calls of the other libraries, given back with `ends`; and what is left out."""
    from akx.backends.cuda.baselines.calls import powers

    k = wanted.powers.shape[0] - 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = powers(matrix, x, k, wanted)
    refused = [str(one.message) for one in said if "is not compared" in str(one.message)]
    for one in found.values():
        ends.callback(one.close)
    calls: dict[str, Call] = {name: one.run_here for name, one in found.items()}
    cupy = _cupy()
    if cupy is None:
        return calls, (*refused, "CuPy's loop is not compared: CuPy is not installed")
    on_gpu = import_module("cupyx.scipy.sparse")
    return calls | {LOOP: partial(_loop, on_gpu.csr_matrix(matrix.to_scipy()), cupy.asarray(x), k)}, tuple(refused)


def _loop(A: Any, x: Any, k: int) -> list[Any]:
    vectors = [x]
    for _ in range(k):
        vectors.append(A @ vectors[-1])
    return vectors


def _cupy() -> Any:
    try:
        return import_module("cupy")
    except ImportError:
        return None
