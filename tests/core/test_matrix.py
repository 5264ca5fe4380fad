"""The canonical matrix, its fingerprint, features and checksum, against dense NumPy, SciPy and brute force."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from forked import succeeds_in_a_child
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.sparse.linalg import aslinearoperator

import akx.core.canonical
from akx.core import checksum as _checksum
from akx.core.checksum import checksums
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, CompileError, MatrixError
from akx.core.matrix import Features, Matrix, checksum, content_token

FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
DTYPES = ("float32", "float64", "complex64", "complex128")
fast = settings(deadline=None, max_examples=60)


@st.composite
def triplets(
    draw: st.DrawFn, dtype: str = "float64", n_max: int = 9
) -> tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """n, rows, columns and small whole values (exact in every dtype), in any order, with duplicates and zeros."""
    n = draw(st.integers(1, n_max))
    count = draw(st.integers(0, 4 * n))
    index = st.lists(st.integers(0, n - 1), min_size=count, max_size=count)
    row, column = np.array(draw(index), dtype=np.int64), np.array(draw(index), dtype=np.int64)
    value = np.array(draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count)), dtype=dtype)
    if np.dtype(dtype).kind == "c":
        value = value * (1 + 2j)
    return n, row, column, value.astype(dtype)


def dense(n: int, row: NDArray[Any], column: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
    out = np.zeros((n, n), dtype=value.dtype)
    np.add.at(out, (row, column), value)
    return out


def unsorted_csr() -> sp.csr_array:
    """3 x 3 with unsorted columns, a duplicate and an explicit zero; 64-bit indices."""
    A = sp.csr_array((3, 3))
    A.data = np.array([1.0, 2.0, 3.0, 0.0, 5.0])
    A.indices = np.array([2, 0, 2, 1, 0], dtype=np.int64)
    A.indptr = np.array([0, 3, 4, 5], dtype=np.int64)
    return A


def owned_bytes(M: Matrix) -> int:
    """Bytes of the buffers behind the arrays of M."""
    total = 0
    for array in (M.indptr, M.indices, M.data):
        owner: Any = array
        while owner.base is not None:
            owner = owner.base
        total += owner.nbytes
    return total


def grid(m: int) -> sp.csr_array:
    line = sp.diags_array([np.ones(m - 1), np.ones(m), np.ones(m - 1)], offsets=[-1, 0, 1])
    eye = sp.eye_array(m)
    A = sp.csr_array(sp.kron(line, eye) + sp.kron(eye, line))
    A.eliminate_zeros()
    return A


class TestFromAny:
    @fast
    @given(data=st.data(), dtype=st.sampled_from(DTYPES), form=st.sampled_from(FORMATS), array=st.booleans())
    def test_equals_the_dense_sum_of_the_entries(self, data: Any, dtype: str, form: str, array: bool) -> None:
        n, row, column, value = data.draw(triplets(dtype))
        A = sp.coo_array((value, (row, column)), shape=(n, n))
        A = (A if array else sp.coo_matrix(A)).asformat(form)
        M = Matrix.from_any(A)
        assert (M.n, M.shape, M.dtype) == (n, (n, n), np.dtype(dtype))
        np.testing.assert_array_equal(M.to_scipy().toarray(), dense(n, row, column, value))
        self.check_canonical(M)

    @fast
    @given(t=triplets(), form=st.sampled_from(["csr", "csc"]), order=st.randoms(use_true_random=False))
    def test_takes_compressed_rows_in_any_order_with_duplicates(self, t: Any, form: str, order: Any) -> None:
        n, row, column, value = t
        major, minor = (row, column) if form == "csr" else (column, row)
        perm = np.array(sorted(range(row.size), key=lambda p: (major[p], order.random())), dtype=np.int64)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(major, minlength=n))))
        A = getattr(sp, f"{form}_array")((value[perm], minor[perm], indptr), shape=(n, n))
        M = Matrix.from_any(A)
        np.testing.assert_array_equal(M.to_scipy().toarray(), dense(*t))
        self.check_canonical(M)
        assert M.nnz == len(set(zip(row.tolist(), column.tolist(), strict=True)))

    @staticmethod
    def check_canonical(M: Matrix) -> None:
        assert M.indptr.dtype == M.indices.dtype == np.int32
        assert M.indptr[0] == 0
        assert M.indptr[-1] == M.nnz == M.indices.size == M.data.size
        for i in range(M.n):
            assert np.all(np.diff(M.indices[M.indptr[i] : M.indptr[i + 1]]) > 0)
        for a in (M.indptr, M.indices, M.data):
            assert a.flags.c_contiguous
            assert not a.flags.writeable

    @pytest.mark.parametrize("form", FORMATS)
    def test_leaves_the_users_matrix_as_it_was(self, form: str) -> None:
        A = unsorted_csr() if form == "csr" else unsorted_csr().asformat(form)
        names = [k for k in ("data", "indices", "indptr", "row", "col", "offsets", "rows") if hasattr(A, k)]
        before = {k: (getattr(A, k), np.array(getattr(A, k), copy=True)) for k in names if form != "dok"}
        M = Matrix.from_any(A)
        for k, (same, content) in before.items():
            assert k in ("row", "col") or getattr(A, k) is same  # row and col are made anew on each access
            assert np.array_equal(getattr(A, k), content)
            if same.dtype != object:
                assert not any(np.shares_memory(same, own) for own in (M.data, M.indices, M.indptr))
        np.testing.assert_array_equal(M.to_scipy().toarray(), [[2, 0, 4], [0, 0, 0], [5, 0, 0]])

    def test_later_changes_do_not_reach_it(self) -> None:
        A = grid(5)
        M = Matrix.from_any(A)
        kept = M.to_scipy().toarray()
        A.data[:] = 7
        A.indices[:] = 0
        np.testing.assert_array_equal(M.to_scipy().toarray(), kept)

    def test_with_a_promise_canonical_csr_is_taken_as_it_is(self) -> None:
        A = grid(5)
        M = Matrix.from_any(A, copy=False)
        for own, users in ((M.indptr, A.indptr), (M.indices, A.indices), (M.data, A.data)):
            assert np.shares_memory(own, users)
            assert users.flags.writeable
            assert not own.flags.writeable
        assert M.fingerprint == Matrix.from_any(A).fingerprint
        np.testing.assert_array_equal(akx.matrix_powers(M, np.ones(25), 3), akx.matrix_powers(A, np.ones(25), 3))

    @pytest.mark.parametrize("how", ["unsorted", "int64", "float32", "zeros", "longer", "csc", "strided"])
    def test_with_a_promise_what_is_not_canonical_is_copied(self, how: str) -> None:
        A, options = grid(5), dict[str, Any]()
        if how == "unsorted":
            first = slice(*A.indptr[:2])
            A.indices[first], A.data[first] = A.indices[first][::-1].copy(), A.data[first][::-1].copy()
        elif how == "int64":
            A.indices = A.indices.astype(np.int64)
        elif how == "float32":
            options = {"dtype": np.float32}
        elif how == "zeros":
            A.data[3], options = 0.0, {"explicit_zeros": "drop"}
        elif how == "longer":
            A.data = np.append(A.data, 0.0)
        elif how == "csc":
            A = sp.csc_array(A)
        else:
            A.data = np.repeat(A.data, 2)[::2]
        before = A.data.copy(), A.indices.copy()
        M, wanted = Matrix.from_any(A, copy=False, **options), Matrix.from_any(A, **options)
        assert not any(np.shares_memory(own, A.data) for own in (M.data, M.indices, M.indptr))
        np.testing.assert_array_equal(M.to_scipy().toarray(), wanted.to_scipy().toarray())
        assert np.array_equal(A.data, before[0])
        assert np.array_equal(A.indices, before[1])

    def test_a_promise_is_not_believed_of_broken_indices(self) -> None:
        A = grid(5)
        A.indices[3] = 99
        with pytest.raises(MatrixError, match="out of range"):
            Matrix.from_any(A, copy=False)

    def test_stale_flags_of_the_users_matrix_are_not_believed(self) -> None:
        A = sp.csr_array(np.array([[1.0, 2.0], [0.0, 3.0]]))
        assert A.has_canonical_format
        A.indices[:2] = [1, 0]  # now row 0 is unsorted, while the flag says canonical
        np.testing.assert_array_equal(Matrix.from_any(A).to_scipy().toarray(), [[2, 1], [0, 3]])

    @pytest.mark.parametrize(
        ("given_dtype", "expected"),
        [("int8", "float64"), ("uint64", "float64"), ("bool", "float64"), ("float16", "float32"), (">f8", "float64"),
         (">c8", "complex64"), ("float32", "float32"), ("complex64", "complex64")],
    )  # fmt: skip
    def test_value_types(self, given_dtype: str, expected: str) -> None:
        A = sp.csr_array(grid(3).astype("float64"))
        A.data = A.data.astype(given_dtype)
        M = Matrix.from_any(A)
        assert M.dtype == np.dtype(expected)
        assert M.dtype.isnative
        np.testing.assert_array_equal(
            M.to_scipy().toarray(), grid(3).toarray() != 0 if given_dtype == "bool" else grid(3).toarray()
        )

    @pytest.mark.parametrize("form", ["coo", "csr", "csc"])
    def test_small_integers_do_not_overflow_in_duplicates(self, form: str) -> None:
        value, index = np.array([100, 100], dtype=np.int8), np.array([0, 0])
        parts = (value, (index, index)) if form == "coo" else (value, index, np.array([0, 2]))
        M = Matrix.from_any(getattr(sp, f"{form}_array")(parts, shape=(1, 1)))
        assert M.data.tolist() == [200.0]

    def test_bool_duplicates_are_ored_as_in_scipy(self) -> None:
        A = sp.coo_array((np.array([True, True]), ([0, 0], [0, 0])), shape=(1, 1))
        assert Matrix.from_any(A).data.tolist() == [float(A.tocsr().toarray()[0, 0])] == [1.0]

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_dtype_on_demand(self, dtype: str) -> None:
        assert Matrix.from_any(grid(3).astype("int32"), dtype=dtype).dtype == np.dtype(dtype)
        assert Matrix.from_any(Matrix.from_any(grid(3)), dtype=dtype).dtype == np.dtype(dtype)

    def test_explicit_zeros(self) -> None:
        A = unsorted_csr()
        keep, drop = Matrix.from_any(A), Matrix.from_any(A, explicit_zeros="drop")
        assert (keep.nnz, drop.nnz) == (4, 3)
        assert keep.fingerprint != drop.fingerprint
        np.testing.assert_array_equal(keep.to_scipy().toarray(), drop.to_scipy().toarray())
        assert Matrix.from_any(keep, explicit_zeros="drop").fingerprint == drop.fingerprint
        assert owned_bytes(drop) == drop.nbytes  # the memory of the dropped entries is not held

    def test_matrix_passes_through(self) -> None:
        M = Matrix.from_any(grid(3))
        assert Matrix.from_any(M) is M
        assert Matrix.from_any(M, dtype="float64", explicit_zeros="drop") is M

    def test_no_entries_is_a_matrix(self) -> None:
        M = Matrix.from_any(sp.csr_array((4, 4)))
        assert (M.nnz, M.features.empty_rows, M.features.components) == (0, 4, 4)
        assert len(M.fingerprint) == 48

    def test_wide_indices_where_narrow_do_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(akx.core.canonical, "_INT32_LIMIT", 25)
        assert Matrix.from_any(grid(3)).indices.dtype == np.int64  # 9 rows, 33 entries
        small = Matrix.from_any(sp.eye_array(9))
        assert small.indptr.dtype == small.indices.dtype == np.int32

    def test_entries_behind_the_last_row_are_ignored(self) -> None:
        A = sp.csr_array(np.diag([1.0, 2.0]))
        A.data, A.indices = np.array([1.0, 2.0, np.nan]), np.array([0, 1, 77], dtype=np.int32)
        M = Matrix.from_any(A)
        assert M.data.tolist() == [1.0, 2.0]
        assert owned_bytes(M) == M.nbytes

    def test_fifteen_million_entries_in_well_under_a_second(self) -> None:
        n, width = 600_000, 25
        indices = (np.arange(n, dtype=np.int32)[:, None] + np.arange(width, dtype=np.int32)) % n
        indices = np.sort(indices, axis=1).reshape(-1)
        A = sp.csr_array((np.ones(n * width), indices, np.arange(n + 1, dtype=np.int32) * width), shape=(n, n))
        start = time.perf_counter()
        M = Matrix.from_any(A)
        assert time.perf_counter() - start < 3.0  # alone: 0.1 s
        assert M.nnz == 15_000_000


class TestRefusals:
    @pytest.mark.parametrize(
        ("A", "words"),
        [
            (np.eye(3), ("dense", "scipy.sparse.csr_array", "(3, 3)")),
            (np.matrix([[1.0]]), ("dense",)),
            ([[1.0, 2.0], [3.0, 4.0]], ("dense", "csr_array")),
            (sp.csr_array((3, 5)), ("not square", "3 x 5", "A[:3, :3]")),
            (sp.csr_array((0, 0)), ("empty", "0 x 0")),
            (sp.csr_array(np.eye(2, dtype=np.longdouble)), ("dtype", "float64")),
            (sp.csr_array(np.eye(2, dtype=np.clongdouble)), ("dtype", "complex128")),
            (sp.coo_array(np.array([1.0, 2.0])), ("two-dimensional", "(2,)")),
        ],
    )
    def test_bad_matrix(self, A: Any, words: tuple[str, ...]) -> None:
        with pytest.raises(MatrixError) as caught:
            Matrix.from_any(A)
        assert isinstance(caught.value, ValueError)
        for word in words:
            assert word in str(caught.value)

    @pytest.mark.parametrize(
        ("A", "word"),
        [("a.mtx", "read_matrix"), (aslinearoperator(np.eye(2)), "entries"), (None, "NoneType"), (3, "int")],
    )
    def test_not_a_matrix(self, A: Any, word: str) -> None:
        with pytest.raises(ArgumentTypeError, match=word):
            Matrix.from_any(A)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
    def test_not_finite_names_the_first_place(self, value: float, form: str) -> None:
        A = grid(4).tolil()
        A[7, 11] = A[9, 8] = value
        with pytest.raises(MatrixError, match=r"row 7, column 11 and 1 more"):
            Matrix.from_any(A.asformat(form))

    def test_objects(self) -> None:
        A = grid(2)
        A.data = A.data.astype(object)
        with pytest.raises(MatrixError, match="object"):
            Matrix.from_any(A)

    def test_complex_not_finite(self) -> None:
        with pytest.raises(MatrixError, match="row 1, column 0"):
            Matrix.from_any(sp.csr_array(np.array([[1, 0], [1j * np.inf, 0]])))

    def test_overflow_in_conversion_says_so(self) -> None:
        with pytest.raises(MatrixError, match="too large for float32"):
            Matrix.from_any(sp.csr_array(np.array([[1e300]])), dtype="float32")

    def test_complex_to_real(self) -> None:
        with pytest.raises(MatrixError, match="complex"):
            Matrix.from_any(sp.csr_array(np.array([[1j]])), dtype="float64")

    @pytest.mark.parametrize(("dtype", "error"), [("int32", ArgumentError), ("nonsense", ArgumentTypeError)])
    def test_unsupported_dtype_argument(self, dtype: str, error: type[AkxError]) -> None:
        with pytest.raises(error, match="float64"):
            Matrix.from_any(grid(2), dtype=dtype)

    def test_unknown_option(self) -> None:
        with pytest.raises(ArgumentError, match="keep"):
            Matrix.from_any(grid(2), explicit_zeros="maybe")  # type: ignore[arg-type]

    @pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo"])
    @pytest.mark.parametrize("bad", [-1, 99])
    def test_indices_out_of_range(self, form: str, bad: int) -> None:
        A = grid(3).asformat(form)
        A = A.tobsr(blocksize=(1, 1)) if form == "bsr" else A
        (A.row if form == "coo" else A.indices)[1] = bad
        with pytest.raises(MatrixError, match="out of range"):
            Matrix.from_any(A)

    @pytest.mark.parametrize("indptr", [[0, 3, 2, 8, 12], [1, 3, 6, 9, 12], [0, 3, 6, 9, 99]])
    @pytest.mark.parametrize("form", ["csr", "csc"])
    def test_broken_row_pointers(self, indptr: list[int], form: str) -> None:
        A = grid(2).asformat(form)
        A.indptr[:] = indptr
        with pytest.raises(MatrixError, match="indptr"):
            Matrix.from_any(A)


class TestFingerprint:
    @fast
    @given(t=triplets(), form=st.sampled_from(FORMATS[:3]), dtype=st.sampled_from(DTYPES), data=st.data())
    def test_depends_on_the_set_of_places_only(self, t: Any, form: str, dtype: str, data: Any) -> None:
        n, row, column, value = t
        reference = Matrix.from_any(sp.coo_array((value, (row, column)), shape=(n, n)))
        extra = data.draw(st.lists(st.integers(0, max(row.size - 1, 0)), max_size=5 if row.size else 0))
        perm = np.array(data.draw(st.permutations([*range(row.size), *extra])), dtype=np.int64)
        other = sp.coo_array((np.ones(perm.size, dtype), (row[perm], column[perm])), shape=(n, n)).asformat(form)
        for name in ("indices", "indptr"):
            if hasattr(other, name):
                setattr(other, name, getattr(other, name).astype(np.int64))
        M = Matrix.from_any(other)
        assert M.fingerprint == reference.fingerprint
        assert M.with_values(np.zeros(M.nnz, dtype)).fingerprint == reference.fingerprint

    def test_tells_every_pattern_of_three_rows_from_every_other(self) -> None:
        found = set()
        for bits in product([0, 1], repeat=9):
            found.add(Matrix.from_any(sp.csr_array(np.reshape(bits, (3, 3)).astype(float))).fingerprint)
        assert len(found) == 2**9

    def test_tells_sizes_apart(self) -> None:
        assert len({Matrix.from_any(sp.csr_array((n, n))).fingerprint for n in range(1, 9)}) == 8

    def test_is_pinned(self) -> None:
        # Plans are keyed by this digest: a change of it makes every stored plan useless.
        M = Matrix.from_any(sp.csr_array(np.array([[4.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 4.0]])))
        assert M.fingerprint == "a5ca93d7abcd84ff6b17aafb81de186cbc21afcf265010de"

    def test_values_fingerprint(self) -> None:
        M = Matrix.from_any(grid(3))
        same = Matrix.from_any(grid(3).tocsc())
        assert M.values_fingerprint == same.values_fingerprint
        changed = M.data.copy()
        changed[5] = np.nextafter(changed[5], 9)
        assert M.with_values(changed).values_fingerprint != M.values_fingerprint
        assert Matrix.from_any(M, dtype="float32").values_fingerprint != M.values_fingerprint


class TestWithValues:
    def test_shares_the_pattern_and_takes_the_values(self) -> None:
        M = Matrix.from_any(grid(3))
        M.pattern_cache["order"] = 1
        M.cache["laid out"] = 2
        values = np.arange(M.nnz, dtype=np.float32)
        N = M.with_values(values)
        assert N.indices is M.indices
        assert N.indptr is M.indptr
        assert N.pattern_cache["order"] == 1
        assert N.cache == {}
        assert N.dtype == np.float32
        values[:] = 0
        assert N.data[3] == 3
        assert not N.data.flags.writeable
        assert N.features.value_symmetry == "none"
        assert M.features.value_symmetry == "symmetric"

    @pytest.mark.parametrize("data", [np.ones(5), np.full(33, np.nan), np.ones(33, dtype=object)])
    def test_refuses_what_does_not_fit(self, data: Any) -> None:
        with pytest.raises(MatrixError):
            Matrix.from_any(grid(3)).with_values(data)

    def test_survives_a_pickle(self) -> None:
        M = Matrix.from_any(grid(3))
        M.cache["unpicklable"] = lambda: None
        N = pickle.loads(pickle.dumps(M))
        assert N.fingerprint == M.fingerprint
        assert N.values_fingerprint == M.values_fingerprint
        assert not N.data.flags.writeable


class TestFeatures:
    @fast
    @given(
        data=st.data(), dtype=st.sampled_from(["float64", "complex128"]), mirror=st.sampled_from(["", "T", "-T", "H"])
    )
    def test_against_brute_force(self, data: Any, dtype: str, mirror: str) -> None:
        n, row, column, value = data.draw(triplets(dtype))
        if mirror:
            other = {"T": value, "-T": -value, "H": value.conj()}[mirror]
            row, column, value = np.r_[row, column], np.r_[column, row], np.r_[value, other]
        M = Matrix.from_any(sp.coo_array((value, (row, column)), shape=(n, n)))
        D, P = M.to_scipy().toarray(), np.zeros((n, n), dtype=bool)
        P[row, column] = True
        f = M.features
        lengths, places = P.sum(axis=1), np.argwhere(P)
        offsets = places[:, 1] - places[:, 0]
        assert (f.rows, f.nnz, f.dtype) == (n, P.sum(), dtype)
        assert (f.row_min, f.row_max, f.empty_rows) == (lengths.min(), lengths.max(), np.sum(lengths == 0))
        assert f.row_mean == pytest.approx(lengths.mean())
        assert f.row_std == pytest.approx(lengths.std())
        assert f.bandwidth == np.abs(offsets).max(initial=0)
        assert f.profile == sum(max(0, i - int(np.argmax(P[i]))) for i in range(n) if P[i].any())
        assert f.diagonal_count == len(set(offsets.tolist()))
        assert f.diagonal_fill == pytest.approx(P.sum() / (f.diagonal_count * n) if f.diagonal_count else 0)
        assert f.pattern_symmetric == np.array_equal(P, P.T)
        assert f.value_symmetry == self.symmetry(D, P, dtype)
        assert (f.block_size, f.block_fill) == self.blocks(P)
        graph = sp.csr_array((P | P.T).astype(float))
        components, label = connected_components(graph, directed=False)
        assert f.components == components
        hops = shortest_path(graph, directed=False, unweighted=True)
        reach = [hops[np.ix_(label == c, label == c)].max(axis=1) + 1 for c in range(components)]
        assert sum(r.min() for r in reach) <= f.level_count <= sum(r.max() for r in reach)
        widths = [len(r) / r.max() for r in reach]
        assert max(widths) <= f.level_width_max <= max(len(r) for r in reach)

    @staticmethod
    def symmetry(D: NDArray[Any], P: NDArray[Any], dtype: str) -> str:
        if not np.array_equal(P, P.T):
            return "none"
        if dtype == "complex128" and np.array_equal(D, D.conj().T):
            return "hermitian"
        if np.array_equal(D, D.T):
            return "symmetric"
        return "skew" if np.array_equal(D, -D.T) else "none"

    @staticmethod
    def blocks(P: NDArray[Any]) -> tuple[int, float]:
        n = len(P)
        for b in range(6, 1, -1):
            if b > n or not P.any():
                continue
            touched = [P[i : i + b, j : j + b] for i in range(0, n, b) for j in range(0, n, b)]
            cells = sum(t.size for t in touched if t.any())
            if P.sum() / cells >= 0.95:
                return b, pytest.approx(P.sum() / cells)
        return 1, 1.0

    @pytest.mark.parametrize("b", range(1, 7))
    def test_node_blocks_of_every_size(self, b: int) -> None:
        assert Matrix.from_any(sp.kron(grid(5), np.ones((b, b)))).features.block_size == b

    def test_levels_of_a_shuffled_path_and_grid(self) -> None:
        rng = np.random.default_rng(3)
        line = sp.diags_array([np.ones(99), np.ones(100), np.ones(99)], offsets=[-1, 0, 1]).tocsr()
        order = rng.permutation(100)
        f = Matrix.from_any(line[order][:, order]).features
        assert (f.level_count, f.level_width_max, f.components) == (100, 1, 1)
        order = rng.permutation(400)
        f = Matrix.from_any(grid(20)[order][:, order]).features
        assert (f.level_count, f.level_width_max) == (39, 20)  # from a corner of the 5-point grid

    def test_levels_follow_either_direction(self) -> None:
        upper = sp.diags_array([np.ones(9)], offsets=[1], shape=(10, 10))
        assert Matrix.from_any(upper).features.level_count == 10
        assert Matrix.from_any(upper.T).features.level_count == 10

    def test_components_one_after_another(self) -> None:
        A = sp.block_diag([grid(3), sp.eye_array(4), grid(2)])
        f = Matrix.from_any(A).features
        assert (f.components, f.level_count, f.level_width_max) == (6, 5 + 4 + 3, 3)

    def test_json(self) -> None:
        f = Matrix.from_any(grid(4)).features
        assert Features(**json.loads(json.dumps(f.to_json()))) == f

    def test_wide_indices_give_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        narrow = Matrix.from_any(grid(4)).features
        monkeypatch.setattr(akx.core.canonical, "_INT32_LIMIT", 0)
        assert Matrix.from_any(grid(4)).features == narrow


def slow_checksum(octets: bytes) -> int:
    """The formula, in Python integers."""
    mask, total = 2**64 - 1, 0
    count = len(octets) // 8
    words = [int.from_bytes(octets[8 * i : 8 * i + 8], "little") for i in range(count)]
    words += [len(octets), int.from_bytes(octets[8 * count :].ljust(8, b"\0"), "little")]
    for i, word in enumerate(words):
        word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93 & mask
        key = i * 0x9E3779B97F4A7C15 & mask
        total += (word ^ (word >> 32)) * ((key ^ (key >> 32)) | 1)
    return total & mask


class TestChecksum:
    @fast
    @given(octets=st.binary(max_size=100))
    def test_formula(self, octets: bytes) -> None:
        assert checksum(np.frombuffer(octets, dtype=np.uint8)) == slow_checksum(octets)

    @fast
    @given(data=st.data(), dtype=st.sampled_from([*DTYPES, "int32", "int64", "int8"]), size=st.integers(1, 50))
    def test_every_single_bit_counts(self, data: Any, dtype: str, size: int) -> None:
        a = np.zeros(size, dtype=dtype)
        octets = a.view(np.uint8)
        octets[:] = np.frombuffer(data.draw(st.binary(min_size=octets.size, max_size=octets.size)), dtype=np.uint8)
        before = checksum(a)
        octets[data.draw(st.integers(0, octets.size - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assert checksum(a) != before

    def test_structured_changes_of_smooth_data(self) -> None:
        n = 5000
        a = np.tile([1.0, 2.0, -4.0, 0.0], n // 4)
        variants = [
            a,
            2 * a,
            -a,
            a + 1,
            a[::-1].copy(),
            np.roll(a, 1),
            np.zeros(n),
            np.zeros(n - 1),
            np.ones(n),
            a[:-1],
        ]
        for distance in (1, 2, 1024, 2048, 4096):  # swaps of values whose low bits are all zero
            swapped = a.copy()
            swapped[[0, distance]] = swapped[[distance, 0]] if swapped[distance] != 1 else (2.0, 1.0)
            variants.append(swapped)
        sums = [checksum(v) for v in variants]
        assert len(set(sums)) == len({v.tobytes() for v in variants})

    def test_random_pairs_of_changes(self) -> None:
        rng = np.random.default_rng(0)
        a = np.ones(300)
        seen = {checksum(a)}
        places = rng.choice(300, size=(2000, 2))
        keys = set()
        for i, j in places:
            b = a.copy()
            b[i], b[j] = 2.0, 0.5
            keys.add(b.tobytes())
            seen.add(checksum(b))
        assert len(seen) == len(keys) + 1

    def test_threads_layout_and_alignment_do_not_matter(self) -> None:
        a = np.random.default_rng(1).random(1_200_003)
        assert checksum(a) == checksum(a, threads=2) == checksum(a, threads=5)
        assert checksum(a[::2]) == checksum(a[::2].copy())
        half = np.arange(1001, dtype=np.int32)
        assert checksum(half[1:]) == checksum(half[1:].copy())
        grown = a.reshape(-1, 3)[:4]
        assert checksum(np.asfortranarray(grown)) == checksum(grown)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_threads_that_read_are_not_those_of_a_parent(self) -> None:
        """They are kept, each has a share of every array, and a child begins with its own."""
        a, b = np.arange(3 * 2**18, dtype=np.float64), np.arange(7, dtype=np.int32)
        expected = [checksum(a), checksum(b)]
        assert [checksums([a, b], threads=threads) for threads in (2, 3)] == [expected] * 2
        child = succeeds_in_a_child(threading.Lock(), lambda: checksums([a, b], threads=3) == expected)
        assert child

    def test_numpy_forms_sums_until_numba_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a process in which nothing else needs Numba; where it is told not to compile, NumPy goes on."""
        a = np.random.default_rng(2).random(1003)
        expected, by_numpy, sizes = checksum(a), _checksum._by_numpy, list[int]()
        monkeypatch.setattr(_checksum, "is_loaded", lambda: False)
        monkeypatch.setattr(_checksum, "_by_numpy", lambda *given: sizes.append(given[0].size) or by_numpy(*given))
        assert [checksum(a) for _ in range(2)] == [expected] * 2
        assert sizes == [1003, 1003]
        monkeypatch.setattr(_checksum, "is_loaded", lambda: True)
        assert checksum(a) == expected
        assert sizes == [1003, 1003]
        monkeypatch.setattr(_checksum, "compiled_sum", lambda: (_ for _ in ()).throw(CompileError("told not to")))
        assert checksum(a) == expected
        assert sizes == [1003, 1003, 1003]

    def test_objects_have_no_checksum(self) -> None:
        with pytest.raises(ArgumentTypeError):
            checksum(np.array([None]))

    def test_is_fast(self) -> None:
        pytest.importorskip("akx.backends.cpu.jit")  # compiled where anything else is
        a = np.zeros(10_000_000)
        checksum(a[:8])
        best = min(self.seconds(a) for _ in range(3))
        assert a.nbytes / best > 2e9  # a loaded machine may be slow; alone it reads at memory bandwidth

    @staticmethod
    def seconds(a: NDArray[Any]) -> float:
        start = time.perf_counter()
        checksum(a)
        return time.perf_counter() - start


