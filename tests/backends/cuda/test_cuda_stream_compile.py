"""`stream` compiles in every instance, for one architecture and the other in turn: types, columns, lanes, vectors.

Numbers of vectors: one end for each value type, both for real and for complex ones, and all of them for all in the
nightly run.
"""

from __future__ import annotations

from pathlib import Path

from nvcc import complaints, named, needs_nvcc

_SOURCE = Path(__file__).with_name("every_stream.cu")
_ENTRY = named("stream.cu")
_ENDS = {"float": (8,), "double": (1,), "cfloat": (1,), "cdouble": (8,)}


@needs_nvcc
def test_every_instance_of_stream_compiles(tmp_path: Path, is_nightly: bool) -> None:
    jobs = []
    for kind, ends in _ENDS.items():
        for vectors in range(1, 9) if is_nightly else ends:
            macros = {"VALUES": kind, "VECTORS": vectors, "AKX_VALUE": kind, "AKX_VECTORS": vectors}
            macros |= {"AKX_INDEX": "u16", "AKX_LANES": 2}
            alike = int(kind.startswith("c"))
            halves = [{"AKX_FLOW": 768 - 256 * alike, "AKX_MARK": mark, "AKX_CONJUGATE": alike} for mark in (8, 16)]
            jobs += [(_SOURCE, macros | {"AKX_FLOW": 0}), (_ENTRY, macros | {"AKX_FLOW": 0})]
            jobs += [(_ENTRY, macros | half) for half in halves]
    assert not (text := complaints(jobs, tmp_path, in_turn=not is_nightly)), text
