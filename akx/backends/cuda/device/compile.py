"""From a CUDA source and its macros to a loaded module: NVRTC first, nvcc where that is missing, a store on disk.

NVRTC compiles a small kernel in a few hundredths of a second where nvcc takes seconds, which decides how many
candidates a tuner can try. A cubin is kept under a key of everything that it depends on: the source, every ``.cuh``
beside it and of akx, the options, the architecture, and the version of the compiler's bindings: to ask the compiler for
its own is to load it, which takes longer than a first product. Files are written in one step, and those used longest
ago go where the store has grown too large; a store that cannot be written is done without.

A first call on a fresh machine needs several modules. What it is going to load is begun together (:func:`begin`), each
in a thread of its own. NVRTC has a lock around nearly all of a compilation, but newer releases, and in older ones a
second library beside it (``libnvrtc.alt``) that makes the same code with the system's allocator, and is preferred.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.launch import Module
from akx.backends.cuda.device.runtime import open_library
from akx.backends.cuda.device.singleton import Once
from akx.core.atomic_files import read_sealed, write_sealed
from akx.core.disk_cache import DiskCache, used
from akx.core.errors import CompileError, MissingDependencyError
from akx.core.process import user_folder

__all__ = ["ROOT", "STORE", "begin", "compile_cubin", "compiler_name", "load", "options_for", "store_folder"]

#: What the includes of akx's own sources are relative to.
ROOT = Path(__file__).parents[1]
_Named = tuple[Path, tuple[str, ...], str]
_STANDARD = ("-std=c++17",)
#: Modules by source, options and architecture: a source is read once in a process, since reading and hashing all that a
#: module depends on takes half a millisecond, longer than most kernels.
_modules: dict[_Named, Module] = {}
#: Those that were begun, until they are loaded.
_coming: dict[_Named, _Coming] = {}
#: The one that imported this.
_PROCESS = os.getpid()
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def load(source: Path, macros: Mapping[str, int | str], *, device: CudaDevice, options: Sequence[str] = ()) -> Module:
    """The module made from `source` with `macros` defined, for `device`; the same object for the same arguments.

    Parameters
    ----------
    source : Path
        A ``.cu`` file. It can include ``.cuh`` files beside it by name, and akx's by their path below :data:`ROOT`;
        ``nvcc``'s headers it should not.
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
    named = source, options_for(macros, options), device.arch
    found = _modules.get(named)
    if found is None:
        coming = _coming.get(named) or _Coming(named)
        found = _modules[named] = Module(coming.result(), source.name)
        _coming.pop(named, None)
    return found


def begin(wanted: Iterable[tuple[Path, Mapping[str, int | str]]], *, device: CudaDevice) -> None:
    """Get ready, beside the caller, sources with macros that are going to be loaded; :func:`load` waits for them.

    What cannot be compiled is no error here, but where it is loaded.
    """
    if os.getpid() != _PROCESS:  # a forked child cannot use the GPU, and may have NVRTC's lock from another thread
        return
    for source, macros in wanted:
        named = source, options_for(macros), device.arch
        if named not in _modules and named not in _coming:
            coming = _Coming(named)
            coming.begin()  # before others see it: what has not started cannot be waited for
            _coming[named] = coming


class _Coming(threading.Thread):
    """Machine code from the store, or compiled here or in this thread. The interpreter waits for it at its end."""

    def __init__(self, named: _Named) -> None:
        super().__init__(name="akx-nvrtc", daemon=False)
        self._named = named
        self._kept = store_folder() / f"{_key(*named)}.kernel"
        self._cubin = read_sealed(self._kept)
        if self._cubin is not None:
            used(self._kept)

    def begin(self) -> None:
        """Compile it in the thread, unless it is there; where no thread can be had, it is made when it is asked for."""
        if self._cubin is None:
            with contextlib.suppress(RuntimeError):
                self.start()

    def run(self) -> None:
        with contextlib.suppress(Exception):  # who loads it compiles it again, and is told
            self._compile()

    def result(self) -> bytes:
        """Wait for it, or make it: in a forked child too, which has no such thread."""
        if self.ident is not None:
            self.join()
        return self._compile() if self._cubin is None else self._cubin

    def _compile(self) -> bytes:
        self._cubin = found = compile_cubin(*self._named)
        with contextlib.suppress(OSError):
            write_sealed(self._kept, found)
            STORE.make_room()
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
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"NVRTC {major.value}.{minor.value}"
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


#: What the compiler has made; it makes again what is gone.
STORE = DiskCache("machine code of the GPU", lambda: [store_folder()], ("kernel",), 256 << 20)


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
        if not folder.is_relative_to(ROOT):
            yield from sorted(folder.glob("*.cuh"))
    yield from _own_headers()


@lru_cache(maxsize=1)
def _own_headers() -> tuple[Path, ...]:
    return tuple(sorted(ROOT.rglob("*.cuh")))


@Once
def _nvrtc() -> ctypes.CDLL | None:
    """NVRTC; the one of two that compiles in several threads at a time, where there are two."""
    found = open_library("nvrtc", _SONAMES)
    if found is None:  # early bindings find it by themselves
        with contextlib.suppress(Exception):
            import_module("cuda.bindings.nvrtc").nvrtcVersion()
            found = next(filter(None, map(_opened, _SONAMES)), None)
    if found is None:
        return None
    path = Path(found._name)
    name, _, ending = path.name.partition(".")
    return _opened(str(path.with_name(f"{name}.alt.{ending}"))) or found


def _opened(name: str) -> ctypes.CDLL | None:
    with contextlib.suppress(OSError):
        return ctypes.CDLL(name)
    return None


def _nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    beside = Path(home) / "bin" / "nvcc"
    return shutil.which("nvcc") or (str(beside) if beside.is_file() else None)


def _by_nvrtc(library: ctypes.CDLL, source: Path, arguments: Sequence[str], arch: str) -> bytes:
    program, given = ctypes.c_void_p(), [f"-arch={arch}", f"-I{source.parent}", *arguments, f"-I{ROOT}"]
    options = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
    named = source.read_bytes(), source.name.encode()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), *named, 0, None, None), source, "")
    try:
        code = library.nvrtcCompileProgram(program, len(given), options)
        log = _read(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode(errors="replace")
        _check(library, code, source, log)
        return _read(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(size: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    length = ctypes.c_size_t()
    size(program, ctypes.byref(length))
    text = ctypes.create_string_buffer(length.value + 1)
    get(program, text)
    return text.raw[: length.value]


def _check(library: ctypes.CDLL, code: int, source: Path, log: str) -> None:
    if code != 0:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        name = library.nvrtcGetErrorString(code).decode()
        raise CompileError(f"{source.name} does not compile: {name}", found=log.strip("\0 \n") or "no log")


def _by_nvcc(compiler: str, source: Path, arguments: Sequence[str], arch: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="akx-nvcc-") as folder:
        target = Path(folder) / "kernel.cubin"
        command = [compiler, "-cubin", f"-arch={arch}", *arguments, f"-I{ROOT}", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{source.name} does not compile", found=(done.stderr or done.stdout).strip())
        return target.read_bytes()
