"""akx: the Krylov basis [p_0(A)x, ..., p_k(A)x] of a sparse matrix for much less than the price of k products.

>>> import akx
>>> A = akx.read_matrix("matrix.mtx")
>>> V = akx.matrix_powers(A, x, k=8)  # (n, 9), column j is p_j(A)x  # doctest: +SKIP

The public names below are imported on first use, so that ``import akx`` stays cheap: it loads neither NumPy nor
Numba nor the tuner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akx.backends.selection import memory_pool
    from akx.core.basis import Basis, chebyshev, monomial, newton
    from akx.core.errors import (
        AkxError,
        AkxWarning,
        ArgumentError,
        ArgumentTypeError,
        BudgetError,
        CapturingError,
        CompileError,
        DatabaseError,
        DeviceError,
        DeviceMemoryError,
        ExportError,
        FileFormatError,
        FileMissingError,
        IllegalAddressError,
        InfeasibleError,
        LaunchError,
        MatrixError,
        MissingDependencyError,
        PlanError,
        VerificationError,
    )
    from akx.core.io import read_matrix
    from akx.core.matrix import Matrix
    from akx.core.plan import Plan
    from akx.core.progress import progress
    from akx.core.spectrum import estimate_spectrum
    from akx.operator import MatrixPowers, clear_cache, matrix_powers
    from akx.plandb import PlanDatabase
    from akx.tuner import tune

__version__ = "0.1.0"

__all__ = [
    "AkxError",
    "AkxWarning",
    "ArgumentError",
    "ArgumentTypeError",
    "Basis",
    "BudgetError",
    "CapturingError",
    "CompileError",
    "DatabaseError",
    "DeviceError",
    "DeviceMemoryError",
    "ExportError",
    "FileFormatError",
    "FileMissingError",
    "IllegalAddressError",
    "InfeasibleError",
    "LaunchError",
    "Matrix",
    "MatrixError",
    "MatrixPowers",
    "MissingDependencyError",
    "Plan",
    "PlanDatabase",
    "PlanError",
    "VerificationError",
    "__version__",
    "chebyshev",
    "clear_cache",
    "estimate_spectrum",
    "matrix_powers",
    "memory_pool",
    "monomial",
    "newton",
    "progress",
    "read_matrix",
    "tune",
]

_HOMES = {
    **dict.fromkeys(("Basis", "chebyshev", "monomial", "newton"), "akx.core.basis"),
    "MatrixPowers": "akx.operator.powers",
    "clear_cache": "akx.operator.cache",
    "matrix_powers": "akx.operator.call",
    "Matrix": "akx.core.matrix",
    "Plan": "akx.core.plan",
    "PlanDatabase": "akx.plandb",
    "estimate_spectrum": "akx.core.spectrum",
    "memory_pool": "akx.backends.selection",
    "progress": "akx.core.progress",
    "read_matrix": "akx.core.io",
    "tune": "akx.tuner",
}


def __getattr__(name: str) -> Any:
    if name in ("krylov", "solvers"):
        return import_module(f"akx.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'akx' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "akx.core.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
