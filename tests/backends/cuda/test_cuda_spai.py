"""The sparse approximate inverse by the kernels' own text, run on the host; compiled for GPUs; and on one.

Some of the instances are compiled; all of them in the nightly run.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from host_engine import empty, install, to_device
from nightly import mostly_nightly
from nvcc import Macros, complaints, named, needs_nvcc

from akx.backends import selection as choose
from akx.backends.cuda.backend import CudaBackend
from akx.backends.cuda.device.compile import compile_cubin, compiler_name, options_for
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.matrix import transpose
from akx.backends.cuda.preconditioners import hermitian, scaling, spai
from akx.backends.cuda.program import C_TYPES
from akx.core.errors import BudgetError, InfeasibleError
from akx.core.matrix import Matrix
from akx.solvers import preconditioners

DTYPES = ["float32", "float64", "complex64", "complex128"]
ORDERS = (0, 1, 12345)
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
#: Classes of few threads and bytes, so that small problems are in all of them.
SMALL = (
    (32, 300, True),
    (32, 600, True),
    (64, 2400, True),
    (64, 0, True),
    (96, 16 * 1024, False),
    (96, 2**62, False),
)
#: Dense local problems of these sizes are in every class of the GPU.
CLASS_SIZES = [2, 3, 7, 10, 14, 20, 28, 40, 60, 80, 110, 160, 240, 300]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture
def device(built: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(transpose, "_LONG", 64)
    monkeypatch.setattr(transpose, "_LONG_ROW", 40)
    monkeypatch.setattr(spai, "CLASSES", SMALL)
    monkeypatch.setattr(spai, "_COUNTING", 16 * len(SMALL))
    return install(monkeypatch, built, (transpose, hermitian, spai), sms=3, shared=5 * 1024)


def graded(n: int, dtype: Any, seed: int = 0) -> sp.csr_array:
    """Rows of 0 to a dozen entries, some columns long, diagonal entries missing here and there."""
    rng = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=3.0 / n, rng=rng, format="lil")
    A[:, 5] = rng.standard_normal((n, 1)) * (rng.random((n, 1)) < 0.3)
    A[7, :] = rng.standard_normal((1, n)) * (rng.random((1, n)) < 0.5)
    for i in range(n):
        if i % 9:
            A[i, i] = 2.0 + rng.random()
    A = sp.csr_array(A.tocsr())
    A.data += 0.1 * rng.standard_normal(A.nnz)
    if np.dtype(dtype).kind == "c":
        A = A + 1j * sp.csr_array((rng.standard_normal(A.nnz), A.indices, A.indptr), shape=A.shape)
    return sp.csr_array(A.astype(dtype))


def random_numbers(rng: np.random.Generator, n: int, dtype: str) -> Any:
    found = rng.standard_normal(n)
    return (found + 1j * rng.standard_normal(n) if np.dtype(dtype).kind == "c" else found).astype(dtype)


# ---------------------------------------------------------------------------------------------- transposition


@on_the_host
@pytest.mark.parametrize("order", ORDERS)
def test_the_transpose_is_scipys_whatever_the_order_of_the_threads(device: Any, order: int) -> None:
    device.order = order
    for n in (1, 2, 31, 257, 1500):
        A = sp.csr_array(graded(n, "float32") if n > 8 else np.tri(n, dtype="float32"))
        pointer, index, data = (to_device(a) for a in (A.indptr.view("u4"), A.indices.view("u4"), A.data))
        found, source = transpose.transposed(pointer, index, n)
        expected = A.T.tocsr()
        expected.sort_indices()
        np.testing.assert_array_equal(found.get(), expected.indptr)
        rows = transpose.take(transpose.rows_of(pointer, A.nnz), source)  # type: ignore[arg-type]
        np.testing.assert_array_equal(rows.get(), expected.indices)
        np.testing.assert_array_equal(transpose.take(data, source).get(), expected.data)  # type: ignore[arg-type]


def by_rows_and_columns(A: Any, to_device: Any) -> tuple[Any, Any]:
    """A on the device by rows and by columns."""
    turned = A.T.tocsr()
    turned.sort_indices()
    return tuple(
        tuple(map(to_device, (one.indptr.astype("u4"), one.indices.astype("u4"), one.data))) for one in (A, turned)
    )


def is_hermitian_part(found: Any, A: Any) -> None:
    """The values are SciPy's to the bit; entries that cancel are kept."""
    pointer, index, values = (part.get() for part in found)
    ones = A.copy()
    ones.data = np.ones(A.nnz)
    pattern = sp.csr_array(ones + ones.T)
    pattern.sort_indices()
    np.testing.assert_array_equal(pointer, pattern.indptr)
    np.testing.assert_array_equal(index, pattern.indices)
    H = sp.csr_array((values, index, pointer), shape=A.shape)
    np.testing.assert_array_equal(H.toarray(), ((A + A.conj().T) * A.dtype.type(0.5)).toarray())


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_hermitian_part_is_scipys(device: Any, dtype: str) -> None:
    for n, order in ((1, 0), (9, 1), (130, 5)):
        device.order = order
        A = graded(n, dtype) if n > 8 else sp.csr_array(np.full((1, 1), 3, dtype=dtype))
        A = sp.csr_array(A)
        A.sort_indices()
        if n > 100:  # an entry that cancels
            A = A.tolil()
            A[2, 40], A[40, 2] = 1.0, -1.0
            A = sp.csr_array(A)
        is_hermitian_part(hermitian.hermitian_part(*by_rows_and_columns(A, to_device)), A)
    with pytest.raises(InfeasibleError, match="too large"):
        hermitian.hermitian_part((np.zeros(2), np.broadcast_to(0, 2**31), np.zeros(1)), None)  # type: ignore[arg-type]


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_diagonal_matrix_times_a_vector(built: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    install(monkeypatch, built, (scaling,))
    rng = np.random.default_rng(0)
    for n in (1, 255, 300):
        d, x = (random_numbers(rng, n, dtype) for _ in range(2))
        out = empty(n, dtype)
        scaling.Scaling(d).apply(to_device(x), out)
        np.testing.assert_allclose(out.get(), d * x, rtol=4 * np.finfo(dtype).eps)


@on_the_host
def test_sums_over_more_chunks_than_a_block_has_threads(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0).integers(0, 100, 300_000, dtype=np.uint32)
    held = to_device(numbers)
    transpose.running_sums(held)  # type: ignore[arg-type]
    np.testing.assert_array_equal(held.get(), np.cumsum(numbers) - numbers)


# --------------------------------------------------------------------------------------------------- the inverse


def agrees(found: Any, A: Any, reference: Any, tolerance: float) -> None:
    """M, misfit and sizes are those of the host; the pattern is to the entry."""
    M = sp.csr_array((found.data, found.indices, found.indptr), shape=A.shape)
    assert M.data.dtype == A.dtype
    expected = reference.matrix
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    scale = np.abs(expected.data).max()
    np.testing.assert_allclose(M.data, expected.data, rtol=0, atol=tolerance * scale)
    assert np.sqrt(found.misfit.sum() / A.shape[0]) == pytest.approx(reference.misfit, rel=1e-9)
    assert found.largest == reference.largest


@on_the_host
@pytest.mark.parametrize("dtype", mostly_nightly(DTYPES))
def test_m_is_that_of_the_host_in_every_class(device: Any, dtype: str) -> None:
    A = graded(64, dtype)
    matrix = Matrix.from_any(A)
    tolerance = 1e-6 if np.finfo(dtype).eps > 1e-8 else 1e-10
    for tau, orders in ((0.0, (0,)), (0.7, ORDERS if dtype == "complex128" else (1,)), (1.0, (7,))):
        reference = preconditioners.spai(matrix, tau, backend="cpu")
        bits = set()
        for order in orders:
            device.order = order
            device.launches.clear()
            found = spai.approximate_inverse(matrix, factor=1.0 - tau)
            agrees(found, A, reference, tolerance)
            bits.add(found.data.tobytes() + found.misfit.tobytes())
        assert len(bits) == 1
    solves = {(block, shared) for name, _, block, shared in device.launches if name == "solve_columns"}
    assert {block for block, _ in solves} == {256, 64, 96}  # eight warps, a block of two, one of three


@on_the_host
def test_less_memory_means_fewer_blocks_and_the_same_bits(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spai, "CLASSES", ((32, 600, True), (96, 2**62, False)))
    matrix = Matrix.from_any(graded(50, "float64"))
    found, grids = [], []
    rows, columns = preconditioners.spai(matrix, 1.0, backend="cpu").largest
    for memory in (2**30, 20 * rows * (columns + 2)):  # room for two of the largest
        device.launches.clear()
        found.append(spai.approximate_inverse(matrix, factor=0.0, memory=memory))
        grids += [grid for name, grid, block, _ in device.launches if name == "solve_columns" and block == 96]
    assert found[0].data.tobytes() == found[1].data.tobytes()
    assert grids[0] == spai._OUTSIDE * device.sms > grids[1] >= 1
    with pytest.raises(BudgetError, match=r"local problem of column \d+ does not fit"):
        spai.approximate_inverse(matrix, factor=0.0, memory=1000)


@on_the_host
def test_a_given_pattern_dependent_columns_and_extremes(device: Any) -> None:
    A = Matrix.from_any(graded(60, "float64"))
    wide = sp.csc_array(sp.csr_array(abs(A.to_scipy()) @ abs(A.to_scipy())))
    wide.sort_indices()
    wide.data[:] = 0  # stored zeros are part of a pattern
    found = spai.approximate_inverse(A, pattern=(wide.indptr, wide.indices))
    agrees(found, A.to_scipy(), preconditioners.spai(A, pattern=wide, backend="cpu"), 1e-9)

    singular = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    for dense in (singular, np.zeros((3, 3)), np.array([[4e-320, 1.0], [0.0, 2.0]]), np.diag([1e300, 1e-300, 3.0])):
        small = Matrix.from_any(sp.csr_array(dense))
        reference = preconditioners.spai(small, 1.0, backend="cpu")
        found = spai.approximate_inverse(small, factor=0.0)
        assert np.isfinite(found.data).all()
        np.testing.assert_allclose(found.data, reference.matrix.data, rtol=1e-14)
        assert np.sqrt(found.misfit.mean()) == pytest.approx(reference.misfit, abs=1e-15)
        said = " ".join(reference.notes)
        assert (f"{found.lost} entries of M were" in said) == (found.lost > 0)
        assert (f"{found.empty} columns of M are zero" in said) == (found.empty > 0)

    nothing = (np.zeros(4, dtype=np.int64), np.zeros(0, dtype=np.int32))
    empty = spai.approximate_inverse(Matrix.from_any(sp.csr_array(singular)), pattern=nothing)
    assert (empty.data.size, empty.empty, list(empty.misfit)) == (0, 3, [1.0, 1.0, 1.0])


@on_the_host
def test_spai_of_the_solvers_on_the_device(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option by the way over the device; ``auto`` goes there from a number of entries on."""
    A = graded(60, "float64")
    for options in ({}, {"most": 3}, {"symmetric": True}, {"pattern": sp.csr_array(abs(A) @ abs(A))}, {"tau": 0.0}):
        found, reference = (preconditioners.spai(A, backend=backend, **options) for backend in ("cuda", "cpu"))
        assert (found.backend, reference.backend) == ("cuda", "cpu")
        if "symmetric" not in options:  # where SciPy leaves out what cancels
            assert found.matrix.fingerprint == reference.matrix.fingerprint, options
        np.testing.assert_allclose(found.M.toarray(), reference.M.toarray(), rtol=0, atol=1e-10)
        assert (found.notes, found.largest, found.hermitian) == (
            reference.notes,
            reference.largest,
            reference.hermitian,
        )
        assert found.misfit == pytest.approx(reference.misfit, rel=1e-9)
        assert np.isnan(found.tau) == ("pattern" in options)
    monkeypatch.setattr(choose, "is_usable", lambda backend: True)
    assert preconditioners.spai(A).backend == "cpu"
    monkeypatch.setattr(CudaBackend, "inverse_entries", A.nnz)
    assert preconditioners.spai(A).backend == "cuda"
    monkeypatch.setattr(choose, "is_usable", lambda backend: False)
    assert preconditioners.spai(A).backend == "cpu"


def test_what_cannot_be_counted_in_32_bits_is_refused() -> None:
    class Huge:
        n, nnz, dtype = 10, 2**32, np.dtype(float)

    with pytest.raises(InfeasibleError, match="too large for the device"):
        spai.approximate_inverse(Huge())  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- compiling


@needs_nvcc
def test_every_instance_compiles_for_gpus_without_spills(tmp_path: Path, is_nightly: bool) -> None:
    pairs = list(product(C_TYPES.values(), sorted({team for team, _, _ in spai.CLASSES})))
    some = [("double", 32), ("cdouble", 512)]
    assert set(some) <= set(pairs)
    jobs: list[tuple[Path, Macros]] = [
        (named("spai.cu"), {"AKX_VALUE": kind, "AKX_TEAM": team}) for kind, team in (pairs if is_nightly else some)
    ]
    jobs += [
        (named(f"{source}.cu"), {"AKX_VALUE": kind})
        for source in ("scaling", "hermitian")
        for kind in (C_TYPES.values() if is_nightly else ["cfloat"])
    ]
    jobs += [
        (named("transpose.cu"), {"AKX_VALUE": kind, "AKX_LONG": 1024})
        for kind in (("u32", *C_TYPES.values()) if is_nightly else ("u32", "cdouble"))
    ]
    assert not (text := complaints(jobs, tmp_path, ["-Xptxas", "-warn-spills"])), text


@pytest.mark.parametrize("source", ["spai", "transpose", "scaling", "hermitian"])
def test_nvrtc_takes_the_sources_too(source: str) -> None:
    """It is stricter than nvcc: what has no mark is a function of the host, which it does not compile."""
    if not (compiler_name() or "").startswith("NVRTC"):
        pytest.skip("NVRTC is not installed")
    macros: dict[str, int | str] = {"AKX_VALUE": "cdouble", "AKX_TEAM": 32, "AKX_LONG": 1024}
    assert compile_cubin(named(f"{source}.cu"), options_for(macros), "sm_90")


# --------------------------------------------------------------------------------------------------------- on a GPU


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [0.0, 0.6, 1.0])
def test_m_of_the_gpu_is_that_of_the_host(dtype: str, tau: float) -> None:
    tolerance = 1e-6 if np.finfo(dtype).eps > 1e-8 else 1e-10
    for n, seed in ((1, 0), (33, 1), (2000, 2)):
        A = graded(n, dtype, seed) if n > 8 else sp.csr_array(np.full((1, 1), 3, dtype=dtype))
        matrix = Matrix.from_any(A)
        found = [spai.approximate_inverse(matrix, factor=1.0 - tau) for _ in range(2)]
        agrees(found[0], A, preconditioners.spai(matrix, tau, backend="cpu"), tolerance)
        assert found[0].data.tobytes() == found[1].data.tobytes()
        assert found[0].misfit.tobytes() == found[1].misfit.tobytes()


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("dense", [False, True], ids=["arrows", "dense_blocks"])
def test_every_class_of_the_gpu(dtype: str, dense: bool) -> None:
    """Blocks of many sizes, whose local problems are what they are: one launch for each class at least.

    Of a dense block every column is such a problem, of an arrow (a dense column and a diagonal) the first alone.
    """
    rng = np.random.default_rng(0)
    blocks: list[Any] = []
    for size in CLASS_SIZES if dense else 2 * CLASS_SIZES:
        block = rng.standard_normal((size, size)) + (1j * rng.standard_normal((size, size)) if "c" in dtype else 0)
        if not dense:
            block[:, 1:] = 0
        blocks.append(sp.csr_array(block + 2 * np.sqrt(size) * np.eye(size)))
    A = sp.csr_array(sp.block_diag(blocks, format="csr").astype(dtype))
    matrix = Matrix.from_any(A)
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-8 else 1e-10
    inverses = [np.linalg.inv(block.toarray().astype(dtype).astype(complex)) for block in blocks]
    reference = sp.block_diag([sp.csr_array(inverse) for inverse in inverses])
    longest = max(CLASS_SIZES)
    for memory in (None, longest * (longest + 1) * 16 + 100_000):  # as many blocks as there are, and one at a time
        found = spai.approximate_inverse(matrix, factor=0.0, memory=memory)
        assert found.misfit.max() < tolerance**2
        M = sp.csr_array((found.data, found.indices, found.indptr), shape=A.shape)
        assert abs(M - reference).max() < tolerance * abs(reference).max()
    with pytest.raises(BudgetError, match="does not fit"):
        spai.approximate_inverse(matrix, factor=0.0, memory=100_000)


@pytest.mark.cuda
@on_a_gpu
def test_long_rows_are_transposed_on_the_gpu() -> None:
    from akx.backends.cuda.device.memory import to_device

    rng = np.random.default_rng(0)
    A = sp.random_array((20_000, 300), density=0.3, rng=rng, format="csr", dtype=np.float64)
    found, source = transpose.transposed(to_device(A.indptr.view("u4")), to_device(A.indices.view("u4")), 300)
    expected = A.T.tocsr()
    expected.sort_indices()
    np.testing.assert_array_equal(found.get(), expected.indptr)
    np.testing.assert_array_equal(transpose.take(to_device(A.data), source).get(), expected.data)


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_hermitian_part_on_the_gpu(dtype: str) -> None:
    from akx.backends.cuda.device.memory import to_device

    for n in (9, 3000):
        A = graded(n, dtype)
        A.sort_indices()
        is_hermitian_part(hermitian.hermitian_part(*by_rows_and_columns(A, to_device)), A)
    found = preconditioners.spai(graded(500, dtype), 0.9, symmetric=True, backend="cuda")
    assert found.hermitian
    assert abs(found.M - found.M.conj().T).max() == 0


@pytest.mark.cuda
@on_a_gpu
def test_a_given_pattern_and_zeros_on_the_gpu() -> None:
    A = Matrix.from_any(graded(300, "float64"))
    wide = sp.csc_array(sp.csr_array(abs(A.to_scipy()) @ abs(A.to_scipy())))
    wide.sort_indices()
    found = spai.approximate_inverse(A, pattern=(wide.indptr, wide.indices))
    agrees(found, A.to_scipy(), preconditioners.spai(A, pattern=wide, backend="cpu"), 1e-9)
    singular = Matrix.from_any(sp.csr_array(np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])))
    found = spai.approximate_inverse(singular, factor=0.0)
    reference = preconditioners.spai(singular, 1.0, backend="cpu")
    np.testing.assert_allclose(found.data, reference.matrix.data, rtol=1e-14)
    assert found.empty == 1
