"""Matrices that callers have on the device: taken as the host takes them, by the kernels' own text on the host."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_engine
import numpy as np
import program_on_host
import pytest
import scipy.sparse as sp
from program_on_host import Device
from test_contract import make_coefficients, random_numbers
from test_cuda_layouts import H100

import akx
from akx.backends import reference
from akx.backends.cuda import row_lengths as lengths
from akx.backends.cuda.csr import plain
from akx.backends.cuda.csr import powers as csr_powers
from akx.backends.cuda.device import callers, dlpack, interchange, memory
from akx.backends.cuda.matrix import canonical as canonicals
from akx.backends.cuda.matrix import content, device_matrix, transpose
from akx.backends.cuda.schedules.sweep import schedule as sweeps
from akx.backends.cuda.value_compression import program as stored_program
from akx.backends.cuda.value_compression.encodings import HALF, STORED, TABLE, encoded, error_of, ways_of
from akx.backends.cuda.value_compression.new_values import entry_map
from akx.backends.cuda.variants import slots, swept, translate, vbell
from akx.core import checksum, device_arrays
from akx.core.errors import ArgumentTypeError, DeviceMemoryError, MatrixError, MissingDependencyError
from akx.core.matrix import Matrix, content_token
from akx.core.plan import Plan
from akx.formats import pcsr, sell
from akx.formats.base import pattern_of
from akx.operator import device_calls, lookup
from akx.operator.lookup import canonical
from akx.operator.matrix_values import same_pattern
from akx.operator.overflow import OverflowWatch
from akx.operator.planner import Asked, Planner
from akx.operator.prepared import Prepared
from akx.operator.recurrence import Recurrence
from akx.solvers.symmetry import is_hermitian

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
DTYPES = ("float32", "float64", "complex64", "complex128")


# ------------------------------------------------------------------------------------------------------ what is given


class There:
    """An array on a GPU, whose memory is the host's here."""

    def __init__(self, held: Any) -> None:
        self.held, self.shape, self.dtype, self.ndim = held, held.shape, held.dtype, held.ndim

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.held.__array_interface__, "version": 3, "stream": 7}


class Speaker(There):
    """One that speaks DLPack alone."""

    __cuda_array_interface__ = property()  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        if name == "__cuda_array_interface__":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: Any) -> Any:
        held = self.held
        return dlpack.capsule_of(
            held.ctypes.data, held.shape, held.strides, held.dtype, device=(2, 0), owner=held, copied=False
        )


class Cupyx:
    """As CuPy's sparse matrices."""

    def __init__(self, A: Any) -> None:
        self.host, self.format, self.shape, self.dtype = A, A.format, A.shape, A.dtype
        self.data = There(A.data)
        names = ("row", "col") if A.format == "coo" else ("indices", "indptr") if A.format != "dia" else ()
        for name in names:
            setattr(self, name, There(getattr(A, name)))

    def get(self) -> Any:
        return self.host

    def tocsr(self) -> Cupyx:
        return Cupyx(self.host.tocsr())


class Tensor:
    """As sparse tensors of PyTorch on a GPU."""

    is_cuda = True

    def __init__(self, A: Any) -> None:
        self.host, self.layout, self.shape = A, f"torch.sparse_{A.format}", A.shape

    def detach(self) -> Tensor:
        return self

    coalesce = detach

    def values(self) -> There:
        return There(self.host.data)

    def indices(self) -> list[There]:
        return [There(self.host.row), There(self.host.col)]

    def crow_indices(self) -> There:
        return There(self.host.indptr)

    def col_indices(self) -> There:
        return There(self.host.indices)

    ccol_indices, row_indices = crow_indices, col_indices


def as_tuple(A: Any, kind: type = There) -> tuple[Any, ...]:
    A = sp.csr_array(A)
    return kind(A.data), kind(A.indices), kind(A.indptr)


FORMS: dict[str, Any] = {
    "cupyx csr": lambda A: Cupyx(sp.csr_array(A)),
    "cupyx csc": lambda A: Cupyx(sp.csc_array(A)),
    "cupyx coo": lambda A: Cupyx(A),
    "cupyx dia": lambda A: Cupyx(sp.dia_array(A)),
    "torch csr": lambda A: Tensor(sp.csr_array(A)),
    "torch csc": lambda A: Tensor(sp.csc_array(A)),
    "torch coo": lambda A: Tensor(A),
    "arrays": as_tuple,
    "arrays and shape": lambda A: (*as_tuple(A), A.shape),
    "dlpack": lambda A: as_tuple(A, Speaker),
}


