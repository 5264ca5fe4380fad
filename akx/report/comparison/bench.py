"""``akx bench``: a tuned plan beside SciPy and MKL, or cuSPARSE on a GPU, and akx's own plain products, in one run.

Every contestant gets the same start vector and fills an array of its own; all are prepared and warmed up ahead of the
clock, timed in turns so that a drift of the machine falls on all alike, and given as median with the relative
half-width of its 95 % interval. On a GPU the vectors are in its memory, and calls are timed by events in CUDA graphs. A
speed-up is over the fastest contestant that is not the plan. The plan's result is checked against the plain reference
by the componentwise bound before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.selection import backend_of
from akx.core.errors import VerificationError
from akx.report.comparison.baselines import baselines
from akx.report.comparison.mkl import mkl_missing

if TYPE_CHECKING:
    from akx.backends.schedule import Coefficients, Program
    from akx.core.matrix import Matrix
    from akx.core.plan import Plan
    from akx.tuner import TuneResult

__all__ = ["BENCH_SCHEMA", "BenchPower", "BenchResult", "BenchRow", "bench_power"]

#: Version of the JSON object of ``akx bench --json``.
BENCH_SCHEMA = 1

#: Name of the tuned plan among the contestants, and of the plan that is akx's own baseline.
_TUNED, _SWEEP = "akx", "sweep"
_SECONDS_PER_CONTESTANT = 1.5


@dataclass(frozen=True)
class BenchRow:
    """One contestant: its median seconds for all k powers, the half-width of its interval, how it works."""

    name: str
    seconds: float
    spread: float
    detail: str


@dataclass(frozen=True)
class BenchPower:
    """The contestants for one k.

    Attributes
    ----------
    k : int
        Number of powers.
    rows : tuple of BenchRow
        The tuned plan first, then the baselines.
    plan : Plan
        The tuned plan.
    prepare_seconds : float
        Seconds to make its program.
    error : float
        Largest componentwise error over its bound; at most 1.
    reused : bool
        The plan was in the database before.
    stored_error : float
        The largest relative error of a value as the plan's program has it; 0 where it has them as they are.
    """

    k: int
    rows: tuple[BenchRow, ...]
    plan: Plan
    prepare_seconds: float
    error: float
    reused: bool
    stored_error: float = 0.0

    @property
    def tuned(self) -> BenchRow:
        return self.rows[0]

    @property
    def _baseline(self) -> BenchRow:
        return min(self.rows[1:], key=lambda row: row.seconds)

    @property
    def baseline_name(self) -> str:
        """The fastest of the others."""
        return self._baseline.name

    @property
    def baseline_seconds(self) -> float:
        """Its median seconds."""
        return self._baseline.seconds

    @property
    def baseline_spread(self) -> float:
        """The half-width of its interval."""
        return self._baseline.spread

    @property
    def speedup(self) -> float:
        """Fastest baseline over the tuned plan; below 1 where akx lost, and said so."""
        return self.baseline_seconds / self.tuned.seconds


@dataclass(frozen=True)
class BenchResult:
    """What ``akx bench`` measured."""

    name: str
    rows: int
    nnz: int
    dtype: str
    fingerprint: str
    device: str
    threads: int
    powers: tuple[BenchPower, ...]
    within_budget: bool = False
    value_error: float = 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the plan lost, or has other values than the rest, and what is missing from the comparison."""
        return (*self._lost(), *self._inexact(), *self._missing())

    def _lost(self) -> tuple[str, ...]:
        """Where another code is faster beyond the noise, and what to do."""
        return tuple(
            f"akx is slower than {power.baseline_name} with k = {power.k}: {power.speedup:.2f} of its speed; "
            f"`akx tune` with --k {power.k} --retune searches on"
            + ("" if power.baseline_name == _SWEEP else f"; use {power.baseline_name} where that finds nothing faster")
            for power in self.powers
            if power.speedup * (1 + power.tuned.spread + power.baseline_spread) < 1
        )

    def _inexact(self) -> tuple[str, ...]:
        inexact = [power for power in self.powers if power.stored_error]
        if not inexact:
            return ()
        off, ks = max(power.stored_error for power in inexact), ", ".join(str(power.k) for power in inexact)
        return (
            f"akx with k = {ks} stores values in half the bytes, with a relative error of at most {off:.3g} of the "
            f"{self.value_error:g} allowed; all others have them as they are",
        )

    def _missing(self) -> tuple[str, ...]:
        if self.within_budget:
            return ("within a memory budget no other library is compared",)
        backend = backend_of(self.device.partition("/")[0])
        if backend.has_baselines:
            return backend.baseline_notes()
        hint = mkl_missing()
        return () if hint is None else (f"MKL is not installed, so it is not compared: {hint}",)

    def to_json(self) -> dict[str, Any]:
        """One object of JSON types; the items of ``powers`` have the form of ``benchmarks/results/*.json``."""
        return {
            "schema": BENCH_SCHEMA,
            "matrix": {
                "name": self.name,
                "rows": self.rows,
                "nnz": self.nnz,
                "dtype": self.dtype,
                "fingerprint": self.fingerprint,
            },
            "device": self.device,
            "threads": self.threads,
            "powers": [self._power_json(power) for power in self.powers],
            "notes": list(self.notes),
        }

    def _power_json(self, power: BenchPower) -> dict[str, Any]:
        return {
            "matrix": self.name,
            "rows": self.rows,
            "nnz": self.nnz,
            "k": power.k,
            "dtype": self.dtype,
            "baselines": {row.name: row.seconds for row in power.rows[1:]},
            "baseline_spreads": {row.name: row.spread for row in power.rows[1:]},
            "best": {
                "schedule": power.plan.schedule,
                "variant": power.plan.variant,
                "seconds": power.tuned.seconds,
                "spread": power.tuned.spread,
                "stored_error": power.stored_error,
                "plan": power.plan.to_json(),
            },
            "speedup": power.speedup,
            "prepare_seconds": power.prepare_seconds,
            "error": power.error,
            "reused": power.reused,
        }


