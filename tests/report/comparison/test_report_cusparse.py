"""cuSPARSE's newer product without a GPU: which libraries are asked for it, and the calls as cusparse.h has them."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends.cuda.baselines import bsr, cusparse
from akx.backends.cuda.baselines import calls as baselines
from akx.backends.cuda.baselines import spmvop as cusparse_op
from akx.backends.cuda.baselines.spmvop import ABSENT, FOREIGN, KNOWN, CusparseOpPowers, spmvop, spmvop_note
from akx.core.errors import DeviceError
from akx.core.matrix import Matrix
from akx.report.comparison.bench import BenchResult


class Library:
    """Any function of cuSPARSE: it notes what it is called with; pointers to be filled get a number each."""

    def __init__(self, version: tuple[int, int, int], *, has_op: bool, fails: str = "") -> None:
        self.version, self.calls, self.made, self.fails = version, [], 0, fails
        if has_op:
            self.cusparseSpMVOp = self._function("cusparseSpMVOp")

    def __getattr__(self, name: str) -> Any:
        if name == "cusparseSpMVOp" or not name.startswith("cusparse"):
            raise AttributeError(name)
        return self._function(name)

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            if name == "cusparseGetProperty":
                arguments[1]._obj.value = self.version[arguments[0]]
            elif any(part in name for part in ("reate", "bufferSize")):
                for argument in arguments:
                    if hasattr(argument, "_obj"):
                        self.made += 1
                        argument._obj.value = 1000 + self.made
            return 10 if name == self.fails else 0

        return call

    def arguments(self, name: str) -> list[Any]:
        """Of the one call of a function, as plain numbers."""
        found = [arguments for called, arguments in self.calls if called == name]
        return [getattr(getattr(one, "_obj", one), "value", one) for one in found[0]]


def install(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    for module in (cusparse, cusparse_op):
        monkeypatch.setattr(module, "cusparse_library", lambda: library)


@pytest.mark.parametrize(
    ("version", "has_op", "state"),
    [
        ((12, 6, 3), False, ABSENT),
        ((12, 6, 3), True, FOREIGN),
        ((12, 7, 10), True, KNOWN),
        ((12, 8, 6), True, KNOWN),
        ((12, 9, 4), True, KNOWN),
        ((12, 9, 0), True, KNOWN),
        ((12, 10, 0), True, FOREIGN),
        ((13, 0, 0), True, FOREIGN),
        ((12, 9, 4), False, ABSENT),
    ],
)
def test_what_the_library_has(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], has_op: bool, state: str
) -> None:
    install(monkeypatch, Library(version, has_op=has_op))
    assert spmvop() == state
    note = spmvop_note()
    assert (note is None) == (state != FOREIGN)
    monkeypatch.setattr(baselines, "cusparse_missing", lambda: None)
    result = BenchResult("m", 1, 1, "float64", "f", "cuda/H100", 1, ())
    assert result.notes == (() if note is None else (note,))
    if note is not None:
        assert "not measured" in note
        assert ".".join(map(str, version)) in note


@pytest.mark.parametrize(
    ("version", "names"),
    [((12, 7, 10), ("cusparse_op",)), ((12, 8, 6), ("cusparse_op1", "cusparse_op2")), ((12, 10, 0), ())],
)
def test_algorithms_by_release(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], names: tuple[str, ...]
) -> None:
    install(monkeypatch, Library(version, has_op=True))
    assert cusparse_op.op_algorithms() == names


@pytest.mark.parametrize("part", ["_bufferSize", "_createDescr", "_createPlan", "_destroyPlan", "_destroyDescr"])
def test_a_library_that_lacks_a_function_is_not_called(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    class Lacking(Library):
        def __getattr__(self, name: str) -> Any:
            if name == f"cusparseSpMVOp{part}":
                raise AttributeError(name)
            return super().__getattr__(name)

    install(monkeypatch, Lacking((12, 9, 4), has_op=True))
    assert spmvop() == FOREIGN


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    assert spmvop() == ABSENT
    assert BenchResult("m", 1, 1, "float64", "f", "cuda/H100", 1, ()).notes[0].startswith("cuSPARSE is not installed")


def test_within_a_budget_nothing_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    result = BenchResult("m", 1, 1, "float64", "f", "cuda/H100/budget 5 bytes", 1, (), True)
    assert result.notes == ("within a memory budget no other library is compared",)


def test_a_library_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("AKX_CUSPARSE", str(tmp_path / "libcusparse.so.99"))
    assert cusparse.cusparse_library() is None
    assert "libcusparse.so.99" in (cusparse.cusparse_missing() or "")
    real = ctypes.util.find_library("c")
    assert real is not None
    monkeypatch.setenv("AKX_CUSPARSE", real)  # any library: it is only opened
    assert cusparse.cusparse_missing() is None


def fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held:
        def __init__(self, shape: Any, dtype: Any) -> None:
            self.shape, self.pointer = shape, 77

        def view(self, *_: Any) -> Held:
            return self

    @contextlib.contextmanager
    def capture(_: Any) -> Any:
        yield "graph"

    stream = SimpleNamespace(handle=5, synchronize=lambda: None)
    monkeypatch.setattr(cusparse, "runtime", lambda: SimpleNamespace(active=contextlib.nullcontext))
    monkeypatch.setattr(cusparse, "default_stream", lambda: stream)
    monkeypatch.setattr(cusparse, "to_device", lambda array: Held(array.shape, array.dtype))
    monkeypatch.setattr(cusparse, "capture", capture)
    for module in (cusparse, cusparse_op):
        monkeypatch.setattr(module, "empty", Held)


def test_the_calls_are_those_of_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library((12, 9, 4), has_op=True)
    install(monkeypatch, library)
    fake_device(monkeypatch)
    views: list[Any] = []
    out: Any = SimpleNamespace(
        shape=(4, 1, 32), view=lambda *of: views.append(of) or SimpleNamespace(pointer=1024 + 8 * of[0])
    )
    powers = CusparseOpPowers(Matrix.from_any(sp.eye_array(5, format="csr")), out, "cusparse_op2")
    handle, matrix = library.arguments("cusparseCreate")[0], library.arguments("cusparseCreateCsr")[0]
    vectors = [arguments[0]._obj.value for name, arguments in library.calls if name == "cusparseCreateDnVec"]
    assert len(set(vectors)) == 4
    assert views == [(32 * j, (5,)) for j in range(4)]
    size = library.arguments("cusparseSpMVOp_bufferSize")
    # handle, opA, matA, vecX, vecY, vecZ, computeType (CUDA_R_64F is 1), alg, bufferSize
    assert size[:8] == [handle, 0, matrix, vectors[0], vectors[1], vectors[1], 1, 2]
    assert len(size) == 9
    made = library.arguments("cusparseSpMVOp_createDescr")
    description = made[1]
    assert made == [handle, description, *size[1:8], 77]
    plan = library.arguments("cusparseSpMVOp_createPlan")
    assert plan == [handle, description, plan[2], None, 0]
    products = [arguments for name, arguments in library.calls if name == "cusparseSpMVOp"]
    assert len(products) == 3
    for j, product in enumerate(products):
        assert [one.value for one in product[:2]] == [handle, plan[2]]
        alpha, beta = (ctypes.c_double.from_address(one.value).value for one in product[2:4])
        assert (alpha, beta) == (1.0, 0.0)
        assert [one.value for one in product[4:]] == [vectors[j], vectors[j + 1], vectors[j + 1]]
    powers.close()
    assert library.arguments("cusparseSpMVOp_destroyPlan") == [plan[2]]
    assert library.arguments("cusparseSpMVOp_destroyDescr") == [description]


def test_before_12_8_no_algorithm_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library((12, 7, 10), has_op=True)
    install(monkeypatch, library)
    fake_device(monkeypatch)
    out: Any = SimpleNamespace(shape=(2, 1, 32), view=lambda *_: SimpleNamespace(pointer=99))
    CusparseOpPowers(Matrix.from_any(sp.eye_array(5, format="csr")), out, "cusparse_op")
    size, made = (library.arguments(f"cusparseSpMVOp_{name}") for name in ("bufferSize", "createDescr"))
    assert len(size) == 8  # handle, opA, matA, three vectors, the type, and where the size goes
    assert made[2:] == [*size[1:7], 77]


@pytest.mark.parametrize(("dtype", "letter"), [("float64", "D"), ("complex64", "C")])
def test_blocks_of_one_size(monkeypatch: pytest.MonkeyPatch, dtype: str, letter: str) -> None:
    library = Library((12, 9, 4), has_op=True)
    install(monkeypatch, library)
    monkeypatch.setattr(bsr, "cusparse_library", lambda: library)
    fake_device(monkeypatch)
    held: list[Any] = []
    monkeypatch.setattr(bsr, "to_device", lambda array: held.append(array) or SimpleNamespace(pointer=77))
    line = sp.diags_array([np.ones(7)] * 3, offsets=[-1, 0, 1], shape=(7, 7))
    A = sp.csr_array(sp.kron(line, np.arange(1.0, 10.0).reshape(3, 3))).astype(dtype)
    matrix = Matrix.from_any(A)
    assert bsr.bsr_algorithms(matrix) == ("cusparse_bsr", "cusparse_bsr_alg1")
    assert bsr.bsr_algorithms(Matrix.from_any(sp.eye_array(5, format="csr"))) == ()
    out: Any = SimpleNamespace(shape=(3, 1, 32), view=lambda at, _: SimpleNamespace(pointer=1000 + at))
    bsr.BsrPowers(matrix, out, "cusparse_bsr")
    start, column, values = held
    np.testing.assert_array_equal(sp.bsr_array((values, column, start), shape=A.shape).toarray(), A.toarray())
    products = [arguments for name, arguments in library.calls if name == f"cusparse{letter}bsrmv"]
    assert len(products) == 3  # one ahead of the clock, two recorded
    plain = [getattr(one, "value", one) for one in products[-1]]
    # dirA is by rows, transA plain, then rows, columns and blocks; x and y are vectors 1 and 2
    assert plain[1:6] == [0, 0, 7, 7, 19]
    assert plain[11:13] == [3, 1032]
    assert plain[14] == 1064
    bsr.BsrPowers(matrix, out, "cusparse_bsr_alg1")
    made = library.arguments("cusparseCreateBsr")
    kind = {"float64": 1, "complex64": 4}[dtype]
    assert made[1:] == [7, 7, 19, 3, 3, 77, 77, 77, 2, 2, 0, kind, 2]
    assert library.arguments("cusparseSpMV")[8] == 6


PAIRS = {
    "cusparseCreate": "cusparseDestroy",
    "cusparseCreateCsr": "cusparseDestroySpMat",
    "cusparseCreateDnVec": "cusparseDestroyDnVec",
    "cusparseSpMVOp_createDescr": "cusparseSpMVOp_destroyDescr",
    "cusparseSpMVOp_createPlan": "cusparseSpMVOp_destroyPlan",
}


def leaked(library: Library) -> set[int]:
    """What was made and never destroyed; also that nothing was destroyed twice, or by the wrong function."""
    alive: dict[int, str] = {}
    for name, arguments in library.calls:
        if name in PAIRS and name != library.fails:
            made = next(argument._obj.value for argument in arguments if hasattr(argument, "_obj"))
            alive[made] = PAIRS[name]
        elif name in PAIRS.values():
            assert alive.pop(arguments[0].value) == name
    return set(alive)


FAILING = [*PAIRS, "cusparseSetStream", "cusparseSpMVOp_bufferSize", "cusparseSpMVOp"]


@pytest.mark.parametrize("fails", [*FAILING, ""])
def test_one_that_fails_half_way_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    library = Library((12, 9, 4), has_op=True, fails=fails)
    install(monkeypatch, library)
    fake_device(monkeypatch)
    out: Any = SimpleNamespace(shape=(4, 1, 32), view=lambda *_: SimpleNamespace(pointer=99))
    matrix = Matrix.from_any(sp.eye_array(5, format="csr"))
    if fails:
        with pytest.raises(DeviceError, match=f"{fails} failed"):
            CusparseOpPowers(matrix, out, "cusparse_op1")
    else:
        powers = CusparseOpPowers(matrix, out, "cusparse_op1")
        assert len(leaked(library)) == 8  # a handle, a matrix, four vectors, a description and a plan
        powers.close()
        powers.close()
    assert not leaked(library)


def test_all_is_given_back_though_some_of_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library((12, 9, 4), has_op=True, fails="cusparseDestroyDnVec")
    install(monkeypatch, library)
    fake_device(monkeypatch)
    out: Any = SimpleNamespace(shape=(4, 1, 32), view=lambda *_: SimpleNamespace(pointer=99))
    powers = CusparseOpPowers(Matrix.from_any(sp.eye_array(5, format="csr")), out, "cusparse_op1")
    with pytest.raises(DeviceError, match="cusparseDestroyDnVec failed"):
        powers.close()
    assert not leaked(library)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_vectors_begin_at_round_addresses(dtype: str) -> None:
    """SpMVOp refuses vectors that do not begin at a multiple of 16 bytes."""
    matrix = Matrix.from_any(sp.eye_array(37, format="csr").astype(dtype))
    out = baselines._aligned_result(matrix, np.arange(37.0), 2)
    assert out.strides[0] % 256 == 0
    assert out.shape[2] >= 37
    np.testing.assert_array_equal(out[0, 0, :37], np.arange(37.0))
    assert np.isnan(out[1:]).all()


def test_one_that_fails_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Library((12, 9, 4), has_op=True, fails="cusparseSpMVOp_createPlan"))
    fake_device(monkeypatch)
    out: Any = SimpleNamespace(shape=(2, 1, 32), view=lambda *_: SimpleNamespace(pointer=99))
    matrix = Matrix.from_any(sp.eye_array(5, format="csr"))
    with pytest.raises(DeviceError, match="createPlan failed, found status 10"):
        CusparseOpPowers(matrix, out, "cusparse_op1")
    monkeypatch.setattr(baselines, "ALGORITHMS", {})
    monkeypatch.setattr(baselines, "to_device", lambda array: out)
    with pytest.warns(RuntimeWarning) as warned:
        assert baselines.calls(matrix, np.ones(5), 1) == {}
    texts = [str(one.message) for one in warned]
    assert ["op1" in text or "op2" in text for text in texts] == [True, True]
    assert all("not compared" in text and "status 10" in text for text in texts)
