"""`resident` and `ghost` compile in every mode, and for all that values of `resident` are stored as, with single
entries and one dense block; for one architecture and the other in turn, once for both.

What else the space can reach differs in numbers alone: lanes, slots in registers and start vectors at a time are spread
over the translation units here. The nightly run takes all of them, and all dense blocks, for all types.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from nvcc import complaints, needs_nvcc

_SOURCE = Path(__file__).with_name("every_parts.cu")
#: Value type, start vectors at a time, lanes per block row, slices and slots in registers; test_cuda_sources_compile.py
#: has instances of all types.
_SOME = (("cfloat", 4, 4, 0, 0), ("double", 1, 2, 1, 2))
_ALL = tuple(
    (kind, vectors, lanes, *held)
    for kind, vectors, lanes, held in product(
        ("float", "double", "cfloat", "cdouble"), (1, 2, 4), (1, 2, 4, 8), ((0, 0), (1, 1), (1, 9), (4, 5))
    )
)
#: Types of half the bytes.
_NARROW = {"double": "float", "cdouble": "cfloat"}


@needs_nvcc
def test_every_block_and_mode_compiles(tmp_path: Path, is_nightly: bool) -> None:
    names = ("VALUES", "VECTORS", "PER_ROW", "HELD_SLICES", "HELD_SLOTS")
    jobs = []
    for one in _ALL if is_nightly else _SOME:
        narrow = {"NARROW": _NARROW[one[0]]} if one[0] in _NARROW else {}
        few = {} if is_nightly else {"FEW": 1}
        jobs.append((_SOURCE, dict(zip(names, one, strict=True)) | narrow | few))
    assert not (text := complaints(jobs, tmp_path, in_turn=not is_nightly)), text
