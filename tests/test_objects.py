"""Python's object protocols for everything public: copies are independent, and pickles mean the same elsewhere."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx import solvers
from akx.backends import selection as choose
from akx.operator.planner import Planner
from akx.solvers import preconditioners
from akx.solvers.tuning import Candidate
from akx.tuner import plan_key

_N = 40
_A = sp.diags_array([-1.0, 2.5, -1.2], offsets=[-1, 0, 1], shape=(_N, _N), format="csr")
_x = np.linspace(-1.0, 1.0, _N)
_PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (akx, solvers, preconditioners)
    for name in module.__all__
}
_WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "oldest pickle": lambda value: pickle.loads(pickle.dumps(value, protocol=2)),
}


def _plain(value: Any) -> Any:
    """What an object says of itself, for a comparison."""
    if isinstance(value, np.ndarray):
        return (value.tolist(), value.dtype.str, value.flags.writeable)
    if isinstance(value, akx.Matrix):
        return [_plain(array) for array in (value.indptr, value.indices, value.data)] + [value.value_error]
    if isinstance(value, akx.MatrixPowers):
        return _plain(value(_x)), value.plan, value.basis, value.k
    if isinstance(value, solvers.Solver):
        return _plain(value(_x)[0]), repr(value)
    if isinstance(value, akx.PlanDatabase):
        return value.path, value.list()
    if isinstance(value, preconditioners.Preconditioner):
        kept = {name: one for name, one in vars(value).items() if not name.startswith("_")}
        return _plain(value @ _x), {name: _plain(one) for name, one in kept.items() if name != "M"}
    if isinstance(value, akx.AkxError | Warning):
        return str(value), vars(value)
    return value


class _Scaled(preconditioners.Preconditioner):
    """One of a user's own."""

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * x.reshape(-1))


_CANDIDATE = Candidate(2, 1e-5, 5e-6, 1.0, akx.Plan("cpu", "sweep", "csr", k=2))


