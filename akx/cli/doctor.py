"""``akx doctor``: what is there, what is missing, and how to get it."""

from __future__ import annotations

from akx.cli.guard import EXIT_INPUT
from akx.cli.output import data_console, emit_json

__all__ = ["DOCTOR_SCHEMA", "run_doctor"]

#: Version of the JSON object of ``akx doctor --json``.
DOCTOR_SCHEMA = 1


def run_doctor(db: str | None, *, as_json: bool) -> int:
    """Print every check. Returns 0 where akx can work (optional parts may be missing), else 2."""
    from akx.report.environment import inspect_environment

    groups = inspect_environment(db)
    problems = sum(check.state == "problem" for checks in groups.values() for check in checks)
    if as_json:
        emit_json(
            {
                "schema": DOCTOR_SCHEMA,
                "healthy": problems == 0,
                "problems": problems,
                "checks": {title: [check.to_json() for check in checks] for title, checks in groups.items()},
            }
        )
    else:
        from akx.report.tables import print_checks

        console = data_console()
        print_checks(groups, console)
        console.print()
        console.print("everything akx needs is there" if problems == 0 else f"{problems} to look at")
    return EXIT_INPUT if problems else 0
