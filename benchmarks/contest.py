"""Who is measured: SciPy, MKL, akx's own plain sweep, and the tuned plan through the library call, all on one matrix.

Every contestant computes the same k powers of the same x into the same preallocated array, in the user's order of rows.
Where tuning finds nothing better than the plain sweep, the sweep *is* the tuned plan and one measurement serves both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.clock import Call
from benchmarks.gallery import small
from benchmarks.splitmix import uniform

__all__ = ["AkxContest", "Contest", "ContestMaker", "check_agreement", "compile_kernels", "start_vector"]

#: Below this number of entries MKL also runs with one thread: a second one costs more than it brings.
_FEW_ENTRIES = 500_000
#: Contestants may differ in rounding only: relative difference of the last vector.
_AGREEMENT = 1e-8


@dataclass(frozen=True)
class Contest:
    """Prepared contestants for one matrix and k.

    Attributes
    ----------
    baselines : dict of str to callable
        What akx is compared with, ``"sweep"`` included.
    best : callable or None
        The tuned plan; None where it is the plan of ``"sweep"``.
    schedule, variant, plan : str
        The tuned plan in words.
    prepare_seconds, tuning_seconds : float
        From a matrix to the first call with a known plan; for finding the plan.
    error : callable
        Largest componentwise error of the tuned plan over its bound.
    extras : dict of str to callable
        Timed in the same run, but not compared with: ``"sweep_reordered"``.
    """

    baselines: dict[str, Call]
    best: Call | None
    schedule: str
    variant: str
    plan: str
    prepare_seconds: float
    tuning_seconds: float
    error: Callable[[], float]
    extras: dict[str, Call] = field(default_factory=dict)


class ContestMaker(Protocol):
    """Makes the contest of a matrix: :class:`AkxContest`, or a stand-in in the tests."""

    def __call__(self, name: str, matrix: sparse.csr_array, k: int, *, reordered: bool) -> Contest: ...


def start_vector(n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The x of every measurement: uniform in [-1, 1), the same for the same n; complex where the matrix is."""
    values = 2.0 * uniform(7, 2 * n) - 1.0
    return (values[:n] + 1j * values[n:] if dtype.kind == "c" else values[:n]).astype(dtype)


@dataclass(frozen=True)
class AkxContest:
    """Contests of the real thing.

    Attributes
    ----------
    threads : int
        Threads of every contestant that has any.
    tune_seconds : float or None
        Time budget of tuning for one k; None for the tuner's own default.
    db : path or None
        A plan database whose plans are used where it has them; None tunes anew and keeps nothing.
    compile_first : bool
        Compile every kernel before the first budget begins.
    """

    threads: int
    tune_seconds: float | None = None
    db: str | None = None
    compile_first: bool = True

    def __call__(self, name: str, matrix: sparse.csr_array, k: int, *, reordered: bool) -> Contest:
        """Tune, prepare and check everybody."""
        import akx
        from akx.plandb import PlanDatabase
        from akx.report.comparison.baselines import baselines
        from akx.tuner import tune
        from akx.tuner.space import is_baseline

        canonical = akx.Matrix.from_any(matrix)
        if self.compile_first:
            compile_kernels(str(canonical.dtype), self.threads)
        database = PlanDatabase(self.db) if self.db is not None else False
        begin = time.perf_counter()
        found = tune(canonical, k, threads=self.threads, seconds=self.tune_seconds, db=database, name=name)
        tuning_seconds = time.perf_counter() - begin
        x = start_vector(canonical.n, canonical.dtype)
        powers = np.zeros((k + 1, canonical.n), dtype=canonical.dtype)  # one array for all: pages touched, cache alike

        def library_call(matrix: Any, plan: Any, x: NDArray[Any]) -> Call:
            operator = akx.MatrixPowers(matrix, k, plan=plan)
            return partial(operator, x, out=powers.T)

        calls: dict[str, Call] = {
            baseline: partial(run, x, powers) for baseline, run in baselines(canonical, k, self.threads).items()
        }
        if "mkl" in calls and self.threads > 1 and canonical.nnz < _FEW_ENTRIES:
            calls["mkl_1_thread"] = partial(baselines(canonical, k, 1)["mkl"], x, powers)
        plain = found.baseline_plan
        if plain is None:  # a plan from a database need not say which sweep it was compared with
            only = tune(canonical, k, threads=self.threads, seconds=self.tune_seconds, space_filter=is_baseline)
            plain = only.plan
        calls["sweep"] = library_call(matrix, plain, x)
        best = None if found.plan == plain else library_call(matrix, found.plan, x)
        check_agreement({**calls, **({} if best is None else {"akx": best})}, powers[k])
        extras = {"sweep_reordered": self._reordered(canonical, k, x, library_call)} if reordered else {}
        return Contest(
            baselines=calls,
            best=best,
            schedule=found.plan.schedule,
            variant=found.plan.variant,
            plan=found.plan.label(),
            prepare_seconds=_prepare_seconds(akx, matrix, k, found.plan, x, powers),
            tuning_seconds=tuning_seconds,
            error=lambda: _error(canonical, k, x, powers, best or calls["sweep"]),
            extras=extras,
        )

    def _reordered(self, matrix: Any, k: int, x: NDArray[Any], library_call: Callable[..., Call]) -> Call:
        """The plain sweep, best variant, on P A P^T, P from reverse Cuthill-McKee; x and result in the new order."""
        import akx
        from akx.partition.levels import rcm
        from akx.tuner import tune
        from akx.tuner.space import is_baseline

        order = rcm(matrix.indptr, matrix.indices)
        permuted = sparse.csr_array(matrix.to_scipy()[order][:, order])
        seconds = None if self.tune_seconds is None else self.tune_seconds / 4
        plain = akx.Matrix.from_any(permuted)
        found = tune(plain, k, threads=self.threads, seconds=seconds, space_filter=is_baseline)
        return library_call(permuted, found.baseline_plan, np.ascontiguousarray(x[order]))


