"""``akx tune``: the plan and its figures on stdout, once all is measured.

The options of a search are the fields of :class:`akx.tuner.request.TuneRequest`; those of the command itself are here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from akx.cli.exit_codes import EXIT_INTERRUPTED
from akx.cli.inputs import load_matrix, matrix_name, open_database
from akx.cli.options import REQUESTED, Dtype, File, Json, Variable, either_spelling, request_parameters
from akx.cli.output import data_console, emit_json, note
from akx.cli.progress import progress
from akx.core.errors import ArgumentError
from akx.solvers.registry import NAMES
from akx.tuner.request import TuneRequest

__all__ = ["tune"]

_TUNED_SOLVERS = tuple(name.replace("_", "-") for name in NAMES if name.startswith("ca_"))
#: Flags of options by their names here.
_FLAGS = {
    **{name: option.flag for name, option in REQUESTED.items()},
    "solver": "--for",
    "dtype": "--dtype",
    "variable": "--variable",
    "exhaustive": "--exhaustive",
}
#: What has no meaning with some option, and why, by name.
_EVERY, _KEPT = "every plan is measured", "no plan is looked up or kept"
_NOT_EXHAUSTIVE = {
    "trials": _EVERY,
    "calls": _EVERY,
    "retune": _KEPT,
    "fresh": _KEPT,
    "db": _KEPT,
    "storage": "every plan is measured here",
    "memory_budget": "it measures without one",
    "fraction": "it measures without a memory budget",
}
_SEVERAL = "it makes several searches"
_NOT_FOR_SOLVERS = {
    "k": "the powers of a pass are what is tuned",
    "memory_budget": "a solver does not stream the matrix",
    "fraction": "a solver does not stream the matrix",
    "value_error": "a solver has the values as they are",
    "storage": "trials are shared of one k alone",
    "fresh": "its searches go on from what was tried",
    "calls": "its passes are tuned to be used in many solves",
    **dict.fromkeys(("seed", "record", "exhaustive"), _SEVERAL),
}
_NOTHING = "nothing is measured and nothing is kept"
_NOT_REPLAYED = {
    **dict.fromkeys(("k", "backend", "basis", "dtype", "threads", "variable"), "the recording says it"),
    **dict.fromkeys(("memory_budget", "fraction", "value_error"), "the recording says it"),
    "solver": "it searches for one plan",
    **dict.fromkeys(("db", "retune", "fresh", "record"), _NOTHING),
    "storage": "it searches alone",
    "exhaustive": _NOTHING,
}
#: Options of the command itself, and those of a request before which the help has them.
_BEFORE = {"dtype": "trials", "solver": "memory_budget", "variable": "memory_budget"}


def _with_options_of_a_request(command: Callable[..., int]) -> Callable[..., int]:
    """The command with the fields of a tuning request for its ``**asked``, as :mod:`typer` reads it."""
    own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "asked"]
    held = [own.pop(0)]
    for parameter in request_parameters():
        held += [one for one in own if _BEFORE.get(one.name) == parameter.name]
        held.append(parameter)
    held += [one for one in own if one.name not in _BEFORE]
    command.__signature__ = inspect.Signature(held)  # type: ignore[attr-defined]
    return command


@_with_options_of_a_request
def tune(
    *,
    file: File,
    dtype: Dtype = None,
    solver: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar=f"<{'|'.join(_TUNED_SOLVERS)}>",
            callback=either_spelling(_TUNED_SOLVERS),
            help="Tune the steps per pass of a solver instead, which then takes them by itself.",
        ),
    ] = None,
    variable: Variable = None,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Measure every feasible plan, to the end, and keep none.")
    ] = False,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="FILE is what --record wrote: search over it, with no device and no matrix."),
    ] = False,
    as_json: Json = False,
    **asked: Any,
) -> int:
    """Find the fastest plan for a matrix on this machine, and keep it."""
    given = {name: value for name, value in asked.items() if value is not None and value is not False}
    if "basis" in given:
        given["basis"] = given["basis"].value
    if given["backend"] == "auto":
        del given["backend"]
    own = {"dtype": dtype, "solver": solver, "variable": variable, "exhaustive": exhaustive or None}
    named = given | {name: value for name, value in own.items() if value is not None}
    read = {"dtype": dtype, "variable": variable}
    if replay:
        return _replay(file, _meant("--replay", _NOT_REPLAYED, named, given), as_json)
    if solver is not None:
        return _tune_for(
            solver, file, read, _meant("--for", _NOT_FOR_SOLVERS, named, {"basis": "auto", **given}), as_json
        )
    meant = _meant("--exhaustive", _NOT_EXHAUSTIVE if exhaustive else {}, named, given)
    return _tune(file, read, meant, as_json, exhaustive=exhaustive)


def _meant(
    mode: str, refused: Mapping[str, str], named: Mapping[str, object], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a request that have a meaning with some other one; those refused that are named are an error."""
    for name, why in refused.items():
        if name in named:
            flag = _FLAGS[name]
            raise ArgumentError(f"{flag} has no meaning with {mode}: {why}", hint=f"leave {flag} out")
    asked = {one.name: one.default for one in fields(TuneRequest) if one.metadata} | dict(given)
    return {name: value for name, value in asked.items() if name not in refused}


def _tune(file: str, read: dict[str, Any], given: dict[str, Any], as_json: bool, *, exhaustive: bool) -> int:
    """Tune, print, and return the exit code: 0, or 130 where Ctrl-C ended the search early."""
    from akx import tuner

    if not exhaustive:
        given["db"] = open_database(given["db"])
        given["db"].exists()  # a server that does not answer is no place to keep a plan: before the matrix is read
    matrix = load_matrix(file, **read)
    with progress(as_json=as_json) as report:
        search = tuner.exhaustive if exhaustive else tuner.tune
        result = search(matrix, **given, name=matrix_name(file), callback=report)
    if as_json:
        emit_json(result.to_json())
    else:
        from akx.report.command_tables import print_tuning

        print_tuning(result, file, data_console())
    if result.interrupted:
        rest = "the rest was not measured" if exhaustive else "run the same command to search on"
        note(f"interrupted: this is the best plan so far; {rest}")
        return EXIT_INTERRUPTED
    return 0


def _tune_for(solver: str, file: str, read: dict[str, Any], given: dict[str, Any], as_json: bool) -> int:
    """``--for``: the steps per pass of a solver, each with tuned matrix powers."""
    from akx.solvers import tune_for
    from akx.solvers.symmetry import is_hermitian

    matrix = load_matrix(file, **read)
    if solver in ("ca-cg", "ca-minres") and not is_hermitian(matrix):
        kind = "Hermitian" if matrix.dtype.kind == "c" else "symmetric"
        raise ArgumentError(
            f"--for {solver} needs a {kind} matrix", found="one that is not", hint="tune --for ca-gmres or ca-bicgstab"
        )
    with progress(as_json=as_json) as report:
        given["db"] = open_database(given["db"])
        found = tune_for(matrix, solver, **given, name=matrix_name(file), callback=report)
    if as_json:
        emit_json(found.to_json())
    else:
        from akx.report.command_tables import print_solver_tuning

        print_solver_tuning(found, file, data_console())
    return 0


def _replay(file: str, given: dict[str, Any], as_json: bool) -> int:
    """``--replay``: a search over a recording."""
    from akx.tuner import replay

    found = replay(file, **given)
    if as_json:
        emit_json(found.to_json())
    else:
        from akx.report.command_tables import print_replay

        print_replay(found, data_console())
    return 0
