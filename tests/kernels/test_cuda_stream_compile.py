"""`stream` compiles for both architectures in every instance: value types, columns, lanes, and numbers of vectors.

Numbers of vectors: the ends for each value type, all of them for all with AKX_COMPILE_ALL=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("every_stream.cu")
_ENTRY = Path(__file__).parents[2] / "akx" / "kernels" / "cuda" / "stream.cu"
_ARCHS = ("80", "90")


def compile_instances(arguments: tuple[str, int, Path]) -> str:
    """What the compiler has to say; instances are not optimised, they are not run."""
    kind, vectors, folder = arguments
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in _ARCHS]
    command = ["nvcc", "-fatbin", "-std=c++17", "-Xcicc", "-O1", "-Xptxas", "-O0", "-Werror", "all-warnings", *targets]
    command += [f"-DVALUES={kind}", f"-DVECTORS={vectors}", f"-DAKX_VALUE={kind}", f"-DAKX_VECTORS={vectors}"]
    command += ["-DAKX_INDEX=u16", "-DAKX_LANES=2"]
    for source, flow in ((_SOURCE, 0), (_ENTRY, 0), (_ENTRY, 768), (_ENTRY, 512)):
        out = [f"-DAKX_FLOW={flow}", "-o", str(folder / f"{kind}-{vectors}-{source.stem}-{flow}.fatbin"), str(source)]
        done = subprocess.run([*command, *out], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{kind} x {vectors}: {done.stderr}"
    return ""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_every_instance_of_stream_compiles(tmp_path: Path) -> None:
    everything = os.environ.get("AKX_COMPILE_ALL", "") not in ("", "0")
    counts = range(1, 9) if everything else (1, 8)
    jobs = [(kind, count, tmp_path) for kind in ("float", "double", "cfloat", "cdouble") for count in counts]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        complaints = [text for text in pool.map(compile_instances, jobs) if text]
    assert not complaints, "\n".join(complaints)
