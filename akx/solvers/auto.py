"""``solve``: which method for which matrix, and classic or communication-avoiding by measuring both.

The family:

    Hermitian (real: symmetric), no diagonal entry <= 0     cg, then gmres where it is not positive definite after all
    Hermitian otherwise                                     gmres
    any other                                               bicgstab, then gmres

Hermitian is meant up to rounding errors (:mod:`akx.solvers.symmetry`). A method that does not get there hands its x on
to the next one: cg after its own 10 n steps, since each makes the error smaller as long as <p, A p> is positive, and it
ends by itself where it is not; bicgstab, which may wander about, after 10,000. One that finds the system to have no
solution is the last. Which of a family's solvers has the shorter step is kept in the plan database, by all that a step
depends on. Where it is not known the classic solver begins, and finds it out on the way where that pays, as
:mod:`akx.solvers.pilot` says. GMRES remembers `restart` vectors, BiCGStab six: that and its shorter steps are why it
comes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from akx.backends.selection import HOST, backend_of, is_usable
from akx.core.arguments import unknown_name
from akx.core.matrix import Matrix
from akx.operator.freshness import state_of_plans
from akx.operator.start_vectors import is_matrix_there, is_on_device
from akx.solvers.arguments import check_count, place_of
from akx.solvers.bases import check_basis
from akx.solvers.ca_cg import MOST
from akx.solvers.folding import form_for
from akx.solvers.gmres_cycles import RESTART
from akx.solvers.host_fallback import TOO_MUCH, answer_in_kind, callback_in_kind, of_host
from akx.solvers.monitor import Watched
from akx.solvers.pilot import Pilot, Stopwatch
from akx.solvers.solver_choice import chosen_steps, keep_sisters, known_sisters, timing_key
from akx.solvers.stats import SolveStats
from akx.solvers.stopping import NO_SOLUTION
from akx.solvers.symmetry import is_hermitian
from akx.solvers.system import Answer
from akx.solvers.vector_work import is_queued, is_rented

if TYPE_CHECKING:
    from akx.plandb import TimingKey

__all__ = ["FAMILIES", "Auto", "Settled", "answer_by", "call_solver", "families_for", "solve"]

#: The classic solvers that have a communication-avoiding sister.
FAMILIES = ("cg", "gmres", "bicgstab")
#: In the cache of a matrix, what :func:`families_for` has found.
_FAMILIES = "akx.solvers.families"
#: By family, type and backend: the solver that is taken, why, and the key of what is to be found out, None for nothing.
Settled: TypeAlias = dict[tuple[str, np.dtype[Any], str], tuple[str, str, tuple[Any, ...] | None]]
#: Rows below which nothing is measured: the classic solver is done before.
_SMALL = 2000
#: Blocks of a trial with the ordinary ones before.
_BLOCKS = 9
#: Most steps of a trial; it ends before by what was timed.
_TRIAL = 400
#: Cycles of a trial of ca_gmres.
_CYCLES = 2
#: Steps without an answer after which bicgstab gives way to gmres, where there is no `maxiter`.
_PATIENCE = 10_000

#: Choices that this process remembers.
_MOST_KNOWN = 1000
#: Seconds of a step of both sisters, by what they depend on; None where the database did not know them.
_chosen: dict[tuple[Any, ...], tuple[float, float] | None] = {}
#: Solvers that this process has used, by name, type and backend.
_used: set[tuple[Any, ...]] = set()


def solve(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    method: str = "auto",
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    restart: int | None = None,
    s: int | str = "auto",
    basis: str = "auto",
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b by a named method, or by the one that suits the matrix and is fastest here.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
    b : array_like, shape (n,) or (n, 1)
    x0, rtol, atol, threads, db
        As for every solver. The database also remembers which of two solvers has the shorter step.
    backend : str
        ``"auto"`` or the name of a backend: where b is. With ``"auto"``, a system that is too much for the GPU is
        solved on the CPU, which a note says; x is of b's kind all the same.
    method : str
        ``"auto"``, or the name of a solver: ``"cg"``, ``"ca_cg"``, ``"gmres"``, ``"ca_gmres"``, ``"bicgstab"``,
        ``"ca_bicgstab"``. With ``"auto"`` the name of what was taken, last where there were several, is in the record.
    maxiter : int, optional
        With a named method SciPy's meaning: most steps, for gmres and ca_gmres most restart cycles; 10 n by default.
        With ``"auto"``, where it is not known beforehand which method it will be, most steps of all methods together, a
        step of gmres being one product. By default each has its own limit, of 10 n steps where there are two, but
        bicgstab gives way to gmres after 10,000.
    M : sparse matrix, array, LinearOperator or preconditioner of :mod:`akx.solvers.preconditioners`, optional
        With one that cannot be made part of the matrix, ``"auto"`` takes classic solvers only.
    callback : callable, optional
        Called as the method does: with x, by gmres with the norm of the residual over that of b.
    restart : int, optional
        Of gmres and ca_gmres.
    s, basis
        Of the communication-avoiding solvers; the basis of ``"auto"`` is each solver's own choice.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` too; its notes say why the method was taken.

    Returns
    -------
    x, info, stats
        As for the solvers.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    PlanError, InfeasibleError, BudgetError, DeviceMemoryError
        Where the system is too much for a GPU that was asked for by name.
    """
    from akx.solvers import SOLVERS

    if method != "auto" and method not in SOLVERS:
        raise unknown_name("method", method, ("auto", *SOLVERS))
    options = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "M": M, "threads": threads, "db": db, "backend": backend}
    special = {"restart": restart, "s": s, "basis": basis}
    x, info, stats = answer_by(method, A, b, x0, options, special, callback)
    return (x, info, stats) if return_stats else (x, info)


