"""A search in thought, for its code: a process does it beside calls, so that none of them waits for the compiler."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain, islice

from akx.backends.device import Device
from akx.backends.host import host_device
from akx.backends.selection import plan_threads
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.candidates.proposals import Proposals
from akx.tuner.candidates.warm_start import features_of
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.trial import COMPLETE, PRUNED, Trial
from akx.tuner.model.figures import figures_of
from akx.tuner.model.predict import Model, predicted
from akx.tuner.space import build_space
from akx.tuner.trial.problem import Problem
from akx.tuner.warmup.host_code import Job

__all__ = ["NoSampler", "job"]

#: Plans that are thought of.
_PLANS = 40


def job(k: int, device: Device | None = None) -> Job:
    """What a process is asked for: for a GPU it needs its facts, and no driver. By default for the host."""
    device = device or host_device()
    return ("thinking", device.backend), __name__, "dry_run", (k, device)


class NoSampler:
    """In place of Optuna's, whose import alone would cost as much as many trials."""

    def suggest(self, done: Ledger, refuse: Callable[[Plan], bool]) -> Plan | None:
        return None

    def tell(self, outcome: Trial) -> None:
        pass


def dry_run(asked: tuple[int, Device], matrix: Matrix, vectors: int) -> None:
    """Think of plans as a search does, in a process that compiles: so no call waits for code that is no plan's."""
    k, device = asked
    backend = device.backend
    space = build_space(matrix, k, device, backend=backend, threads=plan_threads(backend, None), start_vectors=vectors)
    model = Model(matrix, space, figures_of(space.device, space.threads), vectors)
    ledger, first = Ledger(space), space.inside(predicted(model))
    proposals = Proposals(model, ledger, seed=0, sampler=lambda space, seed: NoSampler())
    features_of(matrix)
    Problem(matrix, k, start_vectors=vectors)
    for origin, plan in chain((("predicted", first),), islice(proposals.search(), _PLANS)):
        if plan in ledger:
            continue
        seconds, number = model.seconds(plan), len(ledger.trials)
        trial = Trial(number, plan, origin, PRUNED, "no model")
        if 0 < seconds < math.inf:
            trial = Trial(number, plan, origin, COMPLETE, "", seconds, 0.0, 0.0, samples=(seconds,))
        ledger.add(trial)
