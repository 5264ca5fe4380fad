"""`stream` compiles in every instance, for one architecture and the other in turn: types, columns, lanes, vectors.

Numbers of vectors: the ends for each value type, all of them for all with AKX_COMPILE_ALL=1.
"""

from __future__ import annotations

from pathlib import Path

from nvcc import EVERYTHING, complaints, named, needs_nvcc

_SOURCE = Path(__file__).with_name("every_stream.cu")
_ENTRY = named("stream.cu")


@needs_nvcc
def test_every_instance_of_stream_compiles(tmp_path: Path) -> None:
    jobs = []
    for kind in ("float", "double", "cfloat", "cdouble"):
        for vectors in range(1, 9) if EVERYTHING else (1, 8):
            macros = {"VALUES": kind, "VECTORS": vectors, "AKX_VALUE": kind, "AKX_VECTORS": vectors}
            macros |= {"AKX_INDEX": "u16", "AKX_LANES": 2}
            jobs += [
                (source, macros | {"AKX_FLOW": flow})
                for source, flow in ((_SOURCE, 0), (_ENTRY, 0), (_ENTRY, 768), (_ENTRY, 512))
            ]
    assert not (text := complaints(jobs, tmp_path, in_turn=True)), text
