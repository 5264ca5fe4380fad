"""Bytes of device memory that plans may take, as users say them.

``"512M"``, ``"2G"`` and ``"80GiB"`` count in powers of 1024, ``"2GB"`` in powers of 1000, as `dd` and `ls` have it. A
fraction is one of the bytes of the matrix in compressed sparse rows with 32-bit indices (thesis sec. 6.4 has a fourth).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from akx.backends.selection import BACKENDS, backend_of
from akx.core.errors import ArgumentError, ArgumentTypeError, brief

if TYPE_CHECKING:
    from akx.core.matrix import Matrix

__all__ = ["budgeted_backend", "parse_bytes", "parse_limits", "resolve_budget", "within"]

_FORM = r"(?i)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgtp]?)(i?b)?\s*"
_EXPONENTS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_EXPECTED = "bytes, more than 0, as a whole number or like 512M, 2G, 80GiB"
#: More bytes than that are nobody's memory, and no number of them is kept.
_MOST = 2**63 - 1
#: Digits of a number that are read, on either side of its point.
_MOST_DIGITS = 40
_Integer = (int, np.integer)


def parse_bytes(value: int | np.integer[Any] | str) -> int:
    """A number of bytes from an integer or a text; fractions of a byte do not count.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        The message says what is expected.

    Examples
    --------
    >>> parse_bytes("512M"), parse_bytes("2GB"), parse_bytes("1.5 KiB"), parse_bytes(4096)
    (536870912, 2000000000, 1536, 4096)
    """
    if isinstance(value, bool) or not isinstance(value, (*_Integer, str)):
        raise ArgumentTypeError("the memory budget is no number of bytes", expected=_EXPECTED, found=brief(value))
    if not isinstance(value, str):
        found = int(value)
    else:
        from decimal import Context, Decimal

        form = re.fullmatch(_FORM, value)
        if form is None:
            raise ArgumentError("the memory budget is no number of bytes", expected=_EXPECTED, found=brief(value))
        number, prefix, unit = form.group(1), form.group(2).lower(), (form.group(3) or "").lower()
        base = 1000 if unit == "b" else 1024
        whole, _, part = number.partition(".")
        if len(whole.lstrip("0")) > _MOST_DIGITS:
            raise ArgumentError("the memory budget is out of range", expected=_EXPECTED, found=brief(value))
        exact = Decimal(f"{whole.lstrip('0')[:_MOST_DIGITS] or '0'}.{part[:_MOST_DIGITS] or '0'}")
        found = int(Context(prec=4 * _MOST_DIGITS).multiply(exact, Decimal(base ** _EXPONENTS[prefix])))
    if not 1 <= found <= _MOST:
        raise ArgumentError("the memory budget is out of range", expected=_EXPECTED, found=brief(value))
    return found


def resolve_budget(
    matrix: Matrix, memory_budget: int | np.integer[Any] | str | None, fraction: float | np.floating[Any] | None
) -> int | None:
    """The bytes that both allow, or None where neither is given.

    Parameters
    ----------
    matrix : Matrix
    memory_budget : int or str, optional
        See :func:`parse_bytes`.
    fraction : float, optional
        Of the bytes of the matrix in CSR, more than 0.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        One of them makes no sense.
    """
    most, share = parse_limits(memory_budget, fraction)
    given = [] if most is None else [most]
    if share is not None:
        given.append(_share(share, matrix.csr_bytes))
    return min(given) if given else None


def parse_limits(
    memory_budget: int | np.integer[Any] | str | None, fraction: float | np.floating[Any] | None
) -> tuple[int | None, float | None]:
    """Bytes and fraction as numbers of Python, None where not given; raises as :func:`resolve_budget` does."""
    most = None if memory_budget is None else parse_bytes(memory_budget)
    if fraction is not None:
        if isinstance(fraction, bool) or not isinstance(fraction, (*_Integer, float, np.floating)):
            raise ArgumentTypeError("fraction is not a number", expected="a number > 0", found=brief(fraction))
        if not 0 < fraction < float("inf"):
            raise ArgumentError(
                "fraction is out of range", expected="a number > 0", found=brief(fraction), hint="try 0.25"
            )
    return most, None if fraction is None else float(min(fraction, _MOST))


def _share(fraction: float, once: int) -> int:
    """So many times `once` bytes, at least one and at most what a budget may be."""
    share = fraction * once
    return max(1, int(share)) if share < _MOST else _MOST


def within(device: Any, budget: int | None) -> Any:
    """The device as plans within a budget see it, or as it is without one."""
    return device if budget is None else replace(device, budget=budget)


def budgeted_backend(backend: str, budget: int | None) -> str:
    """The backend that a call with a budget means: one whose plans keep to budgets, which are those for a GPU."""
    if budget is None:
        return backend
    if backend == "auto":
        return next(name for name in BACKENDS.own if backend_of(name).keeps_budgets)
    if not backend_of(backend).keeps_budgets:
        others = " or ".join(name for name in BACKENDS.own if backend_of(name).keeps_budgets)
        raise ArgumentError(
            "a memory budget is for the GPU",
            expected=f"the backend {others}",
            found=brief(backend),
            hint=f"leave the budget out, or use the backend {others}",
        )
    return backend
