"""Arguments that several solvers have, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.errors import ArgumentError, brief

__all__ = ["check_count", "check_hermitian"]


def check_count(
    name: str, value: Any, default: int = 0, *, least: int = 1, most: int | None = None, auto: bool = False
) -> int:
    """An integer argument; the default, at least 1, where it is None.

    Parameters
    ----------
    name : str
        For the message.
    least, most : int
        What it may be, both included.
    auto : bool
        Whether the message is to name ``"auto"``, which the caller has dealt with.

    Raises
    ------
    ArgumentError
    """
    if value is None and not auto:
        return max(default, 1)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    is_count = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_count or value < least or (most is not None and value > most):
        expected = f"an integer >= {least}" if most is None else f"an integer, {least} .. {most}"
        expected += ", or 'auto'" if auto else ""
        raise ArgumentError(f"{name} is out of range", expected=expected, found=brief(value))
    return int(value)


def check_hermitian(M: Any, method: str) -> None:
    """Raise ArgumentError for a preconditioner of akx that is known not to be Hermitian."""
    if getattr(M, "hermitian", True) is False:
        raise ArgumentError(
            f"M is not Hermitian, which {method} needs",
            found=type(M).__name__,
            hint=f"{'cg with ' * (method == 'ca_cg')}spai(A, symmetric=True), or another method: gmres, bicgstab",
        )
