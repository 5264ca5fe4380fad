"""Attainable accuracy of ca_cg, and what polynomials save: figures of small systems, and tables from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.solvers import ca_cg_solve
from benchmarks import accuracy, markdown, polynomials

DOCS = Path(accuracy.__file__).resolve().parents[1] / "docs"


def graded(n: int = 200) -> sp.csr_array:
    return sp.csr_array(sp.diags_array(np.logspace(0, 4, n)))


def test_the_gap_is_that_of_the_recurrence_and_the_residual_ends_at_it() -> None:
    A = graded()
    b = accuracy.right(A, "A 1")
    found = accuracy.measure(A, b, 4, "newton")
    assert 0 < found["gap"] < 1e-9
    assert found["true"] <= 1.01 * found["gap"]
    assert found["passes"] < found["steps"]
    before = ca_cg_solve.Blocks.__init__, ca_cg_solve.Blocks._replace
    kept = accuracy.measure(A, b, 4, "newton", replaced=False)
    assert not kept["replaced"]
    assert (ca_cg_solve.Blocks.__init__, ca_cg_solve.Blocks._replace) == before


def test_a_residual_that_is_not_replaced_is_further_off(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ca_cg_solve.Blocks._advance

    def wrong(self: Any, found: Any, C: Any) -> None:  # x is off by 1e-6 of what it moves
        real(self, found, C)
        self.V[3] += 1e-6 * found.lengths[0] * self.W[self.s - 1]

    monkeypatch.setattr(ca_cg_solve.Blocks, "_advance", wrong)

    def told(self: Any, *_: float) -> bool:
        self.drift = 1.0
        return True

    monkeypatch.setattr(ca_cg_solve.Blocks, "_has_drifted", told)
    A = graded()
    b = accuracy.right(A, "random")
    replaced, kept = (accuracy.measure(A, b, 4, "chebyshev", replaced=one) for one in (True, False))
    assert kept["gap"] > 1e-8
    assert replaced["true"] < 0.1 * kept["true"]


def test_tables_have_all_that_was_measured() -> None:
    machine = {"processor": "a processor", "threads": 1}
    one = {"steps": 9, "passes": 4, "gap": 2e-15, "true": 1e-15}
    solves = [{"b": kind, "s": 1, "basis": "monomial", "replaced": False, **one} for kind in accuracy.RIGHT]
    solves.append({"b": "1", "s": 8, "basis": "newton", "replaced": True, **one, "gap": 3e-12})
    entry = {"matrix": "it", "scaled": True, "solves": solves, "commit": "c", "date": "2026-01-01"}
    text = accuracy.table({"machine": machine, "accuracy": [entry]})
    assert "| it, scaled | 1 | newton | 2e-15 / 1e-15 |  |  | 3e-12 / 1e-15 |  |  |" in text
    assert text.count("| it, scaled |") == 2 * 9


def test_a_polynomial_is_compared_with_none() -> None:
    entry = polynomials.compare("it", graded(60) / 1e4)
    assert entry["by"]["8"]["steps"] < entry["by"]["2"]["steps"] < entry["steps"]
    assert entry["by"]["8"]["products"] >= 8 * entry["by"]["8"]["steps"]
    origin = {"commit": "c", "date": "2026-01-01"}
    text = polynomials.table({"machine": {"processor": "p", "threads": 1}, "polynomials": [entry | origin]})
    assert f"| it | 60 | {entry['steps']} |" in text


@pytest.mark.parametrize(("module", "page"), [(accuracy, "parity.md"), (polynomials, "preconditioners.md")])
def test_pages_say_what_the_files_do(module: Any, page: str) -> None:
    if not module._RESULTS.exists():
        pytest.skip("not measured yet")
    name = module._RESULTS.stem
    text = (DOCS / page).read_text()
    assert text == markdown.replace_block(text, name, module.table(json.loads(module._RESULTS.read_text())))
