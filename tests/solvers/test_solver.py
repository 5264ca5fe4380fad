"""`Solver`: prepared once, right from several threads, and never of other values than it was given."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import fitting, nonsymmetric, relative, rhs, spd

import akx
from akx.core import checksum
from akx.core.errors import ArgumentError, ArgumentTypeError, MatrixError
from akx.operator import freshness
from akx.operator.cache import CACHE
from akx.solvers import SOLVERS, Solver, auto, cg, solve, solver_pair, symmetry
from akx.solvers.preconditioners import jacobi


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to prepare: operators that are made, and values that are laid out anew."""
    done: list[str] = []

    def noted(word: str, function: Any) -> Any:
        return lambda *given, **named: done.append(word) or function(*given, **named)

    monkeypatch.setattr(akx.MatrixPowers, "__init__", noted("make", akx.MatrixPowers.__init__))
    monkeypatch.setattr(akx.MatrixPowers, "update_values", noted("update", akx.MatrixPowers.update_values))
    monkeypatch.setattr(akx.Matrix, "with_values", noted("values", akx.Matrix.with_values))
    monkeypatch.setattr(checksum, "checksums", noted("read", checksum.checksums))
    monkeypatch.setattr(symmetry, "_is_so", noted("symmetry", symmetry._is_so))
    return done


METHODS = ["auto", *SOLVERS]


@pytest.mark.parametrize("method", METHODS)
def test_gives_what_the_function_gives_and_prepares_nothing_after_it_is_made(method: str, work: list[str]) -> None:
    A, b = fitting(method), rhs(300)
    solver = Solver(A, method)
    assert "make" in work
    work.clear()
    x, info, stats = solver(b, rtol=1e-9, return_stats=True)
    assert work == []
    theirs, _, record = solve(A, b, method=method, rtol=1e-9, return_stats=True)
    assert info == 0
    assert np.array_equal(x, theirs)
    assert (stats.method, stats.iterations, stats.residuals) == (record.method, record.iterations, record.residuals)
    again = solver(b, rtol=1e-9)
    assert len(again) == 2
    assert np.array_equal(again[0], x)


@pytest.mark.parametrize("M", ["jacobi", "spai"])
@pytest.mark.parametrize("method", METHODS)
def test_a_preconditioner_by_name_is_made_anew_of_new_values(method: str, M: str, work: list[str]) -> None:
    A, b = fitting(method), rhs(300)
    solver = Solver(A, method, M)
    work.clear()
    x, info = solver(b, rtol=1e-9)
    assert (info, work) == (0, [])
    assert relative(A, x, b) <= 1e-9
    before = solver.M
    A.data[:] = (2 * A).data
    assert np.array_equal(solver(b, rtol=1e-9)[0], x)  # its own values, until it is told
    solver.update_values(A)
    assert "make" not in work
    assert solver.M is not before
    y, info = solver(b, rtol=1e-9)
    assert info == 0
    assert relative(A, y, b) <= 1e-9


def test_another_preconditioner_stays_until_there_is_another() -> None:
    A, b = spd(), rhs(300)
    M = jacobi(A)
    solver = Solver(A, "cg", M)
    solver.update_values(2 * A)
    assert solver.M is M
    solver.update_values(3 * A, "jacobi")
    assert solver.M is not M
    kept = solver.M
    solver.update_values(A)
    assert solver.M is not kept  # by name from then on
    solver.update_values(A, M)
    assert solver.M is M
    x, info = solver(b, rtol=1e-9)
    assert info == 0
    assert relative(A, x, b) <= 1e-9


def test_a_foreign_preconditioner_is_not_called_before_there_is_a_right_hand_side() -> None:
    called: list[int] = []
    M = sp.linalg.LinearOperator((300, 300), matvec=lambda v: called.append(1) or v, dtype=float)
    solver = Solver(spd(), "cg", M)
    assert not called
    assert solver(rhs(300))[1] == 0
    assert called


