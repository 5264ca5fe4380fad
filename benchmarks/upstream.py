"""SciPy's and PyAMG's own tests of Krylov solvers, run with akx's functions in place of theirs.

    python -m benchmarks.upstream                                  both families, the suites that are installed
    python -m benchmarks.upstream --family ca --suite scipy -- -x  one of them; what is behind -- goes to pytest

The tests are those of the installed packages: ``scipy.sparse.linalg._isolve.tests.test_iterative`` and
``pyamg.krylov.tests``. Before a module of tests is imported, the names `cg`, `gmres` and `bicgstab` are given akx's
functions: of the family ``classic``, or of ``ca``, the communication-avoiding one. Tests of solvers that akx does not
have are left out. What does not apply is in :data:`NOT_OURS` with its reason; it is run too and has to fail, so that
the list stays true.

This module is also the plugin of pytest that does so, in a process for each family and suite.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import wraps
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from akx.solvers import SOLVERS

__all__ = ["FAMILIES", "NOT_OURS", "SUITES", "is_installed", "main"]

#: akx's function for each name.
FAMILIES: dict[str, dict[str, str]] = {
    "classic": {name: name for name in ("cg", "gmres", "bicgstab")},
    "ca": {name: f"ca_{name}" for name in ("cg", "gmres", "bicgstab")},
}
SUITES = {"scipy": "scipy.sparse.linalg._isolve.tests.test_iterative", "pyamg": "pyamg.krylov.tests"}
#: Tests of solvers that akx does not have, where no parameter says so.
_OF_OTHERS = ("TestQMR", "test_show", "TestSimpleIterations")
_ROUNDING = "expects a zero of a sum of numbers of size 1 to the last bit; akx may leave 2e-30"
#: Families and tests that do not apply, and why.
NOT_OURS: tuple[tuple[str, str, str], ...] = (
    ("both", "test_precond_inverse[*]", "A is an operator without entries, which akx refuses: it has nothing to block"),
    ("both", "test_convergence[sym-nonpd-*bicgstab]", "expects a breakdown; akx begins again and solves the system"),
    ("both", "TestGMRES::test_callback", "expects M's residual, of M from the left; akx's M is from the right"),
    ("both", "TestGMRES::test_callback_x_monotonic", "expects cycles in info, where akx counts steps; docs/gmres.md"),
    ("ca", "TestScipy::test_gmres", "expects a callback for each step, not one for each pass over the matrix"),
    ("both", "TestGMRES::test_defective_precond_breakdown", _ROUNDING),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.upstream", description=__doc__.split("\n\n")[0])
    parser.add_argument("--family", choices=list(FAMILIES), help="default: both")
    parser.add_argument("--suite", choices=list(SUITES), help="default: all that are installed")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, behind --")
    args = parser.parse_args(argv)
    worst = 0
    for suite in [args.suite] if args.suite else SUITES:
        if not is_installed(suite):
            print(f"the tests of {suite} are not installed, and left out", file=sys.stderr)
            continue
        for family in [args.family] if args.family else FAMILIES:
            print(f"akx's {family} solvers by the tests of {suite}", flush=True)
            own = ["-p", "benchmarks.upstream", f"--akx-family={family}", f"--akx-suite={suite}", "-q"]
            own += ["-p", "no:cacheprovider", "-c", os.devnull, "--pyargs", SUITES[suite]]  # no settings of akx's own
            worst = max(worst, subprocess.run([sys.executable, "-m", "pytest", *own, *args.pytest]).returncode)
    return worst


def is_installed(suite: str) -> bool:
    """Whether a package is there with its tests, which some distributions leave out."""
    try:
        return find_spec(SUITES[suite]) is not None
    except ModuleNotFoundError:
        return False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--akx-family", choices=list(FAMILIES), default="classic")
    parser.addoption("--akx-suite", choices=list(SUITES), default="scipy")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fail_slow: of SciPy's own runs")
    ours = {name: SOLVERS[own] for name, own in FAMILIES[config.getoption("--akx-family")].items()}
    if config.getoption("--akx-suite") == "scipy":
        _give("scipy.sparse.linalg._isolve", {name: _as_in_scipy(solver) for name, solver in ours.items()})
        return
    _give("pyamg.krylov", {name: _as_in_pyamg(solver) for name, solver in ours.items()})
    _give("pyamg.krylov._gmres_mgs", {"gmres_mgs": _as_in_pyamg(ours["gmres"])})
    _give("scipy.sparse.linalg", {"gmres": _as_in_scipy(ours["gmres"])})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    family = config.getoption("--akx-family")
    ours = {inspect.unwrap(SOLVERS[own]) for own in FAMILIES[family].values()}
    others = [item for item in items if not _concerns(item, ours)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
    for item in items:
        if hasattr(item.module, "_SOLVERS"):  # what a test of all solvers goes through
            item.module._SOLVERS = [solver for solver in item.module._SOLVERS if inspect.unwrap(solver) in ours]
        for of, test, why in NOT_OURS:
            if of in (family, "both") and fnmatchcase(item.nodeid.partition("::")[2], test.replace("[", "[[]")):
                item.add_marker(pytest.mark.xfail(reason=why, strict=why != _ROUNDING))


def _give(module: str, names: dict[str, Callable[..., Any]]) -> None:
    for name, function in names.items():
        setattr(importlib.import_module(module), name, function)


def _concerns(item: pytest.Item, ours: set[Callable[..., Any]]) -> bool:
    """Whether a test is of a solver that akx has: by its parameters, or by what it is known for."""
    params = getattr(item, "callspec", None)
    for value in params.params.values() if params else ():
        solver = getattr(value, "solver", value)
        if callable(solver):
            return inspect.unwrap(solver) in ours
    return not any(part in item.nodeid for part in _OF_OTHERS)


def _as_in_scipy(solver: Callable[..., Any]) -> Callable[..., Any]:
    """A solver that is given a sparse A, as akx asks for, of what is dense or SciPy's operator of a matrix.

    GMRES with a callback of no type has SciPy's type for it and its warning, which says that it will change.
    """

    @wraps(solver)
    def solve(A: Any, *args: Any, **options: Any) -> Any:
        if hasattr(A, "psolve") and options.get("M") is None:  # as in SciPy
            options["M"] = LinearOperator(A.shape, A.psolve, dtype=A.dtype)
        if "gmres" in solver.__name__ and options.get("callback") and options.get("callback_type") is None:
            warnings.warn("called without specifying `callback_type`", DeprecationWarning, stacklevel=2)
            options["callback_type"] = None
        A = A.A if isinstance(A, type(aslinearoperator(np.eye(1)))) else A
        return solver(csr_array(A) if isinstance(A, np.ndarray) else A, *args, **options)

    return solve


def _as_in_pyamg(solver: Callable[..., Any]) -> Callable[..., Any]:
    """A solver with the arguments of PyAMG's: `tol` of ||b||, the residuals in a list, a GMRES of one cycle."""

    @wraps(solver)
    def solve(
        A: Any,
        b: Any,
        x0: Any = None,
        tol: float = 1e-5,
        restart: int | None = None,
        maxiter: int | None = None,
        residuals: list[float] | None = None,
        criteria: str = "rr",  # akx has this one; the tests ask of all of them what it asks for
        **options: Any,
    ) -> tuple[Any, int]:
        if "gmres" in solver.__name__:
            whole = restart is None and maxiter is not None  # in PyAMG the steps of one cycle
            options |= {"restart": maxiter, "maxiter": 1} if whole else {"restart": restart, "maxiter": maxiter}
        else:
            options["maxiter"] = maxiter
        x, info, stats = _as_in_scipy(solver)(A, b, x0, rtol=tol, return_stats=True, **options)
        if residuals is not None:
            residuals[:] = stats.residuals[:-1]  # the last one is the true residual of the last but one
        return x.ravel(), info  # (n,) in any case, as in SciPy

    return solve


if __name__ == "__main__":
    sys.exit(main())
