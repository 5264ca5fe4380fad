"""Matrix powers as users call them: `MatrixPowers`, prepared once and applied often, and `matrix_powers` on top of it.

:mod:`~akx.operator.planner` chooses the plan, :mod:`~akx.operator.prepared` has what is ready to run, and
:mod:`~akx.operator.cache` what stays so between calls. Before that pays, :mod:`~akx.operator.tiers` answers, and needs
none of them: they are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akx.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from akx.operator.cache import clear_cache
    from akx.operator.call import matrix_powers
    from akx.operator.powers import MatrixPowers

__all__ = ["MatrixPowers", "clear_cache", "matrix_powers"]

__getattr__ = lazy_names(
    __name__,
    {
        "MatrixPowers": "akx.operator.powers",
        "clear_cache": "akx.operator.cache",
        "matrix_powers": "akx.operator.call",
    },
)
