"""A solve under way, on stderr: the relative residual, in a line that changes on a terminal, one a digit elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from akx.cli.output import note, status_console

if TYPE_CHECKING:
    from akx.core.matrix import Matrix

__all__ = ["watched"]

#: Seconds between two looks at the residual: each costs a product where the solver tells x.
_PAUSE = 0.25


@contextmanager
def watched(matrix: Matrix, b: Any, backend: str, *, as_json: bool) -> Iterator[Callable[[Any], None] | None]:
    """What to call with each x (or relative residual): a line that changes on a terminal, one a digit elsewhere.

    Nothing where steps are queued ahead, as on a GPU: it would wait for the host after each.
    """
    from akx.backends.selection import backend_of

    console = status_console()
    if backend_of(backend).queues:
        with console.status("solving on the GPU") if console.is_terminal else nullcontext():
            yield None
    elif console.is_terminal:
        with console.status("solving") as line:
            yield _Residual(matrix, b, line.update)
    elif as_json:
        yield None
    else:
        yield _Residual(matrix, b, note, each_digit=True)


class _Residual:
    """A callback that computes the relative residual now and then, and says it."""

    def __init__(self, matrix: Matrix, b: Any, say: Callable[[str], object], *, each_digit: bool = False) -> None:
        import numpy as np

        self._norm = np.linalg.norm
        self._A, self._b, self._size = matrix.to_scipy(), b, float(np.linalg.norm(b)) or 1.0
        self._say, self._each_digit = say, each_digit
        self._begin = self._last = time.perf_counter()
        self._calls, self._said = 0, float("inf")

    def __call__(self, value: Any) -> None:
        self._calls += 1
        now = time.perf_counter()
        if now - self._last < _PAUSE:
            return
        residual = (
            float(self._norm(self._b - self._A @ value)) / self._size if getattr(value, "ndim", 0) else float(value)
        )
        self._last = time.perf_counter()
        if self._each_digit and not residual <= 0.1 * self._said:
            return
        self._said = residual
        self._say(f"{now - self._begin:6.1f} s  iteration {self._calls}: relative residual {residual:.2e}")
