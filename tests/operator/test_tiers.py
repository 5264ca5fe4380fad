"""The first calls of `matrix_powers`: plain products by SciPy, and a prepared operator once that has paid."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from counting import calls_of
from numpy.typing import NDArray

import akx
from akx import Basis, Matrix
from akx.operator import background_compile, host_products, tiers
from akx.operator import lookup as kept
from akx.tuner.fallback.answer import is_measured


@pytest.fixture(autouse=True)
def _from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AKX_PREPARE")
    monkeypatch.setattr(background_compile, "look", lambda *job: None)  # all code is compiled
    tiers.forget()


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The matrices for which an operator was asked for."""
    asked, operator_for = list[Any](), kept.operator_for

    def ask(A: Any, *rest: Any, **named: Any) -> Any:
        asked.append(A)
        return operator_for(A, *rest, **named)

    monkeypatch.setattr(kept, "operator_for", ask)
    return asked


def random_matrix(n: int = 60, dtype: Any = float, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=0.1, rng=rng, format="csr") / 4
    return (A * (1 + 0.5j) if np.dtype(dtype).kind == "c" else A).astype(dtype)


def steps(A: Any, x: NDArray[Any], k: int, basis: Basis | None = None) -> NDArray[Any]:
    """V by NumPy, in double precision."""
    dense, V = A.toarray(), [np.asarray(x)]
    for j in range(k):
        w = dense @ V[-1]
        if basis is not None:
            w = basis.a[j] * w + basis.b[j] * V[-1] + (basis.c[j] * V[-2] if j else 0)
        V.append(w)
    return np.stack(V, axis=-1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.int16])
@pytest.mark.parametrize("vectors", [None, 1, 5])
@pytest.mark.parametrize(
    "basis", [None, Basis("newton", np.ones(4), np.array([0.5, -1, 0.2, 3]), np.array([0, 1, 2, -1.0]))]
)
def test_the_first_calls_are_right_and_nothing_is_prepared(
    prepared: list[Any], dtype: Any, vectors: int | None, basis: Basis | None
) -> None:
    A = random_matrix(dtype=dtype) if dtype != np.int16 else sp.csr_array(np.diag(np.arange(60, dtype=dtype) % 5))
    x = np.random.default_rng(1).random((60,) if vectors is None else (60, vectors))
    x = x.astype(np.float32 if dtype in (np.float32, np.complex64) else float)
    for given in (A, sp.csr_matrix(A), Matrix.from_any(A)):
        V = akx.matrix_powers(given, x, 3, basis="monomial" if basis is None else basis)
        exact = steps(A, x, 3, basis)
        assert V.shape == exact.shape
        assert V.dtype == np.result_type(x.dtype, dtype if dtype != np.int16 else float)
        assert V.T.flags.c_contiguous or vectors not in (None, 1)
        np.testing.assert_allclose(V, exact, rtol=2e-5 if x.dtype == np.float32 else 1e-13, atol=1e-6)
        assert all(V[..., j].strides[0] == V.itemsize for j in range(4))
    assert prepared == []


@pytest.mark.parametrize("vectors", [6, 40])
def test_groups_of_vectors_are_what_each_is_alone_whoever_does_them(
    prepared: list[Any], monkeypatch: pytest.MonkeyPatch, vectors: int
) -> None:
    A, X = random_matrix(300), np.random.default_rng(1).random((300, vectors))
    A.data[3] = 1e300  # what overflows says so in no thread
    B, basis = random_matrix(300), Basis("newton", np.ones(3), np.array([0.5, -1, 0.2]), np.array([0, 1, 2.0]))
    alone = [akx.matrix_powers(B, X[:, i], 3, basis=basis) for i in range(vectors)]
    for shared in (1, 10**9):
        monkeypatch.setattr(host_products, "_SHARED", shared)
        V = akx.matrix_powers(B, X, 3, basis=basis, threads=2)
        np.testing.assert_array_equal(V, np.stack(alone, axis=1))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            akx.matrix_powers(A, X, 3, basis=basis, threads=2)
        assert {one.category for one in told} <= {akx.AkxWarning}
    assert prepared == []


