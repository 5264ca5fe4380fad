"""A backend in 150 lines: arrays of NumPy are its device memory, its one schedule does plain products.

What a new backend has to bring, and no more: a device, figures, vectors for solvers, and a `sweep`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from akx.backends import registry
from akx.backends.base import Backend, TrialVectors
from akx.backends.cpu.vectors.team_vectors import VectorWork
from akx.backends.device import Device
from akx.backends.schedule import Coefficients, Parameter, Program, Schedule, Traffic, check_feasible
from akx.core.matrix import Matrix
from akx.core.options import Options
from akx.core.plan import Plan
from akx.cost.device_model import Figures

VARIANTS, _PLAIN = ("csr", "csc"), type("Plain", (Options,), {"is_plain": True})


@dataclass(frozen=True)
class FakeDevice(Device):
    name: str = "NumPy"
    cores: int = 1
    backend: str = "fake"

    @property
    def device_class(self) -> str:
        return f"fake/{self.name}"


class FakeVectors(VectorWork):
    """The host's operations, on copies."""

    backend = "fake"

    def from_host(self, v: Any) -> Any:
        return np.array(v, dtype=self.dtype)

    def to_host(self, v: Any) -> Any:
        return v.copy()


class FakeTrialVectors(TrialVectors):
    """Vectors in its memory, of which the problem's are copies."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self._x, self._out = BACKEND.to_device(problem.x), np.empty_like(problem.out)

    def poison(self) -> None:
        self._out.fill(np.nan)

    def fetch(self) -> None:
        self._problem.out[:] = self._out

    def call(self, program: Any) -> Any:
        return BACKEND.call(program, self._x, self._out, self._problem.coefficients)


class FakeBackend(Backend):
    name = "fake"
    has_own_memory = True
    tuning_seconds = 5.0

    def device(self) -> FakeDevice:
        return FakeDevice()

    def to_device(self, values: Any) -> Any:
        return values.copy()

    def trial_vectors(self, problem: Any, *, hosted: bool = False) -> TrialVectors:
        return TrialVectors(problem) if hosted else FakeTrialVectors(problem)

    def derived_figures(self, device: Any, threads: int) -> Figures:
        return Figures(1e10, 2e10, 4e10, 1e9, 1e-6, 2**20, link_bandwidth=1e10, link_one_way=5e9)

    def measured_figures(self, device: Any, threads: int) -> Figures:
        return self.derived_figures(device, threads)

    def vectors(self, dtype: Any, n: int, threads: int | None) -> FakeVectors:
        return FakeVectors(dtype, 1)


class FakeProgram(Program):
    """k products in the type of the matrix, whose rows and values are in the device's memory."""

    def __init__(self, matrix: Matrix, variant: str) -> None:
        self._given, self._variant = matrix, variant
        self.update_values(matrix.data)

    @property
    def nbytes(self) -> int:
        return int(self._held.data.nbytes + self._held.indices.nbytes + self._held.indptr.nbytes)

    def run(self, x: Any, out: Any, coefficients: Coefficients) -> None:
        out[0] = x
        for j, (a, b, c) in enumerate(zip(coefficients.a, coefficients.b, coefficients.c, strict=True)):
            out[j + 1] = a * (self._held @ out[j].T).T + b * out[j]
            if j:
                out[j + 1] += c * out[j - 1]

    def update_values(self, data: Any) -> None:
        indptr, indices = (part.astype(np.int64) for part in (self._given.indptr, self._given.indices))
        shape = (self._given.n, self._given.n)
        self._held = sp.csr_array((BACKEND.to_device(np.asarray(data)), indices, indptr), shape=shape)
        self._held = self._held.asformat(self._variant)


class FakeSweep(Schedule):
    name, backend, description, options = "sweep", "fake", "plain products by NumPy", _PLAIN

    def space(self, matrix: Matrix, device: Any, k: int) -> tuple[Parameter, ...]:
        return (Parameter("variant", VARIANTS, "csr", "by rows or by columns"),)

    def feasible(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        if plan.variant not in VARIANTS or plan.partitioner != "natural" or plan.k_per_pass != 1:
            return "plain products by rows or columns in natural order, and nothing else"
        return None

    def traffic(self, plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        vectors = 3.0 * plan.k * matrix.n * matrix.dtype.itemsize
        return Traffic(float(plan.k * matrix.nnz * 16), vectors, 2.0 * plan.k * matrix.nnz)

    def prepare(self, matrix: Matrix, plan: Plan) -> FakeProgram:
        check_feasible(self, plan, matrix, BACKEND.device())
        return FakeProgram(matrix, plan.variant)


BACKEND, SWEEP = FakeBackend(), FakeSweep()


@contextmanager
def registered() -> Iterator[None]:
    """The backend is there within."""
    registry.register(BACKEND)
    registry.register(SWEEP)
    try:
        yield
    finally:
        registry.unregister(SWEEP)
        registry.unregister(BACKEND)
