"""A sandbox: a process that may be lost, in which candidates run first that could crash or hang the GPU.

A kernel that uses an illegal address takes the context of its process with it, and one that waits for ever takes the
process itself. So a candidate of a schedule that may do either is prepared and run twice (by launches, and as a graph)
in a process of its own, which is kept for the next candidate while it lives. What it dies of, or that it did not answer
in time, is the candidate's reason to fail. Figures never come from there.

The two talk through pipes, in pickles, behind their lengths: first the problem, then one plan after another, each
answered by an empty text or a reason. A plan may be got ready before it is to run: prepared and compiled, and nothing
launched. The program is :func:`main` of this module. Processes that compile (:mod:`akx.tuner.warmup.host_code`) are
started, talked to and ended in the same way.
"""

from __future__ import annotations

import math
import os
import pickle
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from akx.backends.selection import BACKENDS
from akx.core import process as interpreter
from akx.core.plan import Plan
from akx.core.process import available_bytes, command, environment

if TYPE_CHECKING:
    from akx.core.matrix import Matrix
    from akx.tuner.trial.problem import Problem

__all__ = [
    "SHARE",
    "SPARED_CORES",
    "UNANSWERED",
    "Sandbox",
    "answering",
    "available_bytes",
    "command",
    "environment",
    "packed",
    "receive",
    "send",
    "started",
    "unmistakable_files",
    "unpacked",
]

#: Share of the memory that is free, and cores left to the search, that bound how many there may be of a kind.
SHARE, SPARED_CORES = 0.25, 2
#: Seconds between two looks at whether the process that started it is there.
_LOOK = 1.0
_LENGTH = 8
_NAME_BITS = 62
#: Seconds for a candidate to be prepared and run, for the process to come up beside that, and to end by itself.
_PATIENCE, _START, _END = 30.0, 60.0, 2.0
#: What is said of a process that took too long begins so.
UNANSWERED = "the process that ran it first did not answer"
_LOST = "lost the process that ran it first: "


class Sandbox:
    """Where candidates of a problem run first: in a process, for `patience` seconds each."""

    def __init__(self, problem: Problem, *, command: Sequence[str] | None = None, patience: float = _PATIENCE) -> None:
        self._problem, self._patience = problem, patience
        self._command = interpreter.command(__name__) if command is None else list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        self.gave_up = False

    @property
    def is_up(self) -> bool:
        """Whether there is a process, so that none has to be started."""
        return self._process is not None

    def reason_against(self, plan: Plan, most: float = math.inf) -> str | None:
        """None where the candidate ran to its end, whatever its result, else what became of the process.

        It is given `most` seconds at most, its first start included. Where that was less than a candidate has at other
        times, and not enough, :attr:`gave_up` is true: nothing is known of it.
        """
        return self._ask("run", plan, most)

    def get_ready(self, plan: Plan) -> bool:
        """Prepare and compile a candidate, to run it when it is asked for; whether the process came through.

        Nothing is launched. The process keeps what it prepared last.
        """
        return self._ask("get ready", plan, math.inf) is None

    def _ask(self, what: str, plan: Plan, most: float) -> str | None:
        patience, begin, self.gave_up = self._patience, time.monotonic(), False
        try:
            process = self._process
            if process is None:
                patience += _START
                process = self._start()
            send(process.stdin, (what, plan.to_json()))
            allowed = min(patience, most)
            answer = _answer(process, max(0.0, allowed - (time.monotonic() - begin)))
        except (OSError, EOFError):
            return f"the process that ran it first was lost (exit code {self.close()})"
        if answer is None:
            self.close(at_once=True)
            self.gave_up = allowed < patience
            return f"{UNANSWERED} within {allowed:g} s"
        if answer.startswith(_LOST):
            self.close()  # its context cannot be used any more
        return answer or None

    def end(self) -> None:
        """End the process whatever it does, for good; another thread that waits for an answer gets one."""
        self._is_ended = True
        process = self._process
        if process is not None:
            process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = started(self._command)
        if self._is_ended:  # meanwhile, by another thread
            process.kill()
        problem, of = self._problem, self._problem.coefficients
        send(process.stdin, {**packed(problem.matrix), "x": problem.x, "coefficients": (of.a, of.b, of.c)})
        return process

    def close(self, *, at_once: bool = False) -> int | None:
        """End the process, which is given the time to, and clear up: its exit code. Until then :meth:`end` finds it."""
        process = self._process
        if process is None:
            return None
        try:
            if at_once:
                process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            try:
                return process.wait(timeout=_END)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()
        finally:
            self._process = None


