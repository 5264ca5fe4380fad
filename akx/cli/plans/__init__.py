"""``akx plans``: what the database holds, run again, removed, and carried from machine to machine."""

from __future__ import annotations

import typer

from akx.cli.plans.bundles import export_plans, import_plans
from akx.cli.plans.records import list_plans, remove_plan, show_plan
from akx.cli.plans.trials import list_timings, list_trials
from akx.cli.plans.verify import verify_plans

__all__ = ["plans"]

plans = typer.Typer(
    help="The plans of the project, the user and the system, and those shipped with akx.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
plans.command("list")(list_plans)
plans.command("show")(show_plan)
plans.command("trials")(list_trials)
plans.command("timings")(list_timings)
plans.command("verify")(verify_plans)
plans.command("export")(export_plans)
plans.command("import")(import_plans)
plans.command("rm")(remove_plan)