def entries(dtype: str = "float64", n: int = 70, *, index: str = "int32", seed: int = 0) -> Any:
    """COO in any order, with entries at one place twice, empty rows, a zero, and a row longer than a warp."""
    rng = np.random.default_rng(seed)
    row = np.concatenate([rng.integers(0, n // 2, 300), np.full(50, 3), [5, 5]])
    col = np.concatenate([rng.integers(0, n, 300), rng.integers(0, n, 50), [7, 8]])
    row, col = np.append(row, row[:40]), np.append(col, col[:40])
    data = random_numbers(rng, row.size, dtype)
    data[17] = 0
    return sp.coo_array((data, (row.astype(index), col.astype(index))), shape=(n, n))


def scrambled(A: Any, index: str = "int32") -> Any:
    """CSR whose columns do not ascend, with what SciPy does not look at behind the last entry."""
    A = A.copy()
    A.sum_duplicates()
    A = sp.csr_array(A)
    rng = np.random.default_rng(1)
    for begin, end in zip(A.indptr, A.indptr[1:], strict=False):
        order = begin + rng.permutation(end - begin)
        A.data[begin:end], A.indices[begin:end] = A.data[order], A.indices[order]
    more = np.append(A.data, A.data[:3]), np.append(A.indices, [0, 1, 2]).astype(index), A.indptr.astype(index)
    return There(more[0]), There(more[1]), There(more[2])


# ------------------------------------------------------------------------------------------------------- the device


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canonical")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, built: Path) -> Device:
    """Memory of the host behind arrays of the device; `waited` and `released` are the streams of callers."""
    sources = (
        "canonical",
        "content",
        "csr_powers",
        "digest",
        "slots",
        "lengths",
        "transpose",
        "sweep",
        "vbell",
        "translate",
    )
    found: Any = Device(H100, built, *sources)
    modules = [
        canonicals,
        content,
        csr_powers,
        device_matrix,
        slots,
        lengths,
        transpose,
        sweeps,
        swept,
        vbell,
        translate,
        plain,
    ]
    found.install(monkeypatch, built, [*modules, memory])
    found.waited, found.released = [], []
    stream = SimpleNamespace(wait_for=found.waited.append, release_to=found.released.append)
    stream.is_capturing, stream.submit = False, lambda work: work(host_engine.HostStream())
    stream.come_back = lambda: None
    live = SimpleNamespace(active=contextlib.nullcontext, is_current=True)
    for module in (callers, csr_powers, device_calls):
        monkeypatch.setattr(module, "runtime", lambda: live)
    for module in (callers, device_calls):
        monkeypatch.setattr(module, "stream_of", lambda handle, **options: stream)
    for module in (interchange, device_calls):
        monkeypatch.setattr(module, "default_stream", lambda: stream)
    monkeypatch.setattr(interchange, "_check_device", lambda array: None)
    monkeypatch.setattr(interchange, "empty", host_engine.empty)
    monkeypatch.setattr(interchange, "_copy_strided", _copy_strided)
    monkeypatch.setattr(canonicals, "cuda_missing", lambda: None)
    monkeypatch.setattr(translate, "_LARGE", 128)
    return found


def _copy_strided(source: int, step: int, target: int, size: int, count: int) -> None:
    for number in range(count):
        host_engine.send(target + number * size, source + number * step, size, None)


def is_the_hosts(found: Matrix, A: Any, **options: Any) -> None:
    """A matrix of the device is that of the host, in all that is known without a look at its entries, and in these."""
    expected = Matrix.from_any(A, **options)
    assert isinstance(found, device_matrix.DeviceMatrix)
    assert (found.n, found.nnz, found.dtype, found.nbytes) == (
        expected.n,
        expected.nnz,
        expected.dtype,
        expected.nbytes,
    )
    assert found.fingerprint == expected.fingerprint
    assert found.index_dtype == expected.index_dtype
    assert not {"indptr", "indices", "data"} & set(vars(found))  # nothing has come to the host so far
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-6 if found.dtype.itemsize == 4 else 1e-14, atol=1e-6)
    assert found.largest == pytest.approx(expected.largest)
    assert found.indices.dtype == expected.indices.dtype
    assert not any(array.flags.writeable for array in (found.indptr, found.indices, found.data))


@on_the_host
@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_taken_there(device: Any, form: str) -> None:
    A = entries()
    if form == "cupyx dia":
        A = sp.coo_array(sp.diags_array([1.0, 2.0, 3.0], offsets=[-4, 0, 9], shape=(40, 40)))
    is_the_hosts(Matrix.from_any(FORMS[form](A)), A)
    if "torch" not in form and form != "dlpack":
        assert set(device.waited) == {7}  # behind the work of its stream, which waits in turn
        assert set(device.released) == {7}


@on_the_host
@pytest.mark.parametrize(("dtype", "index"), [*zip(DTYPES, ("int64", "int32", "int32", "int64"), strict=True)])
def test_types_and_orders(device: Any, dtype: str, index: str) -> None:
    A = entries(dtype, index=index)
    for turn, order in enumerate((1, 7)):
        device.threads.order = order
        is_the_hosts(Matrix.from_any(Cupyx(A)), A)
        whole = scrambled(A, index)
        is_the_hosts(Matrix.from_any(whole), sp.csr_array(A))
        is_the_hosts(Matrix.from_any(Cupyx(A), explicit_zeros="drop"), A, explicit_zeros="drop")
        wanted = DTYPES[(DTYPES.index(dtype) + 1 + 2 * turn) % 4]
        if not (dtype.startswith("c") and wanted.startswith("f")):
            is_the_hosts(Matrix.from_any(Cupyx(A), dtype=wanted), A, dtype=wanted)


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_symmetry_up_to_rounding_is_asked_there(device: Any, dtype: str) -> None:
    """Whatever the pattern, and the diagonal; nothing but that comes to the host."""
    rng, eps, answers = np.random.default_rng(0), float(np.finfo(dtype).eps), []
    for trial in range(60):
        n = int(rng.integers(1, 12))
        W = random_numbers(rng, n * n, dtype).reshape(n, n) * (rng.random((n, n)) < 0.4)
        noise = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.1)
        A = sp.csr_array((W + W.conj().T + eps * (3.0, 80.0)[trial % 2] * noise).astype(dtype))
        found = Matrix.from_any(Cupyx(A))
        answers.append(is_hermitian(found))
        np.testing.assert_array_equal(found.diagonal(), A.diagonal())
        assert not {"indptr", "indices", "data"} & set(vars(found))
        assert answers[-1] == is_hermitian(Matrix.from_any(A))
    assert 10 < sum(answers) < 50
    assert is_hermitian(Matrix.from_any(Cupyx(sp.csr_array((3, 3), dtype=dtype))))


@on_the_host
def test_sums_are_in_the_order_given(device: Any) -> None:
    big = np.array([1e16, 1.0, -1e16, 1.0])
    A = sp.coo_array((big, (np.zeros(4, "i4"), np.zeros(4, "i4"))), shape=(2, 2))
    assert Matrix.from_any(Cupyx(A)).data.tolist() == [((1e16 + 1.0) - 1e16) + 1.0]


@on_the_host
def test_memory_is_its_own(device: Any) -> None:
    A = sp.csr_array(entries())
    A.sum_duplicates()
    theirs = Cupyx(A)
    before, found = A.copy(), Matrix.from_any(theirs)
    A.data[:], A.indices[:] = 7, 0
    np.testing.assert_array_equal(found.to_scipy().toarray(), before.toarray())
    assert Matrix.from_any(found) is found


@on_the_host
@pytest.mark.parametrize("size", [(4096, 0), (5000, 9000), (1, 1), (3, 4096), (8192, 8192)])
def test_the_digest_is_the_hosts(device: Any, size: tuple[int, int]) -> None:
    """Leaves that are full, nearly empty, and none: 16 KiB are 4096 rows or entries."""
    n, nnz = size
    rng = np.random.default_rng(2)
    lengths = np.bincount(rng.integers(0, n, nnz), minlength=n) if n > 3 else np.array([nnz] + [0] * (n - 1))
    indptr = np.append(0, np.cumsum(lengths)).astype(np.uint32)
    indices = rng.integers(0, n, nnz).astype(np.uint32)
    of_host = akx.core.matrix.Pattern(indptr, indices)
    of_device = device_matrix._Pattern(host_engine.to_device(indptr), host_engine.to_device(indices))
    assert of_device.digest == of_host.digest
    assert of_device.former_digest == of_host.former_digest


@on_the_host
def test_what_is_not_for_the_kernels_goes_by_the_host(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in ("int64", "bool", "float16"):
        A = sp.csr_array(sp.random_array((20, 20), density=0.2, rng=np.random.default_rng(0)))
        A.data = (10 * A.data).astype(dtype)
        found = Matrix.from_any((There(A.data), There(A.indices), There(A.indptr)))
        assert found.on_device is None
        np.testing.assert_array_equal(found.to_scipy().toarray(), Matrix.from_any(A).to_scipy().toarray())
    monkeypatch.setattr(canonicals, "_MOST", 10)  # of rows and entries
    found = Matrix.from_any(Cupyx(entries()))
    assert found.on_device is None
    np.testing.assert_allclose(found.to_scipy().toarray(), entries().toarray())


@on_the_host
def test_strided_arrays_are_copied(device: Any) -> None:
    A = sp.csr_array(entries())
    wide = np.zeros((A.nnz, 2))
    wide[:, 0] = A.data
    found = Matrix.from_any((There(wide[:, 0]), There(A.indices), There(A.indptr)))
    np.testing.assert_allclose(found.to_scipy().toarray(), A.toarray())


def _broken(what: str) -> tuple[Any, ...]:
    data, indices, indptr = np.ones(4), np.array([0, 1, 2, 0], "i4"), np.array([0, 1, 3, 4], "i4")
    if what == "descending":
        indptr[1] = 4
    elif what == "negative":
        indptr[1] = -1
    elif what == "first":
        indptr[0] = 1
    elif what == "beyond":
        indptr[3] = 9
    elif what == "far":
        indices[2] = 3
    elif what == "below":
        indices[2] = -1
    elif what == "nan":
        data[2] = np.nan
    elif what == "inf":
        data[3] = np.inf
    elif what == "flat":
        data = data.reshape(2, 2)
    elif what == "floats":
        indices = indices.astype("f8")
    elif what == "shape":
        return There(data), There(indices), There(indptr), (3, 4)
    elif what == "no shape":
        return There(data), There(indices), There(indptr), None
    elif what == "other rows":
        return There(data), There(indices), There(indptr), (5, 5)
    elif what == "mixed":
        return There(data), There(indices), indptr
    return There(data), There(indices), There(indptr)


@on_the_host
@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("descending", MatrixError, "not ascending"),
        ("negative", MatrixError, "not ascending"),
        ("first", MatrixError, "not ascending"),
        ("beyond", MatrixError, "behind the last entry"),
        ("far", MatrixError, "indices are out of range"),
        ("below", MatrixError, "indices are out of range"),
        ("nan", MatrixError, r"not finite[\s\S]*nan at row 1, column 2"),
        ("inf", MatrixError, r"not finite[\s\S]*inf at row 2, column 0"),
        ("flat", akx.ArgumentError, "data of the matrix is not one-dimensional"),
        ("floats", ArgumentTypeError, "indices of the matrix is not made of integers"),
        ("shape", MatrixError, "not square"),
        ("no shape", ArgumentTypeError, "shape is not one"),
        ("other rows", MatrixError, "not ascending"),
        ("mixed", ArgumentTypeError, "indptr on the host"),
    ],
)
def test_what_is_broken_is_named(device: Any, what: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Matrix.from_any(_broken(what))


@on_the_host
def test_broken_coordinates(device: Any) -> None:
    A = entries()
    for place, value, words in ((A.row, 70, "row indices"), (A.col, -1, "column indices")):
        old, place[5] = place[5], value
        with pytest.raises(MatrixError, match=words):
            Matrix.from_any(Cupyx(A))
        place[5] = old
    theirs = Cupyx(A)
    theirs.row = There(A.row[:-1])
    with pytest.raises(MatrixError, match="not of one size"):
        Matrix.from_any(theirs)


@on_the_host
@pytest.mark.parametrize("form", ["cupyx csr", "cupyx coo", "torch csc", "arrays"])
def test_a_change_is_seen(device: Any, form: str) -> None:
    A = entries()
    theirs = FORMS[form](A)
    first = content_token(theirs)
    assert content_token(theirs) == first
    arrays = [array.held for array in device_arrays.parts_of(theirs).arrays]  # type: ignore[union-attr]
    for array in arrays:
        old = array[-1].copy()
        array[-1] += 1
        assert content_token(theirs) != first
        array[-1] = old
    arrays[0][[3, 4]] = arrays[0][[4, 3]]
    assert content_token(theirs) != first


@on_the_host
def test_what_is_kept_for_solvers_is_never_stale(device: Any) -> None:
    A = sp.csr_array(sp.diags_array([1.0, 4.0, 2.0], offsets=[-1, 0, 1], shape=(30, 30)))
    theirs, arrays = Cupyx(A), as_tuple(A)
    for object_of in (lambda: theirs, lambda: tuple(arrays)):  # a tuple is another one each time
        first = canonical(object_of())
        again = canonical(object_of())
        assert again.on_device is not None
        assert again.on_device.data is first.on_device.data
        A.data[4] += 1
        renewed = canonical(object_of())
        np.testing.assert_array_equal(renewed.data, A.data)
        assert first.data[4] == A.data[4] - 1
        A.data[4] -= 1
    akx.clear_cache()


@on_the_host
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dia"])
def test_a_large_matrix_of_the_host_is_sent_as_it_is(device: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And looked at there; neither its order nor its content is asked for on the host."""
    A = sp.diags_array([1.0, 4.0, 2.0], offsets=[-1, 0, 1], shape=(30, 30)).asformat(form)
    assert canonical(A, on_device=True).on_device is None  # the host has read this one as soon
    akx.clear_cache()
    monkeypatch.setattr(canonicals, "_SENT", 1)
    first = canonical(A, on_device=True)
    if form == "dia":
        assert first.on_device is None
        return
    monkeypatch.setattr(checksum, "checksums", lambda *given, **named: pytest.fail("the host reads it"))
    assert canonical(A, on_device=True).on_device.data is first.on_device.data
    A.data[4] += 1
    renewed = canonical(A, on_device=True)
    assert not {"indptr", "indices", "data"} & set(vars(renewed))
    np.testing.assert_array_equal(renewed.to_scipy().toarray(), A.toarray())
    assert (first.to_scipy() != renewed.to_scipy()).nnz == 1
    A.data = A.data.astype(">f8")
    assert canonicals.sent(A) is None  # kernels would read it as the host's own kind
    A.data = A.data.astype("f8")
    monkeypatch.setattr(canonicals, "to_device", lambda one: (_ for _ in ()).throw(DeviceMemoryError("no room")))
    assert canonicals.sent(A) is None
    akx.clear_cache()


# ------------------------------------------------------------------------------------------------- what is laid out


def general(dtype: str) -> Any:
    rng = np.random.default_rng(5)
    A = sp.csr_array(sp.random_array((300, 300), density=0.03, rng=rng) + sp.eye_array(300))
    A.data = random_numbers(rng, A.nnz, "complex128" if dtype.startswith("c") else "float64")
    return A.astype(dtype)


def few_kinds(A: Any) -> Any:
    A = A.copy()
    A.data = A.data[np.random.default_rng(0).integers(0, 40, A.nnz)]
    return A


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_ways_to_store_are_the_hosts(device: Any, dtype: str) -> None:
    narrow = np.complex64 if dtype.startswith("c") else np.float32
    for A in (general(dtype), few_kinds(general(dtype)), few_kinds(general(dtype)).astype(narrow).astype(dtype)):
        for error in (0.0, 1e-6):
            theirs = Matrix.from_any(Cupyx(A), value_error=error)
            ours = Matrix.from_any(A, value_error=error)
            assert ways_of(theirs) == ways_of(ours)
            assert error_of(theirs, HALF) == error_of(ours, HALF)
            assert "data" not in vars(theirs)
            if TABLE in ways_of(ours):
                stored, table, _ = vars(encoded(theirs.on_device.data, TABLE)).values()
                place = host_engine.seen(stored) // theirs.dtype.itemsize
                assert table[place].tobytes() == ours.data.tobytes()


@on_the_host
@pytest.mark.parametrize("variant", ["csr-8", "sell16-2", "sell-1", "pcsr", "rows16", "vbell-2"])
@pytest.mark.parametrize("way", STORED)
def test_sweeps_take_it_where_it_is(device: Any, variant: str, way: str) -> None:
    """To the bit what comes of the same matrix of the host. Nothing of it is copied there."""
    A = few_kinds(general("float64")).astype(np.float32).astype(np.float64)
    theirs, ours = Matrix.from_any(Cupyx(A)), Matrix.from_any(A)
    sigma = {"sell-1": 1024}.get(variant, 1)
    plan = Plan("cuda", "sweep", variant, k=3, k_per_pass=1, options={"stored": way, "sigma": sigma})
    rng = np.random.default_rng(0)
    x, coefficients = rng.standard_normal((2, 300)), make_coefficients("chebyshev", 3, "float64", rng)
    found = []
    for matrix in (theirs, ours):
        program = sweeps.SCHEDULE.prepare(matrix, plan)
        program.ready(2)
        out = host_engine.empty((4, 2, 300), "f8")
        program.run(host_engine.to_device(x), out, coefficients)
        found.append(out.get())
    assert found[0].tobytes() == found[1].tobytes()
    assert reference.error_ratio(ours, found[0], x, coefficients) <= 1
    assert "data" not in vars(theirs)
    assert not {"indptr", "indices"} & set(vars(theirs.pattern))


@on_the_host
def test_layouts_are_the_hosts(device: Any) -> None:
    """Empty rows, a long one, columns far apart, and a last slice that is not whole."""
    A = sp.csr_array(entries(n=75))
    A.sum_duplicates()
    theirs, ours = Matrix.from_any(Cupyx(A)), Matrix.from_any(A)
    for sigma, bits in ((1, 16), (64, 32), (32, 16)):
        expected = sell.from_csr(pattern_of(ours), ours.dtype, sigma=sigma, bits=bits, chunk=32)
        found = slots.slices_of(theirs, sigma, bits)
        for name in ("start", "base", "column", "row"):
            np.testing.assert_array_equal(getattr(found, name).get(), getattr(expected.arrays, name))
        np.testing.assert_array_equal(found.entry.get(), entry_map(expected.slot, expected.stored))
        assert sweeps.near(theirs, sigma) == sweeps.near(ours, sigma)
    for pad in (1, 4, 16):
        expected = pcsr.from_csr(pattern_of(ours), ours.dtype, pad=pad)
        rows = slots.padded_rows(theirs, pad)
        for name in ("start", "row"):
            np.testing.assert_array_equal(getattr(rows, name).get(), getattr(expected.arrays, name))
        for name in ("split", "begin", "end"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(expected.arrays, name))
        np.testing.assert_array_equal(rows.column.get(), expected.arrays.column)
        np.testing.assert_array_equal(rows.entry.get(), entry_map(expected.slot, expected.stored))
    assert not {"indptr", "indices"} & set(vars(theirs.pattern))


@on_the_host
@pytest.mark.parametrize("variant", ["sell16-2", "pcsr"])
def test_the_host_lays_out_what_the_device_has_no_room_for(
    device: Any, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """And keeps the map of what has made room."""
    plan = Plan("cuda", "sweep", variant, k=2, k_per_pass=1)
    matrix = Matrix.from_any(general("float64"))
    program: Any = sweeps.SCHEDULE.prepare(matrix, plan)
    assert program.entry is not None
    before = program.nbytes
    program.make_room()
    assert program.nbytes == before - 4 * program._values.size

    def spent(*given: Any) -> Any:
        raise DeviceMemoryError("there is none")

    monkeypatch.setattr(stored_program if variant == "pcsr" else slots, "empty", spent)
    other: Any = sweeps.SCHEDULE.prepare(Matrix.from_any(general("float64")), plan)
    assert other.entry is None
    other.make_room()
    for data in (matrix.data, np.roll(matrix.data, 1)):
        for one in (program, other):
            one.update_values(host_engine.to_device(data))
        assert program._values.get().tobytes() == other._values.get().tobytes()


@on_the_host
def test_new_values_stay_there(device: Any) -> None:
    A = general("float64")
    plan = Plan("cuda", "sweep", "csr-2", k=2, k_per_pass=1)
    matrix = Matrix.from_any(Cupyx(A))
    prepared = Prepared(
        matrix, Planner(Asked(2, "monomial", plan)), Recurrence(akx.core.basis.monomial(2), matrix.dtype)
    )
    x, out = host_engine.to_device(np.ones((1, 300))), host_engine.empty((3, 1, 300), "f8")

    def is_right() -> None:
        program, coefficients = prepared.for_call(np.dtype("f8"), 1, "cuda")
        program.run(x, out, coefficients)
        np.testing.assert_allclose(out.get()[2, 0], A @ (A @ np.ones(300)), rtol=1e-11)

    is_right()
    for change in (
        lambda: Cupyx(A),
        lambda: Cupyx(sp.coo_array(A)),
        lambda: sp.csc_array(A),
        lambda: Matrix.from_any(Cupyx(A)),
    ):
        A.data = np.random.default_rng(1).uniform(0.5, 1.5, A.nnz)
        prepared.update(change())
        is_right()
    assert prepared.values.of(np.dtype("f8")).data.tobytes() == A.data.tobytes()
    other = A.copy()
    other.indices[0] = 299
    with pytest.raises(MatrixError, match="another pattern"):
        prepared.update(Cupyx(other))
    is_right()


@on_the_host
@pytest.mark.parametrize("form", ["cupyx csr", "cupyx coo", "torch csr", "arrays", "dlpack"])
def test_calls_take_it_and_see_that_it_changed(
    device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    akx.clear_cache()
    A, x = general("float64"), np.random.default_rng(0).standard_normal(300)
    A = sp.coo_array(A) if form.endswith("coo") else A
    plan = Plan("cuda", "sweep", "csr-2", k=2, k_per_pass=1)
    theirs, prepared = FORMS[form](A), []
    prepare = sweeps.Sweep.prepare
    monkeypatch.setattr(sweeps.Sweep, "prepare", lambda *given: prepared.append(given[1]) or prepare(*given))

    def is_right(times: int) -> None:
        V = akx.matrix_powers(theirs, There(x), 2, plan=plan, db=str(tmp_path / "plans.db"))
        np.testing.assert_allclose(V.get()[:, 2], A @ (A @ x), rtol=1e-10, atol=1e-12)
        assert len(prepared) == times

    is_right(1)
    is_right(1)
    A.data[5] += 1
    is_right(1)  # laid out anew, where it is
    places = A.col if A.format == "coo" else A.indices
    places[A.nnz // 2] = (places[A.nnz // 2] + 1) % 300
    is_right(2)
    assert all("data" not in vars(matrix) and "indices" not in vars(matrix.pattern) for matrix in prepared)
    P = akx.MatrixPowers(theirs, 2, plan=plan)
    np.testing.assert_allclose(P(There(x)).get()[:, 2], A @ (A @ x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(P(x)[:, 2], A @ (A @ x), rtol=1e-10, atol=1e-12)
    A.data[3] += 1
    P.update_values(theirs)
    np.testing.assert_allclose(P(x)[:, 2], A @ (A @ x), rtol=1e-10, atol=1e-12)
    assert P.nbytes > 0
    akx.clear_cache()


@on_the_host
def test_what_is_made_of_it_is_there_too(device: Any) -> None:
    A = general("float32")
    matrix, host = Matrix.from_any(Cupyx(A)), Matrix.from_any(A)
    wide = matrix.in_type(np.dtype("complex128"))
    is_the_hosts(wide, A.astype(np.complex128))
    assert wide.pattern is matrix.pattern
    allowed = matrix.with_value_error(1e-3)
    assert (allowed.value_error, allowed.on_device.data) == (1e-3, matrix.on_device.data)
    assert same_pattern(matrix, host)
    assert same_pattern(host, matrix)
    assert not same_pattern(matrix, Matrix.from_any(Cupyx(sp.csr_array(A.T))))
    mixed = host.with_pattern_of(matrix), matrix.with_pattern_of(host), host.with_pattern_of(host)
    for one in mixed:
        np.testing.assert_array_equal(one.to_scipy().toarray(), A.toarray())
    huge = Matrix.from_any(Cupyx(sp.csr_array(np.array([[1e300, 0.0], [0.0, 1.0]]))))
    with pytest.raises(MatrixError, match="not finite"):
        huge.in_type(np.dtype("float32"))


# ----------------------------------------------------------------------------------------- where there is no such GPU


def test_without_a_gpu_the_library_takes_it_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonicals, "cuda_missing", lambda: "no GPU")
    A = entries()
    found = Matrix.from_any(Cupyx(sp.csr_array(A)))
    assert found.on_device is None
    np.testing.assert_allclose(found.to_scipy().toarray(), A.toarray())


def test_arrays_there_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingDependencyError("CUDA is missing", hint="pip install 'akx[cuda]'")

    monkeypatch.setattr(interchange, "runtime", missing)
    with pytest.raises(MissingDependencyError, match="pip install"):
        akx.matrix_powers(as_tuple(entries()), np.ones(70), 2)


def test_arrays_of_the_host_are_csr_too() -> None:
    A = sp.csr_array(entries())
    for given_as in ((A.data, A.indices, A.indptr), (A.data, A.indices, A.indptr, A.shape)):
        np.testing.assert_allclose(akx.matrix_powers(given_as, np.ones(70), 2)[:, 1], A @ np.ones(70))
    with pytest.raises(MatrixError, match="broken"):
        Matrix.from_any((A.data[:-1], A.indices, A.indptr))
    with pytest.raises(MatrixError, match="not square"):
        Matrix.from_any((A.data, A.indices, A.indptr, (70, 71)))

    class Lost:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not this one")

    with pytest.raises(MatrixError, match="not this one"):
        Matrix.from_any((Lost(), A.indices, A.indptr))
    with pytest.raises(MatrixError, match="dense"):
        Matrix.from_any((np.ones(3), np.ones(3), np.ones(3)))


@on_the_host
@pytest.mark.parametrize("form", ["cupyx csr", "cupyx coo", "torch csr", "arrays", "dlpack"])
def test_first_calls_prepare_nothing(device: Any, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    akx.clear_cache()
    monkeypatch.setenv("AKX_PREPARE", "auto")
    monkeypatch.setattr(OverflowWatch, "look_on_device", lambda *_: None)
    monkeypatch.setattr(lookup, "operator_for", lambda *_, **__: pytest.fail("an operator was asked for"))
    A, x = general("float64"), np.random.default_rng(0).standard_normal(300)
    A = sp.coo_array(A) if form.endswith("coo") else A
    theirs = FORMS[form](A)
    for step in range(4):
        V = akx.matrix_powers(theirs, There(x), 2)
        np.testing.assert_allclose(V.get()[:, 2], A @ (A @ x), rtol=1e-10, atol=1e-12)
        A.data[5] += step // 2  # where it is
    akx.clear_cache()


# ------------------------------------------------------------------------------------------- arrays read as they are


def as_they_are(A: Any, k: int = 3) -> tuple[csr_powers.CsrPowers, Any, tuple[Any, ...]]:
    """Powers of CSR arrays of the host, the word that is told what is wrong, and the arrays."""
    arrays = tuple(map(host_engine.to_device, (A.data, A.indices, A.indptr)))
    told = np.zeros(1, np.uint32)
    sound, longest = content.is_sound(arrays, A.shape[0])
    assert sound
    return csr_powers.CsrPowers(arrays, A.shape[0], longest, k, told), told, arrays


@on_the_host
@pytest.mark.parametrize(("dtype", "index", "vectors"), [("float64", "int32", 1), ("complex64", "int64", 11)])
def test_powers_of_arrays_as_they_are(device: Any, dtype: str, index: str, vectors: int) -> None:
    """Entries in any order and twice, empty rows, a long one; groups of 8, 2 and 1 start vectors; any recurrence."""
    data, indices, indptr = (one.held for one in scrambled(entries(dtype), index))
    A = sp.csr_array((data[:-3], indices[:-3], indptr), shape=(70, 70))
    matrix, rng = Matrix.from_any(A), np.random.default_rng(0)
    program, told, _ = as_they_are(A)
    x, coefficients = random_numbers(rng, (vectors, 70), dtype), make_coefficients("general", 3, dtype, rng)
    room = host_engine.empty((5, vectors, 70), A.dtype)
    out, found = room[0:4], []
    for order in (0, 1, 7):
        device.threads.order = order
        room.fill_bytes(255)
        program.run(host_engine.to_device(x), out, coefficients)
        found.append(out.get())
    assert {one.tobytes() for one in found} == {found[0].tobytes()}
    assert set(room.get()[4].tobytes()) == {255}
    assert reference.error_ratio(matrix, found[0], x, coefficients) <= 1
    assert not told[0]


@on_the_host
@pytest.mark.parametrize("wrong", ["column", "negative", "row", "nan"])
def test_what_is_wrong_in_arrays_as_they_are_is_told_and_not_followed(device: Any, wrong: str) -> None:
    A = sp.csr_array(entries())
    program, told, (data, index, pointer) = as_they_are(A)
    assert program.nbytes < 500  # nothing is copied
    place = {"column": (index, 2**20), "negative": (index, -1), "row": (pointer, 2**30), "nan": (data, np.nan)}[wrong]
    host_engine.seen(place[0])[11] = place[1]
    assert not content.is_sound((data, index, pointer), 70)[0]
    out = host_engine.empty((4, 1, 70), A.dtype)
    program.run(host_engine.to_device(np.ones((1, 70))), out, make_coefficients("monomial", 3, "float64", np.random))
    assert told[0]


#: Rows of `with_hubs` that have a block each: neighbours, and one of the last rounds.
HUBS = {0: 129, 1: 700, 2: 5000, 1300: 2048, 2498: 600}


def with_hubs(dtype: str, index: str, n: int = 2500) -> Any:
    """CSR whose columns are in any order, some twice; rows are empty, just not long, and very long."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 4, n)
    lengths[[*HUBS, 3, 2499]] = [*HUBS.values(), 128, 0]
    indptr = np.append(0, np.cumsum(lengths)).astype(index)
    data = random_numbers(rng, indptr[-1], dtype)
    return sp.csr_array((data, rng.integers(0, n, indptr[-1]).astype(index), indptr), shape=(n, n))


@on_the_host
@pytest.mark.parametrize(
    ("dtype", "index", "vectors"), [("float64", "int32", 3), ("complex64", "int64", 9), ("float32", "int64", 1)]
)
def test_very_long_rows_as_they_are(
    device: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, index: str, vectors: int
) -> None:
    """The same bits whatever the order of threads, the number of blocks and of start vectors."""
    A, rng, n = with_hubs(dtype, index), np.random.default_rng(1), 2500
    program, told, arrays = as_they_are(A, 2)
    x, coefficients = random_numbers(rng, (vectors, n), dtype), make_coefficients("general", 2, dtype, rng)
    found = []
    for order in (0, 1, 7):
        device.threads.order = order
        out = host_engine.empty((3, vectors, n), A.dtype)
        out.fill_bytes(255)
        program.run(host_engine.to_device(x), out, coefficients)
        found.append(out.get())
    assert {macros["AKX_LONG"] for macros in device.loaded if "AKX_LONG" in macros} == {128}
    assert {one.tobytes() for one in found} == {found[0].tobytes()}
    assert reference.error_ratio(Matrix.from_any(A), found[0], x, coefficients) <= 1
    monkeypatch.setattr(program_on_host._Kernel, "most_blocks", lambda *_: 3)
    alone = csr_powers.CsrPowers(arrays, n, max(HUBS.values()), 2, told)
    one = host_engine.empty((3, 1, n), A.dtype)
    alone.run(host_engine.to_device(x[-1:]), one, coefficients)
    assert one.get().tobytes() == found[0][:, -1:].tobytes()
    assert not told[0]


@on_the_host
def test_what_may_be_nothing_is_launched_with_few_blocks(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that meet wait until all fit, next to what else is on the device."""
    monkeypatch.setattr(program_on_host._Kernel, "most_blocks", lambda *_: 5)
    monkeypatch.setattr(csr_powers, "cuda_device", lambda: SimpleNamespace(sms=2))
    A, n, rng = with_hubs("float64", "int32"), 2500, np.random.default_rng(0)
    program, _, _held = as_they_are(A, 1)
    x, out = host_engine.to_device(rng.standard_normal((1, n))), host_engine.empty((2, 1, n), A.dtype)
    program.run(x, out, make_coefficients("monomial", 1, "float64", rng))
    right, only = out.get(), host_engine.to_device(np.ones(1, np.uint32))
    out.fill_bytes(255)
    program.queue(None, x.pointer, out.pointer, 1, only=only.pointer)
    assert out.get().tobytes() == right.tobytes()
    assert [program._launches[1, is_few]._launched[0] for is_few in (False, True)] == [5, 2]


@on_the_host
@pytest.mark.parametrize("wrong", ["column", "negative", "row", "nan"])
def test_what_is_wrong_in_a_very_long_row_is_told(device: Any, wrong: str) -> None:
    """And the other rows are as they were."""
    A, n, row = with_hubs("float64", "int32"), 2500, 1300
    program, told, (data, index, pointer) = as_they_are(A, 1)
    array, at, value = {
        "column": (index, A.indptr[row] + 1999, 2**20),
        "negative": (index, A.indptr[row + 1] - 1, -1),
        "row": (pointer, row + 1, 2**30),
        "nan": (data, A.indptr[row] + 600, np.nan),
    }[wrong]
    others = np.delete(np.arange(n), [row, row + 1])
    x, out = np.random.default_rng(0).standard_normal((1, n)), host_engine.empty((2, 1, n), A.dtype)
    host_engine.seen(array)[at] = value
    program.run(host_engine.to_device(x), out, make_coefficients("monomial", 1, "float64", np.random))
    assert told[0]
    np.testing.assert_allclose(out.get()[1, 0, others], (with_hubs("float64", "int32") @ x[0])[others], atol=1e-11)


@pytest.mark.parametrize(
    ("n", "entries", "longest", "found"),
    [
        (100, 500, 128, (2, 0)),
        (100, 500, 129, (2, 128)),
        (2**19, 2**23, 512, (8, 0)),
        (2**19, 2**23, 30_000, (8, 512)),
        (10_000, 700_000, 2000, (32, 0)),
        (10_000, 700_000, 3000, (8, 2048)),
        (1000, 10**6, 1024, (32, 0)),
    ],
)
def test_which_rows_are_very_long(n: int, entries: int, longest: int, found: tuple[int, int]) -> None:
    assert csr_powers._lanes_and_long(n, entries, longest) == found


@on_the_host
def test_a_comparison_tells_what_is_behind_it(device: Any) -> None:
    """Every byte counts, at the end and in arrays that begin anywhere too; products are only done where one differs."""
    rng, told = np.random.default_rng(0), np.zeros(1, np.uint32)
    octets = rng.integers(0, 255, 1000).astype(np.uint8)
    held = host_engine.to_device(octets)
    arrays = [held.view(3, (401,)), held.view(408, (7,)), held.view(416, (500,))]
    known = content.sums_of(arrays)
    comparison = content.Comparison(arrays, host_engine.to_device(np.array(known, np.uint64)), told)
    comparison.queue(None)
    assert (comparison.differs.get()[0], told[0]) == (0, 0)
    for place in (3, 403, 408, 414, 416, 419, 915):
        host_engine.seen(held)[place] ^= 64
        comparison.queue(None)
        assert (comparison.differs.get()[0], told[0]) == (1, 1)
        assert content.sums_of(arrays) != known
        host_engine.seen(held)[place] ^= 64
        comparison.queue(None)
        assert comparison.differs.get()[0] == 0
        told[:] = 0
    A = sp.csr_array(entries())
    program, _, _ = as_they_are(A)
    x, out = host_engine.to_device(np.ones((1, 70))), host_engine.empty((4, 1, 70), A.dtype)
    program.run(x, out, make_coefficients("monomial", 3, "float64", rng))
    right = out.get()
    for word in (0, 1):
        out.fill_bytes(255)
        only = host_engine.to_device(np.array([word], np.uint32))
        program.queue(None, x.pointer, out.pointer, 1, only=only.pointer)
        assert (out.get().tobytes() == right.tobytes()) == bool(word)
