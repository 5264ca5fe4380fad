"""The kernels of solvers compile for both architectures, for all four value types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from nvcc import KERNELS, Macros, complaints, needs_nvcc

from akx.kernels.cuda.program import C_TYPES
from akx.kernels.cuda.vectors import tile_rows

_MIXES = (1, 3, 8, 2)
_STEPS = (8, 20, 4, 12)


def _job(name: str, dtype: str, **more: int) -> tuple[Path, Macros]:
    macros = {"AKX_VALUE": C_TYPES[dtype], "AKX_TILE": tile_rows(np.dtype(dtype)), **more}
    return KERNELS / f"{name}.cu", macros


@needs_nvcc
def test_every_kernel_of_solvers_compiles(tmp_path: Path) -> None:
    jobs = [_job(name, dtype) for name in ("vectors", "conjugate", "gram_schmidt") for dtype in C_TYPES]
    jobs += [_job("mix", dtype, AKX_MIXES=mixes) for dtype, mixes in zip(C_TYPES, _MIXES, strict=True)]
    jobs += [_job("advance", dtype, AKX_STEPS=steps) for dtype, steps in zip(C_TYPES, _STEPS, strict=True)]
    assert not (text := complaints(jobs, tmp_path)), text
