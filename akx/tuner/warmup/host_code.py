"""Processes that compile akx's own code on all cores before trials need it: that of the host's plans, and layouts.

A plan of the host needs functions of its schedule, its variant and its order of the rows, which Numba compiles when
they are first called: some seconds for each, half a minute for what a search begins with. So a search on a fresh
machine has a phase for that, outside its seconds: processes prepare plans and run them once, for the matrix or a part
of it: types are compiled, not sizes. What may come later they compile beside the trials; they are stopped while
something is timed. What they have compiled is in Numba's cache when the search asks for it.

Each piece of code leaves a note that it is there (:mod:`akx.tuner.warmup.gpu_code`): the next search starts no process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.host import host_device
from akx.backends.schedule import as_coefficients
from akx.backends.selection import HOST
from akx.core.fork_safety import ForkSafeLock
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import sandbox
from akx.tuner.space import build_space
from akx.tuner.warmup.gpu_code import Code, Job, layout_jobs, note_of, part_of

__all__ = ["ALL", "TEAM", "Code", "Job", "Warmup", "code_of", "every_plan", "job_of", "precompiling", "run_job"]

#: Entries up to which processes get the whole matrix: then what is feasible here is feasible there.
_WHOLE = 2_000_000
#: Bytes of a process, about, and copies of the matrix in it.
_HOST, _COPIES = 400 * 2**20, 6
#: Seconds between two reports of how far they are.
_LOOK = 0.5
#: How far processes that compile for a GPU stand back behind others that want a core.
_NICE = 10
#: Code that all plans of several threads share.
TEAM: Job = (("team",), __name__, "_meet", None)
#: The code that is everything for the host, for a matrix of these types.
ALL: Code = ("all",)
#: Of Linux: end with the thread that started this process, also while it is stopped.
_PR_SET_PDEATHSIG = 1


def code_of(plan: Plan) -> Code:
    """What has to be compiled for a plan, as far as plans of one matrix differ in it."""
    return plan.schedule, plan.variant, plan.partitioner


def job_of(plan: Plan) -> Job:
    """Prepare a plan and run it once."""
    return code_of(plan), __name__, "_play", plan.to_json()


class Warmup:
    """Processes that compile, for calls with a matrix and so many start vectors; none is started before it is needed.

    There are `count` at most, by default as many as there are cores and memory for; they stand back by `nice` behind
    others that want a core. The note of `everything` says that nothing is left to compile.
    """

    def __init__(
        self,
        matrix: Matrix,
        start_vectors: int = 1,
        *,
        count: int | None = None,
        command: Sequence[str] | None = None,
        nice: int = 0,
        everything: Code | None = ALL,
    ) -> None:
        if count is None:
            held = matrix.indptr.nbytes + matrix.indices.nbytes + matrix.data.nbytes
            count = min(host_device().cores, int(sandbox.SHARE * sandbox.available_bytes() / (_HOST + _COPIES * held)))
        self._most = max(0, count)
        if self._most and everything and (note := note_of(everything, matrix)) is not None and note.exists():
            self._most = 0
        self._matrix, self._vectors, self._nice = matrix, start_vectors, nice
        self._command = command or sandbox.command(__name__)
        self._there: set[Code] = set()
        self._at: set[Code] = set()
        self._waiting: deque[Job] = deque()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle, self._lost, self._is_closed = 0, 0, False
        self._changed = threading.Condition(ForkSafeLock())

    @property
    def count(self) -> int:
        """Processes that were started."""
        return len(self._processes)

    @property
    def has_room(self) -> bool:
        """Whether processes are up that have nothing more to begin with."""
        return self.count > 0 and not self._waiting and not self._is_closed

    def is_there(self, code: Code) -> bool:
        """Whether a piece of code is compiled, or nobody here will compile it."""
        if self._most == 0 or code in self._there:
            return True
        with suppress(OSError):
            note = note_of(code, self._matrix)
            if note is not None and not note.exists():
                return False
        self._there.add(code)
        return True

    def is_coming(self, plan: Plan) -> bool:
        """Whether the code of a plan is yet to come: it is compiled from now on, where it was not before."""
        if self._is_closed or self.is_there(code_of(plan)):
            return False
        self.want([job_of(plan)])
        return not self.is_there(code_of(plan))

    def want(self, jobs: Iterable[Job], most: int | None = None) -> None:
        """Compile these, so many at most, in this order and after what was wanted before. Does not wait."""
        if self._most == 0:
            return
        with self._changed:
            known = self._at.union(code for code, *_ in self._waiting)
        wanted: dict[Code, Job] = {}
        for job in jobs:
            if most is not None and len(wanted) >= most:
                break
            if job[0] not in known and not self.is_there(job[0]):
                wanted.setdefault(job[0], job)
        with self._changed:
            if self._is_closed or not wanted:
                return
            self._waiting.extend(wanted.values())
            missing = min(len(self._waiting) - self._idle, self._most - self.count)
            self._changed.notify_all()
        for _ in range(missing):
            self._start()

    def want_team(self) -> None:
        """Compile what all plans share; for a machine on which several threads can run."""
        self.want([TEAM])

    def wait(self, seconds: float, report: Callable[[int, int], object] = lambda done, total: None) -> int:
        """Wait for all that is wanted, for so long at most; returns how many pieces of code were compiled meanwhile.

        `report` is called with how many of them are done, and of how many, now and then.
        """
        deadline = time.monotonic() + seconds
        total = len(self._waiting) + len(self._at)
        while True:
            with self._changed:
                left = len(self._waiting) + len(self._at)
                if left and not self._is_closed:
                    self._changed.wait(min(_LOOK, max(0.0, deadline - time.monotonic())))
            report(total - left, total)
            if not left or self._is_closed or time.monotonic() >= deadline:
                return total - left

    def wait_for_one(self, seconds: float) -> None:
        """Wait until one more piece of code has come, for so long at most."""
        with self._changed:
            there = len(self._there)
            self._changed.wait_for(
                lambda: len(self._there) > there or self._is_closed or not (self._at or self._waiting), seconds
            )

    def has_come(self, plan: Plan) -> None:
        """The code of a plan was compiled in this process."""
        code = code_of(plan)
        if not self.is_there(code):
            self._leave_note(code)
            with self._changed:
                self._waiting = deque(job for job in self._waiting if job[0] != code)
            self._come(code)

    @property
    def has_all(self) -> bool:
        """Whether everything for a matrix of these types is compiled, or nobody here would compile it."""
        return self._most == 0

    def leave_note_of_all(self) -> None:
        """Nothing is left to compile for a matrix of these types: from now on no process is started for one."""
        self._leave_note(ALL)

    def _leave_note(self, code: Code) -> None:
        note = note_of(code, self._matrix)
        if note is not None:
            with suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Nothing is compiled within: something is timed."""
        self._signal("SIGSTOP")
        try:
            yield
        finally:
            self._signal("SIGCONT")

    def close(self) -> None:
        """End what is still at work."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def _signal(self, name: str) -> None:
        if sys.platform != "linux":  # elsewhere one that is stopped would outlive this process
            return
        for process in self._processes:
            with suppress(OSError):
                process.send_signal(getattr(signal, name))

    def _start(self) -> None:
        with suppress(OSError, RuntimeError):  # then the search compiles as it goes
            process = sandbox.started(self._command, stderr=subprocess.DEVNULL)
            self._processes.append(process)
            if self._nice and hasattr(os, "setpriority"):
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, process.pid, self._nice)
            lasts = threading.current_thread() is threading.main_thread()
            threading.Thread(target=self._serve, args=(process, lasts), name="akx-warmup", daemon=True).start()
            return
        self._most = self.count
        if not self.count:
            self._waiting.clear()

    def _serve(self, process: subprocess.Popen[bytes], lasts: bool) -> None:
        """Hand one piece of code after another to a process, until it is lost or all is closed.

        `lasts` says whether the thread that started it is there as long as this process.
        """
        code: Code | None = None
        try:
            matrix = self._matrix if self._matrix.nnz <= _WHOLE else part_of(self._matrix)
            given = {**sandbox.packed(matrix), "vectors": self._vectors, "lasts": lasts}
            sandbox.send(process.stdin, given)
            while True:
                with self._changed:
                    self._idle += 1
                    self._changed.wait_for(lambda: bool(self._waiting) or self._is_closed)
                    self._idle -= 1
                    if self._is_closed:
                        return
                    code, *rest = self._waiting.popleft()
                    self._at.add(code)
                sandbox.send(process.stdin, rest)
                if sandbox.receive(process.stdout):
                    self._leave_note(code)
                self._come(code)
                code = None
        except (EOFError, OSError, ValueError):  # it was ended, or lost: what it was at is compiled where it is needed
            with self._changed:
                self._lost += 1
                if self._lost == self.count:
                    self._most = 0
                    self._waiting.clear()
            if code is not None:
                self._come(code)

    def _come(self, code: Code) -> None:
        with self._changed:
            self._at.discard(code)
            self._there.add(code)
            self._changed.notify_all()


@contextmanager
def precompiling(matrix: Matrix, k: int, start_vectors: int, device: Any, *, wanted: bool) -> Iterator[Warmup | None]:
    """Processes compile layouts for a GPU beside what is done within, where that is `wanted` and was not done before.

    None where there are no processes: it is done, nothing is kept, or cores or memory are few. What keeps them from
    being started is no error: then the search compiles as it goes.
    """
    work: Warmup | None = None
    if wanted:
        with suppress(Exception):
            part, jobs = layout_jobs(matrix, k, device)
            fitting = int(sandbox.SHARE * sandbox.available_bytes() / _HOST)
            count = min(host_device().cores - sandbox.SPARED_CORES, fitting)
            work = Warmup(part, start_vectors, count=count, nice=_NICE, everything=None)
            work.want(jobs)
    try:
        with sandbox.unmistakable_files():
            yield work if work is not None and work.count else None
    finally:
        if work is not None:
            work.close()


def every_plan(matrix: Matrix, k: int) -> list[Plan]:
    """Plans of the host that together need all code for a matrix of these types, as far as they are feasible for it.

    Each schedule in each variant, and in each order of the rows: orders and variants have nothing in common.
    """
    device = host_device()
    space = build_space(matrix, k, device, backend=HOST, threads=device.cores)
    found: list[Plan] = []
    for name in space.parameters:
        for kind in ("variant", "partitioner"):
            for choice in space.choices(name, kind):
                with suppress(Exception):
                    plan = space.plan(name, {kind: choice})
                    if space.feasible(plan, matrix) is None:
                        found.append(plan)
    return list(dict.fromkeys(found))


def run_job(module: str, name: str, argument: Any, matrix: Matrix, vectors: int) -> bool:
    """Do a job here; whether it came to its end."""
    try:
        getattr(import_module(module), name)(argument, matrix, vectors)
    except Exception:
        return False  # whoever needs the code compiles it, and says what is wrong
    return True


def _play(data: Any, matrix: Matrix, vectors: int) -> None:
    """What a search does with a plan: think of it, prepare it, run it, give it other values."""
    plan = Plan.from_json(data)
    schedule, device = registry.get(plan.backend, plan.schedule), host_device()
    for ask in (schedule.feasible, schedule.traffic):
        with suppress(Exception):
            ask(plan, matrix, device)
    with suppress(Exception):
        schedule.work(plan, matrix, device, vectors)
    program = schedule.prepare(matrix, plan)
    program.ready(vectors)
    x = np.zeros((vectors, matrix.n), dtype=matrix.dtype)
    out = np.empty((plan.k + 1, *x.shape), dtype=matrix.dtype)
    plain = np.ones(plan.k), np.zeros(plan.k), np.zeros(plan.k)
    program.run(x, out, as_coefficients(*plain, matrix.dtype))


def _meet(_: Any, matrix: Matrix, vectors: int) -> None:
    """What looks at the cores (:mod:`akx.backends.cpu.cores`), with all that teams of threads share; and checksums."""
    from akx.backends.cpu.checksums import sums_of
    from akx.backends.cpu.cores import core_state

    core_state(2)
    sums_of([matrix.data], 2)


def main(parent: int | None = None) -> None:
    """Do what is asked for until the pipe is closed; `parent` is the process that asks."""
    with sandbox.answering(parent) as answers, sandbox.unmistakable_files():
        given = sandbox.receive(sys.stdin.buffer)
        if given["lasts"]:  # a step beside calls ends long before its process
            with suppress(AttributeError, OSError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        matrix = sandbox.unpacked(given)
        while True:
            module, name, argument = sandbox.receive(sys.stdin.buffer)
            sandbox.send(answers, run_job(module, name, argument, matrix, given["vectors"]))
