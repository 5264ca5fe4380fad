"""``akx info``: the structure of a matrix, and what it suggests."""

from __future__ import annotations

from akx.cli.load import check_powers, load_matrix, matrix_name
from akx.cli.output import data_console, emit_json

__all__ = ["INFO_SCHEMA", "run_info"]

#: Version of the JSON object of ``akx info --json``.
INFO_SCHEMA = 1


def run_info(file: str, k: int, *, dtype: str | None, variable: str | None, as_json: bool) -> int:
    """Print the features of the matrix in `file` and the advice for `k` powers on this machine."""
    check_powers(k)
    from akx.device.host import host_device
    from akx.report.advice import advise, matrix_bytes

    matrix = load_matrix(file, dtype=dtype, variable=variable)
    device, features = host_device(), matrix.features
    advice = advise(features, device, k)
    if as_json:
        emit_json(
            {
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
            }
        )
        return 0
    from akx.report.tables import print_features

    print_features(file, features, advice, data_console())
    return 0
