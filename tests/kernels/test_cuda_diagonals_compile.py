"""`resident` with diagonals compiles for both architectures, for all four value types.

The rest of what the space can reach differs in numbers alone, which are spread over the translation units here;
AKX_COMPILE_ALL=1 takes all of them for all types.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

from akx.kernels.cuda.parts import HELD_SLICES, HELD_SLOTS, VECTORS

_SOURCE = Path(__file__).with_name("every_diagonals.cu")
_ARCHS = ("80", "90")
#: Value type, start vectors at a time, slices and slots in registers.
_SOME = (("double", 1, 8, 4), ("cdouble", 4, 0, 0), ("float", 2, 1, 9), ("cfloat", 1, 2, 3))
_ALL = tuple(
    (kind, vectors, slices, slots if slices else 0)
    for kind, vectors, slices, slots in product(
        ("float", "double", "cfloat", "cdouble"), VECTORS, HELD_SLICES, HELD_SLOTS
    )
    if slices or slots == 1
)


def compile_instances(arguments: tuple[tuple[str, int, int, int], Path]) -> str:
    """What the compiler has to say; instances are not optimised, they are not run."""
    (kind, vectors, slices, slots), folder = arguments
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in _ARCHS]
    command = ["nvcc", "-fatbin", "-std=c++17", "-Xcicc", "-O1", "-Xptxas", "-O0", "-Werror", "all-warnings", *targets]
    command += [f"-DVALUES={kind}", f"-DVECTORS={vectors}", f"-DHELD_SLICES={slices}", f"-DHELD_SLOTS={slots}"]
    command += ["-o", str(folder / f"{kind}-{vectors}-{slices}-{slots}.fatbin"), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{kind} x {vectors}, {slices} x {slots}: {done.stderr}"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_diagonals_compile(tmp_path: Path) -> None:
    everything = os.environ.get("AKX_COMPILE_ALL", "") not in ("", "0")
    jobs = [(one, tmp_path) for one in (_ALL if everything else _SOME)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        complaints = [text for text in pool.map(compile_instances, jobs) if text]
    assert not complaints, "\n".join(complaints)