def _answer(process: subprocess.Popen[bytes], patience: float) -> str | None:
    """What the process says; None where it says nothing for so long."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        return str(receive(process.stdout)) if waiting.select(patience) else None


# ---------------------------------------------------------------------------------------------- within the process


def _prepared(plan: Plan, matrix: Any, vectors: int) -> Any:
    """The program of a plan, compiled."""
    from akx.backends import registry

    program = registry.get(plan.backend, plan.schedule).prepare(matrix, plan)
    program.ready(vectors)
    return program


def _run(plan: Plan, matrix: Any, x: Any, coefficients: Any, program: Any = None) -> str:
    """Prepare a plan, where it is not, and run it twice; the text that :meth:`Sandbox.reason_against` gets."""
    import numpy as np

    from akx.core.errors import IllegalAddressError, LaunchError

    try:
        out = np.empty((plan.k + 1, *x.shape), dtype=matrix.dtype)
        program = _prepared(plan, matrix, x.shape[0]) if program is None else program
        for _ in range(2):
            program.run(x, out, coefficients)
    except (IllegalAddressError, LaunchError) as error:
        return f"{_LOST}{error.what} ({error.found})"
    except Exception:
        return ""  # an ordinary failure or refusal: the trial itself will say so
    return ""


def main(parent: int | None = None) -> None:
    """Answer plans until the pipe is closed; `parent` is the process that is talked to."""
    with answering(parent) as answers, unmistakable_files():
        from akx.backends.schedule import as_coefficients

        problem = receive(sys.stdin.buffer)
        matrix, x, (a, b, c) = unpacked(problem), problem["x"], problem["coefficients"]
        coefficients = as_coefficients(a, b, c, matrix.dtype)
        ready: tuple[Plan, Any] | None = None
        while True:
            what, text = receive(sys.stdin.buffer)
            plan = Plan.from_json(text)
            known = ready[1] if ready is not None and ready[0] == plan else None
            ready, answer = None, ""
            if what == "run":
                answer = _run(plan, matrix, x, coefficients, known)
            else:
                with suppress(Exception):  # the trial itself will say so
                    ready = plan, _prepared(plan, matrix, x.shape[0])
            known = None
            with suppress(Exception):  # others need the memory of programs that are gone
                for backend in BACKENDS:
                    if backend.may_crash:
                        backend.trim()
            send(answers, answer)


# ---------------------------------------------------------------------------------------------- processes of akx's own


def started(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process that is talked to, in which what is imported here is imported."""
    pipe = subprocess.PIPE
    return subprocess.Popen(list(command), stdin=pipe, stdout=pipe, env=environment(), **options)


def packed(matrix: Matrix) -> dict[str, Any]:
    """What another process needs of a matrix."""
    return {"matrix": (matrix.indptr, matrix.indices, matrix.data), "value_error": matrix.value_error}


def unpacked(given: dict[str, Any]) -> Matrix:
    """The matrix again, there."""
    from akx.core.matrix import Matrix

    return Matrix(*given["matrix"], pattern_cache={}, value_error=given["value_error"])


def send(pipe: IO[bytes] | None, value: Any) -> None:
    """Write a pickle of anything, and behind it the arrays in it as they are: no copy of them is made."""
    assert pipe is not None
    arrays = list[pickle.PickleBuffer]()
    text = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=arrays.append)
    parts = [memoryview(text), *(array.raw() for array in arrays)]
    for number in (len(parts), *(part.nbytes for part in parts)):
        pipe.write(number.to_bytes(_LENGTH, "little"))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def receive(pipe: IO[bytes] | None) -> Any:
    """What :func:`send` wrote at the other end. Raises EOFError where nothing more comes."""
    assert pipe is not None
    count = int.from_bytes(_read(pipe, _LENGTH), "little")
    sizes = [int.from_bytes(_read(pipe, _LENGTH), "little") for _ in range(count)]
    text, *arrays = (_read(pipe, size) for size in sizes)
    return pickle.loads(text, buffers=arrays)


def _read(pipe: IO[bytes], size: int) -> bytearray:
    """So many bytes, where they will stay."""
    found = bytearray(size)
    left = memoryview(found)
    while left:
        count = pipe.readinto(left)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        left = left[count:]
    return found


@contextmanager
def answering(parent: int | None) -> Iterator[IO[bytes]]:
    """Where to send answers, until the pipe is closed: what a compiler prints must not get between them.

    Whatever this process does then, it ends soon after the one that started it, however that was. `parent` is its
    number; by default that of now, which is another one's where it has ended already.
    """
    threading.Thread(target=_watch, args=(os.getppid() if parent is None else parent,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError, OSError):
        yield answers


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


@contextmanager
def unmistakable_files() -> Iterator[None]:
    """What Numba compiles within is kept in files with names of their own, whoever else compiles it by then.

    Numba numbers the files of its cache, and writes that a file belongs to a signature before it writes the file: one
    of another process, or one left of older sources, could be taken for it. Its index finds these names as any other.
    """
    from numba.core import caching

    kind: Any = getattr(caching, "IndexDataCacheFile", None)
    usual = getattr(kind, "_data_name", None)
    if usual is None:  # another Numba, which names them in another way
        yield
        return
    kind._data_name = lambda file, number: usual(file, number + secrets.randbits(_NAME_BITS))
    try:
        yield
    finally:
        kind._data_name = usual
