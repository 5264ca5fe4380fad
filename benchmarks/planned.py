"""What benchmarks of tuned plans on a GPU share: where the plans are, the command line, and the table of a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from akx.core.plan import Plan
from benchmarks import markdown
from benchmarks.steps_gpu import parsed

__all__ = ["NO_DEVICE", "checked_call", "command_line", "has_gpu", "known", "measured_on", "plans_of", "write_table"]

#: Exit code where nothing can be measured.
NO_DEVICE = 3

Json = dict[str, Any]


def plans_of(document: Json) -> dict[str, Plan]:
    """The plan of most powers of each matrix in a file of :mod:`benchmarks.gpu`."""
    found: dict[str, Plan] = {}
    for entry in sorted(document["powers"], key=lambda entry: entry["k"]):
        found[entry["matrix"]] = parsed(entry["plan"], entry["k"])
    return found


def command_line(
    module: str, description: str, results: Path, page: Path, plans: Path | Sequence[Path] | None = None
) -> argparse.ArgumentParser:
    """The options of ``python -m module``; `plans` says whether there are files of plans, and more than one."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="matrices; by default all there are")
    if plans is not None:
        several = None if isinstance(plans, Path) else "+"
        parser.add_argument("--plans", type=Path, nargs=several, default=plans, metavar="FILE", help="where plans are")
    parser.add_argument("-o", "--output", type=Path, default=results, help="result file to merge into")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--docs", type=Path, default=page, metavar="FILE", help="the page")
    return parser


def checked_call(device: Any, problem: Any, program: Any, what: str) -> Any:
    """A call of a program on a device's arrays that was right once. Raises ArithmeticError where `what` was not.

    Parameters
    ----------
    device : akx.backends.cuda.timing.DeviceProblem
        Of `problem`.
    problem : akx.tuner.trial.problem.Problem
    """
    call = device.call(program)
    device.poison()
    call()
    device.fetch()
    error = problem.error()
    if not error <= 1.0:
        raise ArithmeticError(f"{what} is wrong: {error}")
    return call


def known(path: Path, name: str) -> Json:
    """What a result file says, or that its list `name` has no entries yet."""
    found: Json = json.loads(path.read_text()) if path.exists() else {name: []}
    return found


def has_gpu(name: str) -> bool:
    """Whether there is a GPU; where there is none the benchmark says why."""
    from akx.backends.cuda.device.runtime import cuda_missing

    reason = cuda_missing()
    if reason is not None:
        print(f"{name}: nothing measured: {reason}", file=sys.stderr)
    return reason is None


def measured_on(document: Json, name: str) -> str:
    """On what the entries of a list were measured, and by which commits, in words."""
    commits = ", ".join(dict.fromkeys(str(entry["commit"])[:10] for entry in document[name]))
    return f"Measured on one {document['machine']['gpu']}, commits {commits}"


def write_table(page: Path, document: Json, name: str, table: Callable[[Json], str]) -> None:
    """Put the table of the list `name` on the page between its marks, where there is a page and an entry."""
    if page.exists() and document[name]:
        page.write_text(markdown.replace_block(page.read_text(), name, table(document)))
