"""`resident` and `ghost` compile for both architectures: every dense block in every mode, for all four value types.

What else the space can reach differs in numbers alone: lanes, slots in registers and start vectors at a time are spread
over the translation units here; AKX_COMPILE_ALL=1 takes all of them for all types.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("every_parts.cu")
_ARCHS = ("80", "90")
#: Value type, start vectors at a time, lanes per block row, slices and slots in registers.
_SOME = (("double", 1, 2, 1, 2), ("cdouble", 4, 1, 0, 0), ("float", 2, 8, 1, 1), ("cfloat", 1, 4, 0, 0))
_ALL = tuple(
    (kind, vectors, lanes, *held)
    for kind, vectors, lanes, held in product(
        ("float", "double", "cfloat", "cdouble"), (1, 2, 4), (1, 2, 4, 8), ((0, 0), (1, 1), (1, 9), (4, 5))
    )
)


def compile_instances(arguments: tuple[tuple[str, int, int, int, int], Path]) -> str:
    """What the compiler has to say; instances are not optimised, they are not run."""
    (kind, vectors, lanes, slices, slots), folder = arguments
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in _ARCHS]
    command = ["nvcc", "-fatbin", "-std=c++17", "-Xcicc", "-O1", "-Xptxas", "-O0", "-Werror", "all-warnings", *targets]
    command += [f"-DVALUES={kind}", f"-DVECTORS={vectors}", f"-DPER_ROW={lanes}"]
    command += [f"-DHELD_SLICES={slices}", f"-DHELD_SLOTS={slots}"]
    command += ["-o", str(folder / f"{kind}-{vectors}-{lanes}-{slices}-{slots}.fatbin"), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{kind} x {vectors}: {done.stderr}"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_every_block_and_mode_compiles(tmp_path: Path) -> None:
    everything = os.environ.get("AKX_COMPILE_ALL", "") not in ("", "0")
    jobs = [(one, tmp_path) for one in (_ALL if everything else _SOME)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        complaints = [text for text in pool.map(compile_instances, jobs) if text]
    assert not complaints, "\n".join(complaints)
