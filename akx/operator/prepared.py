"""What is ready for one matrix: plans and their programs, with the values that the matrix has now.

New values are laid out anew in all programs, where they are; programs of the host, which take those of a device later,
are *stale* until then. What goes wrong on the way, or is interrupted, leaves no program with values that are half old.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from akx.backends import registry
from akx.backends.result_pool import new_result
from akx.backends.schedule import Coefficients, Program, check_feasible, held_bytes
from akx.backends.selection import array_backend, backend_of
from akx.core.errors import (
    AkxWarning,
    BudgetError,
    DeviceError,
    DeviceMemoryError,
    InfeasibleError,
    MatrixError,
    MissingDependencyError,
)
from akx.core.fork_safety import ForkSafeLock
from akx.core.matrix import Matrix
from akx.core.plan import FULL, Plan, in_full
from akx.core.progress import working
from akx.operator.background_compile import check_code, check_first
from akx.operator.matrix_values import Values, same_pattern
from akx.operator.online import Tuned
from akx.operator.overflow import levels_to_caller
from akx.operator.planner import Call, Choice, Choices, Planner, reason_against
from akx.operator.recurrence import Recurrence
from akx.operator.start_vectors import wrong_layout

if TYPE_CHECKING:
    from akx.tuner.online.calls import Online

__all__ = ["Prepared", "result_for"]

#: Bytes of a matrix from which on a pool keeps nothing of what preparing it took.
_LARGE = 256 << 20


class Prepared(Tuned):
    """Programs for the calls of one operator; not safe without :attr:`lock` but for what takes it.

    Attributes
    ----------
    lock : ForkSafeLock
        Held while a program runs, or changes.
    programs, stale : dict, set
        By type and plan; and those that do not have the values that wait on the device.
    ready : dict
        Program and coefficients of the calls so far: all that the next such call needs. The third part of a key is the
        backend; calls with arrays on a device are there by what these look like too.
    captured : dict
        Programs that callers have in graphs of theirs, by id: they stay as long as this does.
    known : array on the device, optional
        What :meth:`know` has been told.
    online : dict
        By call, what tunes it while it is made.
    """

    def __init__(
        self,
        matrix: Matrix,
        planner: Planner,
        recurrence: Recurrence,
        brought: Mapping[Call, tuple[Choice, str]] | None = None,
    ) -> None:
        self.lock = ForkSafeLock()
        self.values = Values(matrix, self.lock)
        self.choices = Choices(planner, brought)
        self.recurrence = recurrence
        self.programs: dict[tuple[np.dtype[Any], Plan], Program] = {}
        self.stale: set[tuple[np.dtype[Any], Plan]] = set()
        self.ready: dict[tuple[Any, Any, str], Any] = {}
        self.captured: dict[int, Program] = {}
        self.known: Any = None
        self.online: dict[Call, Online] = {}
        self.seconds = 0.0

    @property
    def planner(self) -> Planner:
        """Who chooses the plans."""
        return self.choices.planner

    # ------------------------------------------------------------------------------------------ plans and programs

    def for_call(self, dtype: np.dtype[Any], vectors: int, backend: str) -> tuple[Program, Coefficients]:
        """What does calls with so many start vectors of a type on a backend, and the coefficients to give it."""
        call = (dtype, vectors, backend)
        found: tuple[Program, Coefficients] | None = self.ready.get(call)
        if found is None:
            program = self.program(dtype, vectors, backend)
            if self.planner.asked.tune is not None:
                program = self._online(call, program)
            found = self.ready[call] = program, self.recurrence.coefficients(dtype)
        return found

    def choice(self, dtype: np.dtype[Any], vectors: int, backend: str | None = None) -> Choice:
        """The plan for a call, and why; vectors are of the host unless a backend is named."""
        call = (dtype, vectors, backend or self.planner.home)
        with working("choosing a plan"):
            found = self.choices.of(call, lambda: self.values.of(dtype), self._here(dtype))
        return self._adopted(dtype, found)

    def program(self, dtype: np.dtype[Any], vectors: int, backend: str | None = None) -> Program:
        """The program for a call, made where there is none yet, with the values of now."""
        check_first(self.values.matrix, self.planner.asked.k, vectors)
        choice = self.choice(dtype, vectors, backend)
        plan = choice.plan
        found = self.programs.get((dtype, plan))
        if found is not None and (dtype, plan) in self.stale:
            found.update_values(self.values.of(dtype).data)
            self.stale.discard((dtype, plan))
        if found is not None:
            self.check_budget(plan, found, dtype, vectors)
            return found
        begin = time.perf_counter()
        try:
            with working("laying the matrix out"):
                found = self._prepare(plan, dtype, vectors)
        except (InfeasibleError, DeviceError, MissingDependencyError) as problem:
            call = (dtype, vectors, backend or self.planner.home)
            again = self.planner.instead(choice, problem, self.values.of(dtype), vectors, call[2], self._here(dtype))
            if again is None:
                raise
            self._adopted(dtype, self.choices.put(call, again))
            return self.program(*call)
        self.seconds += time.perf_counter() - begin
        return found

    def _here(self, dtype: np.dtype[Any]) -> Callable[[Plan], Program | None]:
        return lambda plan: self.programs.get((dtype, plan))

    def _adopted(self, dtype: np.dtype[Any], choice: Choice) -> Choice:
        """A choice, after what was prepared on the way to it is kept."""
        self.seconds += choice.spent
        if choice.program is not None and choice.program is not self.programs.get((dtype, choice.plan)):
            self.programs[dtype, choice.plan] = choice.program
            self.stale.discard((dtype, choice.plan))
        return choice

    def _prepare(self, plan: Plan, dtype: np.dtype[Any], vectors: int) -> Program:
        matrix, planner = self.values.of(dtype), self.planner
        check_code(plan, matrix, vectors)
        schedule = registry.get(plan.backend, plan.schedule)
        if planner.asked.budget is not None:  # without one a schedule asks itself
            check_feasible(schedule, plan, matrix, planner.device(plan.backend))
        program = schedule.prepare(matrix, plan)
        self.check_budget(plan, program, dtype, vectors)
        if not plan.traits.streams:
            program.ready(vectors)  # compiled now: a prediction that cannot be gives way
        self.programs[dtype, plan] = program
        if matrix.csr_bytes >= _LARGE:
            backend_of(plan.backend).trim()  # what laying out took of a device's memory, others may have
        return program

    def look_again(self) -> None:
        """Look every plan up again, and forget the programs of those that were replaced."""
        with self.lock:
            wanted = list(self.choices.made)
            self.choices.made.clear()
            self.choices.brought.clear()
            for call in wanted:
                self.choice(*call)
            self._forget_unused()

    # ------------------------------------------------------------------------------------------------- new values

    def know(self, sums: Sequence[int]) -> Any:
        """Where the device has the checksums of the caller's arrays that the values of all programs are of.

        Calls and graphs compare with what is there when the device comes to them: the sums of nothing while new values
        are laid out, and for ever where a graph has values that are not renewed.
        """
        there = np.array(sums, dtype=np.uint64)
        with self.lock:
            if self.known is None:
                self.known = backend_of(array_backend()).to_device(there)
            else:
                self.known.set(there)
            return self.known

    def update(self, A: Any) -> None:
        """Take the values of a matrix with the same entries; raises MatrixError where it has others."""
        sent = self._sent(A)
        if sent is not None:
            # Where there is no room for what says where values go, programs are made anew, from here.
            with contextlib.suppress(DeviceMemoryError):
                self._take_from_device(sent)
                return
        matrix = self.values.matrix
        fresh = Matrix.from_any(A, dtype=matrix.dtype)
        if not same_pattern(fresh, matrix):
            raise MatrixError(
                "the matrix has another pattern",
                expected=f"the {matrix.nnz} entries given first",
                found=f"{fresh.nnz} entries" + (" elsewhere" if fresh.nnz == matrix.nnz else ""),
                hint="make a new MatrixPowers",
            )
        if fresh.on_device is not None and self._are_there():
            with contextlib.suppress(DeviceMemoryError):
                self._take_from_device(fresh.on_device.data)
                return
        with self.lock, self._renewing() as programs:
            self.values.take_matrix(fresh)
            self.stale = set()
            for (dtype, _), program in programs.items():
                program.update_values(self.values.of(dtype).data)

    def update_on_device(self, values: Any, *, check_finite: bool) -> None:
        """Take values from an array on the GPU, one for each entry."""
        matrix, gpu = self.values.matrix, backend_of(array_backend())
        data = gpu.interchange().values_of(values, matrix.nnz, matrix.dtype)
        if check_finite and not gpu.all_finite(data):
            raise MatrixError(
                "the matrix is not finite", found="NaN or Inf among its new values", hint="replace or remove them"
            )
        self._take_from_device(data)

    def _take_from_device(self, data: Any) -> None:
        there = array_backend()
        with self.lock, self._renewing(only=there) as programs:
            self.values.waiting = data
            self.stale = {key for key in programs if key[1].backend != there}
            for key, program in programs.items():
                if key not in self.stale:
                    program.update_values(data)

    def _sent(self, A: Any) -> Any:
        """The values of a matrix of the host in GPU memory, where they are laid out there sooner; else None.

        That is where it has our entries in our order already, and all plans so far lay values from there out in place.
        """
        of_ours = (isinstance(A, Matrix) and A.on_device is None) or (sparse.issparse(A) and A.format == "csr")
        if not of_ours or not self._are_there():
            return None
        matrix, values = self.values.matrix, getattr(A, "data", None)
        if values is None or values.dtype != matrix.dtype or A.shape != matrix.shape:
            return None
        if values.ndim != 1 or values.size < matrix.nnz:  # SciPy lets arrays be set that do not belong together
            return None
        if not same_pattern(A, matrix):
            return None
        gpu = backend_of(array_backend())
        try:
            data = gpu.to_device(np.ascontiguousarray(values[: matrix.nnz]))
        except DeviceMemoryError:
            return None
        return data if gpu.all_finite(data) else None  # what is wrong is said by those who look at it here

    def _are_there(self) -> bool:
        """Whether all plans so far, of which there is one, lay values from the memory of the GPU out in place."""
        plans, there = [plan for _, plan in list(self.programs)], array_backend()
        is_free = self.planner.asked.budget is None
        return is_free and bool(plans) and all(plan.backend == there and not plan.traits.streams for plan in plans)

    @contextlib.contextmanager
    def _renewing(self, only: str | None = None) -> Iterator[dict[tuple[np.dtype[Any], Plan], Program]]:
        """All programs, which come back with new values once they all have them; those ready come back too.

        So none goes on with values that are half old, whatever comes between: a failure, Ctrl-C, a fork beside. Graphs
        of callers are launched behind our back: where there are any, the device is waited for before and after.
        """
        if self.known is not None:
            self.known.fill_bytes(255)
        self._wait_for_captured()
        ready, self.ready = self.ready, {}
        programs, self.programs = self.programs, {}
        yield programs
        self.programs = programs
        self.ready = ready if only is None else {key: one for key, one in ready.items() if key[2] == only}
        self._predict_again()
        self._wait_for_captured()
        kept = list(self.programs.values())
        if any(not (one in kept and one.is_as_captured) for one in self.captured.values()):
            self.known = None
            message = "a captured call keeps the old values of the matrix: capture it again"
            warnings.warn(message, AkxWarning, stacklevel=levels_to_caller())

    def _wait_for_captured(self) -> None:
        if self.captured:
            backend_of(array_backend()).synchronize()

    def _predict_again(self) -> None:
        """Forget plans whose programs have to keep these values otherwise: the next call chooses anew.

        Of tuned ones those that fit no more, to which there may be a near one.
        """
        gone = {key for key, program in self.programs.items() if not program.is_as_planned}
        if gone:
            self.choices.made = {
                call: choice
                for call, choice in self.choices.made.items()
                if (call[0], choice.plan) not in gone or not (choice.is_predicted or self._fits_no_more(choice.plan))
            }
            self._forget_unused()

    def _fits_no_more(self, plan: Plan) -> bool:
        """Whether a tuned plan does not fit, with values in full, as its program has them now."""
        if self.planner.given is not None:
            return False
        full = plan if plan.typed.stored == FULL else in_full(plan)
        return reason_against(full, self.values.matrix, self.planner.device(plan.backend)) is not None

    # --------------------------------------------------------------------------------------------- what is held

    def check_budget(self, plan: Plan, program: Program, dtype: np.dtype[Any], vectors: int) -> None:
        """Refuse a plan that takes too much with so many vectors on the device; one that streams counts its own."""
        asked = self.planner.asked
        if asked.budget is None or plan.traits.streams:
            return
        of_vectors = (asked.k + 2) * vectors * self.values.matrix.n * dtype.itemsize

        def bytes_taken() -> int:
            return program.nbytes - program.staged_nbytes + of_vectors  # staged by a call, perhaps with fewer vectors

        if bytes_taken() > asked.budget:
            program.make_room()
        if (taken := bytes_taken()) > asked.budget:
            raise BudgetError(
                f"plan {plan.label()} does not keep within the memory budget",
                expected=f"at most {asked.budget} bytes",
                found=f"{taken} bytes with its vectors",
                hint="tune within the budget, or give it more",
            )

    def held(self) -> dict[Any, int]:
        """Bytes of all that is held, by what tells one holding from another: arrays may be shared with others."""
        programs = {("program", id(program)): held_bytes(program) for program in list(self.programs.values())}
        beside = {("online", id(one)): one.nbytes for one in list(self.online.values())}
        return {**self.values.held(), **programs, **beside}

    def stored_error(self, plan: Plan, matrix: Matrix, device: Any) -> float:
        """The largest relative error of a value as its program has it, or would have it where there is none yet."""
        program = self.programs.get((matrix.dtype, plan))
        if program is not None:
            return program.stored_error
        return registry.stored_error(registry.get(plan.backend, plan.schedule), plan, matrix, device)


def result_for(
    program: Program, out: NDArray[Any] | None, shape: tuple[int, int, int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The array (k+1, b, n) that V is a view of: new, perhaps of the program's own memory, or the one behind `out`."""
    if out is None:
        found = program.new_result(shape[1])
        return new_result(shape, dtype) if found is None else found
    given: NDArray[Any] = np.asarray(out).T
    if out.flags.f_contiguous:
        return given.reshape(shape)
    powers = given[:, None] if given.ndim == 2 else given
    if not program.is_own_result(powers):
        raise wrong_layout(out.shape, dtype)
    return powers
