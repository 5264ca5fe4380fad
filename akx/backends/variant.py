"""`VariantTraits`, the facts of an SpMV variant; `Variant`, the base class of those of other packages.

The variants of akx's own backends are compiled into their kernels. One from outside gives a product y = A v, rows in
the order of the user, which the `sweep` of the backend ``cpu`` does k times, with the recurrence of the basis behind
each; for a GPU it gives a kernel (`outside`). It is part of that schedule's space,
and a baseline like every other variant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.program import Coefficients, Program
from akx.core.matrix import Matrix
from akx.cost.device_model import FormatCost

__all__ = ["AnyVariant", "Product", "ProductProgram", "Variant", "VariantTraits"]


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


class Product(ABC):
    """A matrix laid out for products."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the arrays that it holds."""

    @abstractmethod
    def multiply(self, v: NDArray[Any], out: NDArray[Any]) -> None:
        """out = A v, both contiguous and of shape (n,); the same bits in every call."""

    @abstractmethod
    def update_values(self, data: NDArray[Any]) -> None:
        """Take new values, in the order of the matrix's canonical CSR data."""


class AnyVariant(ABC):
    """What an SpMV variant declares, whatever its backend, which says what else (:meth:`Backend.variant_type`).

    Attributes
    ----------
    name, backend : str
        As plans have them.
    revision : int
        Raised when plans with it would be chosen anew (:mod:`akx.backends.revisions`).
    description : str
        A few words for the search space.
    """

    name: str
    backend: str
    revision: int = 1
    description: str = ""

    def reason_against(self, matrix: Matrix) -> str | None:
        """Why the matrix cannot be laid out; None where it can."""
        return None

    @abstractmethod
    def stored_bytes(self, matrix: Matrix) -> float:
        """Bytes of the matrix that a product reads, modelled."""


class Variant(AnyVariant):
    """An SpMV variant of the CPU, registered once (:func:`akx.backends.registry.register`)."""

    backend = "cpu"

    @abstractmethod
    def prepare(self, matrix: Matrix, threads: int) -> Product:
        """Lay the matrix out, with its values, for products on so many threads."""


class ProductProgram(Program):
    """k products one after another; see :class:`akx.backends.program.Program`."""

    def __init__(self, product: Product) -> None:
        self._product = product

    @property
    def nbytes(self) -> int:
        return self._product.nbytes

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        """out[j+1] = a_j A out[j] + b_j out[j] + c_j out[j-1]."""
        out[0] = x
        for j, (a, b, c) in enumerate(zip(coefficients.a, coefficients.b, coefficients.c, strict=True)):
            for v, older, w in zip(out[j], out[j - 1], out[j + 1], strict=True):
                self._product.multiply(v, w)
                if a != 1:
                    w *= a
                if b != 0:
                    w += b * v
                if c != 0:
                    w += c * older

    def update_values(self, data: NDArray[Any]) -> None:
        self._product.update_values(np.asarray(data))
