"""Pictures, which need the plot extra: the entries of a matrix, and the residual of a solve over its steps."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError, MissingDependencyError, shown

if TYPE_CHECKING:
    from akx.solvers import SolveStats

__all__ = ["plot_convergence", "plot_spy", "require_plotting"]

#: Cells of a picture of a matrix in each direction.
_CELLS = 600


def require_plotting(option: str) -> None:
    """Raise :class:`MissingDependencyError` where there is no matplotlib, which `option` needs."""
    if find_spec("matplotlib") is None:
        hint = f"pip install 'akx[plot]', or leave out {option}"
        raise MissingDependencyError("matplotlib is not installed", hint=hint)


def plot_convergence(stats: SolveStats, path: Path, title: str) -> None:
    """Write a picture of the residuals, the target and the end; its format is that of the file's name.

    Raises
    ------
    MissingDependencyError
        Where there is no matplotlib.
    ArgumentError
        Where it cannot write that format, or cannot write there.
    """
    require_plotting("--plot")
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
    _save(figure, path, "--plot")


def plot_spy(indptr: NDArray[Any], indices: NDArray[Any], path: Path, title: str) -> None:
    """Write a picture: the darker a cell, the more of its places hold an entry, on a scale of powers of ten.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of integers
        CSR pattern, n at least 1.
    path : Path
        ``.png``, ``.svg``, ``.pdf`` and whatever else matplotlib writes.
    title : str

    Raises
    ------
    MissingDependencyError
        Where there is no matplotlib.
    ArgumentError
        Where it cannot write that format, or cannot write there.
    """
    require_plotting("--spy")
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    from akx.report.matrix.spy_plot import cell_counts

    n = indptr.size - 1
    side = min(n, _CELLS)
    counts = cell_counts(indptr, indices, side, side)
    share = np.ma.masked_equal(counts / (n / side) ** 2, 0.0)
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.subplots()
    least = float(share.min()) if counts.any() else 0.1
    # A scale from less than the emptiest cell on, so that one entry is seen on white.
    norm = LogNorm(vmin=10.0 ** (math.floor(math.log10(least)) - 1), vmax=1.0, clip=True)
    picture = axes.imshow(share, cmap="Greys", norm=norm, extent=(0, n, n, 0), interpolation="nearest")
    axes.set(title=title, xlabel="column", ylabel="row")
    figure.colorbar(picture, ax=axes, label="share of the places that hold an entry", shrink=0.8)
    _save(figure, path, "--spy", dpi=150)


def _save(figure: Any, path: Path, option: str, **how: Any) -> None:
    try:
        figure.savefig(path, **how)
    except ValueError as error:  # an unknown format
        what, found = f"{option} cannot write that format", path.suffix or "no ending"
        raise ArgumentError(what, found=found, hint="end the name in .png or .svg") from error
    except OSError as error:
        hint = f"give another {option}, in a folder where you may write"
        raise ArgumentError(f"{path} cannot be written", found=error.strerror or str(error), hint=hint) from error