def answer_by(
    method: str,
    A: Any,
    b: Any,
    x0: Any,
    options: dict[str, Any],
    special: dict[str, Any],
    callback: Callable[[Any], object] | None,
    settled: Settled | None = None,
) -> tuple[Any, int, SolveStats]:
    """What :func:`solve` answers, with the record.

    Parameters
    ----------
    options : dict
        Those of every solver: ``rtol``, ``atol``, ``maxiter``, ``M``, ``threads``, ``db``, ``backend``.
    special : dict
        ``restart``, ``s``, ``basis``, and others that the method takes.
    settled : dict, optional
        Which of a family's two solvers was taken, and why; what is found out is added.
    """
    if method == "auto" and options["maxiter"] is not None:
        options = {**options, "maxiter": check_count("maxiter", options["maxiter"], least=0)}

    def on(place: str, b: Any, x0: Any, callback: Callable[[Any], object] | None) -> tuple[Any, int, SolveStats]:
        if method != "auto":
            return call_solver(method, A, b, x0, {**options, "backend": place}, special, callback)
        return Auto(A, b, x0, {**options, "backend": place}, special, callback, settled).solve()

    try:
        return on(options["backend"], b, x0, callback)
    except TOO_MUCH as error:
        if options["backend"] != "auto" or not (is_on_device(b) or is_matrix_there(A)):
            raise
        why = str(error)
    like = b if is_on_device(b) else None
    x, info, stats = on(HOST, of_host(b, "b"), of_host(x0, "x0"), callback_in_kind(like, callback))
    stats.notes.insert(0, f"solved on the CPU, as it was too much for the GPU: {why}")
    return answer_in_kind(like, x), info, stats


