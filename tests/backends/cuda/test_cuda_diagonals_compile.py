"""`resident` with diagonals compiles for one architecture and the other in turn, for all four value types.

The rest of what the space can reach differs in numbers alone, which are spread over the translation units here;
the nightly run takes all of them for all types.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from nvcc import complaints, needs_nvcc

from akx.backends.cuda.variants.options import HELD_SLICES, HELD_SLOTS, VECTORS

_SOURCE = Path(__file__).with_name("every_diagonals.cu")
#: Value type, start vectors at a time, slices and slots in registers.
_SOME = (("double", 1, 8, 4), ("cdouble", 4, 0, 0), ("float", 2, 1, 9), ("cfloat", 1, 2, 3))
_ALL = tuple(
    (kind, vectors, slices, slots if slices else 0)
    for kind, vectors, slices, slots in product(
        ("float", "double", "cfloat", "cdouble"), VECTORS, HELD_SLICES, HELD_SLOTS
    )
    if slices or slots == 1
)


@needs_nvcc
def test_diagonals_compile(tmp_path: Path, is_nightly: bool) -> None:
    names = ("VALUES", "VECTORS", "HELD_SLICES", "HELD_SLOTS")
    jobs = [(_SOURCE, dict(zip(names, one, strict=True))) for one in (_ALL if is_nightly else _SOME)]
    assert not (text := complaints(jobs, tmp_path, in_turn=not is_nightly)), text
