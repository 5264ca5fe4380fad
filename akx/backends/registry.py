"""The registry of schedules and variants, and by it of backends: one line each, imported only when asked for.

Another package adds its own by :func:`register`, or by entry points in the groups ``akx.backends`` (by name, as
``mine``), ``akx.schedules`` (as ``cpu/mine``) and ``akx.variants`` (as ``cpu/mine``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from akx.backends.base import Backend
from akx.backends.schedule import Schedule
from akx.backends.selection import BACKENDS, backend_of
from akx.backends.variant import AnyVariant, VariantTraits
from akx.core.errors import ArgumentError, ArgumentTypeError, brief
from akx.core.matrix import Matrix
from akx.core.options import SCHEDULES
from akx.core.plan import Plan
from akx.core.plugins import Registered, named

__all__ = [
    "backends",
    "find",
    "get",
    "has_others",
    "modules",
    "names",
    "register",
    "schedules",
    "stored_error",
    "unregister",
    "variant",
    "variant_traits",
    "variants",
    "variants_with",
]


def _named_variant(variant: Any) -> str:
    """Its name; raises where its backend takes no such variant, or has one of that name."""
    name, backend = named("akx.backends.variant:AnyVariant", variant), backend_of(variant.backend)
    expected = backend.variant_type()
    if expected is None:
        raise ArgumentError(
            f"the backend {backend.name!r} takes no variants of other packages",
            found=brief(variant.name),
            hint="register a schedule, which may have any",
        )
    if not isinstance(variant, expected):
        kind = f"an object of a class derived from {expected.__module__}.{expected.__name__}"
        raise ArgumentTypeError(
            f"this is no variant of the backend {backend.name!r}", expected=kind, found=brief(variant)
        )
    if variant.name in backend.variant_names():
        raise ArgumentError(f"akx has a {name!r} of its own", expected="another name", found=name)
    return name


_VARIANTS: Registered[AnyVariant] = Registered(_named_variant, {}, group="akx.variants")


def register(thing: Schedule | AnyVariant | Backend) -> None:
    """Add a schedule, a variant or a backend of another package.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Where it is none of these, has no name of its own, or akx has one of that name.
    """
    _home_of(thing).register(thing)


def unregister(thing: Schedule | AnyVariant | Backend) -> None:
    """Take :func:`register` back."""
    _home_of(thing).unregister(thing)


def _home_of(thing: Any) -> Registered[Any]:
    if isinstance(thing, Backend):
        return BACKENDS
    if isinstance(thing, AnyVariant):
        return _VARIANTS
    if not isinstance(thing, Schedule):
        expected = "an object of a class derived from Schedule, Variant or Backend"
        raise ArgumentTypeError("this cannot be registered", expected=expected, found=brief(thing))
    return SCHEDULES


_NOTHING = VariantTraits()


def backends() -> tuple[str, ...]:
    """The names of all backends, akx's own first."""
    return BACKENDS.names()


def get(backend: str, name: str) -> Schedule:
    """The schedule `name` of `backend`. Raises :class:`ArgumentError` where there is none, or no such backend."""
    found = find(backend, name)
    if found is None:
        backend_of(backend)
        known = ", ".join(SCHEDULES.names())
        raise ArgumentError("unknown schedule", expected=f"one of {known}", found=f"{backend}/{name}")
    return found


def find(backend: str, name: str) -> Schedule | None:
    """The schedule `name` of `backend`; None where there is none."""
    found: Schedule | None = SCHEDULES.get(f"{backend}/{name}")
    return found


def modules(backend: str) -> dict[str, str]:
    """The module of every schedule of akx's own for `backend`, by its name; none is imported."""
    named = ((key.split("/"), target.partition(":")[0]) for key, target in SCHEDULES.own.items())
    return {name: module for (of, name), module in named if of == backend}


def names(backend: str) -> tuple[str, ...]:
    """The names of the schedules of `backend`, in the order of the registry; none of akx's is imported."""
    return tuple(key.split("/", 1)[1] for key in SCHEDULES.names(f"{backend}/"))


def schedules(backend: str) -> tuple[Schedule, ...]:
    """Every schedule of `backend`, in the order of the registry."""
    return tuple(get(backend, name) for name in names(backend))


def has_others(backend: str) -> bool:
    """Whether other packages have schedules or variants for `backend`."""
    prefix = f"{backend}/"
    return bool(set(SCHEDULES.names(prefix)) - set(SCHEDULES.own) or _VARIANTS.names(prefix))


def variant(backend: str, name: str) -> AnyVariant | None:
    """The variant of another package; None where there is none, as of those of akx, which its kernels know."""
    found = _VARIANTS.get(f"{backend}/{name}")
    own = None if found is None else BACKENDS.get(backend)
    return None if own is not None and name in own.variant_names() else found


def variants(backend: str) -> tuple[AnyVariant, ...]:
    """Those of other packages for `backend`."""
    found = (_VARIANTS.get(key) for key in _VARIANTS.names(f"{backend}/"))
    return tuple(one for one in found if one is not None)


def variant_traits(backend: str, variant: str) -> VariantTraits:
    """What a backend declares of an SpMV variant; nothing is declared of most."""
    return _declared(backend).get(variant, _NOTHING)


def variants_with(backend: str, trait: str) -> tuple[str, ...]:
    """The variants of a backend that are declared with a trait, by name."""
    return tuple(name for name, one in _declared(backend).items() if getattr(one, trait))


def _declared(backend: str) -> Mapping[str, VariantTraits]:
    found = BACKENDS.get(backend)
    return {} if found is None else found.variants()


def stored_error(schedule: Schedule, plan: Plan, matrix: Matrix, device: Any) -> float:
    """The largest relative error of a value of `matrix` as a feasible plan stores it, measured.

    0 for all that store values as they are, and wherever the matrix allows no error: nothing is looked at then.
    """
    return float(schedule.stored_error(plan, matrix, device)) if matrix.value_error else 0.0
