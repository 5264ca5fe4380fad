"""`PlanKey`, by which no stale plan is ever used; and what a plan was made with, by which it may be aged.

A plan holds for one pattern, dtype, index type, basis kind, k, number of start vectors, class of device, and for the
revisions of its schedule and its variant (:mod:`akx.backends.revisions`). All are fields of :class:`PlanKey`; a lookup
succeeds only where all of them are equal, and otherwise names those that are not.

A search is over all schedules, so its key has no revisions; the plan that it finds is kept under those of its own
(:func:`key_of_plan`), and a lookup by the key of a search finds the plan of any schedule and variant whose revisions
are as they are declared. So a new schedule, or another revision of one, leaves the plans of the others as they are.

A plan is a choice: the code that runs it is compiled from the sources of today. So kernel sources and versions of the
compiler are no part of its key. They are kept beside it (:func:`made_with`), and where they differ from those of today
it is *aged* (:func:`aged_of`). Nothing here imports a compiler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from akx.backends.revisions import ALL, revision, sources, variant_revision
from akx.backends.selection import BACKENDS, HOST, backend_of
from akx.core.errors import PlanError, brief
from akx.core.plan import PLAN_SCHEMA, Plan, check_fields

if TYPE_CHECKING:
    from akx.backends.host import HostDevice
    from akx.core.matrix import Matrix

__all__ = [
    "FIELD_MEANINGS",
    "Key",
    "PlanKey",
    "aged_of",
    "build_of",
    "check_name",
    "check_number",
    "device_distance",
    "difference",
    "key_of_plan",
    "made_of",
    "made_with",
    "make_key",
    "of_other_kernels",
    "revisions_of",
    "search_key",
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
    "revisions": "another revision of its schedule or variant",
    "returns": "another result",
    "transpose": "the transpose, or not",
    "ranks": "another number of ranks",
}

#: Parts of a device class behind those of the device itself: how each begins, and what it is; threads end in theirs.
_SPECIAL = {"budget ": "memory budget", "value error ": "allowed error of values"}
_THREADS = " threads"

_LARGEST = 2**31 - 1
#: The most characters of a name; what has more was made to do harm.
_LONGEST = 1000


def check_number(what: str, value: Any, least: int, largest: int) -> None:
    """Raise :class:`PlanError` where `value` is no integer of this range."""
    if type(value) is not int or not least <= value <= largest:
        expected = f"an integer from {least} to {largest}"
        raise PlanError(f"{what} is out of range", expected=expected, found=brief(value))


def check_name(what: str, value: Any, *, empty: bool = False) -> None:
    """Raise :class:`PlanError` where `value` is no text that UTF-8 can hold, too long, or empty where it may not be."""
    if not isinstance(value, str) or not (value or empty) or not _is_unicode(value):
        raise PlanError(f"{what} is not a name", expected="a non-empty string", found=brief(value))
    if len(value) > _LONGEST:
        most = f"at most {_LONGEST} characters"
        raise PlanError(f"{what} is too long", expected=most, found=str(len(value)))


class Key:
    """What names one plan, or one timing: a frozen dataclass of names and numbers."""

    _WHAT: ClassVar[str]
    device_class: str

    @property
    def backend(self) -> str:
        """The backend of the device."""
        return self.device_class.partition("/")[0]

    @cached_property
    def id(self) -> str:
        """32 hexadecimal digits that stand for the whole key; also the id of what is stored under it."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, without what is as by default: a key stays the same when there is more to ask for."""
        kind: Any = type(self)
        values = ((name, default, getattr(self, name)) for name, default in _defaults(kind).items())
        return {name: value for name, default, value in values if value != default}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make a key from :meth:`to_json`'s dict. Raises :class:`PlanError` on any unknown, missing or wrong field."""
        if not isinstance(data, Mapping):
            raise PlanError(f"{cls._WHAT} is not a JSON object", found=type(data).__name__)
        kind: Any = cls
        defaults = _defaults(kind)
        optional = {name for name, default in defaults.items() if default is not MISSING}
        check_fields(cls._WHAT, data, set(defaults), optional=optional)
        return cls(**data)


@lru_cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {field.name: field.default for field in fields(kind)}


@dataclass(frozen=True)
class PlanKey(Key):
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
    revisions : str
        Of the form of plans, the plan's schedule and its variant, as :func:`revisions_of` says; "" in the key of a
        search.
    returns : str
        What a call returns: ``"vectors"``.
    transpose : bool
        Whether the powers are those of the transpose.
    ranks : int
        Number of processes that share the matrix.

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
    revisions: str = ""
    returns: str = "vectors"
    transpose: bool = False
    ranks: int = 1

    _WHAT: ClassVar[str] = "plan key"

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            what = f"plan key field '{name}'"
            if name in ("k", "start_vectors", "ranks"):
                check_number(what, value, 1, _LARGEST)
            elif name != "transpose":
                check_name(what, value, empty=name == "revisions")
            elif not isinstance(value, bool):
                raise PlanError(f"{what} is not true or false", found=brief(value))

    @property
    def value_kind(self) -> str:
        """``"float"`` or ``"complex"``, whatever the precision."""
        return self.dtype.rstrip("0123456789")

    def mismatch(self, other: PlanKey) -> list[str]:
        """Names of the fields in which two keys differ, in the order of declaration; empty where they are equal."""
        return [field.name for field in fields(self) if getattr(self, field.name) != getattr(other, field.name)]


