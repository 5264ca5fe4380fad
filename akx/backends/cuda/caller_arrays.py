"""Arrays of callers on the GPU, and calls with them: all that the operator and the online tuner use of the backend."""

from __future__ import annotations

from akx.core.lazy_names import lazy_names

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

__getattr__ = lazy_names(__name__, _HOMES)
