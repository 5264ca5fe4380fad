"""Several solves in lockstep: each as it would be alone, but for products of A, which are done for all at once.

Every solve has a thread, and one of them runs at a time: from its first line, or a product that it has got, to the next
product that it needs, or its end. When all have come that far their vectors v_i are multiplied together, in one pass
over the matrix, and they go on, one after another. So there is one form of each method, whatever it does: a solve may
take other steps than the others, begin again, or end, whose place the next one takes. What runs when depends on nothing
but the solves, so that the same ones have the same bits.

Callbacks of the caller are called in his own thread. Whatever goes wrong in it or in a solve (Ctrl-C, too) ends all
solves at their next product, before it is raised.

Memory moved for each product beside that with several vectors (:mod:`akx.backends.cpu.spmm`), in vectors: 2 read, 2
written. A change of threads takes some microseconds, two for each product.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

import numpy as np

from akx.core.basis import monomial
from akx.core.errors import DeviceError
from akx.solvers.products import TOGETHER, Products, Rows
from akx.solvers.stats import SolveStats
from akx.solvers.system import System

__all__ = ["Lockstep", "NoThread"]

_PRODUCT, _ONE = monomial(1), np.ones((1, 1))


class Lockstep:
    """Solves with one matrix, that of `system`, which does their products and counts them; `most` at a time."""

    def __init__(self, system: System, most: int) -> None:
        self.system, self._most = system, most
        self.room = system.rows(2 * most)
        self._running: list[_Solve] = []
        self.asking: list[_Solve] = []

    def run(self, solves: Iterable[tuple[int, Callable[[], Any]]], take: Callable[[int, Any, int], object]) -> None:
        """Do solves, by number; `take` gets the number of each that has ended, its answer and the products it shared.

        What a solve raises is raised here; :class:`NoThread` where there can be no more of them.
        """
        coming, is_more = iter(solves), True
        try:
            while True:
                while is_more and len(self._running) < self._most:
                    following = next(coming, None)
                    if following is None:
                        is_more = False
                    else:
                        self._running.append(_Solve(*following, self))
                        self._running[-1].start()
                if not self._running:
                    return
                for one in self._running:
                    one.go_on()
                self._multiply()
                for one in [one for one in self._running if one.is_over]:
                    self._running.remove(one)
                    one.join()
                    if one.error is not None:
                        raise one.error
                    take(one.number, one.found, one.shared)
        finally:
            for one in self._running:
                one.stop()
            while self._running:
                self._running.pop().join()

    def call(self, callback: Callable[[Any], object], value: Any) -> None:
        """Have a callback called in the caller's thread; by the thread of a solve."""
        one: _Solve = TOGETHER.get()
        one.told = callback, value
        one.wait()

    def _multiply(self) -> None:
        """The products of what was asked for, which whoever goes on takes: the room of all is read until then."""
        count, n = len(self.asking), self.system.n
        if not count:
            return
        begin = time.perf_counter()
        out = self.room[: 2 * count].reshape(2, count, n)
        self.system.powers(out[0], out, _PRODUCT)
        share = (time.perf_counter() - begin) / count
        for i, one in enumerate(self.asking):
            one.found_at = count + i
            one.count(share)
        self.asking.clear()


class _Solve:
    """One of them, in a thread of its own."""

    def __init__(self, number: int, solve: Callable[[], Any], lockstep: Lockstep) -> None:
        self.number, self._solve, self._lockstep = number, solve, lockstep
        self._turn: SimpleQueue[None] = SimpleQueue()
        self._back: SimpleQueue[None] = SimpleQueue()
        self._is_stopped = self.is_over = False
        self.found: Any = None
        self.error: BaseException | None = None
        self.shared = 0
        self.told: tuple[Callable[[Any], object], Any] | None = None
        self.stats: SolveStats  # of the system that a product is for: that itself knows of this solve
        self.found_at = 0  # in the room of all
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="akx-column", daemon=True)

    # ------------------------------------------------------------------------------------- in the caller's thread

    def start(self) -> None:
        """Have the thread wait for its turn."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise NoThread from error

    def go_on(self) -> None:
        """Its turn, to the next product or the end."""
        self._turn.put(None)
        self._back.get()
        while self.told is not None:
            (callback, value), self.told = self.told, None
            callback(value)
            if not self._thread.is_alive():
                raise DeviceError("the process was forked in the middle of a solve", hint="solve again in the child")
            self._turn.put(None)
            self._back.get()

    def stop(self) -> None:
        """Have it end, at its next product at the latest."""
        self._is_stopped = True
        self._turn.put(None)

    def join(self) -> None:
        """Wait for its end."""
        if self._thread.ident is not None:
            self._thread.join()

    def count(self, seconds: float) -> None:
        """A product was shared."""
        self.shared += 1
        stats = self.stats
        stats.seconds["matrix"] = stats.seconds.get("matrix", 0.0) + seconds
        stats.products += 1
        stats.matrix_passes += 1

    # ------------------------------------------------------------------------------------------ in its own thread

    def _run(self) -> None:
        TOGETHER.set(self)
        try:
            self._turn.get()
            if not self._is_stopped:
                self.found = self._solve()
        except _Stopped:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.is_over = True
            self._back.put(None)

    def wait(self) -> None:
        """Let the others go on."""
        if not self._is_stopped:
            self._back.put(None)
            self._turn.get()
        if self._is_stopped:
            raise _Stopped

    def product(self, by: Products, v: Rows, out: Rows) -> bool:
        """out = A v with those of the others; False where it has another matrix."""
        if by.matrix is not self._lockstep.system.matrix:
            return False
        lockstep, self.stats = self._lockstep, by.stats
        by.work.combine(_ONE, v[None], lockstep.room[len(lockstep.asking)][None])  # where nobody looks any more
        lockstep.asking.append(self)
        self.wait()
        by.work.combine(_ONE, lockstep.room[self.found_at][None], out[None])  # a copy, by all threads
        by.follow(self._lockstep.system)
        return True


class NoThread(Exception):
    """There can be no more threads."""


class _Stopped(BaseException):
    """Ends a solve."""
