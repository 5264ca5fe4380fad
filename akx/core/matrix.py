"""The canonical matrix: square, finite CSR with ascending unique columns, and what can be known from its structure.

Everything above this module sees a :class:`Matrix` and never the user's own object. A matrix owns its arrays (they are
copies, read-only, unless the user promises not to write), so that nothing the user does to the original can change a
result behind akx's back; :func:`content_token` is the cheap way to notice that the original *has* changed.

Bytes: making a matrix from CSR reads and writes each array once, and reads the indices once and the values once more to
check them; a fingerprint reads the indices once, at the speed of BLAKE2b.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from akx.core.arguments import scipy_matrix
from akx.core.canonical import (
    canonical_csr,
    check_finite,
    check_shape,
    check_value_error,
    fit_index_type,
    shared_csr,
    target_dtype,
    trim,
)
from akx.core.device_arrays import parts_of
from akx.core.errors import ArgumentError, MatrixError, brief
from akx.core.fingerprint import Pattern
from akx.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from akx.core.features import Features

__all__ = ["Features", "Matrix", "checksum", "content_token", "sent", "there"]

__getattr__ = lazy_names(__name__, {"Features": "akx.core.features"})

_DIGEST_BYTES = 20
#: What knows the backend of matrices in the memory of a GPU. It is above this module, and asked by its name.
_SELECTION = "akx.backends.selection"


def _on_device() -> Any:
    """What makes canonical matrices of those in the memory of a GPU."""
    selection = import_module(_SELECTION)
    return selection.backend_of(selection.array_backend()).canonical()


class Matrix:
    """A square sparse matrix in canonical CSR; made by :meth:`from_any`, never changed afterwards.

    Attributes
    ----------
    n : int
        Rows and columns.
    nnz : int
        Entries, explicit zeros included.
    dtype : numpy.dtype
        float32, float64, complex64 or complex128.
    indptr, indices : (n+1,) and (nnz,) arrays
        Both int32 where max(n, nnz) < 2**31, else both int64. Columns ascend within a row and are unique. Read-only.
    data : (nnz,) array of `dtype`
        The values, all finite. Read-only.
    value_error : float
        Largest relative error that a program may store a value with: |stored(a) - a| <= value_error |a| for every entry
        a (of a complex one, the modulus). 0, the default, is exact. The values here always are: it is an allowance.
    cache : dict
        For upper layers to memoise what they derive from this matrix, values included.
    pattern_cache : dict
        The same for what depends on the pattern alone (permutations, levels); shared by :meth:`with_values`.
    on_device : tuple or None
        Of one in the memory of a GPU its arrays there: (n+1,) and (nnz,) uint32, and the values. Its arrays above are
        copied from there when they are first asked for.
    """

    on_device: Any = None

    def __init__(
        self,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        data: NDArray[Any],
        *,
        pattern_cache: dict[Any, Any],
        value_error: float = 0.0,
    ) -> None:
        for array in (indptr, indices, data):
            array.flags.writeable = False
        self.n = indptr.size - 1
        self.nnz = indices.size
        self.dtype: np.dtype[Any] = data.dtype
        self.indptr = indptr
        self.indices = indices
        self.data = data
        self.value_error = value_error
        self.cache: dict[Any, Any] = {}
        self.pattern_cache = pattern_cache

    @staticmethod
    def from_any(
        A: Any,
        *,
        dtype: DTypeLike | None = None,
        explicit_zeros: Literal["keep", "drop"] = "keep",
        value_error: float | None = None,
        copy: bool = True,
    ) -> Matrix:
        """The canonical matrix of any sparse matrix or array. `A` itself is not modified.

        Parameters
        ----------
        A : scipy.sparse matrix or array of any format, shape (n, n), or Matrix
            Entries in any order; duplicates are summed. A :class:`Matrix` is returned as it is where nothing changes.
            Sparse matrices of other libraries are converted: those of pydata/sparse, CuPy, PyTorch, JAX and PETSc. So
            are tuples (data, indices, indptr) of CSR, with a shape as a fourth or without. Those of CuPy and PyTorch on
            a GPU, and tuples of arrays there, stay there.
        dtype : optional
            float32, float64, complex64 or complex128. By default the type of `A`, with integers and bool taken as
            float64 and float16 as float32. long double and complex256 need an explicit `dtype`, as precision is lost.
        explicit_zeros : {"keep", "drop"}
            Whether entries that are stored but zero belong to the pattern. Entries that cancel when duplicates are
            summed count as explicit zeros.
        value_error : float, optional
            At least 0 and less than 1, see the attribute; by default that of `A` where it is a :class:`Matrix`, else 0.
        copy : bool
            False is the promise that nobody writes to the arrays of `A` while the matrix or anything made of it lives:
            those of canonical int32 CSR on the host are then taken as they are. Others are copied all the same. A write
            in spite of the promise gives results of neither matrix.

        Returns
        -------
        Matrix
            Owns copies of all arrays, but for `copy`: changing `A` afterwards does not change it.

        Raises
        ------
        MatrixError
            Dense, not two-dimensional, not square, 0 x 0, of an unsupported dtype, broken index arrays, NaN or Inf.
        ArgumentTypeError
            Not a matrix at all, or a `value_error` that is no number.
        ArgumentError
            An unknown `explicit_zeros`, or a `value_error` out of range.

        Notes
        -----
        Integers are converted before duplicates are summed, so that small integer types cannot overflow; bool
        duplicates are combined by "or", as SciPy does.
        """
        if explicit_zeros not in ("keep", "drop"):
            raise ArgumentError("explicit_zeros is unknown", expected='"keep" or "drop"', found=brief(explicit_zeros))
        allowed = None if value_error is None else check_value_error(value_error)
        if isinstance(A, Matrix):
            allowed = A.value_error if allowed is None else allowed
            target = target_dtype(A.dtype, dtype)
            if target == A.dtype and (explicit_zeros == "keep" or np.all(A.data)):
                return A.with_value_error(allowed)
            A = A.to_scipy()
        given = there(A)
        if given is not None:
            options: dict[str, Any] = {"explicit_zeros": explicit_zeros, "value_error": allowed or 0.0}
            found: Matrix = _on_device().canonical(given, dtype=dtype, **options)
            return found
        A = scipy_matrix(A)
        check_shape(A.shape)
        target = target_dtype(A.dtype, dtype)
        drops = explicit_zeros == "drop"
        shared = None if copy else shared_csr(A, target, drops=drops)
        if shared is None:
            with np.errstate(over="ignore"):  # what becomes Inf is refused later, with its place
                csr = canonical_csr(A, target)
            if drops:
                csr.eliminate_zeros()
            indptr, indices = fit_index_type(csr.indptr, csr.indices)
            shared = indptr, indices, trim(csr.data, indices.size)
        indptr, indices, data = shared
        largest = check_finite(indptr, indices, data, A.dtype)
        matrix = Matrix(indptr, indices, data, pattern_cache={}, value_error=allowed or 0.0)
        matrix.largest = largest
        return matrix

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return (self.n, self.n)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return int(self.indptr.nbytes + self.indices.nbytes + self.data.nbytes)

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """The type of the indices."""
        return np.dtype(self.indices.dtype)

    @property
    def held(self) -> tuple[Any, ...]:
        """All arrays that it has: of the host, and on a GPU."""
        return (self.indptr, self.indices, self.data)

    @property
    def csr_bytes(self) -> int:
        """Bytes of compressed sparse rows with 32-bit indices, whatever the indices here: fractions are of these."""
        return self.nnz * (self.dtype.itemsize + 4) + 4 * (self.n + 1)

    @property
    def fingerprint(self) -> str:
        """Hex digest (of a tree of BLAKE2b, 192 bits) of the pattern alone; the formula is in
        :mod:`akx.core.fingerprint`.

        The same for the same set of (row, column), whatever the order of the entries, the index width, the format, the
        dtype and the values were. Explicit zeros that were kept are part of the pattern.
        """
        return str(self.pattern.digest)

    @property
    def pattern(self) -> Pattern:
        """The pattern, one object for all matrices that share its cache."""
        found: Pattern | None = self.pattern_cache.get("akx.pattern")
        return found or self.pattern_cache.setdefault("akx.pattern", Pattern(self.indptr, self.indices))

    @cached_property
    def values_fingerprint(self) -> str:
        """Hex digest (BLAKE2b, 160 bits) of dtype and values, in the order of the canonical entries."""
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=b"akx values 1")
        digest.update(self.dtype.name.encode())
        digest.update(self.data.astype(self.dtype.newbyteorder("<"), copy=False).data)
        return digest.hexdigest()

    @cached_property
    def largest(self) -> float:
        """The largest magnitude of an entry's real or imaginary part; found while entries are checked, at no cost."""
        return check_finite(self.indptr, self.indices, self.data, self.dtype)

    @cached_property
    def features(self) -> Features:
        """Structure features, computed on first use (compiles once per machine)."""
        from akx.core.features import compute_features

        return compute_features(self.indptr, self.indices, self.data)

    def to_scipy(self) -> sp.csr_array:
        """A CSR array that shares the read-only memory of this matrix."""
        array = sp.csr_array((self.data, self.indices, self.indptr), shape=self.shape, copy=False)
        array.has_canonical_format = True
        return array

    def diagonal(self) -> NDArray[Any]:
        """The diagonal, (n,), zero where there is no entry; read-only."""
        found: NDArray[Any] | None = self.cache.get("diagonal")
        if found is None:
            found = self.cache["diagonal"] = np.asarray(self.to_scipy().diagonal())
            found.flags.writeable = False
        return found

    def is_hermitian_there(self, tolerance: float) -> bool | None:
        """Of a matrix on a GPU :func:`akx.solvers.symmetry.is_hermitian`, asked there; None of one of the host."""
        return None

    def with_values(self, data: Any) -> Matrix:
        """A matrix of the same pattern with other values; indices, fingerprint and pattern cache are shared.

        The error that values may be stored with stays the same.

        Parameters
        ----------
        data : (nnz,) array
            In the order of the canonical entries (row by row, columns ascending); copied. Its dtype becomes the
            matrix's, by the rules of :meth:`from_any`.
        """
        values = np.asarray(data)
        if values.shape != (self.nnz,):
            found, hint = f"shape {values.shape}", "give one value per entry, in the order of Matrix.data"
            raise MatrixError("values do not fit the pattern", expected=f"shape ({self.nnz},)", found=found, hint=hint)
        copy = np.array(values, dtype=target_dtype(values.dtype, None), order="C")
        largest = check_finite(self.indptr, self.indices, copy, values.dtype)
        matrix = Matrix(self.indptr, self.indices, copy, pattern_cache=self.pattern_cache, value_error=self.value_error)
        matrix.largest = largest
        return matrix

    def with_value_error(self, value_error: float) -> Matrix:
        """This matrix with another :attr:`value_error`, itself where it is the same; all but `cache` is shared.

        Raises :class:`ArgumentError` or :class:`ArgumentTypeError` as :meth:`from_any` does.
        """
        same = type(value_error) is float and value_error == self.value_error
        allowed = self.value_error if same else check_value_error(value_error)
        if allowed == self.value_error:
            return self
        matrix = self.alias(allowed)
        known = ("largest", "values_fingerprint", "features")  # of what is shared
        matrix.__dict__.update({name: self.__dict__[name] for name in known if name in self.__dict__})
        return matrix

    def alias(self, value_error: float | None = None) -> Matrix:
        """Another matrix of the same arrays, by default with the same :attr:`value_error`."""
        allowed = self.value_error if value_error is None else value_error
        found = Matrix(self.indptr, self.indices, self.data, pattern_cache=self.pattern_cache, value_error=allowed)
        if "largest" in vars(self):
            found.largest = self.largest
        return found

    def in_type(self, dtype: np.dtype[Any]) -> Matrix:
        """The matrix with its values in another type."""
        return self.with_values(self.data.astype(dtype))

    def with_pattern_of(self, other: Matrix) -> Matrix:
        """The matrix with all that is known of the pattern of another, which is the same."""
        cache = other.pattern_cache
        found = Matrix(other.indptr, other.indices, self.data, pattern_cache=cache, value_error=self.value_error)
        if "largest" in vars(self):
            found.largest = self.largest
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self.indptr, self.indices, self.data, self.value_error))

    def __repr__(self) -> str:
        return f"Matrix(n={self.n}, nnz={self.nnz}, dtype={self.dtype.name}, indices={self.indices.dtype.name})"


