"""The kernels of solvers compile for the smallest and the largest value type, for all four in the nightly run; for one
architecture and the other in turn.
"""

from __future__ import annotations

from pathlib import Path

from nvcc import Macros, complaints, named, needs_nvcc

from akx.backends.cuda.program import C_TYPES

_ENDS = ("float32", "complex128")
_MIXES = (1, 3, 8, 2)
_STEPS = (8, 20, 4, 12)
#: Groups of rows and of columns.
_TILES = ((1, 1), (5, 1), (3, 2), (8, 8))


def _job(name: str, dtype: str, **more: int | str) -> tuple[Path, Macros]:
    return named(f"{name}.cu"), {"AKX_VALUE": C_TYPES[dtype], **more}


@needs_nvcc
def test_every_kernel_of_solvers_compiles(tmp_path: Path, is_nightly: bool) -> None:
    jobs = []
    for dtype, mixes, steps, (down, across) in zip(C_TYPES, _MIXES, _STEPS, _TILES, strict=True):
        if not is_nightly and dtype not in _ENDS:
            continue
        jobs += [_job(name, dtype) for name in ("vectors", "conjugate")]
        jobs.append(_job("mix", dtype, AKX_MIXES=mixes))
        other = {"float32": "float64", "complex128": "complex64"}.get(dtype, dtype)
        jobs.append(_job("taken", dtype, AKX_FROM=C_TYPES[other]))
        jobs += [_job(name, dtype, AKX_STEPS=steps) for name in ("advance", "blocks")]
        jobs += [_job(name, dtype, AKX_DOWN=down, AKX_ACROSS=across) for name in ("products", "gram_schmidt")]
    assert not (text := complaints(jobs, tmp_path, in_turn=not is_nightly)), text
