"""What a plan is keyed by, so that no stale plan is ever used.

A plan holds for one pattern, dtype, index type, basis kind, k, number of start vectors, class of device, set of kernel
sources and set of versions. All nine are fields of :class:`PlanKey`; a lookup succeeds only where all of them are
equal, and otherwise names those that are not. Nothing here imports a compiler: versions come from package metadata and
the hash of the kernels from the text of their sources.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.errors import ArgumentError, DatabaseError, PlanError
from akx.plan import PLAN_SCHEMA

if TYPE_CHECKING:
    from akx.device.host import HostDevice
    from akx.matrix import Matrix

__all__ = ["FIELD_MEANINGS", "OF_PRICES", "PlanKey", "kernel_hash", "make_key", "versions"]

#: What a difference in a field of the key means to a user.
FIELD_MEANINGS: Mapping[str, str] = {
    "fingerprint": "another sparsity pattern",
    "dtype": "another data type",
    "index_type": "another index type",
    "basis": "another basis",
    "k": "another k",
    "start_vectors": "another number of start vectors",
    "device_class": "another device, number of threads, memory budget or allowed error of values",
    "kernel_hash": "other kernel sources",
    "versions": "other versions",
}

_LARGEST = 2**31 - 1
#: By backend, types of values that its programs may store with an error, where one is allowed.
_NARROWED = {"cuda": ("float64", "complex128")}
_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCE_SUFFIXES = frozenset({".py", ".cu", ".cuh", ".h", ".c", ".cpp", ".hpp"})
#: Packages whose minor version decides which machine code a backend's kernels become.
_COMPILERS: Mapping[str, tuple[str, ...]] = {"cpu": ("numba",), "cuda": ("cuda-bindings",)}
#: By backend, sources that no program of a plan runs: those that say what plans should cost and which are worth a try.
OF_PRICES = {
    "cuda": frozenset(("work", "parts_work", "sweep_work", "wavefront_work"))
    | {"diagonals_offers", "ghost_offers", "resident_offers", "sweep_offers", "wavefront_offers"},
}
#: Those of solvers' vector work and of preconditioners.
_OF_SOLVERS = {
    "cpu": frozenset(("advance", "blocks", "rows", "vectors")),
    "cuda": frozenset(
        ("advance", "arnoldi", "blocks", "conjugate", "gram_schmidt", "mix", "products", "queues", "vectors")
    )
    | {"hermitian", "scaling", "spai", "transpose"},
}


@dataclass(frozen=True)
class PlanKey:
    """What a plan is valid for.

    Attributes
    ----------
    fingerprint : str
        Digest of the sorted pattern of the matrix (``Matrix.fingerprint``).
    dtype, index_type : str
        NumPy names of the types of values and of indices, e.g. ``"float64"`` and ``"int32"``.
    basis : str
        Kind of the basis: ``"monomial"``, ``"newton"``, ``"chebyshev"``.
    k, start_vectors : int
        Number of powers and of start vectors, both at least 1.
    device_class : str
        Machines of one class share plans (``HostDevice.device_class``); other numbers of threads, memory budgets and
        allowed errors of values make classes of their own.
    kernel_hash : str
        Digest of the sources of the backend's kernels, see :func:`kernel_hash`.
    versions : str
        The versions that matter, see :func:`versions`.

    Raises
    ------
    PlanError
        Where a field has the wrong type or is out of range.
    """

    fingerprint: str
    dtype: str
    index_type: str
    basis: str
    k: int
    start_vectors: int
    device_class: str
    kernel_hash: str
    versions: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("k", "start_vectors"):
                if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
                    raise PlanError(
                        f"plan key field '{field.name}' is out of range",
                        expected=f"an integer from 1 to {_LARGEST}",
                        found=repr(value),
                    )
            elif not isinstance(value, str) or not value or not _is_unicode(value):
                raise PlanError(
                    f"plan key field '{field.name}' is not a name", expected="a non-empty string", found=repr(value)
                )

    @cached_property
    def id(self) -> str:
        """32 hexadecimal digits that stand for the whole key; also the id of the plan stored under it."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def mismatch(self, other: PlanKey) -> list[str]:
        """Names of the fields in which two keys differ, in the order of declaration; empty where they are equal."""
        return [field.name for field in fields(self) if getattr(self, field.name) != getattr(other, field.name)]

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_json` inverts it."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PlanKey:
        """Make a key from :meth:`to_json`'s dict. Raises :class:`PlanError` on any unknown, missing or wrong field."""
        if not isinstance(data, Mapping):
            raise PlanError("plan key is not a JSON object", found=type(data).__name__)
        names = {field.name for field in fields(PlanKey)}
        if set(data) != names:
            wrong = sorted(str(name) for name in set(data) ^ names)
            raise PlanError("plan key fields do not match", expected=f"{sorted(names)}", found=f"other fields: {wrong}")
        return PlanKey(**data)


def make_key(
    matrix: Matrix,
    k: int,
    *,
    basis: str = "monomial",
    start_vectors: int = 1,
    device: HostDevice,
    threads: int | None = None,
    backend: str = "cpu",
) -> PlanKey:
    """The key of a plan for `matrix` on `device`, with the kernel sources and versions of this process.

    Parameters
    ----------
    matrix : Matrix
        Where values may be stored with an error, and this backend would do so, that is part of the device class: a plan
        chosen for that is none for values as they are, nor for another error.
    k, start_vectors : int
    basis : str
        Kind of the basis; its coefficients do not matter to a plan.
    device : HostDevice
        Or any object with a ``device_class``.
    threads : int, optional
        Threads that the caller insists on. A plan for fewer threads than the device has cores is another plan, so
        a number that differs from ``device.cores`` becomes part of the device class.
    backend : str
        Whose kernels are hashed.
    """
    device_class = device.device_class
    if threads is not None and threads != device.cores:
        device_class += f"/{threads} threads"
    if str(matrix.dtype) in _NARROWED.get(backend, ()) and matrix.value_error:
        device_class += f"/value error {matrix.value_error!r}"
    return PlanKey(
        fingerprint=matrix.fingerprint,
        dtype=str(matrix.dtype),
        index_type=str(matrix.indices.dtype),
        basis=basis,
        k=k,
        start_vectors=start_vectors,
        device_class=device_class,
        kernel_hash=kernel_hash(backend),
        versions=versions(backend),
    )


@lru_cache(maxsize=8)
def kernel_hash(backend: str, *, solvers: bool = False) -> str:
    """Digest of the sources that a plan of `backend` depends on; of those that solvers depend on as well, where asked.

    These are the files below ``akx/kernels/<backend>`` and ``akx/formats``, and ``akx/kernels/base.py``: their paths
    and their text, with line ends normalised, but for those of solvers' vector work and of preconditioners, which no
    program of a plan runs, and those that only tell what plans should cost. Computed once per process, in about a
    millisecond, without an import.

    Returns
    -------
    str
        16 hexadecimal digits.

    Raises
    ------
    ArgumentError
        Where there is no such backend.
    DatabaseError
        Where the sources cannot be read.
    """
    return _hash_sources(_PACKAGE, backend, solvers=solvers)


def _hash_sources(package: Path, backend: str, *, solvers: bool = False) -> str:
    kernels = package / "kernels"
    if not backend.isidentifier() or not (kernels / backend).is_dir():
        known = sorted(folder.name for folder in kernels.glob("[a-z]*") if folder.is_dir())
        raise ArgumentError("unknown backend", expected=f"one of {', '.join(known) or 'none'}", found=repr(backend))
    digest = hashlib.sha256()
    count = 0
    try:
        for path in _sources(kernels / backend, kernels / "base.py", package / "formats"):
            if path.stem in OF_PRICES.get(path.parent.name, ()):
                continue
            if not solvers and path.stem in _OF_SOLVERS.get(path.parent.name, ()):
                continue
            text = path.read_bytes().replace(b"\r\n", b"\n")
            name = path.relative_to(package).as_posix().encode()
            digest.update(b"%d %s %d\n" % (len(name), name, len(text)))
            digest.update(text)
            count += 1
    except OSError as error:
        raise DatabaseError("kernel sources cannot be read", found=str(error), hint="install akx again") from error
    if count == 0:
        raise DatabaseError("no kernel sources are installed", found=str(package), hint="install akx again")
    return digest.hexdigest()[:16]


def _sources(*places: Path) -> Iterator[Path]:
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"{place} is missing")
        found = sorted(place.rglob("*"), key=lambda path: path.as_posix()) if place.is_dir() else [place]
        for path in found:
            if path.suffix in _SOURCE_SUFFIXES and path.is_file():
                yield path


@lru_cache(maxsize=8)
def versions(backend: str = "cpu") -> str:
    """The versions that matter to a plan, e.g. ``"plan 1, numba 0.61"``, read from metadata without an import."""
    from importlib import metadata

    parts = [f"plan {PLAN_SCHEMA}"]
    for package in _COMPILERS.get(backend, ()):
        try:
            release = metadata.version(package).split(".")
        except metadata.PackageNotFoundError:
            parts.append(f"{package} absent")
        else:
            parts.append(f"{package} {'.'.join(release[:2])}")
    return ", ".join(parts)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