class Auto:
    """One solve by what suits the matrix: methods one after another, their work in one record, the best x so far."""

    def __init__(
        self,
        A: Any,
        b: Any,
        x0: Any,
        options: dict[str, Any],
        special: dict[str, Any],
        callback: Callable[[Any], object] | None,
        settled: Settled | None = None,
    ) -> None:
        self.begun = time.perf_counter()
        asked = {name: options[name] for name in ("rtol", "atol", "M", "threads", "backend")}
        self.matrix, backend = place_of(A, b, x0, callback=callback, **asked)
        self.b, self.guess, self.callback = b, x0, callback
        self.options, self.special = {**options, "backend": backend}, special
        self.settled: Settled = {} if settled is None else settled
        self.maxiter = options["maxiter"]
        self.x: Any = None
        self.info, self.least = 1, float("inf")
        self.notes: list[str] = []
        self.total: SolveStats | None = None
        self.choosing = 0.0
        self.in_steps = self.maxiter is not None  # a limit is one of steps, of gmres too
        self.refused = False  # a sister on trial had no room
        self.has_no_solution = False

    def solve(self) -> tuple[Any, int, SolveStats]:
        """x, info, and the record of all methods."""
        n = self.matrix.n
        families, why = self.families()
        self._check(families)
        self.notes.append(f"auto: {why}")
        self.choosing = time.perf_counter() - self.begun
        for family in families:
            if self.total is not None:
                self.in_steps = True
                self.notes.append(f"auto: {family} goes on after {self.total.iterations} steps")
            if self._family(family, min(10 * n, _PATIENCE) if family == "bicgstab" else 10 * n) or self._is_over():
                break
        total = self.total
        assert total is not None
        if self.has_no_solution:
            self.info = NO_SOLUTION
        elif self.info > 0:
            self.info = max(1, total.iterations)
        total.residual = self.least
        total.notes = self.notes + total.notes
        total.seconds |= {"choose": self.choosing, "total": time.perf_counter() - self.begun}
        return self.x, self.info, total

    def families(self) -> tuple[list[str], str]:
        """The families to try, best first, and why."""
        families, why = families_for(self.matrix)
        if "cg" in families and getattr(self.options["M"], "hermitian", True) is False:
            return ["bicgstab", "gmres"], "the preconditioner is not Hermitian"
        return families, why

    def solver_of(self, family: str) -> tuple[str, str, tuple[Any, ...] | None]:
        """The solver of a family that is known to be the one, or the classic one for now; why; and the key for a look.

        The key is None where there is nothing to find out.
        """
        place = (family, self.matrix.dtype, self.options["backend"])
        if place not in self.settled:
            self.settled[place] = self._find_solver(family)
        return self.settled[place]

    def _find_solver(self, family: str) -> tuple[str, str, tuple[Any, ...] | None]:
        why = self._why_classic(family)
        if why:
            return family, why, None
        if is_rented(self.matrix, self.options["backend"]):
            return family, "as products are plain ones until preparing has paid", None
        key = self._key(family)
        known = self._known(key)
        if known is None:
            return family, f"as no step of ca_{family} has been timed on this matrix yet", key
        return *_shorter(family, known), None

    def _check(self, families: list[str]) -> None:
        """Refuse now what only some of the solvers would, when it is their turn."""
        special = self.special
        check_basis(special["basis"])
        check_count("restart", special["restart"], 1)
        if not (isinstance(special["s"], str) and special["s"] == "auto"):
            check_count("s", special["s"], most=MOST if "cg" in families else None, auto=True)

    def _family(self, family: str, limit: int) -> bool:
        """The solver of a family with the shorter step, or both in turn; whether x is good enough."""
        begun = time.perf_counter()
        sister = f"ca_{family}"
        name, word, key = self.solver_of(family)
        self.choosing += time.perf_counter() - begun
        self.notes.append(f"auto: {name}, {word}")
        if key is None:
            return self._run(name, limit) == 0
        before = 0 if self.total is None else self.total.iterations
        pilot = self._pilot(family, limit)
        said = self._run(family, limit, pilot)
        self.choosing += pilot.spent
        if pilot.sister is None:
            return said == 0
        assert pilot.classic is not None
        found = pilot.classic, pilot.sister
        if self.refused:
            why = f"as there was no room for {sister}"
            self.notes.append(f"auto: {family} stays, {why}")
            self.settled[family, self.matrix.dtype, self.options["backend"]] = family, why, None
            self.refused = False
            return said == 0
        self._keep(family, found)
        name, word = _shorter(family, found)
        self.settled[family, self.matrix.dtype, self.options["backend"]] = name, word, None
        at_work = "goes on" if pilot.handed_over else "is for the next solve" if name == sister else "stays"
        self.notes.append(f"auto: {name} {at_work}, {word}")
        if said == 0 or not pilot.handed_over or self._is_over():
            return said == 0
        assert self.total is not None
        done = 0 if family == "gmres" and not self.in_steps else self.total.iterations - before
        return self._run(sister, max(1, limit - done)) == 0

    def _why_classic(self, family: str) -> str:
        """Why the classic solver is taken whatever a step takes, or nothing."""
        from akx.solvers import SOLVERS

        M, n = self.options["M"], self.matrix.n
        if f"ca_{family}" not in SOLVERS:
            return "as it has no communication-avoiding form"
        if M is not None and form_for(f"ca_{family}", M) is None:
            return "as this preconditioner cannot be made part of the matrix"
        if self.special["s"] == 1:
            return "as with s = 1 both are the same"
        return f"as with {n} rows there is too little to gain" if n < _SMALL else ""

    def _run(self, name: str, limit: int, pilot: Pilot | None = None) -> int:
        """A solver from the best x there is, its work added to that of the ones before; its info."""
        options = {**self.options, "maxiter": limit if self.maxiter is None else self._left()}
        say = self.callback if pilot is None else Watched(self.callback, pilot)
        x, said, stats = call_solver(
            name, self.matrix, self.b, self.guess, options, self.special, say, in_steps=self.in_steps
        )
        _used.add(self._use_of(name))
        total = self.total = _added(self.total, stats)
        self.has_no_solution = said == NO_SOLUTION
        if said == 0 or stats.residual < self.least or self.x is None:
            self.x, self.info, self.least = x, said, stats.residual
            self.guess = x if stats.residual <= (total.residuals or [0.0])[0] else self.guess
        if said != 0 and not (pilot is not None and pilot.handed_over):
            self.notes.append(f"auto: {name} did not converge: {stats.reason}")
        return said

    def _left(self) -> int:
        """Steps of `maxiter` that are left."""
        return max(0, int(self.maxiter) - (0 if self.total is None else self.total.iterations))

    def _is_over(self) -> bool:
        return self.has_no_solution or (self.maxiter is not None and self._left() == 0)

    # ------------------------------------------------------------------------------------------- which of the two

    def _pilot(self, family: str, limit: int) -> Pilot:
        return Pilot(
            lambda seconds: self._trial(family, seconds),
            begun=self.begun,
            in_cycles=family == "gmres",
            limit=limit if self.maxiter is None else self._left(),
            steps=lambda: self._trial_steps(family),
            fewest=_BLOCKS if family != "gmres" else self._trial_steps(family),
            ready=0.0 if self._use_of(f"ca_{family}") in _used else backend_of(self.options["backend"]).loading_seconds,
        )

    def _trial_steps(self, family: str) -> int:
        """Steps of a trial of a family's sister."""
        if family == "gmres":
            return _CYCLES * min(self.special["restart"] or RESTART, self.matrix.n)
        s = self._s(family)
        return _BLOCKS * (s if isinstance(s, int) else backend_of(self.options["backend"]).solver_steps)

    def _trial(self, family: str, seconds: float) -> float | None:
        """Seconds of a step of a family's sister; Inf where she is of no use, None where `seconds` were not enough."""
        sister, in_cycles, queued = f"ca_{family}", family == "gmres", is_queued(self.matrix, self.options["backend"])
        watch = Stopwatch(seconds, self._trial_steps(family), in_cycles=in_cycles, queued=queued)
        options = {**self.options, "rtol": 1e-14, "atol": 0.0, "maxiter": 2 * _CYCLES if in_cycles else _TRIAL}
        try:
            _, _, stats = call_solver(
                sister, self.matrix, self.b, self.guess, options, self.special, Watched(None, watch)
            )
        except TOO_MUCH:  # which may be otherwise another time
            self.refused = True
            return float("inf")
        _used.add(self._use_of(sister))
        return watch.verdict(stats)

    def _s(self, family: str) -> int | str:
        """Steps per pass that the sister would do: as asked for, or as tuned, or "auto"."""
        asked, backend = self.special["s"], self.options["backend"]
        if isinstance(asked, str) and is_usable(backend):
            places = {name: self.options[name] for name in ("threads", "db")}
            tuned = chosen_steps(f"ca_{family}", self.matrix, basis=self.special["basis"], backend=backend, **places)
            return "auto" if tuned is None else tuned.s
        return asked if isinstance(asked, str) else int(asked)

    def _use_of(self, name: str) -> tuple[Any, ...]:
        return name, self.matrix.dtype, self.options["backend"]

    def _key(self, family: str) -> tuple[Any, ...]:
        """What the choice depends on; another one where the database has changed, which is then asked again."""
        special, options = self.special, self.options
        restart = special["restart"] if family == "gmres" else None
        asked = special["s"], special["basis"], restart, _name_of(options["M"])
        where = options["backend"], options["threads"], *state_of_plans(options["db"])
        return (family, self.matrix.fingerprint, self.matrix.dtype.str, *asked, *where)

    def _timing_key(self, family: str) -> TimingKey | None:
        """The key in the database; None for a device that is not here."""
        special, options = self.special, self.options
        if not is_usable(options["backend"]):
            return None
        return timing_key(
            family,
            self.matrix,
            s=self._s(family),
            basis=special["basis"],
            restart=special["restart"],
            M=_name_of(options["M"]),
            threads=options["threads"],
            backend=options["backend"],
        )

    def _known(self, key: tuple[Any, ...]) -> tuple[float, float] | None:
        """Seconds of a step of both sisters, where this process or the database knows them."""
        if key not in _chosen:
            if len(_chosen) >= _MOST_KNOWN:
                _chosen.clear()
            kept = self._timing_key(key[0])
            _chosen[key] = None if kept is None else known_sisters(kept, self.options["db"])
        return _chosen[key]

    def _keep(self, family: str, found: tuple[float, float]) -> None:
        """For the next solve; where the database cannot be written, for this process."""
        kept = self._timing_key(family)
        if kept is not None:
            keep_sisters(kept, found, self.options["db"])
        _chosen[self._key(family)] = found


