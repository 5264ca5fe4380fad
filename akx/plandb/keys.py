"""What a plan is keyed by, so that no stale plan is ever used.

A plan holds for one pattern, dtype, index type, basis kind, k, number of start vectors, class of device, set of kernel
sources and set of versions. All nine are fields of :class:`PlanKey`; a lookup succeeds only where all of them are
equal, and otherwise names those that are not. Nothing here imports a compiler: versions come from package metadata and
the hash of the kernels from the text of their sources.

The kernel sources of a plan are those that its schedule depends on. A search is over all schedules, so its key has the
digest of the backend as a whole; the plan that it finds is kept under that of its own schedule (:func:`key_of_plan`),
and a lookup by the key of a search finds the plan of any schedule whose sources are as they were. So a new schedule,
or a change of one, leaves the plans of the others as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.errors import ArgumentError, DatabaseError, PlanError
from akx.kernels import registry
from akx.plan import PLAN_SCHEMA, Plan

if TYPE_CHECKING:
    from akx.device.host import HostDevice
    from akx.matrix import Matrix

__all__ = [
    "FIELD_MEANINGS",
    "OF_SEARCHES",
    "PlanKey",
    "hashes_beside",
    "hashes_of",
    "is_of_search",
    "kernel_hash",
    "key_of_plan",
    "lacks_compiler",
    "make_key",
    "right_hashes",
    "schedule_hashes",
    "search_key",
    "versions",
]

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
#: By backend, sources that a search runs and no program of a plan: those that say which plans there are (a search that
#: has more to choose from goes on from what was tried before), what these should cost and which are worth a try, what
#: measures the device for them, and what has layouts compiled ahead.
OF_SEARCHES = {
    "cpu": frozenset(("choices", "ghost_space", "sweep_space", "wavefront_space")),
    "cuda": frozenset(("choices", "layouts", "rates", "work", "parts_work", "sweep_work", "wavefront_work"))
    | {f"{schedule}_space" for schedule in ("ghost", "resident", "stream", "sweep", "wavefront")}
    | {f"{schedule}_offers" for schedule in ("diagonals", "ghost", "resident", "sweep", "wavefront")},
}
#: Those of solvers' vector work and of preconditioners.
_OF_SOLVERS = {
    "cpu": frozenset(("advance", "blocks", "rows", "vectors")),
    "cuda": frozenset(
        ("advance", "arnoldi", "blocks", "conjugate", "gram_schmidt", "mix", "products", "queues", "vectors")
    )
    | {"hermitian", "scaling", "spai", "transpose"},
}


#: In the text of a source: ``from akx... import ...``, a file beside it, an include.
_IMPORT = re.compile(rb"^[ \t]*from[ \t]+(akx[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)", re.MULTILINE)
_WITH_NAME = re.compile(rb'with_name\("([\w.]+)"\)')
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([\w.]+)"', re.MULTILINE)
_WORD = re.compile(rb"\w+")


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
        Digest of kernel sources: of those of the plan's schedule, or of the backend, see :func:`kernel_hash`.
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

    @property
    def backend(self) -> str:
        """The backend of the device."""
        return self.device_class.partition("/")[0]

    @property
    def value_kind(self) -> str:
        """``"float"`` or ``"complex"``, whatever the precision."""
        return self.dtype.rstrip("0123456789")

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
    """The key of a search for a plan for `matrix` on `device`, with the kernel sources and versions of this process.

    A lookup by it finds plans that are kept under :func:`key_of_plan`.

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
        Whose kernels are hashed, all of them.
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


def key_of_plan(key: PlanKey, plan: Plan) -> PlanKey:
    """The key under which a plan is kept that a search with `key` has found: with the sources of its schedule alone."""
    own = schedule_hashes(plan.backend).get(plan.schedule)
    return key if own is None or not is_of_search(key) else replace(key, kernel_hash=own)


def is_of_search(key: PlanKey) -> bool:
    """Whether a key asks for the plan of any schedule, with the kernel sources of this process."""
    return key.backend in registry.backends() and key.kernel_hash == kernel_hash(key.backend)


def right_hashes(key: PlanKey, plan: Plan) -> tuple[str, ...]:
    """The digests under which a plan answers a lookup by `key`."""
    own = schedule_hashes(plan.backend).get(plan.schedule) if is_of_search(key) else None
    return (key.kernel_hash,) if own is None else (key.kernel_hash, own)


def hashes_of(key: PlanKey) -> tuple[str, ...]:
    """The digests of kernel sources under which there may be an answer to a lookup by `key`."""
    if not is_of_search(key):
        return (key.kernel_hash,)
    return (key.kernel_hash, *schedule_hashes(key.backend).values())


