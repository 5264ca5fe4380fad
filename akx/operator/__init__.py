"""Matrix powers as users call them: `MatrixPowers`, prepared once and applied often, and `matrix_powers` on top of it.

:mod:`~akx.operator.planner` chooses the plan, :mod:`~akx.operator.prepared` has what is ready to run, and
:mod:`~akx.operator.cache` what stays so between calls.
"""

from akx.operator.cache import clear_cache
from akx.operator.call import matrix_powers
from akx.operator.powers import MatrixPowers

__all__ = ["MatrixPowers", "clear_cache", "matrix_powers"]