@pytest.mark.usefixtures("methods_first")
def test_other_values_may_ask_for_another_method() -> None:
    A, b = spd(), rhs(300)
    solver = Solver(A)
    assert solver(b, return_stats=True)[2].method == "cg"
    skewed = A.copy()
    skewed.data[skewed.indices > np.repeat(np.arange(300), np.diff(skewed.indptr))] *= 0.5
    solver.update_values(skewed)
    x, info, stats = solver(b, rtol=1e-9, return_stats=True)
    assert (info, stats.method) == (0, "bicgstab")
    assert relative(skewed, x, b) <= 1e-9


@pytest.mark.usefixtures("methods_first")
def test_what_was_timed_on_the_way_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(solver_pair, "_SMALL", 1)
    monkeypatch.setattr(auto.Auto, "_known", lambda self, key: asked.append(key[0]) or (2.0, 1.0))
    solver = Solver(spd())
    assert asked == ["cg"]
    for _ in range(2):
        assert solver(rhs(300), return_stats=True)[2].method == "ca_cg"
    assert asked == ["cg"]
    assert repr(solver) == "<Solver 300x300, nnz=1498, float64: auto (ca_cg)>".replace("1498", str(spd().nnz))


@pytest.mark.parametrize("method", ["auto", "ca_cg", "gmres"])
def test_several_threads_call_one_solver(method: str) -> None:
    A = spd()
    solver = Solver(A, method, "jacobi" if method != "gmres" else None)
    sides = [rhs(300) * (i + 1) + np.arange(300) * i for i in range(4)]
    wanted = [solver(b, rtol=1e-9)[0] for b in sides]
    found: list[bool] = []
    start = threading.Barrier(4)

    def run(i: int) -> None:
        start.wait(30)
        found.extend(np.array_equal(solver(sides[i], rtol=1e-9)[0], wanted[i]) for _ in range(5))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 20


def test_a_callback_may_call_the_solver_and_give_it_other_values() -> None:
    A, b = spd(), rhs(300)
    solver, inner = Solver(A, "cg"), []

    def meddle(_: Any) -> None:
        if not inner:
            inner.append(solver(b, rtol=1e-9)[0])
            solver.update_values(3 * A)

    x, info = solver(b, rtol=1e-9, callback=meddle)
    assert info == 0
    assert np.array_equal(x, cg(A, b, rtol=1e-9)[0])
    assert np.array_equal(x, inner[0])
    assert np.array_equal(solver(b, rtol=1e-9)[0], cg(3 * A, b, rtol=1e-9)[0])


def test_it_keeps_its_own_whatever_others_do_and_frees_it(work: list[str]) -> None:
    b = rhs(300)
    solver = Solver(spd(), "ca_cg")
    for _ in range(12):
        cg(spd(), b)
    akx.clear_cache()
    work.clear()
    assert solver(b)[1] == 0
    assert work == []
    assert CACHE.entries == {}
    assert solver.nbytes > spd().data.nbytes
    gc.collect()
    gc.disable()
    try:
        operator = weakref.ref(next(iter(solver._cache.entries.values())).operator)
        assert operator() is not None
        del solver
        assert operator() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_right_hand_sides_of_other_types(dtype: Any, work: list[str]) -> None:
    A, b = nonsymmetric(), rhs(300).astype(dtype)
    solver = Solver(A.astype(np.float32), "gmres")
    x, info = solver(b, rtol=1e-4)
    assert info == 0
    assert x.dtype == dtype
    work.clear()
    assert np.array_equal(solver(b, rtol=1e-4)[0], x)
    assert work == []


def test_an_answer_keeps_no_vectors_of_the_solver(solver: Any, name: str) -> None:
    A, b = fitting(name), rhs(300)
    for right in (b, b[:, None]):
        x, _ = solver(A, right)
        assert x.base is None or x.base.nbytes == b.nbytes


