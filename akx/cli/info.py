"""``akx info``: a matrix before anything is measured: its structure, what it suggests, and what to expect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from akx.cli.inputs import load_matrix, matrix_name
from akx.cli.options import Dtype, File, Json, Powers, Variable
from akx.cli.output import data_console, emit_json
from akx.cli.output_files import check_picture

__all__ = ["INFO_SCHEMA", "info"]

#: Version of the JSON object of ``akx info --json``.
INFO_SCHEMA = 2

Spy = Annotated[
    Path | None,
    typer.Option("--spy", metavar="PATH", help="Write a picture of the entries, e.g. as .png or .svg (plot extra)."),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="What products would do on a known device: part of its name, or all; may be given again.",
    ),
]
Blocks = Annotated[
    int | None,
    typer.Option("--blocks", metavar="N", min=1, help="Blocks to show ghost zones of; by default of 512 KiB each."),
]
Slots = Annotated[
    int | None, typer.Option("--slots", metavar="N", min=1, help="Slots of a packet of the FPGA, 5 by default.")
]
Clock = Annotated[
    float | None,
    typer.Option("--clock", metavar="MHZ", min=1e-6, help="Clock of the FPGA, which takes a packet a cycle."),
]


def info(
    file: File,
    k: Powers = 8,
    dtype: Dtype = None,
    variable: Variable = None,
    spy: Spy = None,
    device: Devices = None,
    blocks: Blocks = None,
    slots: Slots = None,
    clock: Clock = None,
    as_json: Json = False,
) -> int:
    """Show the structure of a matrix, what it suggests, and what to expect of layouts, ghost zones and devices."""
    from akx.backends.host import host_device
    from akx.report.matrix.advice import advise, matrix_bytes
    from akx.report.matrix.device_bounds import select_devices
    from akx.report.matrix.matrix_report import report_matrix, spy_counts
    from akx.report.pictures import plot_spy, require_plotting

    chosen = select_devices(device or (["all"] if as_json else []))
    if spy is not None:
        require_plotting("--spy")
        check_picture("--spy", spy, [file])
    matrix = load_matrix(file, dtype=dtype, variable=variable)
    if spy is not None:
        plot_spy(matrix.indptr, matrix.indices, spy, matrix_name(file))
    host, features = host_device(), matrix.features
    advice = advise(features, host, k)
    asked: dict[str, Any] = {"blocks": blocks}
    asked |= {} if slots is None else {"slots": slots}
    asked |= {} if clock is None else {"clock": 1e6 * clock}
    found = report_matrix(matrix, k, chosen, **asked)
    if as_json:
        data: dict[str, Any] = {
            "schema": INFO_SCHEMA,
            "matrix": {
                "name": matrix_name(file),
                "rows": matrix.n,
                "nnz": matrix.nnz,
                "dtype": matrix.dtype.name,
                "index_type": matrix.indices.dtype.name,
                "fingerprint": matrix.fingerprint,
                "bytes": matrix_bytes(features),
            },
            "features": features.to_json(),
            "k": k,
            "device": host.device_class,
            "suggestions": [item.to_json() for item in advice],
            "spy": {"path": None if spy is None else str(spy), "counts": spy_counts(matrix)},
        }
        emit_json({**data, **found.to_json()})
        return 0
    from akx.report.matrix.matrix_tables import print_advice, print_features, print_matrix_report, print_spy

    console = data_console()
    print_features(file, features, console)
    console.print()
    print_spy(matrix, console, spy)
    console.print()
    print_matrix_report(found, console)
    console.print()
    print_advice(advice, console)
    return 0
