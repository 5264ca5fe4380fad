"""What ``akx info`` says to people: where entries are, what layouts store, ghosts over steps, other devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from akx.plandb.layers import origin
from akx.report.matrix.spy_plot import braille, cell_counts, plain, text_grid
from akx.report.tables import print_pairs, print_rows
from akx.report.units import count, counted, ratio, share

if TYPE_CHECKING:
    from akx.core.matrix import Features, Matrix
    from akx.report.matrix.advice import Advice
    from akx.report.matrix.matrix_report import MatrixReport

__all__ = ["print_advice", "print_features", "print_matrix_report", "print_spy"]

_MARGIN = 2


def print_features(file: str, features: Features, console: Console) -> None:
    """What ``akx info`` says of the structure."""
    f = features
    print_pairs(
        [
            ("matrix", file),
            ("rows", count(f.rows)),
            ("entries", f"{count(f.nnz)} ({f.dtype})"),
            ("row lengths", f"{f.row_min} to {count(f.row_max)}, mean {f.row_mean:.2f}, deviation {f.row_std:.2f}"),
            ("empty rows", count(f.empty_rows)),
            ("bandwidth", f"{count(f.bandwidth)}, profile {count(f.profile)}"),
            ("levels", f"{count(f.level_count)}, the widest of {counted(f.level_width_max, 'row')}"),
            ("components", count(f.components)),
            (
                "symmetry",
                f"pattern {'symmetric' if f.pattern_symmetric else 'not symmetric'}, values "
                f"{'not symmetric' if f.value_symmetry == 'none' else f.value_symmetry}",
            ),
            ("blocks", f"{f.block_size} x {f.block_size}, {share(f.block_fill)} full"),
            ("diagonals", f"{count(f.diagonal_count)}, {share(f.diagonal_fill)} full"),
        ],
        console,
    )


def print_advice(advice: Sequence[Advice], console: Console) -> None:
    """What ``akx info`` suggests."""
    print_pairs([(item.topic, item.text) for item in advice], console)


def print_spy(matrix: Matrix, console: Console, picture: Path | None = None) -> None:
    """The entries on a coarse grid, in dots where a terminal shows them, and what a dot or a mark stands for."""
    dots = console.is_terminal and "utf" in console.encoding.lower()
    rows, columns = text_grid(matrix.n, console.width - 2 * _MARGIN, dots=dots)
    counts = cell_counts(matrix.indptr, matrix.indices, rows, columns)
    lines = braille(counts) if dots else plain(counts, matrix.n)
    high, wide = (_about(matrix.n, cells) for cells in (rows, columns))
    wide = wide.removeprefix("about ") if high.startswith("about ") else wide
    if rows == columns == matrix.n:
        told = f"Each {'dot' if dots else 'mark'} is an entry."
    elif dots:
        told = f"A dot: an entry in a cell of {high} x {wide} (rows x columns)."
    else:
        told = f"A mark: a cell of {high} x {wide} (rows x columns); # more than a tenth full, "
        told += "* + : . ten times less each."
    for line in lines:
        console.print(Text(f"{'':{_MARGIN}}{line}".rstrip()), soft_wrap=True)
    console.print(Text(told), soft_wrap=True)
    if picture is not None:
        console.print(Text(f"The same as a picture: {picture}"), soft_wrap=True)


def print_matrix_report(found: MatrixReport, console: Console) -> None:
    """Layouts, ghosts, the predicted plan, and other devices where these were asked for."""
    figures = found.figures
    how = "calibrated" if found.calibrated else "measured now"
    console.print(Text(f"Layouts, and bounds of a product on {found.device}"), soft_wrap=True)
    rows = []
    for one in found.layouts:
        bound, far = found.bounds(one)
        filled = "-" if not one.values else f"{100 * one.fill:.1f}%"
        rows.append((one.name, filled, f"{one.bytes_per_entry:.2f}", f"{bound:.2f}", f"{far:.2f}"))
    heads = {"layout": "left", "full": "right", "bytes/entry": "right", "Gflop/s": "right", "x uncached": "right"}
    print_rows(heads, rows, console)
    memory, cache = (f"{rate / 1e9:.1f} GB/s" for rate in (figures.slow_bandwidth, figures.last_level_bandwidth))
    packets = found.packets
    print_pairs(
        [
            ("nodes", _nodes(found)),
            ("data rate", f"{memory} from memory, {cache} from the last cache ({how})"),
            (
                "packets",
                f"of {packets.slots} slots on an FPGA: {100 * packets.utilisation:.1f}% used, "
                f"{packets.gflops(found.clock):.3g} Gflop/s at {found.clock / 1e6:g} MHz",
            ),
        ],
        console,
    )
    console.print()
    _print_ghosts(found, console)
    console.print()
    print_pairs(_plans(found), console)
    if found.device_bounds:
        console.print()
        _print_device_bounds(found, console)


def _plans(found: MatrixReport) -> list[tuple[str, str]]:
    """The plan that calls use, and the one that they would use without it."""
    known, predicted = found.tuned, found.plan
    untuned = f"none: {found.reason}" if predicted is None else f"{predicted.label()}; predicted, not measured"
    if known is None:
        return [("untuned", untuned), ("tuned", "no plan is known; akx tune finds the fastest")]
    gain = f"{ratio(known.speedup)} over {known.baseline_name} when it was tuned"
    if known.speedup <= 1:
        gain = "nothing was faster when it was tuned"
    return [("tuned", f"{known.plan.label()}; {gain}; {origin(found.layer)}"), ("untuned", untuned)]


def _nodes(found: MatrixReport) -> str:
    """How many nodes of how many rows there are, side by side or not."""
    sizes, apart = found.sizes_of_nodes, found.sizes_of_supervariables

    def said(sizes: list[int]) -> str:
        each = ((nodes, f"{rows} row{'s' if rows > 1 else ''}") for rows, nodes in enumerate(sizes, 1) if nodes)
        return ", ".join(f"{count(nodes)} of {rows}" for nodes, rows in each)

    if sum(apart[1:]):
        return f"{said(apart)}; these are not side by side"
    return said(sizes) if sum(sizes[1:]) else "none: no rows that have their columns in common"


def _print_ghosts(found: MatrixReport, console: Console) -> None:
    """A line for each way to cut; ghost rows over rows and flops done over flops needed, for some numbers of steps."""
    ghosts = found.ghosts
    steps = _some(max((len(curve.ghosts) for curve in ghosts.curves), default=0))
    if steps:
        console.print(Text("Ghost rows over rows, and flops done over flops needed, by steps"), soft_wrap=True)
        rows = []
        for curve in ghosts.curves:
            cells = [
                f"{share(curve.ghosts[j - 1])} {curve.redundancy[j - 1]:.2f}" if j <= len(curve.ghosts) else "-"
                for j in steps
            ]
            rows.append((curve.name, *cells))
        print_rows({"cut": "left", **{f"k = {j}": "right" for j in steps}}, rows, console)
    for note in ghosts.notes:
        console.print(Text(note), soft_wrap=True)


def _print_device_bounds(found: MatrixReport, console: Console) -> None:
    console.print(Text("Bounds of a product on other devices"), soft_wrap=True)
    rows = [
        (
            one.device,
            f"{one.bandwidth / 1e9:.1f}",
            "-" if one.csr_gflops is None else f"{one.csr_gflops:.2f}",
            "-" if one.gflops is None else f"{one.gflops:.2f}",
            one.layout or "too many rows",
            one.source,
        )
        for one in found.device_bounds
    ]
    heads = {
        "device": "left", "GB/s": "right", "csr": "right", "Gflop/s": "right", "best layout": "left", "source": "left",
    }  # fmt: skip
    print_rows(heads, rows, console)


def _some(most: int) -> list[int]:
    """1, 2, 4, ... and the most."""
    steps = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return sorted({*steps, most}) if most else []


def _about(n: int, cells: int) -> str:
    """Rows of a cell: ``7``, or ``about 7`` where cells differ."""
    each = n / cells
    if n % cells == 0:
        return count(n // cells)
    return f"about {each:.3g}" if each < 1000 else f"about {count(round(each))}"