def families_for(matrix: Matrix) -> tuple[list[str], str]:
    """The families to try, best first, and why: by the symmetry and the diagonal of the matrix."""
    from akx.solvers import SOLVERS

    if _FAMILIES not in matrix.cache:
        matrix.cache[_FAMILIES] = _families_for(matrix)
    found, why = matrix.cache[_FAMILIES]
    present = [name for name in found if name in SOLVERS]
    return present or [name for name in FAMILIES if name in SOLVERS][:1], why


def _families_for(matrix: Matrix) -> tuple[list[str], str]:
    diagonal = matrix.diagonal()
    if is_hermitian(matrix):
        if diagonal.real.min() > 0:
            found, why = ["cg", "gmres"], "the matrix is Hermitian with a positive diagonal"
        else:
            found, why = ["gmres"], "the matrix is Hermitian, but not positive definite"
    elif not diagonal.any() and matrix.features.value_symmetry == "skew":  # features are dear
        found, why = ["gmres"], "the matrix is skew-symmetric"
    else:
        found, why = ["bicgstab", "gmres"], "the matrix is not Hermitian"
    return found, why


def _shorter(family: str, seconds: tuple[float, float]) -> tuple[str, str]:
    """The sister with the shorter step, and a word about it."""
    sister = f"ca_{family}"
    if not np.isfinite(seconds[1]):
        return family, f"as {sister} found no use for a basis"
    (best, name), (more, other) = sorted(zip(seconds, (family, sister), strict=True))
    return name, f"{best * 1e6:.0f} us a step against {more * 1e6:.0f} of {other}"


