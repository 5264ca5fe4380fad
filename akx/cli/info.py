"""``akx info``: a matrix before anything is measured: its structure, what it suggests, and what to expect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from akx.cli.inputs import check_powers, load_matrix, matrix_name
from akx.cli.output import data_console, emit_json
from akx.cli.output_files import check_picture

__all__ = ["INFO_SCHEMA", "run_info"]

#: Version of the JSON object of ``akx info --json``.
INFO_SCHEMA = 2


def run_info(
    file: str,
    k: int,
    *,
    dtype: str | None,
    variable: str | None,
    spy: Path | None = None,
    devices: Sequence[str] = (),
    blocks: int | None = None,
    slots: int | None = None,
    clock: float | None = None,
    as_json: bool,
) -> int:
    """Print what is known of the matrix in `file` for `k` powers on this machine; write its picture to `spy`.

    `blocks` are those of the ghost zones, `slots` those of a packet, and `clock` is that of the FPGA in MHz.
    """
    check_powers(k)
    from akx.backends.cpu.device import host_device
    from akx.report.matrix.advice import advise, matrix_bytes
    from akx.report.matrix.device_bounds import select_devices
    from akx.report.matrix.matrix_report import look, spy_counts
    from akx.report.matrix.spy_plot import plot_spy, require_plotting

    chosen = select_devices(devices or (["all"] if as_json else []))
    if spy is not None:
        require_plotting()
        check_picture("--spy", spy, [file])
    matrix = load_matrix(file, dtype=dtype, variable=variable)
    if spy is not None:
        plot_spy(matrix.indptr, matrix.indices, spy, matrix_name(file))
    device, features = host_device(), matrix.features
    advice = advise(features, device, k)
    asked: dict[str, Any] = {"blocks": blocks}
    asked |= {} if slots is None else {"slots": slots}
    asked |= {} if clock is None else {"clock": 1e6 * clock}
    found = look(matrix, k, chosen, **asked)
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
            "device": device.device_class,
            "suggestions": [item.to_json() for item in advice],
            "spy": {"path": None if spy is None else str(spy), "counts": spy_counts(matrix)},
        }
        emit_json({**data, **found.to_json()})
        return 0
    from akx.report.matrix.matrix_tables import print_outlook, print_spy
    from akx.report.tables import print_advice, print_features

    console = data_console()
    print_features(file, features, console)
    console.print()
    print_spy(matrix, console, spy)
    console.print()
    print_outlook(found, console)
    console.print()
    print_advice(advice, console)
    return 0
