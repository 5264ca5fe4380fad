"""CUDA sources compiled by nvcc for the oldest and the newest architecture that are supported; nothing is run."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from compiled_store import KERNELS, named, store

__all__ = ["KERNELS", "TIDY", "Macros", "complaints", "named", "needs_nvcc"]

#: Instances that are not run need not be optimised, but for what is done by the way: dead code goes, as when loaded.
TIDY = ("-Xcicc", "-O1", "-Xptxas", "-O0")


@functools.cache
def quick() -> tuple[str, ...]:
    """Options for instances without dead code for another architecture; a third less where nvcc (12.8) knows how."""
    told = subprocess.run(["nvcc", "--help"], capture_output=True, text=True, check=False).stdout
    return ("-Ofc", "max") if "(-Ofc)" in told else TIDY


_ARCHS = ("80", "90")
Macros = Mapping[str, int | str]

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def complaints(
    jobs: Iterable[tuple[Path, Macros]], folder: Path, options: Iterable[str] | None = None, *, in_turn: bool = False
) -> str:
    """What the compiler has to say of sources with their macros: nothing where all is well, warnings are errors.

    Each job is compiled for both architectures. With `in_turn` the first of each source is, and the others are for one
    or the other, where there are many of one template that differ in types and numbers. What compiled without a word is
    not compiled again while no source changes.
    """
    given, firsts = list(jobs), set[int]()
    for number, (source, _) in enumerate(given):
        if source not in {given[first][0] for first in firsts}:
            firsts.add(number)
    command = ["nvcc", "-fatbin", "-std=c++17", *(quick() if options is None else options), "-Werror", "all-warnings"]
    command += [f"-I{KERNELS}"]

    def compile_one(job: tuple[int, tuple[Path, Macros]]) -> str:
        number, (source, macros) = job
        is_whole = not in_turn or number in firsts
        # By the bits of the number, which come in no period (Thue and Morse): jobs are in loops of few.
        archs = _ARCHS if is_whole else (_ARCHS[number.bit_count() % len(_ARCHS)],)
        made_for = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
        defined = [f"-D{name}={value}" for name, value in macros.items()]
        target = folder / f"{source.stem}-{number}.fatbin"
        whole = [*command, *made_for, *defined]
        told = hashlib.sha256(b"\0".join([source.read_bytes(), *map(str.encode, whole)])).hexdigest()
        was_fine = store() / f"{source.stem}-{told[:24]}.fine"
        if was_fine.exists():
            return ""
        done = subprocess.run([*whole, "-o", str(target), str(source)], capture_output=True, text=True, check=False)
        if done.returncode == 0 and target.stat().st_size:
            was_fine.touch()
            return ""
        return f"{source.name} with {' '.join(defined)}: {done.stderr}"

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return "\n".join(text for text in pool.map(compile_one, enumerate(given)) if text)
