"""Arguments that several solvers have, checked."""

from __future__ import annotations

from typing import Any

from akx.core import arguments
from akx.core.errors import ArgumentError

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
    ArgumentError, ArgumentTypeError
    """
    if value is None and not auto:
        return max(default, 1)
    most = arguments.ANY_COUNT if most is None else most
    return arguments.check_count(name, value, least=least, most=most, other="'auto'" if auto else "")


def check_hermitian(M: Any, method: str) -> None:
    """Raise ArgumentError for a preconditioner of akx that is known not to be Hermitian."""
    if getattr(M, "hermitian", True) is False:
        raise ArgumentError(
            f"M is not Hermitian, which {method} needs",
            found=type(M).__name__,
            hint=f"{'cg with ' * (method == 'ca_cg')}spai(A, symmetric=True), or another method: gmres, bicgstab",
        )