def test_products_are_the_same_where_scipy_keeps_its_own_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    A, X = random_matrix(), np.random.default_rng(1).random((60, 6))
    found = [akx.matrix_powers(A, x, 3) for x in (X, X[:, 0])]
    monkeypatch.setattr(host_products, "csr_product", lambda name="csr_matvec": host_products._added)
    for x, V in zip((X, X[:, 0]), found, strict=True):
        np.testing.assert_allclose(akx.matrix_powers(A, x, 3), V, rtol=1e-14)


def test_entries_in_any_order_and_twice_are_summed(prepared: list[Any]) -> None:
    A = sp.csr_array((np.arange(1.0, 6), np.array([2, 0, 0, 1, 1]), np.array([0, 3, 3, 5])), shape=(3, 3))
    np.testing.assert_array_equal(akx.matrix_powers(A, np.ones(3), 2), steps(A, np.ones(3), 2))
    assert prepared == []
    assert A.data.size == 5


def test_results_go_where_the_caller_says(prepared: list[Any]) -> None:
    A, x = random_matrix(), np.random.default_rng(1).random(60)
    exact, out = steps(A, x, 3), np.full((60, 4), np.nan, order="F")
    assert akx.matrix_powers(A, x, 3, out=out) is out
    np.testing.assert_allclose(out, exact, rtol=1e-13)
    out[:, 0] = x
    akx.matrix_powers(A, out[:, 0], 3, out=out)
    np.testing.assert_allclose(out, exact, rtol=1e-13)
    out[:, 2] = x
    akx.matrix_powers(A, out[:, 2], 3, out=out)
    np.testing.assert_allclose(out, exact, rtol=1e-13)
    with pytest.raises(akx.ArgumentError, match="out does not fit"):
        akx.matrix_powers(A, x, 2, out=out)
    assert prepared == []


def test_a_change_in_place_counts_at_once(prepared: list[Any]) -> None:
    A, x = random_matrix(), np.ones(60)
    akx.matrix_powers(A, x, 2)
    A.data *= 2
    np.testing.assert_allclose(akx.matrix_powers(A, x, 2), steps(A, x, 2), rtol=1e-13)
    assert prepared == []


def test_a_change_of_a_small_pattern_that_was_copied_counts_at_once(prepared: list[Any]) -> None:
    A, x = random_matrix(), np.linspace(1, 2, 60)
    V = [akx.matrix_powers(A, x, 3) for _ in range(5)]
    np.testing.assert_array_equal(V[0], V[4])
    A.indices[0] = (A.indices[0] + 1) % 60
    np.testing.assert_allclose(akx.matrix_powers(A, x, 3), steps(A, x, 3))
    for _ in range(4):
        akx.matrix_powers(A, x, 3)
    A.data = A.data[:-1]
    with pytest.raises(akx.MatrixError):
        akx.matrix_powers(A, x, 3)
    A = random_matrix()
    for _ in range(4):
        akx.matrix_powers(A, x, 3)
    A.indices[1] = 1_000_000
    with pytest.raises(akx.MatrixError):
        akx.matrix_powers(A, x, 3)
    assert len(prepared) == 2, "to be told what is wrong"


