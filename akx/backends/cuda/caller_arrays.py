"""Arrays of callers on the GPU, and calls with them: all that the operator and the online tuner use of the backend."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "device.callers": "is_captured library_of stream_of",
    "device.launch": "Event default_stream",
    "device.memory": "wrap",
    "device.runtime": "beside_captures runtime",
    "csr.powers": "CsrPowers",
    "matrix.content": "INDICES VALUES CaptureWords Comparison host_word is_sound",
    "program": "CudaProgram",
}
_HOMES = {name: f"akx.backends.cuda.{home}" for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """From its home, which is imported when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