def make_key(
    matrix: Matrix,
    k: int,
    *,
    basis: str = "monomial",
    start_vectors: int = 1,
    device: HostDevice,
    threads: int | None = None,
    backend: str = HOST,
) -> PlanKey:
    """The key of a search for a plan for `matrix` on `device`.

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
        Of the plans.
    """
    device_class = device.device_class
    if threads is not None and threads != device.cores:
        device_class += f"/{threads} threads"
    if str(matrix.dtype) in backend_of(backend).narrowed and matrix.value_error:
        device_class += f"/value error {matrix.value_error!r}"
    return PlanKey(
        fingerprint=matrix.fingerprint,
        dtype=str(matrix.dtype),
        index_type=str(matrix.index_dtype),
        basis=basis,
        k=k,
        start_vectors=start_vectors,
        device_class=device_class,
    )


def difference(theirs: PlanKey, ours: PlanKey, names: Iterable[str]) -> str:
    """What a plan is for instead of what was asked for, in the fields with these names, for the end of a sentence.

    Of a device class only the parts that differ: ``"another device (L2 1 MiB, here L2 2 MiB)"``.
    """
    told = []
    for name in names:
        its, own = str(getattr(theirs, name)), str(getattr(ours, name))
        if name == "device_class":
            told += _other_device(its, own)
        elif name == "fingerprint" or not own:
            told.append(FIELD_MEANINGS[name])
        else:
            told.append(f"{FIELD_MEANINGS[name]} ({its}, here {own})")
    return ", ".join(told)


def device_distance(theirs: PlanKey, ours: PlanKey) -> int:
    """How many parts of the device class differ; another backend is further away than any device of the same."""
    its, own = theirs.device_class.split("/"), ours.device_class.split("/")
    return len(set(its) ^ set(own)) + 100 * (its[0] != own[0])


def _other_device(its: str, own: str) -> list[str]:
    """What differs between two device classes, the device itself first."""
    (device, special), (here, asked) = _parts(its), _parts(own)
    told = []
    if device != here:
        both = {*device} & {*here}
        its_own, ours = (", ".join(part for part in one if part not in both) or "less" for one in (device, here))
        told.append(f"another device ({its_own}, here {ours})")
    for what in sorted({*special, *asked}):
        absent = "all" if what == "number of threads" else "none"
        if special.get(what) != asked.get(what):
            told.append(f"another {what} ({special.get(what, absent)}, here {asked.get(what, absent)})")
    return told or [FIELD_MEANINGS["device_class"]]


def _parts(device_class: str) -> tuple[list[str], dict[str, str]]:
    """Those of the device, and what is asked of it, by what that is."""
    device, special = [], {}
    for part in device_class.split("/"):
        begin = next((begin for begin in _SPECIAL if part.startswith(begin)), None)
        if part.endswith(_THREADS):
            special["number of threads"] = part.removesuffix(_THREADS)
        elif begin is not None:
            special[_SPECIAL[begin]] = part.removeprefix(begin)
        else:
            device.append(part)
    return device, special


def revisions_of(plan: Plan) -> str:
    """What a plan depends on as it is declared now, such as ``"plan 1, wavefront 1, sell16 1"``."""
    schedule, variant = revision(plan.backend, plan.schedule), variant_revision(plan.backend, plan.variant)
    return f"plan {PLAN_SCHEMA}, {plan.schedule} {schedule}, {plan.variant} {variant}"


def key_of_plan(key: PlanKey, plan: Plan) -> PlanKey:
    """The key under which a plan is kept that a search with `key` has found; one with revisions is that already."""
    return key if key.revisions else replace(key, revisions=revisions_of(plan))


def search_key(key: PlanKey) -> PlanKey:
    """The key of the search whose plan is kept under `key`."""
    return replace(key, revisions="") if key.revisions else key


def made_with(plan: Plan) -> dict[str, Any]:
    """What a plan that is measured now is made with: ``{"kernels": digest, "versions": {package: release}}``."""
    return made_of(plan.backend, plan.schedule)


def made_of(backend: str, schedule: str) -> dict[str, Any]:
    """The same of what is measured of a schedule, or of the vector work of solvers."""
    known = sources(backend, schedule)
    versions = {name: release for name, release in _releases(backend).items() if release}
    return ({} if known is None else {"kernels": known.tokens}) | {"versions": versions}


def build_of(plan: Plan) -> str:
    """What decides how a plan runs here, beside the device: trials of it compare where they agree in it."""
    known = sources(plan.backend, plan.schedule)
    versions = [f"{name} {_minor(release)}" for name, release in _releases(plan.backend).items()]
    return ", ".join([revisions_of(plan), f"kernels {'unknown' if known is None else known.tokens}", *versions])


def aged_of(backend: str, schedule: str, provenance: Mapping[str, Any]) -> list[str]:
    """Why what was measured of a schedule, or of solvers, with this provenance is aged, in words.

    Empty where nothing has changed since, or nobody knows, as of the versions of a compiler that is not installed here.
    """
    known, kernels = sources(backend, schedule), provenance.get("kernels")
    found = [] if known is None or kernels is None or known.are(kernels) else ["other kernel sources"]
    then = provenance.get("versions")
    for name, now in _releases(backend).items():
        release = then.get(name) if isinstance(then, Mapping) else None
        if now and isinstance(release, str) and _minor(release) != _minor(now):
            found.append(f"{name} {_minor(release)}, now {_minor(now)}")
    return found


def of_other_kernels(backend: str, digest: str) -> bool:
    """Whether what was measured with the kernels of a backend as a whole was so with others than those of today."""
    known = sources(backend, ALL)
    return known is None or not known.are(digest)


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


@lru_cache(maxsize=8)
def _releases(backend: str) -> Mapping[str, str]:
    """The compilers of a backend as installed, "" where one is not; from metadata, without an import."""
    from importlib import metadata

    found = {}
    known = BACKENDS.get(backend)  # a record may be of a backend that is not here
    for package in () if known is None else known.compilers:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = ""
    return found


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