class TestContentToken:
    @pytest.mark.parametrize("form", FORMATS)
    def test_sees_a_change_of_any_value(self, form: str) -> None:
        A = grid(3).asformat(form)
        before = content_token(A)
        assert before == content_token(A) == content_token(A.copy())
        assert hash(before) is not None
        if form in ("lil", "dok", "csr", "csc"):
            A[1, 1] = 7.5
        else:
            A.data.reshape(-1)[5] = 7.5
        assert content_token(A) != before

    @pytest.mark.parametrize("name", ["data", "indices", "indptr"])
    def test_sees_every_entry_of_every_array(self, name: str) -> None:
        A = grid(3)
        before = content_token(A)
        array = getattr(A, name)
        for place in range(array.size):
            array[place] += 1
            assert content_token(A) != before
            array[place] -= 1
        assert content_token(A) == before

    def test_tells_formats_shapes_and_types_apart(self) -> None:
        A = grid(3)
        others = [
            A,
            A.tocsc(),
            A.tocoo(),
            A.astype("float32"),
            sp.csr_array((A.data, A.indices, A.indptr), shape=(9, 10)),
        ]
        assert len({content_token(B) for B in others}) == len(others)

    def test_of_a_matrix(self) -> None:
        M = Matrix.from_any(grid(3))
        assert content_token(M) == content_token(Matrix.from_any(grid(3).tocsc()))
        assert content_token(M) != content_token(M.with_values(2 * M.data))

    def test_refuses_dense(self) -> None:
        with pytest.raises(MatrixError):
            content_token(np.eye(2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_the_largest_magnitude(dtype: type) -> None:
    data = np.array([3.0, -7.5, 0.25]).astype(dtype) * (1j if np.dtype(dtype).kind == "c" else 1)
    matrix = Matrix.from_any(sp.csr_array(sp.diags_array(data)))
    assert matrix.largest == 7.5
    assert matrix.with_values(2 * matrix.data).largest == 15
    assert Matrix(matrix.indptr, matrix.indices, matrix.data, pattern_cache={}).largest == 7.5
    assert Matrix.from_any(sp.csr_array((3, 3))).largest == 0


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo"])
def test_indices_that_another_thread_changes_after_the_check_are_not_followed(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = sp.random_array((30, 30), density=0.2, rng=1, format="csr")
    A = good.copy().asformat(form)
    arrays = (A.row, A.col) if form == "coo" else (A.indices, A.indptr)
    name = "_check_coordinates" if form == "coo" else "_check_compressed"
    original = getattr(akx.core.canonical, name)

    def then_changed(*given: Any) -> None:
        original(*given)
        for array in arrays:
            array[:] = 10**6

    monkeypatch.setattr(akx.core.canonical, name, then_changed)
    assert (Matrix.from_any(A).to_scipy() != good).nnz == 0
    with pytest.raises(MatrixError, match="broken"):
        Matrix.from_any(A)


def test_lil_and_dok_become_what_their_entries_say() -> None:
    A = sp.random_array((30, 20), density=0.2, rng=1, format="csr")[:20]
    for form in ("lil", "dok"):
        for B in (A, A.astype(bool), A.astype(np.complex64), sp.csr_array((20, 20))):
            found = Matrix.from_any(B.asformat(form))
            assert (found.to_scipy() != B).nnz == 0
            assert found.nnz == B.nnz
    ragged = A.tolil()
    ragged.rows[3].append(19)
    with pytest.raises(MatrixError, match="broken"):
        Matrix.from_any(ragged)