def _name_of(M: Any) -> str:
    """What a preconditioner is, as far as the time of a step depends on it."""
    return "" if M is None else f"{type(M).__name__} {getattr(M, 'nnz', '')}".strip()


def call_solver(
    name: str,
    A: Any,
    b: Any,
    x0: Any,
    options: dict[str, Any],
    special: dict[str, Any],
    callback: Callable[[Any], object] | None,
    *,
    in_steps: bool = False,
) -> tuple[Any, int, SolveStats]:
    """One solver with those of the options that it has; `in_steps`: maxiter counts steps, of gmres too."""
    from akx.solvers import SOLVERS

    own = dict(options)
    if name.endswith("gmres"):
        own["restart"] = special["restart"]
        if "callback_type" in special:
            own["callback_type"] = special["callback_type"]
        if in_steps:  # which is said of a callback, so that there has to be one
            own["callback_type"] = "legacy"
            callback = _present(callback)
    if name.startswith("ca_"):
        own |= {"s": special["s"], "basis": special["basis"], "plan": special.get("plan")}
    answer: tuple[Any, int, SolveStats] = SOLVERS[name](A, b, x0, callback=callback, return_stats=True, **own)
    return answer


def _present(callback: Callable[[Any], object] | None) -> Callable[[Any], object]:
    """The callback, or one that does nothing; a watch beside it stays."""
    if isinstance(callback, Watched):
        return Watched(_present(callback.callback), callback.watch)
    return (lambda _: None) if callback is None else callback


def _added(before: SolveStats | None, stats: SolveStats) -> SolveStats:
    """The record of a solver that took over, with the work of the ones before it."""
    if before is not None:
        stats.residuals = before.residuals + stats.residuals[1:]
        stats.iterations += before.iterations
        stats.products += before.products
        stats.matrix_passes += before.matrix_passes
        stats.s = before.s + stats.s
        stats.notes = before.notes + stats.notes
        stats.basis = stats.basis or before.basis
        for phase, seconds in before.seconds.items():
            stats.seconds[phase] = stats.seconds.get(phase, 0.0) + seconds
    return stats