def hashes_beside(key: PlanKey) -> tuple[str, ...]:
    """The digests of kernel sources of what belongs to one search with `key`, which may be that of a plan it found."""
    is_known = key.backend in registry.backends()
    known = (kernel_hash(key.backend), *schedule_hashes(key.backend).values()) if is_known else ()
    return tuple(dict.fromkeys(known)) if key.kernel_hash in known else (key.kernel_hash,)


def search_key(key: PlanKey, plan: Plan) -> PlanKey:
    """The key of the search whose plan is kept under `key`; `key` itself where that is of other kernel sources."""
    own = schedule_hashes(plan.backend).get(plan.schedule)
    search = key if own is None or key.kernel_hash != own else replace(key, kernel_hash=kernel_hash(plan.backend))
    return search if is_of_search(search) else key


@lru_cache(maxsize=8)
def schedule_hashes(backend: str) -> Mapping[str, str]:
    """By schedule of `backend`, the digest of the sources that its programs depend on; empty for an unknown backend.

    These are, of the sources of :func:`kernel_hash`, the module of the schedule, what it imports, wherever in the text,
    the ``.cu`` files that these modules name by ``with_name``, and what those include; of the other backends' sources
    too, where a schedule has them do some of its work. Computed once per process, in some milliseconds, without an
    import.
    """
    modules = registry.modules(backend)
    return _hash_schedules(_PACKAGE, backend, modules) if modules else {}


@lru_cache(maxsize=8)
def kernel_hash(backend: str, *, solvers: bool = False) -> str:
    """Digest of the sources that plans of `backend` depend on; of those that solvers depend on as well, where asked.

    These are the files below ``akx/kernels/<backend>`` and ``akx/formats``, and ``akx/kernels/base.py``: their paths
    and their text, with line ends normalised, but for those of solvers' vector work and of preconditioners, which no
    program of a plan runs, and those of a search (:data:`OF_SEARCHES`). Computed once per process, in about a
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
            if path.stem in OF_SEARCHES.get(path.parent.name, ()):
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


def _hash_schedules(package: Path, backend: str, modules: Mapping[str, str]) -> dict[str, str]:
    kernels = f"kernels/{backend}"
    hashes = {}
    try:
        folders = sorted(path.parent for path in (package / "kernels").glob("*/__init__.py"))
        others = [folder for folder in folders if folder.name != backend]
        texts = {
            path.relative_to(package).as_posix(): path.read_bytes().replace(b"\r\n", b"\n")
            for path in _sources(package / kernels, package / "kernels" / "base.py", package / "formats", *others)
            if path.stem not in {*OF_SEARCHES.get(path.parent.name, ()), *_OF_SOLVERS.get(path.parent.name, ())}
        }
        lines = {name: f"{name} {hashlib.sha256(text).hexdigest()}\n".encode() for name, text in texts.items()}
        named = {name: [one for one in _named_in(name, text) if one in texts] for name, text in texts.items()}
        for schedule, module in modules.items():
            left, reached = ["kernels/base.py", _file_of(module)], set[str]()
            while left:
                name = left.pop()
                if name not in reached:
                    reached.add(name)
                    left += named[name]
            hashes[schedule] = hashlib.sha256(b"".join(lines[name] for name in sorted(reached))).hexdigest()[:16]
    except (OSError, KeyError) as error:
        raise DatabaseError("kernel sources cannot be read", found=str(error), hint="install akx again") from error
    return hashes


def _named_in(name: str, text: bytes) -> Iterator[str]:
    """The files that a source imports, names or includes; some of them may not be there."""
    folder = name.rpartition("/")[0]
    if not name.endswith(".py"):
        yield from (f"{folder}/{one.decode()}" for one in _INCLUDE.findall(text))
        return
    yield from (f"{folder}/{one.decode()}" for one in _WITH_NAME.findall(text))
    for given, names in _IMPORT.findall(text):
        module = given.decode()
        yield _file_of(module)
        yield f"{module.removeprefix('akx.').replace('.', '/')}/__init__.py"
        yield from (_file_of(f"{module}.{one.decode()}") for one in _WORD.findall(names))


def _file_of(module: str) -> str:
    """Where the text of a module is, below the package."""
    return f"{module.removeprefix('akx.').replace('.', '/')}.py"


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


def lacks_compiler(backend: str) -> bool:
    """Whether a package that makes the machine code of a backend is not installed."""
    return any(part.endswith(" absent") for part in versions(backend).split(", "))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
