"""Which of a family's two solvers, classic or communication-avoiding, has the shorter step: known, or found out.

:mod:`akx.solvers.pilot` says when it is found out on the way. The figures are kept in the plan database, by all that a
step depends on (:func:`akx.solvers.solver_choice.timing_key`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from akx.backends.selection import backend_of, is_usable
from akx.core.arguments import unknown_name
from akx.core.matrix import Matrix
from akx.krylov.bases import check_basis
from akx.operator.freshness import state_of_plans
from akx.solvers.arguments import BY_STEPS, RESTART, check_count
from akx.solvers.forms import form_for
from akx.solvers.host_fallback import TOO_MUCH
from akx.solvers.monitor import Watched
from akx.solvers.pilot import Pilot, Stopwatch
from akx.solvers.registry import SOLVERS
from akx.solvers.solver_choice import chosen_steps, keep_pair, known_pair, timing_key
from akx.solvers.stats import SolveStats
from akx.solvers.symmetry import skew_shift
from akx.solvers.vector_work import is_queued, is_rented

if TYPE_CHECKING:
    from akx.plandb import TimingKey

__all__ = ["Settled", "SolverPair", "call_solver", "check_precision", "check_special", "shorter"]

#: By family, type and backend: the solver that is taken, why, and the key of what is to be found out, None for nothing.
Settled: TypeAlias = dict[tuple[str, np.dtype[Any], str], tuple[str, str, tuple[Any, ...] | None]]
#: Rows below which nothing is measured: the classic solver is done before.
_SMALL = 2000
#: Blocks of a trial with the ordinary ones before, cycles of one of ca_gmres, and most steps, as a limit.
_BLOCKS, _CYCLES, _TRIAL = 9, 2, 400
#: What `precision` may be.
_PRECISIONS = ("double", "mixed")
#: Choices that this process remembers.
_MOST_KNOWN = 1000
#: Seconds of a step of both, by what they depend on; None where the database did not know them.
_chosen: dict[tuple[Any, ...], tuple[float, float] | None] = {}
#: Solvers that this process has used, by name, type and backend.
_used: set[tuple[Any, ...]] = set()


class SolverPair:
    """A classic solver and its communication-avoiding counterpart for one system, `matrix` x = `b` from `guess` on."""

    def __init__(
        self, matrix: Matrix, b: Any, guess: Any, options: dict[str, Any], special: dict[str, Any], settled: Settled
    ) -> None:
        self.matrix, self.b, self.guess = matrix, b, guess
        self.options, self.special, self.settled = options, special, settled
        self.refused = False  # a counterpart on trial had no room

    def solver_of(self, family: str) -> tuple[str, str, tuple[Any, ...] | None]:
        """The solver of a family that is known to be the one, or the classic one for now; why; and the key for a look.

        The key is None where there is nothing to find out.
        """
        place = self._use_of(family)
        if place not in self.settled:
            self.settled[place] = self._find_solver(family)
        return self.settled[place]

    def _find_solver(self, family: str) -> tuple[str, str, tuple[Any, ...] | None]:
        why = self._why_classic(family)
        if why:
            return family, why, None
        if is_rented(self.matrix, self.options["backend"]):
            return family, f"not ca_{family}: preparing its products has not paid yet", None
        key = self._key(family)
        known = self._known(key)
        if known is None:
            return family, f"as ca_{family} has not been timed on this matrix yet", key
        return *shorter(family, known), None

    def _why_classic(self, family: str) -> str:
        """Why the classic solver is taken whatever a step takes, or nothing."""
        M, n = self.options["M"], self.matrix.n
        if M is not None and family != "gmres" and form_for(f"ca_{family}", M, self.matrix) is None:
            return f"not ca_{family}: this M cannot be made part of the matrix"
        if family == "minres" and skew_shift(self.matrix) is not None:
            return "not ca_minres: that is for Hermitian matrices"
        if self.special["s"] == 1:
            return f"not ca_{family}: with s = 1 both are the same"
        return f"not ca_{family}: {n} rows are too few for that to pay" if n < _SMALL else ""

    def _pilot(self, family: str, limit: int, begun: float) -> Pilot:
        """The watch of a classic solver of at most `limit` steps, in a solve that has begun then."""
        return Pilot(
            lambda seconds: self._trial(family, seconds),
            begun=begun,
            in_cycles=family == "gmres",
            limit=limit,
            steps=lambda: self._trial_steps(family),
            fewest=_BLOCKS if family != "gmres" else self._trial_steps(family),
            ready=0.0 if self._use_of(f"ca_{family}") in _used else backend_of(self.options["backend"]).loading_seconds,
        )

    def _trial_steps(self, family: str) -> int:
        """Steps of a trial of a family's counterpart."""
        if family == "gmres":
            return _CYCLES * min(self.special["restart"] or RESTART, self.matrix.n)
        s = self._s(family)
        return _BLOCKS * (s if isinstance(s, int) else backend_of(self.options["backend"]).solver_steps)

    def _trial(self, family: str, seconds: float) -> float | None:
        """Seconds of a step of the counterpart; Inf where it is of no use, None where `seconds` were not enough."""
        counterpart, in_cycles = f"ca_{family}", family == "gmres"
        queued = is_queued(self.matrix, self.options["backend"])
        watch = Stopwatch(seconds, self._trial_steps(family), in_cycles=in_cycles, queued=queued)
        options = {**self.options, "rtol": 1e-14, "atol": 0.0, "maxiter": 2 * _CYCLES if in_cycles else _TRIAL}
        try:
            given = counterpart, self.matrix, self.b, self.guess
            stats = call_solver(*given, options, self.special, Watched(None, watch))[2]
        except TOO_MUCH:  # which may be otherwise another time
            self.refused = True
            return float("inf")
        self.note_use(counterpart)
        return watch.verdict(stats)

    def _s(self, family: str) -> int | str:
        """Steps per pass that the counterpart would do: as asked for, or as tuned, or "auto"."""
        asked, backend = self.special["s"], self.options["backend"]
        if isinstance(asked, str) and is_usable(backend):
            places = {name: self.options[name] for name in ("threads", "db")}
            tuned = chosen_steps(f"ca_{family}", self.matrix, basis=self.special["basis"], backend=backend, **places)
            return "auto" if tuned is None else tuned.s
        return asked if isinstance(asked, str) else int(asked)

    def _use_of(self, name: str) -> tuple[str, np.dtype[Any], str]:
        return name, self.matrix.dtype, self.options["backend"]

    def note_use(self, name: str) -> None:
        """A solver was used: its kernels are there from now on."""
        _used.add(self._use_of(name))

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
        own = {"s": self._s(family), "M": _name_of(options["M"]), "basis": special["basis"]}
        places = {"threads": options["threads"], "backend": options["backend"]}
        return timing_key(family, self.matrix, restart=special["restart"], **own, **places)

    def _known(self, key: tuple[Any, ...]) -> tuple[float, float] | None:
        """Seconds of a step of both, where this process or the database knows them."""
        found: Any = _chosen.get(key, key)
        if found is key:  # others may clear it meanwhile
            if len(_chosen) >= _MOST_KNOWN:
                _chosen.clear()
            kept = self._timing_key(key[0])
            found = _chosen[key] = None if kept is None else known_pair(kept, self.options["db"])
        return found  # type: ignore[no-any-return]

    def _keep(self, family: str, found: tuple[float, float]) -> None:
        """For the next solve; where the database cannot be written, for this process."""
        kept = self._timing_key(family)
        if kept is not None:
            keep_pair(kept, found, self.options["db"])
        _chosen[self._key(family)] = found


