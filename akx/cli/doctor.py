"""``akx doctor``: what is there, what is missing, and how to get it."""

from __future__ import annotations

from akx.cli.guard import EXIT_INPUT
from akx.cli.output import data_console, emit_json, note

__all__ = ["DOCTOR_SCHEMA", "run_doctor"]

#: Version of the JSON object of ``akx doctor --json``.
DOCTOR_SCHEMA = 1


def run_doctor(db: str | None, *, calibrate: bool = False, as_json: bool) -> int:
    """Print every check. Returns 0 where akx can work (optional parts may be missing), else 2.

    With `calibrate` every device that akx can use is measured first, and what was measured is kept.
    """
    from akx.report.environment import inspect_environment

    if calibrate:
        _calibrate()
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


def _calibrate() -> None:
    """Measure and keep; says what it does on stderr. Raises :class:`akx.errors.AkxError` where that fails."""
    from akx.device.choose import is_usable
    from akx.kernels import registry
    from akx.tuner.calibration import calibrate, check_writable

    check_writable()
    for backend in registry.backends():
        if is_usable(backend):
            note(f"measuring the {backend}, which should have nothing else to do")
            found = calibrate(backend)
            note(f"{found.device_class}: kept in {found.save()}")
