"""Plans and figures of this machine for `tuning_db/`: those of the gallery and of the real matrices.

    python -m benchmarks.shipped FILE.sqlite                     tune what is not in the database yet, k = 4, 8 and 16
    python -m benchmarks.shipped FILE.sqlite --calibrate         measure the machine too, into tuning_db/machines
    python -m benchmarks.shipped FILE.sqlite --bundle NAME       and write all plans to tuning_db/NAME.json

On an idle machine, or at raised priority (`chrt -f 10 python -m ...`); a run that was broken off goes on. Calibrate
first: searches then begin with better plans. For a GPU (`--backend cuda`) several processes may share the work, each
with matrices of its own (`--matrix`) and more seconds (`--seconds`): they measure one at a time.

Matrices with constant coefficients (`NAME-constant`) have the keys of those with general values: they are refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from akx import Matrix
from akx.core.errors import AkxError
from akx.plandb import PlanDatabase
from akx.tuner import tune
from akx.tuner.model.calibrate import calibrate
from benchmarks.matrices import select

__all__ = ["main", "tune_all"]

_SHIPPED = Path(__file__).resolve().parents[1] / "tuning_db"
_K = (8, 4, 16)
#: Tuned by `make demo`, which is to show a tuning and not a plan that is there: neither tuned here, nor written.
_LEFT_OUT = "bcsstk25"


def tune_all(
    names: Sequence[str] | None, ks: Sequence[int], db: PlanDatabase, backend: str, seconds: float | None = None
) -> int:
    """Tune every matrix for every k, those in the database left alone. Returns the number of failures.

    Raises ValueError for a matrix of few values.
    """
    failures = 0
    for k in ks:
        for case in select(names):
            if case.name == _LEFT_OUT:
                continue
            if case.group == "constant":
                raise ValueError(f"{case.name} has the key of {case.name.removesuffix('-constant')}, and few values")
            try:
                matrix = Matrix.from_any(case.load())
            except ValueError:  # none to measure, and said so elsewhere
                continue
            try:
                result = tune(matrix, k, backend=backend, db=db, name=case.name, seconds=seconds)
            except AkxError as error:
                failures += 1
                print(f"{case.name}, k = {k}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            how = "was there" if result.reused else f"in {result.tuning_seconds:.1f} s, {len(result.trials)} trials"
            said = f"{case.name}, k = {k}: {result.speedup:.2f}x, {result.plan.label()}, {how}"
            print(said, file=sys.stderr, flush=True)
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, export; the exit code is 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shipped", description="Plans for tuning_db.")
    parser.add_argument("db", type=Path, help="a plan database of its own, made where there is none")
    parser.add_argument("--matrix", action="append", help="only these (or 'gallery', 'real')")
    parser.add_argument("--k", type=int, action="append", help="powers; 8, 4 and 16 by default")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, help="budget of each search; the tuner's default by default")
    parser.add_argument("--calibrate", action="store_true", help="measure the machine first")
    parser.add_argument("--bundle", metavar="NAME", help="write tuning_db/NAME.json")
    parser.add_argument("--shipped", type=Path, default=_SHIPPED, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.calibrate:
        print(f"kept in {calibrate(options.backend).save(options.shipped / 'machines')}", file=sys.stderr)
    with PlanDatabase(options.db, layers=()) as db:
        failures = tune_all(options.matrix, options.k or _K, db, options.backend, options.seconds)
        if options.bundle is not None:
            kept = [record.id for record in db.list() if record.matrix_name != _LEFT_OUT]
            count = db.export(options.shipped / f"{options.bundle}.json", kept, description=f"{options.backend} plans")
            print(f"{count} plans", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