def bench_power(matrix: Matrix, tuned: TuneResult, threads: int, *, within_budget: bool = False) -> BenchPower:
    """Time the plan of `tuned` beside every baseline there is.

    Parameters
    ----------
    matrix : Matrix
        The matrix that was tuned, for the monomial basis and one start vector. Where it allows that values are stored
        with an error, that is for the tuned plan alone, which is judged with the error that its values have.
    tuned : TuneResult
        Gives k, the plan, and the plan of akx's own baseline.
    threads : int
        Threads of MKL.
    within_budget : bool
        The plan was tuned within a memory budget: vectors are in the host's memory, and beside it is the baseline of
        that tuning alone, since no other library keeps within it.

    Raises
    ------
    VerificationError
        The plan's result is wrong.
    """
    from akx.backends.device_lock import device_lock
    from akx.backends.selection import device_of
    from akx.tuner.measure import Precision, interleave

    k, coefficients = tuned.k, _monomial(tuned.k, matrix.dtype)
    x = _start_vector(matrix)
    backend = backend_of(tuned.backend)
    allowed, matrix = matrix if backend.narrowed else matrix.with_value_error(0.0), matrix.with_value_error(0.0)
    start = perf_counter()
    program = _prepare(allowed, tuned.plan)
    prepare_seconds = perf_counter() - start
    off = _stored_error(allowed, program, tuned.plan)
    error = _verify(matrix, program, x, coefficients, tuned.plan, off)
    calls: dict[str, tuple[Callable[[], object], str]] = {}

    def make(program: Program) -> Callable[[], object]:
        return backend.call(program, x[None, :], _result(matrix, k), coefficients, hosted=within_budget)

    calls[_TUNED] = make(program), tuned.plan.label()
    plain = tuned.baseline_plan or _default_sweep(matrix, k, tuned)
    if plain != tuned.plan:
        calls[_SWEEP] = make(_prepare(matrix, plain)), plain.label()
    if backend.has_baselines and not within_budget:
        calls |= backend.baselines(matrix, x, k)
    elif not within_budget:
        for name, run in baselines(matrix, k, threads).items():
            calls[name] = (partial(run, x, _result(matrix, k)[:, 0, :]), _DETAILS.get(name, "").format(threads=threads))
    for call, _ in calls.values():
        call()
    precision = Precision(relative=0.01, seconds=_SECONDS_PER_CONTESTANT * len(calls), rounds_min=7)
    with device_lock(device_of(tuned.backend)).alone():
        measured = interleave([call for call, _ in calls.values()], precision)
    rows = tuple(
        BenchRow(name, found.seconds, found.spread, detail)
        for (name, (_, detail)), found in zip(calls.items(), measured, strict=True)
    )
    return BenchPower(k, rows, tuned.plan, prepare_seconds, error, tuned.reused, off)


_DETAILS = {
    "scipy": "A @ x, one thread",
    "mkl": "inspector-executor, {threads} threads",
    "mkl_1_thread": "inspector-executor, 1 thread",
    "mkl_bsr": "inspector-executor on block CSR, {threads} threads",
}


def _default_sweep(matrix: Matrix, k: int, tuned: TuneResult) -> Plan:
    """Plain products by the schedule's own defaults, where the record of a plan does not name its baseline."""
    from akx.backends.selection import device_of
    from akx.tuner.space import build_space

    space = build_space(matrix, k, device_of(tuned.backend), backend=tuned.backend, threads=tuned.threads)
    assert space.plain is not None
    return space.default(space.plain)


def _monomial(k: int, dtype: np.dtype[Any]) -> Coefficients:
    from akx.backends.schedule import as_coefficients
    from akx.core.basis import monomial

    basis = monomial(k)
    return as_coefficients(basis.a, basis.b, basis.c, dtype)


def _prepare(matrix: Matrix, plan: Plan) -> Program:
    from akx.backends.registry import get

    return get(plan.backend, plan.schedule).prepare(matrix, plan)


def _result(matrix: Matrix, k: int) -> NDArray[Any]:
    return np.zeros((k + 1, 1, matrix.n), dtype=matrix.dtype)


def _start_vector(matrix: Matrix) -> NDArray[Any]:
    """Random signs over sqrt(n): a unit vector with every entry the same size, far from denormals."""
    signs = np.random.default_rng(0).integers(0, 2, matrix.n) * 2 - 1
    vector: NDArray[Any] = (signs / np.sqrt(matrix.n)).astype(matrix.dtype)
    return vector


def _stored_error(matrix: Matrix, program: Program, plan: Plan) -> float:
    """The largest relative error of a stored value: that of the plan, or of its program where that is less."""
    from akx.backends.registry import get, stored_error
    from akx.backends.selection import device_of

    planned = stored_error(get(plan.backend, plan.schedule), plan, matrix, device_of(plan.backend))
    return min(planned, program.stored_error)


def _verify(
    matrix: Matrix, program: Program, x: NDArray[Any], coefficients: Coefficients, plan: Plan, stored_error: float
) -> float:
    from akx.backends import reference

    out = _result(matrix, coefficients.a.size)
    program.run(x[None, :], out, coefficients)
    error = float(reference.error_ratio(matrix, out, x[None, :], coefficients, stored_error=stored_error))
    if not error <= 1:
        raise VerificationError(
            f"plan {plan.label()} gives a wrong result",
            expected="an error within the bound",
            found=f"{error:.3g} times the bound",
            hint="tune again with --retune, and report this",
        )
    return error
