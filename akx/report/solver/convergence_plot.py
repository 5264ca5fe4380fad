"""The residual of a solve over its steps, as a picture; needs the plot extra."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from akx.core.errors import ArgumentError, MissingDependencyError, shown

if TYPE_CHECKING:
    from akx.solvers import SolveStats

__all__ = ["plot_convergence", "require_plotting"]


def require_plotting() -> None:
    """Raise :class:`MissingDependencyError` where there is no matplotlib."""
    if find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib is not installed", hint="pip install 'akx[plot]', or leave out --plot")


def plot_convergence(stats: SolveStats, path: Path, title: str) -> None:
    """Write a picture of the residuals, the target and the end; its format is that of the file's name.

    Parameters
    ----------
    stats : SolveStats
    path : Path
        ``.png``, ``.svg``, ``.pdf`` and whatever else matplotlib writes.
    title : str

    Raises
    ------
    MissingDependencyError, ArgumentError
    """
    require_plotting()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    *estimates, last = stats.residuals or [stats.residual]
    steps = max(stats.iterations, 1)
    name = shown(title, 100).replace("$", r"\$")  # which would begin a formula
    scale = steps / max(1, len(estimates) - 1)
    axes.semilogy([scale * i for i in range(len(estimates))], estimates, label="residual, by the recurrence")
    axes.semilogy([stats.iterations], [last], "o", label="true residual at the end")
    if stats.target > 0:
        axes.axhline(stats.target, color="0.5", linestyle="--", label="asked for")
    axes.set(xlabel="steps", ylabel="norm of the residual", title=f"{name}: {stats.method}, {stats.reason}")
    axes.legend()
    try:
        figure.savefig(path)
    except ValueError as error:  # an unknown format
        raise ArgumentError(
            "--plot cannot write that format", found=path.suffix, hint="end the name in .png"
        ) from error