@pytest.mark.usefixtures("methods_first")
@pytest.mark.parametrize(("how", "most"), [("Solver", 110), ("auto", 170), ("Matrix", 115), ("array", 145)])
def test_a_second_call_does_little_beside_its_steps(how: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the calls of Python outside of the steps, which no busy machine changes; some 40 us at 0.3 us each."""
    monkeypatch.setattr(freshness, "GLANCE", 60.0)  # no look at the file of plans falls in it
    A, b = spd(), rhs(300)
    if how in ("Solver", "auto"):
        call: Any = Solver(A, "cg" if how == "Solver" else "auto")
    else:
        given = akx.Matrix.from_any(A) if how == "Matrix" else A
        call = lambda b, **options: cg(given, b, **options)  # noqa: E731
    *_, stats = call(b, return_stats=True)
    count, depth = 0, 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal count, depth
        if event == "call" and (depth or frame.f_code.co_qualname == "Steps.step"):
            depth += 1
        elif event == "call":
            count += 1
        elif event == "return" and depth:
            depth -= 1

    sys.setprofile(profile)
    try:
        call(b)
    finally:
        sys.setprofile(None)
    count -= (how == "auto") * stats.iterations  # whether it is to be left for a rung of the ladder
    assert count - 2 * stats.iterations < most  # each step asks whether it is to be the last, and says that it is there


def test_what_it_refuses() -> None:
    A = spd()
    with pytest.raises(ArgumentError, match="unknown method"):
        Solver(A, "lsqr")
    with pytest.raises(ArgumentTypeError, match="unknown method"):
        Solver(A, cg)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="unknown preconditioner"):
        Solver(A, M="ilu")
    with pytest.raises(ArgumentError, match=r"cg has no restart, .* it is for gmres, ca_gmres"):
        Solver(A, "cg", restart=20)
    with pytest.raises(MatrixError, match="M does not fit A"):
        Solver(A, "cg", np.eye(3))
    with pytest.raises(MatrixError, match="M does not fit A"):
        Solver(A, "ca_cg", np.eye(3))
    with pytest.raises(ArgumentError, match="s is out of range"):
        Solver(A, "ca_cg", s=99)
    solver = Solver(A)
    with pytest.raises(MatrixError, match="another pattern"):
        solver.update_values(A[:299, :299])
    with pytest.raises(MatrixError, match="another pattern"):
        solver.update_values(sp.eye_array(300, format="csr"))
    with pytest.raises(ArgumentError, match="b does not fit"):
        solver(np.ones(3))
    assert solver(rhs(300))[1] == 0


def test_products_of_a_solver_may_be_tuned_as_they_are_made() -> None:
    A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(60, 60), format="csr")
    solver = Solver(A, method="cg", threads=1, tune="online")
    for factor in (1.0, 2.0):
        solver.update_values(factor * A)
        for _ in range(4):
            x, info = solver(np.ones(60), rtol=1e-10)
            assert info == 0
            assert np.linalg.norm(factor * (A @ x) - 1.0) < 1e-8
    operators = [entry.operator for entry in solver._cache.entries.values()]
    tuned = [one for operator in operators for one in operator._prepared.online.values()]
    assert tuned
    assert all(one.budget.total > 0 for one in tuned)
    assert pickle.loads(pickle.dumps(solver))._cache.tune == "online"
    with pytest.raises(ArgumentError, match="recorded with its own work"):
        Solver(A, tune="online", backend="cuda")


def test_a_choice_that_another_thread_forgets_is_known_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgets(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            """As cleared at once."""

    monkeypatch.setattr(solver_pair, "_chosen", Forgets())
    monkeypatch.setattr(solver_pair, "known_pair", lambda *_: (1.0, 2.0))
    options = {"M": None, "threads": None, "db": None, "backend": "cpu"}
    special = {"s": 4, "basis": "auto", "restart": None}
    pair = solver_pair.SolverPair(akx.Matrix.from_any(spd()), None, None, options, special, {})
    assert pair._known(pair._key("cg")) == (1.0, 2.0)


def test_it_shows_itself_while_another_thread_settles_a_choice() -> None:
    solver = Solver(spd(), "cg")

    class Adds(tuple[Any, ...]):
        def __iter__(self) -> Any:
            solver._settled["gmres", solver.dtype, "cpu"] = ("gmres", "", None)
            return super().__iter__()

    solver._settled["cg", solver.dtype, "cpu"] = Adds(("cg", "", None))  # type: ignore[assignment]
    assert repr(solver).endswith("cg (cg)>")


def test_threads_out_of_range_are_refused_where_none_are_needed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AKX_PREPARE")
    for method in ("auto", "cg", "gmres", "bicgstab", "ca_gmres"):
        with pytest.raises(ArgumentError, match="threads is out of range"):
            Solver(spd(300), method, threads=0)