@lru_cache
def compile_kernels(dtype: str, threads: int) -> int:
    """Run every variant of every schedule once on small matrices, so that no budget is spent on compiling.

    Compiled code is kept on disk: only the first run after a change of the kernels takes long. Returns the number of
    plans that ran.
    """
    import akx
    from akx.backends.host import host_device
    from akx.core.errors import AkxError
    from akx.tuner.space import build_space

    ran = 0
    for name in ("brick", "9-point", "rmat"):
        matrix = akx.Matrix.from_any(small(name), dtype=dtype)
        x = start_vector(matrix.n, matrix.dtype)
        space = build_space(matrix, 4, host_device(), threads=threads)
        for schedule in space.schedules:
            for variant in space.choices(schedule, "variant"):
                with suppress(AkxError):  # not every variant suits every matrix; the tuner reports what fails
                    akx.MatrixPowers(matrix, 4, plan=space.plan(schedule, {"variant": variant}))(x)
                    ran += 1
    return ran


def check_agreement(calls: dict[str, Call], last: NDArray[Any]) -> None:
    """Every contestant must leave the same last vector; a wrong baseline would be as bad as a wrong akx."""
    expected = None
    for name, call in calls.items():
        last[...] = np.nan
        call()
        found = last.copy()
        if expected is None:
            expected = found
        difference = float(np.linalg.norm(found - expected))
        if not difference <= _AGREEMENT * float(np.linalg.norm(expected)):
            raise ArithmeticError(f"{name} and {next(iter(calls))} differ by {difference:.3g}")


def _prepare_seconds(akx: Any, matrix: Any, k: int, plan: Any, x: NDArray[Any], powers: NDArray[Any]) -> float:
    """Seconds from the user's matrix and a plan to the end of the first call, less one call; code compiled before."""
    fresh = matrix.copy()
    begin = time.perf_counter()
    operator = akx.MatrixPowers(fresh, k, plan=plan)
    operator(x, out=powers.T)
    first = time.perf_counter()
    operator(x, out=powers.T)
    return max(0.0, 2 * first - begin - time.perf_counter())


def _error(matrix: Any, k: int, x: NDArray[Any], powers: NDArray[Any], best: Call) -> float:
    from akx.backends.reference import error_ratio
    from akx.backends.schedule import as_coefficients
    from akx.core.basis import monomial

    basis = monomial(k)
    best()
    coefficients = as_coefficients(basis.a, basis.b, basis.c, matrix.dtype)
    return float(error_ratio(matrix, powers[:, None, :], x[None, :], coefficients))
