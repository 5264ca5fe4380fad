"""The layouts of the CPU, one module each: a new one is a module here, its line below, and its traits.

What others must know of the variants that they make is declared in :mod:`akx.backends.cpu.variant_table`, for which
nothing is compiled.
"""

from __future__ import annotations

from typing import Any

from akx.backends.cpu.variants.base import Given, Known, Layout
from akx.backends.cpu.variants.bell import Bell
from akx.backends.cpu.variants.csr import Csr, CsrAhead
from akx.backends.cpu.variants.dia import Dia
from akx.backends.cpu.variants.inode import Inode
from akx.backends.cpu.variants.sell import Sell
from akx.formats.base import Format

__all__ = ["LAYOUTS", "Given", "Known", "Layout", "by_arrays", "index_bits", "layout_of", "made_by"]

LAYOUTS: dict[str, Layout] = {one.name: one for one in (Csr(), CsrAhead(), Sell(), Dia(), Bell(), Inode())}
_BY_ARRAYS: dict[Any, Layout] = {one.arrays: one for one in LAYOUTS.values()}
_NARROW = "16"


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
