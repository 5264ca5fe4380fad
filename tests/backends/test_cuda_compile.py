"""`sweep` compiles in every instance, for one architecture and the other in turn."""

from __future__ import annotations

from pathlib import Path

from nvcc import EVERYTHING, complaints, needs_nvcc

_SOURCE = Path(__file__).with_name("every_sweep.cu")
_TYPES = ("float", "double", "cfloat", "cdouble")
#: Start vectors for each value type: the code is one template, so all of them for one type, the ends for the others.
#: AKX_COMPILE_ALL=1 takes all for all.
_SOME = {"double": range(1, 9)}
_ENDS = (1, 8)


@needs_nvcc
def test_every_instance_of_the_sweep_compiles(tmp_path: Path) -> None:
    jobs = [
        (_SOURCE, {"VALUES": kind, "VECTORS": vectors})
        for kind in _TYPES
        for vectors in (range(1, 9) if EVERYTHING else _SOME.get(kind, _ENDS))
    ]
    assert not (text := complaints(jobs, tmp_path, in_turn=True)), text
