"""The SpMV variants of the CPU, one format a module: its loops, what is asked of it, and what others must know of it.

``CONTRIBUTING.md`` says how to add one. A module defines

LAYOUTS : tuple of Layout
    The format with its loops, and other ways to go through it.
VARIANTS : dict of str to VariantTraits
    By the name in plans; that of a layout, or with 16 behind it where columns are 16 bits wide.

What a variant costs a core is in ``akx/cost/cpu.json``, or in a calibration; without both only a search finds it.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

from akx.backends.cpu.variants import bell, csr, dia, dia_sym, inode, inode_sym, sell
from akx.backends.cpu.variants.base import Given, Known, Layout
from akx.backends.variant import VariantTraits
from akx.cost.coefficients import coefficients
from akx.cost.device_model import FORMATS, format_cost
from akx.formats.base import Format

__all__ = ["LAYOUTS", "VARIANTS", "Given", "Known", "Layout", "by_arrays", "index_bits", "layout_of", "made_by"]

_MODULES: tuple[ModuleType, ...] = (csr, sell, dia, bell, inode, dia_sym, inode_sym)
_NARROW = "16"
#: Revisions of variants, where not 1 (:mod:`akx.backends.revisions`).
REVISIONS: dict[str, int] = {}


def _with_costs(name: str, traits: VariantTraits) -> VariantTraits:
    known = vars(coefficients("cpu", "variants")).get(name)
    if known is None:
        return traits
    sizes = {int(octets): factor for octets, factor in known["time_ratio_by_value_bytes"].items()}
    together = {int(count): format_cost(cost) for count, cost in known.get("cost_by_start_vectors", {}).items()}
    return replace(traits, cost=FORMATS[name], sizes=sizes, together=together)


LAYOUTS: dict[str, Layout] = {one.name: one for module in _MODULES for one in module.LAYOUTS}
VARIANTS: dict[str, VariantTraits] = {
    name: _with_costs(name, traits) for module in _MODULES for name, traits in module.VARIANTS.items()
}
_BY_ARRAYS: dict[Any, Layout] = {one.arrays: one for one in LAYOUTS.values()}


def layout_of(variant: str) -> Layout:
    """What a variant is, but for the width of its indices."""
    return LAYOUTS[variant.removesuffix(_NARROW)]


def index_bits(variant: str, columns: int) -> int:
    """Bits of an index: 16, or the fewer of 32 and 64 that hold any column."""
    return 16 if variant.endswith(_NARROW) else 32 if columns <= 2**32 else 64


def by_arrays(kind: Any) -> Layout | None:
    """The layout with arrays of a class; None where there is none."""
    return _BY_ARRAYS.get(kind)


def made_by(made: Format) -> Layout:
    """The layout that a format is of."""
    return _BY_ARRAYS[type(made.arrays)]
