"""Matrix powers as users call them: `MatrixPowers`, prepared once and applied often, and `matrix_powers` on top of it.

:mod:`~akx.operator.planner` chooses the plan, :mod:`~akx.operator.prepared` has what is ready to run, and
:mod:`~akx.operator.cache` what stays so between calls. Before that pays, :mod:`~akx.operator.tiers` answers, and needs
none of them: they are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akx.operator.cache import clear_cache
    from akx.operator.call import matrix_powers
    from akx.operator.powers import MatrixPowers

__all__ = ["MatrixPowers", "clear_cache", "matrix_powers"]

_HOMES = {
    "MatrixPowers": "akx.operator.powers",
    "clear_cache": "akx.operator.cache",
    "matrix_powers": "akx.operator.call",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'akx.operator' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
