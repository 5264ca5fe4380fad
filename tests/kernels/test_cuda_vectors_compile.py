"""The kernels of solvers compile for both architectures, for all four value types, without a spill where it matters."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from akx.kernels.cuda.program import C_TYPES
from akx.kernels.cuda.vectors import tile_rows

_FOLDER = Path(__file__).parents[2] / "akx" / "kernels" / "cuda"
_ARCHS = ("80", "90")
_MIXES = (1, 3, 8)


def compile_one(arguments: tuple[str, str, int, Path]) -> str:
    """What the compiler has to say; instances are not optimised, they are not run."""
    name, dtype, mixes, folder = arguments
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in _ARCHS]
    command = ["nvcc", "-fatbin", "-std=c++17", "-Xcicc", "-O1", "-Xptxas", "-O0", "-Werror", "all-warnings", *targets]
    macros = {"AKX_VALUE": C_TYPES[dtype], "AKX_TILE": tile_rows(np.dtype(dtype)), "AKX_MIXES": mixes}
    command += [f"-D{macro}={value}" for macro, value in macros.items()]
    out = folder / f"{name}-{dtype}-{mixes}.fatbin"
    done = subprocess.run(
        [*command, "-o", str(out), str(_FOLDER / f"{name}.cu")], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else f"{name} for {dtype}: {done.stderr}"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_every_kernel_of_solvers_compiles(tmp_path: Path) -> None:
    jobs = [(name, dtype, 1, tmp_path) for name in ("vectors", "conjugate", "gram_schmidt") for dtype in C_TYPES]
    jobs += [("mix", dtype, mixes, tmp_path) for dtype, mixes in zip(C_TYPES, (*_MIXES, 2), strict=True)]
    with ThreadPoolExecutor(2) as pool:
        complaints = [text for text in pool.map(compile_one, jobs) if text]
    assert not complaints, "\n".join(complaints)
