"""What others must know of SpMV variants: declared beside them, read through the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from akx.backends.device_model import FormatCost

__all__ = ["FormatCost", "VariantTraits"]


@dataclass(frozen=True)
class VariantTraits:
    """What others must know of an SpMV variant, which is a format with its mapping of lanes or threads to rows.

    Attributes
    ----------
    description : str
        In a few words.
    narrow : str
        The variant that is the same but for indices of 16 bits; "" where there is none.
    has_columns : bool
        Whether entries have column indices; without them, nothing is asked for that has not been fetched ahead.
    asks_ahead : bool
        Whether entries of x are asked for ahead of use, for columns far apart: what that is worth is in no price.
    sorts : bool
        Whether rows may be sorted by their entries (option ``sigma``).
    cost : FormatCost or None
        What it costs a core, where nobody has measured it.
    sizes : mapping of int to float
        By the bytes of a value, how much longer it takes than for values of 8.
    together : mapping of int to FormatCost
        By the number of start vectors that have an entry at once (:meth:`Schedule.at_once`), what all of these cost a
        core, where `cost` is what one of them costs.
    """

    description: str = ""
    narrow: str = ""
    has_columns: bool = True
    asks_ahead: bool = False
    sorts: bool = False
    cost: FormatCost | None = None
    sizes: Mapping[int, float] = field(default_factory=dict)
    together: Mapping[int, FormatCost] = field(default_factory=dict)
