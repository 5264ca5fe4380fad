"""`sweep` compiles in every instance, for one architecture and the other in turn."""

from __future__ import annotations

from pathlib import Path

from nvcc import complaints, needs_nvcc

_SOURCE = Path(__file__).with_name("every_sweep.cu")
_TYPES = ("float", "double", "cfloat", "cdouble")
#: Start vectors for each value type: the ends, since the code is one template; all of them in the nightly run.
_ENDS = (1, 8)


@needs_nvcc
def test_every_instance_of_the_sweep_compiles(tmp_path: Path, is_nightly: bool) -> None:
    jobs = [
        (_SOURCE, {"VALUES": kind, "VECTORS": vectors})
        for kind in _TYPES
        for vectors in (range(1, 9) if is_nightly else _ENDS)
    ]
    assert not (text := complaints(jobs, tmp_path, in_turn=not is_nightly)), text