def test_the_same_number_of_calls_comes_before_for_every_matrix_of_a_size(
    prepared: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_PROCESS": 0.0, "_MATRIX": 1e-4, "_ENTRY": 0.0, "_CALL": 0.0, "_CHECKED": 0.0}.items():
        monkeypatch.setattr(tiers, name, value)
    before = []
    for seed in (0, 1):
        A, calls = random_matrix(seed=seed), 0
        while not prepared:
            V = akx.matrix_powers(A, np.ones(60), 4)
            np.testing.assert_allclose(V, steps(A, np.ones(60), 4), rtol=1e-13)
            calls += 1
        assert prepared == [A]
        akx.matrix_powers(A, np.ones(60), 4)
        assert prepared == [A, A]  # from now on
        prepared.clear()
        before.append(calls)
    assert before[0] == before[1] > 10


def test_a_process_prepares_its_first_matrix_when_all_its_calls_have_paid_for_numba(
    prepared: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "is_loaded", lambda: False)
    for name, value in {"_MATRIX": 0.0, "_ENTRY": 0.0, "_CALL": 0.0, "_CHECKED": 0.0}.items():
        monkeypatch.setattr(tiers, name, value)
    monkeypatch.setattr(tiers, "_PROCESS", 5e-6)
    A, others = random_matrix(), [random_matrix(seed=seed) for seed in range(1, 40)]
    akx.matrix_powers(A, np.ones(60), 4)
    assert prepared == []
    for other in others:
        akx.matrix_powers(other, np.ones(60), 4)
    assert 0 < len(prepared) < 39


def test_a_later_call_does_little_beside_its_products(prepared: list[Any]) -> None:
    A, x = random_matrix(), np.ones(60)
    for _ in range(3):  # until its indices are known
        akx.matrix_powers(A, x, 8)

    constant = Matrix.from_any(A)

    def loop() -> None:
        v = x
        for _ in range(8):
            v = A @ v

    of_scipy = calls_of(loop)
    assert calls_of(lambda: akx.matrix_powers(A, x, 8)) < 0.3 * of_scipy
    assert calls_of(lambda: akx.matrix_powers(constant, x, 8)) < 0.3 * of_scipy
    assert prepared == []


def test_groups_of_vectors_are_prepared_sooner() -> None:
    lost = []
    for vectors in (4, 5):  # each by itself, and side by side
        rent = tiers.Rent(lambda: None, 10**6, 10**7, 0.0)
        rent.goes_on(8, vectors)
        lost.append(rent._lost)
    assert lost[1] == pytest.approx(2 * lost[0])


def test_short_calls_stay_as_they_are(prepared: list[Any]) -> None:
    A = random_matrix()
    for _ in range(300):
        akx.matrix_powers(A, np.ones(60), 2)
    assert prepared == []


@pytest.mark.parametrize("word", ["always", "fixed"])
def test_a_matrix_is_prepared_at_once_where_that_is_asked_for(
    prepared: list[Any], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("AKX_PREPARE", word)
    A = random_matrix()
    akx.matrix_powers(A, np.ones(60), 2)
    assert prepared == [A]
    assert is_measured() is (word == "always")


def test_a_word_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_PREPARE", "sometimes")
    with pytest.raises(akx.ArgumentError, match="AKX_PREPARE is unknown, expected auto or always or fixed"):
        akx.matrix_powers(random_matrix(), np.ones(60), 2)


def test_what_is_wrong_is_told_as_it_is_of_a_prepared_matrix() -> None:
    A = random_matrix()
    A.data[7] = np.nan
    with pytest.raises(akx.MatrixError, match="matrix is not finite"):
        akx.matrix_powers(A, np.ones(60), 2)
    A = random_matrix()
    A.indices[3] = 60
    with pytest.raises(akx.MatrixError, match="matrix is broken"):
        akx.matrix_powers(A, np.ones(60), 2)
    A = random_matrix()
    A.indices[3] = -1
    with pytest.raises(akx.MatrixError, match="matrix is broken"):
        akx.matrix_powers(A, np.ones(60), 2)
    A = random_matrix()
    A.indptr[5] = A.indptr[4] - 1
    with pytest.raises(akx.MatrixError, match="matrix is broken"):
        akx.matrix_powers(A, np.ones(60), 2)
    A = random_matrix()
    for wrong in ({"threads": 0}, {"value_error": 2.0}, {"dtype": np.int8}, {"backend": "hip"}):
        with pytest.raises(akx.AkxError):
            akx.matrix_powers(A, np.ones(60), 2, **wrong)
    with pytest.raises(akx.ArgumentError, match="x does not fit"):
        akx.matrix_powers(A, np.ones(59), 2)


def test_indices_that_another_thread_changes_after_the_check_are_not_followed(
    prepared: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    A, x, into = random_matrix(), np.ones(60), tiers.powers_into
    exact = steps(A, x, 3)

    def after_the_change(*given: Any, **options: Any) -> None:
        A.indices[:] = np.iinfo(np.int32).max
        A.indptr[1:] = np.iinfo(np.int32).max
        into(*given, **options)

    monkeypatch.setattr(tiers, "powers_into", after_the_change)
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)  # without another thread nobody can, and nothing is copied
    other.start()
    try:
        np.testing.assert_allclose(akx.matrix_powers(A, x, 3), exact, rtol=1e-13)
    finally:
        ended.set()
        other.join()
    assert prepared == []


def test_arrays_of_a_matrix_that_are_not_flat_are_not_read_as_if_they_were() -> None:
    A = random_matrix()
    A.data = A.data[: A.nnz // 2 * 2].reshape(-1, 2)
    with pytest.raises(akx.MatrixError, match="matrix is broken"):
        akx.matrix_powers(A, np.ones(60), 2)


@pytest.mark.parametrize("n", [4, 5000])
def test_an_overflow_that_no_later_power_shows_is_told(prepared: list[Any], n: int) -> None:
    A = sp.csr_array((np.full(2, 1e200), ([0, 1], [1, 2])), shape=(n, n))  # e_2 -> e_1 -> e_0 -> 0
    for k in (2, 3):
        with pytest.warns(akx.AkxWarning, match=f"power 2 of {k} is the first"):
            akx.matrix_powers(A, np.eye(1, n, 2)[0], k)
    assert prepared == []


def test_an_overflow_is_told_and_a_start_vector_that_is_not_finite_is_not(prepared: list[Any]) -> None:
    A = random_matrix() * 1e200
    with pytest.warns(akx.AkxWarning, match="power 2 of 3 is the first"):
        akx.matrix_powers(A, np.ones(60), 3)
    x = np.ones(60)
    x[0] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        akx.matrix_powers(random_matrix(), x, 2)
    assert prepared == []


def test_a_new_process_answers_without_a_compiler(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "import numpy as np, scipy.sparse as sp, akx\n"
        "A = sp.diags_array([1.0, 2.0, 3.0], format='csr')\n"
        "print(akx.matrix_powers(A, np.ones(3), 2).tolist(), 'numba' in sys.modules, 'akx.tuner' in sys.modules)\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)
    assert done.stdout.split("]] ") == ["[[1.0, 1.0, 1.0], [1.0, 2.0, 4.0], [1.0, 3.0, 9.0", "False False\n"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_threads_that_share_vectors_are_kept_and_a_forked_child_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_products, "_SHARED", 1)
    A, X = random_matrix(), np.random.default_rng(1).random((60, 40))
    first = akx.matrix_powers(A, X, 3, threads=3)
    kept = {one for one in threading.enumerate() if one.name.startswith("akx-products")}
    np.testing.assert_array_equal(akx.matrix_powers(A, X, 3, threads=3), first)
    assert len({one for one in threading.enumerate() if one.name.startswith("akx-products")} - kept) <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads, which is the matter here
        child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(akx.matrix_powers(A, X, 3, threads=3), first) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_calls_on_the_host_are_not_remembered_as_those_on_a_device_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would import what reads arrays of a device."""
    from akx.operator import call

    monkeypatch.setenv("AKX_PREPARE", "always")
    monkeypatch.setattr(call, "_RECENT", {})
    monkeypatch.setattr(kept, "recent", lambda *_: pytest.fail("a call was remembered"))
    A = random_matrix()
    for x in (np.ones(60), [1.0] * 60):
        np.testing.assert_allclose(akx.matrix_powers(A, x, 3), steps(A, x, 3), rtol=1e-13)


def test_what_is_not_finite_is_found_anywhere_in_large_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_products, "LARGE_PIECE", 20_000)
    for kind in (np.float32, np.complex128):
        v, w = np.ones(50_001, kind), np.ones(50_001, kind)
        assert host_products.is_finite(v, w)
        assert host_products.is_finite(v, v)
        for place, bad in ((0, np.nan), (25_000, np.inf), (50_000, -np.inf)):
            w[place] = bad
            assert not host_products.is_finite(v, w)
            assert not host_products.is_finite(w, w)
            w[place] = 1
