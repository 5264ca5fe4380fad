"""Bytes of device memory that plans may take, as users say them.

``"512M"``, ``"2G"`` and ``"80GiB"`` count in powers of 1024, ``"2GB"`` in powers of 1000, as `dd` and `ls` have it. A
fraction is one of the bytes of the matrix in compressed sparse rows with 32-bit indices (thesis sec. 6.4 has a fourth).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from akx.errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from akx.matrix import Matrix

__all__ = ["budgeted_backend", "parse_bytes", "resolve_budget", "within"]

_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgtp]?)(i?b)?\s*", re.IGNORECASE)
_EXPONENTS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_EXPECTED = "bytes, more than 0, as a whole number or like 512M, 2G, 80GiB"


def parse_bytes(value: int | str) -> int:
    """A number of bytes from an integer or a text.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        The message says what is expected.

    Examples
    --------
    >>> parse_bytes("512M"), parse_bytes("2GB"), parse_bytes("1.5 KiB"), parse_bytes(4096)
    (536870912, 2000000000, 1536, 4096)
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ArgumentTypeError("the memory budget is no number of bytes", expected=_EXPECTED, found=repr(value))
    if isinstance(value, int):
        found = value
    else:
        form = _FORM.fullmatch(value)
        if form is None:
            raise ArgumentError("the memory budget is no number of bytes", expected=_EXPECTED, found=repr(value))
        number, prefix, unit = form.group(1), form.group(2).lower(), (form.group(3) or "").lower()
        base = 1000 if unit == "b" else 1024
        found = (
            int(float(number) * base ** _EXPONENTS[prefix])
            if "." in number
            else int(number) * base ** _EXPONENTS[prefix]
        )
    if found < 1:
        raise ArgumentError("the memory budget is out of range", expected=_EXPECTED, found=repr(value))
    return found


def resolve_budget(matrix: Matrix, memory_budget: int | str | None, fraction: float | None) -> int | None:
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
    given = [] if memory_budget is None else [parse_bytes(memory_budget)]
    if fraction is not None:
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
            raise ArgumentTypeError("fraction is not a number", expected="a number > 0", found=repr(fraction))
        if not 0 < fraction < float("inf"):
            raise ArgumentError(
                "fraction is out of range", expected="a number > 0", found=repr(fraction), hint="try 0.25"
            )
        once = matrix.nnz * (matrix.dtype.itemsize + 4) + 4 * (matrix.n + 1)
        given.append(max(1, int(fraction * once)))
    return min(given) if given else None


def within(device: Any, budget: int | None) -> Any:
    """The device as plans within a budget see it, or as it is without one."""
    return device if budget is None else replace(device, budget=budget)


def budgeted_backend(backend: str, budget: int | None) -> str:
    """The backend that a call with a budget means: only plans for a GPU know budgets."""
    if budget is None:
        return backend
    if backend not in ("auto", "cuda"):
        raise ArgumentError(
            "a memory budget is for the GPU", expected="the backend cuda", found=repr(backend), hint="leave it out"
        )
    return "cuda"
