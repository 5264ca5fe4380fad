"""Every CUDA source compiles for the oldest and the newest architecture that is supported, in every instance."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_ARCHS = ("sm_80", "sm_90")
_TYPES = ("float", "double", "cfloat", "cdouble")
#: Start vectors for each value type: the code is one template, so all of them for one type, the ends for the others.
#: AKX_COMPILE_ALL=1 takes all for all.
_SOME = {"double": range(1, 9)}
_ENDS = (1, 8)


def compile_instance(arguments: tuple[str, int, Path]) -> str:
    """What the compiler has to say; instances are not optimised, they are not run."""
    kind, vectors, folder = arguments
    targets = [f"-gencode=arch=compute_{arch[3:]},code={arch}" for arch in _ARCHS]
    command = ["nvcc", "-fatbin", "-std=c++17", "-Xcicc", "-O1", "-Xptxas", "-O0", "-Werror", "all-warnings", *targets]
    command += [f"-DVALUES={kind}", f"-DVECTORS={vectors}", "-o", str(folder / f"{kind}{vectors}.fatbin")]
    done = subprocess.run([*command, str(_HERE / "every_sweep.cu")], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{kind} x {vectors}: {done.stderr}"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_every_instance_of_the_sweep_compiles(tmp_path: Path) -> None:
    everything = os.environ.get("AKX_COMPILE_ALL", "") not in ("", "0")
    jobs = [
        (kind, vectors, tmp_path)
        for kind in _TYPES
        for vectors in (range(1, 9) if everything else _SOME.get(kind, _ENDS))
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        complaints = [text for text in pool.map(compile_instance, jobs) if text]
    assert not complaints, "\n".join(complaints)