def shorter(family: str, seconds: tuple[float, float]) -> tuple[str, str]:
    """The one with the shorter step, and a word about it."""
    counterpart = f"ca_{family}"
    if not np.isfinite(seconds[1]):
        return family, f"as {counterpart} found no use for a basis"
    (best, name), (more, other) = sorted(zip(seconds, (family, counterpart), strict=True))
    return name, f"{best * 1e6:.0f} us a step against {more * 1e6:.0f} of {other}"


def _name_of(M: Any) -> str:
    """What a preconditioner is, as far as the time of a step depends on it."""
    return "" if M is None else f"{type(M).__name__} {getattr(M, 'nnz', '')}".strip()


def check_precision(precision: Any) -> str:
    """The precision that is asked for, or ArgumentError."""
    if not isinstance(precision, str) or precision not in _PRECISIONS:
        raise unknown_name("precision", precision, _PRECISIONS)
    return precision


def check_special(special: dict[str, Any], most: int | None = None) -> None:
    """Refuse a ``restart``, ``s`` or ``basis`` that no method could have, whether it is used or not."""
    check_basis(special["basis"])
    if special["restart"] is not None:
        check_count("restart", special["restart"])
    if not (isinstance(special["s"], str) and special["s"] == "auto"):
        check_count("s", special["s"], most=most, auto=True)


def call_solver(
    name: str,
    A: Any,
    b: Any,
    x0: Any,
    options: dict[str, Any],
    special: dict[str, Any],
    callback: Callable[[Any], object] | None,
    *,
    in_steps: bool | None = None,
) -> tuple[Any, int, SolveStats]:
    """One solver with those of the options that it has.

    Unless `in_steps` is None the callback gets x, of gmres too; where it is true maxiter counts steps.
    """
    own = dict(options)
    if name.endswith("gmres"):
        own["restart"] = special["restart"]
        if "callback_type" in special:
            own["callback_type"] = special["callback_type"]
        if in_steps is not None:
            own["callback_type"] = BY_STEPS if in_steps else "x"
    if name.startswith("ca_"):
        own |= {"s": special["s"], "basis": special["basis"], "plan": special.get("plan")}
    solver: Any = SOLVERS[name]
    solver = getattr(solver, "__wrapped__", solver)  # of one right-hand side
    if name == "gmres" and special.get("recycled") is not None:
        from akx.solvers.gcro_dr import gcro_dr

        solver, own["recycled"] = gcro_dr, special["recycled"]
    answer: tuple[Any, int, SolveStats] = solver(A, b, x0, callback=callback, return_stats=True, **own)
    return answer