#: An object of each public class that is none of errors.
_OBJECTS: dict[type, Callable[[Path], Any]] = {
    akx.Basis: lambda _: akx.chebyshev(3, interval=(0.5, 4.5)),
    akx.Matrix: lambda _: akx.Matrix.from_any(_A, value_error=1e-7),
    akx.MatrixPowers: lambda _: akx.MatrixPowers(_A, 3, basis="newton", threads=1),
    akx.Plan: lambda _: akx.Plan("cpu", "sweep", "sell16", k=3, options={"sigma": 16}),
    akx.PlanDatabase: lambda folder: akx.PlanDatabase(folder / "plans.sqlite"),
    solvers.SolveStats: lambda _: solvers.ca_cg(_A + _A.T, _x, return_stats=True)[2],
    solvers.Solver: lambda _: solvers.Solver(_A, "ca_gmres", "jacobi", s=5),
    solvers.SolverTuning: lambda _: solvers.SolverTuning("ca_cg", "cpu", 2, 1e-5, 2e-5, (_CANDIDATE,), kept=True),
    preconditioners.BlockJacobi: lambda _: preconditioners.block_jacobi(_A, 3),
    preconditioners.BlockLU: lambda _: preconditioners.block_jacobi(_A, np.arange(_N) // 40),
    preconditioners.Chebyshev: lambda _: preconditioners.chebyshev(_A + _A.T, 3),
    preconditioners.Jacobi: lambda _: preconditioners.jacobi(_A),
    preconditioners.Preconditioner: lambda _: _Scaled(_N, np.float64, ("a note",)),
    preconditioners.SPAI: lambda _: preconditioners.spai(_A),
}


def _made(public: Any, folder: Path) -> Any:
    if not isinstance(public, type):
        return public
    if issubclass(public, akx.AkxError):
        error = public("it is wrong", expected="one", found="another", hint="do this")
        error.add_note("seen by a test")
        return error
    if issubclass(public, Warning):
        return public("beware")
    assert public in _OBJECTS, f"{public.__name__} is public: add an object of it to the tests"
    return _OBJECTS[public](folder)


@pytest.mark.parametrize("name", _PUBLIC)
def test_what_is_public_can_be_copied_and_pickled(name: str, tmp_path: Path) -> None:
    value = _made(_PUBLIC[name], tmp_path)
    expected = _plain(value)  # what is prepared on the way is to be no hindrance
    for way, done in _WAYS.items():
        found = done(value)
        assert type(found) is type(value), way
        assert _plain(found) == expected, way
        if not isinstance(value, akx.AkxError) and type(value).__hash__ is not object.__hash__:
            assert (found == value) == (value == value), way


def test_results_and_parts_of_the_public_objects_too(tmp_path: Path) -> None:
    db = akx.PlanDatabase(tmp_path / "plans.sqlite")
    result = akx.tune(_A, 2, trials=1, threads=1, db=db)
    (record,) = db.list()
    operator = akx.MatrixPowers(_A, 2).aslinearoperator(1)
    values = [result, record, record.key, db.find(record.key), akx.estimate_spectrum(_A), operator]
    for value in values:
        for way, done in _WAYS.items():
            found = done(value)
            assert type(found) is type(value), way
            if hasattr(value, "to_json"):
                assert found.to_json() == value.to_json(), way
    assert pickle.loads(pickle.dumps(record)) == record
    assert np.array_equal(pickle.loads(pickle.dumps(operator)) @ _x, operator @ _x)


@pytest.mark.parametrize("way", _WAYS)
def test_new_values_of_a_copy_are_its_own(way: str) -> None:
    P = akx.MatrixPowers(_A, 2)
    before = P(_x)
    Q = _WAYS[way](P)
    Q.update_values(3.0 * _A)
    assert np.array_equal(P(_x), before)
    assert np.allclose(Q(_x)[:, 2], 9.0 * before[:, 2])
    R = _WAYS[way](Q)
    P.update_values(-_A)
    assert np.array_equal(R(_x), Q(_x))


def test_a_pickle_has_the_matrix_and_no_more() -> None:
    A = akx.Matrix.from_any(sp.random_array((3000, 3000), density=2e-3, rng=1, format="csr"))
    assert A.fingerprint
    assert A.features.rows == 3000
    P = akx.MatrixPowers(A, 4)
    P(np.ones(3000))
    for value in (A, P):
        assert len(pickle.dumps(value)) < A.nbytes + 3000
    M = preconditioners.spai(sp.csr_array(A.to_scipy() + 5.0 * sp.eye_array(3000)), tau=0.0)
    M @ np.ones(3000)
    assert len(pickle.dumps(M)) < M.matrix.nbytes + 3000
    assert not pickle.loads(pickle.dumps(M)).M.data.flags.writeable


def test_the_plan_goes_along_and_is_chosen_anew_where_it_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    P = akx.MatrixPowers(_A, 3)
    data = pickle.dumps(P)
    asked: list[int] = []
    monkeypatch.setattr(Planner, "choose", _counted(Planner.choose, asked))
    assert pickle.loads(data).plan == P.plan
    assert asked == []
    monkeypatch.setattr(Planner, "place", lambda self, backend: "another device")
    assert pickle.loads(data).plan.k == 3
    assert asked == [1]


def _counted(method: Callable[..., Any], asked: list[int]) -> Callable[..., Any]:
    def counted(self: Any, *arguments: Any) -> Any:
        asked.append(1)
        return method(self, *arguments)

    return counted


def test_a_number_of_threads_that_was_not_asked_for_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    default, asked = (pickle.dumps(akx.MatrixPowers(_A, 2, threads=threads)) for threads in (None, 2))
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert pickle.loads(default)._prepared.planner.threads == 1
    assert pickle.loads(asked)._prepared.planner.threads == 2


@pytest.mark.skipif(choose.is_usable("cuda"), reason="there is a GPU")
def test_a_pickle_for_a_gpu_where_there_is_none_says_so_when_it_is_called() -> None:
    P = akx.MatrixPowers(_A, 2)
    choices = P._prepared.choices
    plan = akx.Plan("cuda", "sweep", "csr-1", k=2)
    choices.planner.asked = dataclasses.replace(choices.planner.asked, plan=plan, backend="cuda")
    choices.made.clear()
    Q = pickle.loads(pickle.dumps(P))  # as one from another machine: to read it asks for nothing
    with pytest.raises((akx.DeviceError, akx.MissingDependencyError)):
        Q(_x)


def test_a_copy_is_whole_whatever_another_thread_does() -> None:
    P = akx.MatrixPowers(_A, 1)
    stop = threading.Event()

    def changes() -> None:
        scale = 1.0
        while not stop.is_set():
            scale = 3.0 - scale
            P.update_values(scale * _A)

    other = threading.Thread(target=changes)
    other.start()
    try:
        for _ in range(20):
            ratio = copy.copy(P)(_x)[:, 1] / (_A @ _x)
            assert np.allclose(ratio, ratio[0])
    finally:
        stop.set()
        other.join()


_ELSEWHERE = """
import pickle, sys
P, plan, basis, M, key, error = pickle.load(sys.stdin.buffer)
import numpy as np
assert {plan: 1}[type(plan).from_json(plan.to_json())] == 1
assert {basis: 1}[type(basis).from_json(basis.to_json())] == 1
assert {key: 1}[type(key).from_json(key.to_json())] == 1
x = np.linspace(-1.0, 1.0, P.shape[0])
sys.stdout.buffer.write(pickle.dumps((P(x), M @ x, error)))
"""


def test_another_process_computes_the_same_and_its_hashes_are_its_own() -> None:
    P, M = akx.MatrixPowers(_A, 3), preconditioners.chebyshev(_A + _A.T, 2)
    P.update_values(2.0 * _A)
    plan = akx.Plan("cpu", "sweep", "sell16", k=3, options={"sigma": 16})
    key = plan_key(P._prepared.values.matrix, 3)
    error = akx.DatabaseError("it is wrong", expected="one", found="another", hint="do this")
    hash(plan), hash(P.basis), hash(key)  # of text, another in each process
    sent = pickle.dumps((P, plan, P.basis, M, key, error))
    done = subprocess.run([sys.executable, "-c", _ELSEWHERE], input=sent, capture_output=True, check=True, timeout=120)
    V, y, again = pickle.loads(done.stdout)
    assert np.array_equal(V, P(_x))
    assert np.array_equal(y, M @ _x)
    assert str(again) == str(error)
