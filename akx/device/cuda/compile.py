"""From a CUDA source and its macros to a loaded module: NVRTC first, nvcc where that is missing, a store on disk.

NVRTC compiles a small kernel in a few hundredths of a second where nvcc takes seconds, which decides how many
candidates a tuner can try. A cubin is kept under a key of everything that it depends on: the source and every ``.cuh``
beside it, the options, the architecture, and the version of the compiler's bindings: to ask the compiler for its own is
to load it, which takes longer than a first product. Files are written in one step; a store that cannot be written is
done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from akx._files import read_sealed, write_sealed
from akx._process import user_folder
from akx.device.cuda.facts import CudaDevice
from akx.device.cuda.launch import Module
from akx.errors import CompileError, MissingDependencyError

__all__ = ["compile_cubin", "compiler_name", "load", "options_for", "store_folder"]

_STANDARD = ("-std=c++17",)
#: Modules by source, options and architecture: a source is read once in a process, since reading and hashing all that a
#: module depends on takes half a millisecond, longer than most kernels.
_modules: dict[tuple[Path, tuple[str, ...], str], Module] = {}


def load(source: Path, macros: Mapping[str, int | str], *, device: CudaDevice, options: Sequence[str] = ()) -> Module:
    """The module made from `source` with `macros` defined, for `device`; the same object for the same arguments.

    Parameters
    ----------
    source : Path
        A ``.cu`` file. ``.cuh`` files beside it can be included by name; ``nvcc``'s headers should not be.
    macros : mapping of str to int or str
        Defined as ``-Dname=value``.
    device : CudaDevice
        Decides the architecture.
    options : sequence of str
        Further options that NVRTC and nvcc both know, such as ``"-maxrregcount=64"``.

    Raises
    ------
    CompileError
        With the compiler's log.
    MissingDependencyError
        Where there is neither NVRTC nor nvcc.
    """
    arguments = options_for(macros, options)
    found = _modules.get((source, arguments, device.arch))
    if found is None:
        kept = store_folder() / f"{_key(source, arguments, device.arch)}.kernel"
        cubin = read_sealed(kept)
        if cubin is None:
            cubin = compile_cubin(source, arguments, device.arch)
            with contextlib.suppress(OSError):
                write_sealed(kept, cubin)
        found = _modules[source, arguments, device.arch] = Module(cubin, source.name)
    return found


def options_for(macros: Mapping[str, int | str], options: Sequence[str] = ()) -> tuple[str, ...]:
    """The options of the compiler, in a fixed order."""
    return (*_STANDARD, *options, *(f"-D{name}={value}" for name, value in sorted(macros.items())))


def compile_cubin(source: Path, arguments: Sequence[str], arch: str) -> bytes:
    """Machine code for `arch`, e.g. ``"sm_90"``; nothing is looked up or kept, and no GPU is needed."""
    library = _nvrtc()
    if library is not None:
        return _by_nvrtc(library, source, arguments, arch)
    compiler = _nvcc()
    if compiler is None:
        raise MissingDependencyError(
            "no CUDA compiler: neither NVRTC nor nvcc",
            hint="pip install 'cuda-bindings[all]', or install the CUDA toolkit",
        )
    return _by_nvcc(compiler, source, arguments, arch)


@lru_cache(maxsize=1)
def compiler_name() -> str | None:
    """The compiler with its version, e.g. ``"NVRTC 13.0"``; None where there is none."""
    library = _nvrtc()
    if library is not None:
        _, major, minor = library.nvrtcVersion()
        return f"NVRTC {major}.{minor}"
    compiler = _nvcc()
    if compiler is None:
        return None
    text = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    release = next((line for line in text.splitlines() if "release" in line), "release unknown")
    return "nvcc " + release.split("release")[-1].split(",")[0].strip()


def store_folder() -> Path:
    """Where cubins are kept: ``AKX_CUBIN_DIR``, else the user's cache folder."""
    chosen = os.environ.get("AKX_CUBIN_DIR")
    if chosen:
        return Path(chosen)
    return user_folder("cache") / "cubin"


def _key(source: Path, arguments: Sequence[str], arch: str) -> str:
    digest = hashlib.sha256()
    bindings = getattr(sys.modules.get("cuda.bindings"), "__version__", "none")
    parts = [arch, str(bindings), *arguments]
    for part in parts:
        digest.update(part.encode() + b"\0")
    for path in _texts(source, arguments):
        about = path.stat()
        digest.update(path.name.encode() + b"\0" + _digest_of(path, about.st_size, about.st_mtime_ns))
    return digest.hexdigest()[:40]


@lru_cache(maxsize=256)
def _digest_of(path: Path, size: int, time: int) -> bytes:
    """Of a text, which most sources include: read once while it is as it was."""
    return hashlib.sha256(path.read_bytes()).digest()


def _texts(source: Path, arguments: Sequence[str]) -> Iterator[Path]:
    yield source
    for folder in (source.parent, *(Path(one[2:]) for one in arguments if one.startswith("-I"))):
        yield from sorted(folder.glob("*.cuh"))


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    try:
        module = import_module("cuda.bindings.nvrtc")
        return module if int(module.nvrtcVersion()[0]) == 0 else None
    except Exception:  # the library may be missing though the bindings are there
        return None


def _nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    beside = Path(home) / "bin" / "nvcc"
    return shutil.which("nvcc") or (str(beside) if beside.is_file() else None)


def _by_nvrtc(library: Any, source: Path, arguments: Sequence[str], arch: str) -> bytes:
    code, program = library.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], [])
    _check(library, code, source, "")
    given = [f"-arch={arch}", f"-I{source.parent}", *arguments]
    try:
        (code,) = library.nvrtcCompileProgram(program, len(given), [option.encode() for option in given])
        log = _read(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode(errors="replace")
        _check(library, code, source, log)
        return _read(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(program)


def _read(size: Any, get: Any, program: Any) -> bytes:
    _, length = size(program)
    text = bytes(int(length) + 8)  # written in place, so it must not be one of the short ones that Python shares
    get(program, text)
    return text[: int(length)]


def _check(library: Any, code: Any, source: Path, log: str) -> None:
    if int(code) != 0:
        raise CompileError(f"{source.name} does not compile: {code.name}", found=log.strip("\0 \n") or "no log")


def _by_nvcc(compiler: str, source: Path, arguments: Sequence[str], arch: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="akx-nvcc-") as folder:
        target = Path(folder) / "kernel.cubin"
        command = [compiler, "-cubin", f"-arch={arch}", *arguments, "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{source.name} does not compile", found=(done.stderr or done.stdout).strip())
        return target.read_bytes()