def _restore(indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], value_error: float = 0.0) -> Matrix:
    arrays = map(np.asarray, (indptr, indices, data))  # joblib brings some that are mapped from a file
    return Matrix(*arrays, pattern_cache={}, value_error=value_error)


def checksum(array: NDArray[Any], *, threads: int = 1) -> int:
    """A 64-bit checksum of the bytes of `array`, of any shape and dtype but object, at close to memory bandwidth.

    Any change confined to one aligned 8-byte word changes it for certain (so any one float64, int64, complex64, float32
    or int32); other changes are missed with a probability of about 2**-64. Equal bytes give equal checksums on every
    machine of the same byte order, whatever the number of `threads` that read. An array that is not contiguous is
    copied first. The formula is in :mod:`akx.core.checksum`. Raises :class:`ArgumentTypeError` for objects.
    """
    from akx.core.checksum import checksums

    return checksums([array], threads=threads)[0]


def content_token(
    A: Any, *, threads: int = 1, summing: Callable[[Sequence[NDArray[Any]]], list[int]] | None = None
) -> tuple[Any, ...]:
    """A hashable token that differs whenever the content of a SciPy sparse matrix differs.

    It covers format, shape, types, and every byte of the value and index arrays by :func:`checksum`, so that changes in
    place (``A.data[3] = 7``, ``A.indices``, sorting) are seen at the price of reading the matrix once. The same numbers
    in another order or format give another token: it answers "is this still what I prepared?", not "is this equal?".

    CSR, CSC, COO, BSR and DIA are read as they are; LIL and DOK, which keep Python objects, are converted first. For a
    :class:`Matrix` (which cannot change) the cached fingerprints are used. Matrices on a GPU are read there, of CuPy,
    PyTorch and tuples of arrays. On the host `summing` forms the checksums, where it is given, else so many threads.
    """
    if isinstance(A, Matrix):
        allowed = (A.value_error,) if A.value_error else ()
        return ("akx", A.dtype.name, A.fingerprint, A.values_fingerprint, *allowed)
    given = there(A)
    if given is not None:
        return tuple(given.token())
    A = scipy_matrix(A)
    from akx.core.checksum import checksums

    arrays = _buffers(A)
    kinds = ((array.dtype.str, array.shape) for array in arrays)
    sums = checksums(arrays, threads=threads) if summing is None else summing(arrays)
    return (A.format, tuple(map(int, A.shape)), *((*kind, found) for kind, found in zip(kinds, sums, strict=True)))


def there(A: Any) -> Any:
    """A matrix on a GPU that akx can work with, to be read there (a `Given` of ``canonical.py``); else None."""
    return None if parts_of(A) is None else _on_device().there(A)


def sent(A: Any) -> Any:
    """A large matrix of SciPy in the memory of a GPU, to be read there as :func:`there` has it; None of others."""
    return _on_device().sent(A) if sp.issparse(A) else None


def _buffers(A: Any) -> tuple[NDArray[Any], ...]:
    if A.format in ("csr", "csc", "bsr"):
        return (A.data, A.indices, A.indptr)
    if A.format == "dia":
        return (A.data, A.offsets)
    coo = A if A.format == "coo" else A.tocoo()
    return (coo.data, *(coo.coords if hasattr(coo, "coords") else (coo.row, coo.col)))
