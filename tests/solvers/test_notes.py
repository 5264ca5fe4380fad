"""What ``solve`` says: what A is, what was tried, how it ended, in three lines whatever happens."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import nonsymmetric, rhs, spd
from solvers.test_equilibration import uneven
from solvers.test_ladder import chain, grid, saddle

from akx.solvers import Solver, ladder, solve
from akx.solvers.preconditioners import jacobi


def neumann(n: int) -> Any:
    """Singular: it sends constants to zero."""
    A = chain(n).tolil()
    A[0, 0] = A[-1, -1] = 1
    return sp.csr_array(A)


def cyclic(n: int) -> Any:
    return sp.csr_array(np.roll(np.eye(n), 1, axis=1) + 1e-3 * np.eye(n))


def bands(n: int, values: list[float], first: int = -1) -> Any:
    return sp.csr_array(sp.diags_array(values, offsets=range(first, first + len(values)), shape=(n, n)))


SYSTEMS: dict[str, Any] = {
    "spd": lambda: spd(300),
    "grid": lambda: grid(60),
    "complex": lambda: spd(300, complex),
    "single": lambda: spd(300, np.float32),
    "uneven": lambda: uneven(spd(300)),
    "uneven, other": lambda: uneven(nonsymmetric(300), other=True),
    "indefinite": lambda: sp.csr_array(grid(40) - 0.5 * sp.eye_array(1600)),
    "negative": lambda: sp.csr_array(-grid(40)),
    "saddle": saddle,
    "nonsymmetric": lambda: nonsymmetric(2500),
    "grcar": lambda: bands(800, [-1.0, 1, 1, 1, 1]),
    "skew": lambda: bands(200, [-1.0, 0.3, 1.0]),
    "complex skew": lambda: sp.csr_array((1 + 1j) * bands(200, [-1.0, 0.0, 1.0])),
    "cyclic": lambda: cyclic(300),
    "singular": lambda: neumann(400),
    "empty": lambda: sp.csr_array((7, 7)),
    "one": lambda: sp.csr_array([[2.0]]),
}


def said(*given: Any, **options: Any) -> tuple[list[str], int]:
    _, info, stats = solve(*given, return_stats=True, **options)  # type: ignore[misc]
    for note in stats.notes:
        assert len(note) <= 130 or " / 2^" in note, note
    return stats.notes, info


@pytest.mark.parametrize("first", ["factors", "a method"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_no_solve_says_more_than_three_lines(name: str, first: str, request: pytest.FixtureRequest) -> None:
    if first == "a method":
        request.getfixturevalue("methods_first")
    A = SYSTEMS[name]()
    b = rhs(A.shape[0], A.dtype)
    M = sp.eye_array(A.shape[0])
    for options in ({"rtol": 1e-8}, {"rtol": 1e-8}, {"rtol": 1e-13, "maxiter": 3}, {"M": M, "maxiter": 90}):
        notes, info = said(A, b, **options)
        assert len(notes) == 3, notes
        assert notes[0].startswith("A is ")
        assert ("; scaled " in notes[0]) <= name.startswith(("uneven", "saddle"))
        assert re.match(r"(no )?[a-z_]+( |$)", notes[1])
        assert not re.search(r"direct 0 steps|no [a-z]+(;|$)", notes[1])
        singular = "not solved: A is singular, no x has a residual below "
        assert notes[2].startswith("solved by " if info == 0 else singular if info == -2 else "not solved: ")


def test_it_says_what_was_tried_in_turn_and_why_each_was_left() -> None:
    A = grid(60)
    notes, _ = said(A, rhs(3600), rtol=1e-10)
    assert notes[0] == "A is Hermitian with a positive diagonal"
    assert re.fullmatch(r"cg \d+ steps \(about \d+ to go against \d+ by direct\); direct 1 step", notes[1])
    assert notes[2] == "solved by direct; kept for the next solve with this matrix"
    notes, _ = said(A, rhs(3600), rtol=1e-10)
    assert notes[1:] == ["direct 1 step", "solved by direct, as before; kept for the next solve with this matrix"]


@pytest.mark.usefixtures("methods_first")
def test_reasons_of_what_was_tried_first_go_where_the_line_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rung: str, *_: Any, **__: Any) -> str:
        return f"this {rung} is no good for a reason that takes many words"

    monkeypatch.setattr("akx.solvers.auto.make_rung", fail)
    monkeypatch.setattr(ladder.Ladder, "cost", lambda self, rung: 1.0)
    notes, info = said(nonsymmetric(300), rhs(300), rtol=1e-12)
    assert info == 0
    assert notes[1].count("no good") == 1
    assert notes[1].startswith("bicgstab 8 steps; no direct (this direct is no good ")


@pytest.mark.usefixtures("methods_first")
def test_what_there_is_not_has_a_reason_or_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akx.solvers.auto.make_rung", lambda rung, *_, **__: f"{rung} has too many entries")
    monkeypatch.setattr("akx.solvers.auto._LONG", 60)
    monkeypatch.setattr(ladder.Ladder, "cost", lambda self, rung: 1.0)
    notes, _ = said(cyclic(300), rhs(300), rtol=1e-12)
    assert notes[1].startswith("bicgstab 8 steps; bicgstab ")
    assert "no direct" not in notes[1]


def test_factors_that_solve_nothing_say_so_in_parts_of_b() -> None:
    D = sp.diags_array(10.0 ** np.linspace(-2, 2, 400))
    A = sp.csr_array(D @ np.roll(np.eye(400), 1, axis=1) @ D @ D + sp.eye_array(400, k=3)).tolil()
    A.setdiag(0)
    text = "; ".join(said(sp.csr_array(A), b, rtol=1e-8, maxiter=30)[0][1] for b in (rhs(400), 1e3 * rhs(400)))
    left = re.findall(r"direct \(refinement by the factors leaves a residual of (\S+) \|\|b\|\|\)", text)
    assert len(left) == 2
    assert left[0] == left[1]


def test_one_column_of_mixed_precision_says_no_more() -> None:
    A = grid(60)
    for options in ({}, {"M": sp.eye_array(3600)}):
        notes, _ = said(A, rhs(3600), rtol=1e-10, precision="mixed", **options)
        assert notes[0].endswith("; solved in float64, as caches hold all that a step reads")
        assert notes[2].startswith("solved by ")
        assert len(notes) == 3


@pytest.mark.usefixtures("methods_first")
def test_what_a_user_has_to_know_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    A, b = spd(300), rhs(300)
    notes, _ = said(1e200 * A, b, rtol=1e-8)
    assert "; solved for A / 2^" in notes[2]
    lacking = nonsymmetric(300).tolil()
    lacking[7, 7] = 0
    M = jacobi(sp.csr_array(lacking))
    assert f"; {M.notes[0]}" in said(sp.csr_array(lacking), b, M=M)[0][0]
    notes, _ = said(cyclic(300), rhs(300), rtol=1e-8, maxiter=90, M=sp.eye_array(300))
    assert re.match("not solved: .*; x had blown up to a residual of .*: the best one before is taken", notes[2])
    monkeypatch.setattr(ladder.Ladder, "next_for", lambda *_: None)
    assert said(cyclic(200), rhs(200), rtol=1e-8, maxiter=260)[0][2].endswith("; x is that of gmres")


@pytest.mark.parametrize("make", [grid, lambda n: nonsymmetric(n * n)])
def test_several_columns_say_no_more(make: Any) -> None:
    A, B = make(30), np.random.default_rng(0).standard_normal((900, 4))
    for notes in (said(A, B, rtol=1e-8)[0], Solver(A)(B, rtol=1e-8, return_stats=True)[2].notes):
        assert len(notes) <= 4
