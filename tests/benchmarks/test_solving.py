"""The benchmarks of solvers: entries that say what happened, tables from them, solvers that may be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.core.errors import ArgumentError
from akx.solvers.preconditioners import jacobi
from akx.solvers.stats import SolveStats
from benchmarks import parity, solving

RESULTS = Path(solving.__file__).resolve().parent / "results"


def system(n: int = 60) -> sp.csr_array:
    return sp.csr_array(sp.diags_array([-1.0, 2.5, -1.2], offsets=[-1, 0, 1], shape=(n, n)))


def fake(iterations: int, *, honest: bool = True, takes_m: bool = True) -> Any:
    """A solver of akx's kind that solves directly."""

    def solve(A: Any, b: Any, *, M: Any = None, return_stats: bool, **options: Any) -> Any:
        if M is not None and not takes_m:
            raise ArgumentError("no M here")
        matrix = A.to_scipy() if isinstance(A, akx.Matrix) else A
        x = np.linalg.solve(matrix.toarray(), b) if honest else np.zeros_like(b)
        steps = iterations * (options.get("s") or 1)
        record = SolveStats(method="fake", iterations=steps, reason="direct", s=[4, 4, 2], matrix_passes=iterations)
        return x, 0, record

    return solve


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    solvers: dict[str, Any] = {}
    monkeypatch.setattr(akx.solvers, "SOLVERS", solvers, raising=False)
    return solvers


def test_scipys_solver_stands_in_and_a_missing_one_is_none(own: dict[str, Any]) -> None:
    A, b = system(), np.ones(60)
    for name in ("gmres", "bicgstab"):
        found = solving.run(name, A, b, rtol=1e-8, most=200, M=jacobi(A))
        assert found is not None
        assert (found["by"], found["info"], found["converged"]) == ("SciPy", 0, True)
        assert 0 < found["iterations"] < 60
        assert found["residual"] <= 2e-8
    assert solving.run("ca_gmres", A, b, rtol=1e-8, most=200) is None
    given_up = solving.run("bicgstab", A, b, rtol=1e-12, most=2)
    assert given_up is not None
    assert not given_up["converged"]


def test_own_solvers_come_first_and_are_not_taken_at_their_word(own: dict[str, Any]) -> None:
    A, b = system(), np.ones(60)
    own["cg"] = fake(3)
    found = solving.run("cg", A, b, rtol=1e-8, most=20)
    assert found is not None
    assert (found["by"], found["iterations"], found["converged"], found["s"]) == ("akx", 3, True, {"2": 1, "4": 2})
    own["cg"] = fake(3, honest=False)
    found = solving.run("cg", A, b, rtol=1e-8, most=20)
    assert found is not None
    assert (found["info"], found["converged"]) == (0, False)
    own["ca_cg"] = fake(2, takes_m=False)
    found = solving.run("ca_cg", A, b, rtol=1e-8, most=20, M=jacobi(A), s=4)
    assert found is not None
    assert found["converged"]  # folded in for it
    assert found["iterations"] == 8


def test_indefinite_systems_of_parity() -> None:
    A = parity.load("5-point - 3.7")
    assert (A.shape, A.nnz, abs(A - A.T).max()) == ((2500, 2500), 12_300, 0.0)
    assert set(A.diagonal()) == {4.0 - 3.7}
    assert parity.methods("5-point - 3.7") == ("minres",)
    assert parity.preconditioners("minres") == ("none",)


def test_parity_with_solvers_missing_failing_and_present(own: dict[str, Any], tmp_path: Path) -> None:
    own |= {"ca_bicgstab": fake(10), "ca_gmres": fake(10, honest=False), "gmres": fake(50)}
    entries = [parity.compare("sherman5", system(), method, "none", most=500) for method in ("gmres", "bicgstab")]
    assert entries[0]["ratio"] == {}
    own["bicgstab"] = fake(40)
    entries.append(parity.compare("wang4", system(), "bicgstab", "jacobi"))
    assert entries[2]["ratio"] == {"4": 1.0, "8": 2.0}
    own.pop("ca_gmres")
    entries.append(parity.compare("wang4", system(), "gmres", "jacobi"))
    assert entries[3]["ca"] == {}
    stamped = [{**entry, "commit": "c" * 40, "date": "2026-01-01"} for entry in entries]
    document = {"machine": {"processor": "P", "threads": 2}, "parity": stamped}
    text = parity.table(document)
    assert "`ca_gmres` converges in 0, and takes at most 10% more steps in 0" in text
    assert "| wang4 | jacobi | 40 | 40 | 1.00 | 4.0 | 80 | 2.00 | 8.0 | 1.00 | 2.00 | 1.00 |" in text
    assert entries[2]["draws"]["ca"] == {"4": 9 * [40], "8": 9 * [80]}
    assert "9 right-hand sides for each system:" in text
    assert "`ca_bicgstab`, s = 8: at most 10% more steps for 0 of 18 right-hand sides, the worst" in text
    assert "beside itself, b changed by eps: at most 10% more steps for 18 of 18" in text


def test_real_matrices_by_name(shared_matrices: Path) -> None:
    assert solving.load("662_bus").shape == (662, 662)
    assert solving.load("epb0").nnz == 7764
    with pytest.raises(FileNotFoundError):
        solving.load("bcsstk")


def test_the_page_shows_the_file() -> None:
    stored = json.loads((RESULTS / "parity.json").read_text())
    assert parity.table(stored) in (RESULTS.parents[1] / "docs" / "parity.md").read_text()
