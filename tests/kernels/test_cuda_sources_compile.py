"""Every CUDA source compiles as it is loaded, at the ends of the ranges of its parameters: most slots in registers,
most threads, most start vectors. What is spread over every block, mode and type is in the other tests of this name.
"""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from akx.formats.parts import Shape
from akx.kernels.cuda import parts

_FOLDER = Path(__file__).parents[2] / "akx" / "kernels" / "cuda"
_ARCHS = ("80", "90")
Macros = dict[str, int | str]
#: By source; those of solvers and preconditioners are compiled from their own file elsewhere.
_ENDS: dict[str, list[Macros]] = {
    "parts.cu": [
        parts.macros(Shape(3, 3, 1, 8, 1, 9), np.dtype("float64"), 4, mode=parts.SHARED, stream=True),
        parts.macros(Shape(1, 1, 8, 32, 8, 2), np.dtype("float32"), 1, mode=parts.GLOBAL, stream=True, blocks=1),
        parts.macros(Shape(1, 1, 1, 16, 8, 5), np.dtype("complex64"), 2, mode=parts.ALONE, stream=False, blocks=2),
    ],
    "diagonals.cu": [
        {"AKX_VALUE": "double", "AKX_HELD_SLICES": slices, "AKX_HELD_SLOTS": slots, "AKX_VECTORS": 1}
        | {"AKX_THREADS": threads, "AKX_STREAM": 1, "AKX_BLOCKS": blocks}
        for slices, slots, threads, blocks in ((6, 4, 640, 1), (0, 0, 1024, 2))
    ],
    "sweep.cu": [
        {"AKX_VALUE": "cdouble", "AKX_VECTORS": 8, "AKX_VARIANT": variant, "AKX_ONCE": 1, "AKX_LANES": lanes}
        | {"AKX_INDEX": "u16", "AKX_PAD": 8, "AKX_AHEAD": 4}
        for variant, lanes in ((1, 32), (2, 1), (3, 1), (4, 8))
    ],
    "stream.cu": [
        {"AKX_VALUE": "double", "AKX_VECTORS": 8, "AKX_INDEX": "u16", "AKX_LANES": 8, "AKX_FLOW": 512},
        {"AKX_VALUE": "float", "AKX_VECTORS": 1, "AKX_INDEX": "u32", "AKX_LANES": 1, "AKX_FLOW": 768},
    ],
    "values.cu": [{"AKX_VALUE": "cdouble", "AKX_GIVEN": "double"}],
}
_OF_SOLVERS = {"conjugate.cu", "gram_schmidt.cu", "mix.cu", "vectors.cu"}
_ELSEWHERE = _OF_SOLVERS | {"hermitian.cu", "scaling.cu", "spai.cu", "transpose.cu"}


def compile_one(arguments: tuple[str, Macros, Path]) -> str:
    """What the compiler has to say; instances are not optimised, they are not run."""
    name, macros, target = arguments
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in _ARCHS]
    command = ["nvcc", "-fatbin", "-std=c++17", "-Xcicc", "-O1", "-Xptxas", "-O0", "-Werror", "all-warnings", *targets]
    command += [*(f"-D{macro}={value}" for macro, value in macros.items()), "-o", str(target), str(_FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{name} {macros}: {done.stderr}"


def test_every_source_is_compiled_somewhere() -> None:
    assert {path.name for path in _FOLDER.glob("*.cu")} == set(_ENDS) | _ELSEWHERE
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_cuda_*.py") if path != Path(__file__))
    assert not [name for name in _ELSEWHERE if name.removesuffix(".cu") not in tests]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_ends_compile(tmp_path: Path) -> None:
    every = [(name, macros) for name, found in _ENDS.items() for macros in found]
    jobs = [(name, macros, tmp_path / f"{number}.fatbin") for number, (name, macros) in enumerate(every)]
    with ThreadPoolExecutor(2) as pool:
        complaints = [text for text in pool.map(compile_one, jobs) if text]
    assert not complaints, "\n".join(complaints)
