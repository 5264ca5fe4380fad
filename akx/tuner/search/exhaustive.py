"""Measuring the whole feasible space, to show what a search has missed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from akx.core.arguments import check_count
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.tuner import measure
from akx.tuner.history.result import TuneResult
from akx.tuner.history.trial import Progress
from akx.tuner.request import Settings
from akx.tuner.search.outcome import with_value_error
from akx.tuner.search.preparation import bench_for, keys_of, model_of, said_by, search_on
from akx.tuner.space import build_space, place_of
from akx.tuner.trace.writer import recording_to
from akx.tuner.trial.problem import Problem

__all__ = ["exhaustive"]


def exhaustive(
    matrix: Any,
    k: int,
    *,
    basis: str = "monomial",
    start_vectors: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    seconds: float | None = None,
    include: Iterable[Plan] = (),
    seed: int | None = None,
    name: str = "",
    callback: Callable[[Progress], object] | None = None,
    space_filter: Callable[[Plan], bool] | None = None,
    choices: Mapping[str, Mapping[str, Sequence[Option]]] | None = None,
    settings: Settings | None = None,
    value_error: float | None = None,
    record: str | os.PathLike[str] | None = None,
) -> TuneResult:
    """Measure the whole feasible space, with neither racing nor sampling, and keep nothing.

    Parameters
    ----------
    matrix, k, basis, start_vectors, backend, threads, seed, name, callback, space_filter, settings, value_error, record
        As for :func:`tune`.
    seconds : float, optional
        Most seconds; no limit by default.
    include : iterable of Plan
        Plans that take part in the run-off in any case, e.g. that of :func:`tune`, so that they are compared with the
        optimum in the same minute: see :attr:`TuneResult.finalists`.
    choices : mapping of str to mapping of str to sequence, optional
        By schedule and parameter, the only choices that are measured: a part of a space that is too large, in which a
        recording answers for every plan (``{"resident": {"block": (512, 1024)}}``). The space of the recording is this
        part.

    Returns
    -------
    TuneResult
        Its ``trials`` are all plans that were measured.

    Raises
    ------
    ArgumentError
        As :func:`tune`, and where there is no such choice, or none is left of a baseline.
    """
    start = measure.now()
    matrix, given = Matrix.from_any(matrix, value_error=value_error), tuple(include)
    endless = math.inf if seconds is None else seconds
    settings = replace((settings or Settings()).but(seed=seed), calls=None, trials=2**31 - 1, seconds=endless)
    k, start_vectors = check_count("k", k), check_count("start_vectors", start_vectors)
    label, used, device = place_of(backend, threads)
    where: dict[str, Any] = {"start_vectors": start_vectors, "backend": label, "threads": used}
    matrix, key, _ = keys_of(matrix, k, basis=basis, device=device, **where)
    space = build_space(matrix, k, device, **where)
    if choices is not None:
        space = space.part(choices)
        if not space.baselines(matrix):
            raise ArgumentError(
                "the choices leave no plain product to compare with",
                expected="sweep with rows in the order given and values in full",
                hint="leave the defaults of sweep among its choices",
            )
    bench = bench_for(Problem(matrix, k, basis=basis, start_vectors=start_vectors, seed=settings.seed), space, settings)
    model = model_of(matrix, space, start_vectors, settings.seconds)
    kind = "exhaustive" if space_filter is None and choices is None else "part"
    with said_by(callback) as said, recording_to(record, kind, name, key, model, settings) as recorder:
        options: dict[str, Any] = {"start": start, "callback": said, "keep": space_filter, "given": given}
        found = search_on(bench, model, settings, key, recorder, since=start, name=name, everything=True, **options)
        result = with_value_error(found, matrix, device)
        return result if recorder is None else recorder.end(result)
