"""What is installed, what is missing and how to get it, and what akx sees of this machine: for ``akx doctor``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.core.errors import AkxError
from akx.core.numba_jit import check_numba, code_folder, is_writable
from akx.report.comparison.mkl import mkl_missing, mkl_version
from akx.report.units import counted, size

if TYPE_CHECKING:
    from akx.plandb import PlanDatabase, ShippedPlans

__all__ = ["Check", "inspect_environment"]

_OLDEST_PYTHON = (3, 11)
#: What numerical libraries take their number of threads from.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: Below these, searches and solves may fail.
_LEAST_FILES, _LEAST_MEMORY = 64, 4 << 30
_REQUIRED = ("numpy", "scipy", "numba", "pymetis", "optuna", "platformdirs", "typer", "rich")
#: module -> (distribution, extra, what it is for)
_OPTIONAL = {
    "mtkahypar": ("mtkahypar", "hypergraph", "hypergraph partitions"),
    "matplotlib": ("matplotlib", "plot", "figures"),
    "psycopg": ("psycopg", "postgres", "plans on a server"),
}
_GPU = {
    "pycuda": ("pycuda", "cuda", "the GPU backend"),
    "cuda.bindings": ("cuda-bindings", "cuda", "the GPU backend"),
}


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes
    ----------
    name : str
        What.
    state : str
        ``"ok"``, ``"missing"`` (optional and not there) or ``"problem"`` (akx cannot work, or works worse).
    found : str
        What was found.
    hint : str
        What to do about it; empty where nothing.
    """

    name: str
    state: str
    found: str
    hint: str = ""

    def to_json(self) -> dict[str, str]:
        """A dict of JSON types."""
        return {"name": self.name, "state": self.state, "found": self.found, "hint": self.hint}


def inspect_environment(db: str | None = None) -> dict[str, list[Check]]:
    """All checks by group, those of python first; none raises, whatever the environment is like.

    Parameters
    ----------
    db : str, optional
        The plan database to look at; by default that of the environment.
    """
    looks: dict[str, list[tuple[str, Callable[[], Iterable[Check]]]]] = {
        "caches": [("compiled code", _compiled_code)],  # first: most of what follows needs it
        "python": [("python", lambda: [_python(), _akx()])],
        "environment": [("variables", _variables), ("folders", _folders), ("limits", _limits)],
        "packages": [(name, partial(_required, name)) for name in _REQUIRED],
        "optional": [
            ("mkl", lambda: [_mkl()]),
            *((about[0], partial(_optional, module, *about)) for module, about in _OPTIONAL.items()),
        ],
        "gpu": [
            ("nvidia driver", lambda: [_driver()]),
            *((about[0], partial(_optional, module, *about)) for module, about in _GPU.items()),
            ("gpu", _gpu),
            ("gpu memory", _gpu_memory),
            ("backends", lambda: [_backends()]),
        ],
        "machine": [("machine", _machine), ("calibration", _calibrations)],
        "database": [("plans", lambda: _database(db))],
    }
    told: set[str] = set()
    found = {
        title: [check for name, look in group for check in _safely(name, look, told)] for title, group in looks.items()
    }
    order = ("python", "environment", "packages", "optional", "gpu", "machine", "caches", "database")
    return {title: found[title] for title in order if found[title]}


def _safely(name: str, look: Callable[[], Iterable[Check]], told: set[str]) -> list[Check]:
    """What a look finds. Where it fails that is the finding: once, as many may fail for the same reason."""
    checks: list[Check] = []
    try:
        checks.extend(look())
    except Exception as error:
        if str(error) in told:
            return checks
        told.add(str(error))
        if isinstance(error, AkxError):
            parts = (
                error.what,
                error.expected and f"expected {error.expected}",
                error.found and f"found {error.found}",
            )
            checks.append(Check(name, "problem", ", ".join(part for part in parts if part), error.hint or ""))
        else:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            checks.append(Check(name, "problem", text, "correct what it names, or report it"))
    return checks


def _python() -> Check:
    text = f"{platform.python_version()} ({platform.python_implementation()}, {platform.platform()})"
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Check("python", "problem", text, "install Python 3.11 or newer")
    return Check("python", "ok", text)


def _akx() -> Check:
    import akx

    return Check("akx", "ok", f"{akx.__version__} in {Path(akx.__file__).resolve().parent}")


def _variables() -> Iterator[Check]:
    """Variables that say something odd, besides those that other looks are for."""
    for name in _THREAD_VARIABLES:
        text = os.environ.get(name, "").strip()
        if text and not all(part.strip().isdecimal() and int(part) > 0 for part in text.split(",")):
            hint = f"set {name} to 1 or more, or unset it"
            yield Check(name, "problem", f"{text[:60]!r} is no number of threads, and libraries pass over it", hint)
    if any(option.startswith("e") for option in sys.warnoptions):
        yield Check("warnings", "ok", "are errors in Python, as PYTHONWARNINGS or -W says; in commands they are not")
    for stream in (sys.stdout, sys.stderr):
        encoding = str(getattr(stream, "encoding", None) or "utf-8")
        if not encoding.lower().startswith("utf"):
            found = f"{encoding} of the terminal, or of PYTHONIOENCODING: characters that it lacks are escaped"
            yield Check("encoding", "ok", found, "set PYTHONIOENCODING=utf-8 to see them")
            return


def _folders() -> Iterator[Check]:
    """The current directory and that of temporary files."""
    try:
        os.getcwd()
    except OSError:
        yield Check("current directory", "problem", "is not there any more", "change to one that is there")
    asked = os.environ.get("TMPDIR", "").strip()
    try:
        used = tempfile.gettempdir()
    except OSError as error:
        yield Check("temporary files", "problem", str(error), "point TMPDIR at a folder you can write to")
        return
    if asked and os.path.realpath(asked) != os.path.realpath(used):
        hint = "point TMPDIR at a folder you can write to, or unset it"
        yield Check("temporary files", "problem", f"TMPDIR={asked} cannot be used, and {used} is", hint)
    else:
        yield Check("temporary files", "ok", f"in {used}")


def _limits() -> Iterator[Check]:
    """Limits of this process that are so low that work may fail."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= files < _LEAST_FILES:
        yield Check("open files", "problem", f"at most {files}", f"ulimit -n {_LEAST_FILES}, or more")
    memory = resource.getrlimit(resource.RLIMIT_AS)[0]
    if memory != resource.RLIM_INFINITY:
        state, hint = ("problem", "ulimit -v unlimited") if memory < _LEAST_MEMORY else ("ok", "")
        yield Check("address space", state, f"at most {size(memory)}", hint)


def _required(name: str) -> Iterator[Check]:
    if name == "numba":  # it may not be imported where it cannot work: "compiled code" says so
        try:
            check_numba()
        except AkxError:
            yield Check(name, "ok", _version(name))
            return
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            import_module(name)
        except Exception as error:
            text = f"cannot be imported: {' '.join(str(error).split())}"
            yield Check(name, "problem", text, f"pip install --upgrade {name}")
            return
    yield Check(name, "ok", _version(name))
    for told in {str(one.message).partition("\n")[0] for one in heard if "nvironment variable" in str(one.message)}:
        yield Check(name, "problem", told, "correct it, or unset it")


def _optional(module: str, distribution: str, extra: str, purpose: str) -> Iterator[Check]:
    try:
        import_module(module)
    except ModuleNotFoundError:
        yield Check(distribution, "missing", f"for {purpose}", f"pip install 'akx[{extra}]'")
    except Exception as error:  # an extension module may fail in any way while it loads its libraries
        text = f"installed, but cannot be imported: {type(error).__name__}: {error}"
        yield Check(distribution, "missing", text, f"pip install --upgrade --force-reinstall {distribution}")
    else:
        yield Check(distribution, "ok", _version(distribution))


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "version unknown"


def _mkl() -> Check:
    hint = mkl_missing()
    if hint is not None:
        return Check("mkl", "missing", "for `akx bench`, to compare with", hint)
    return Check("mkl", "ok", mkl_version() or "version unknown")


def _driver() -> Check:
    """The NVIDIA driver, asked through its own library: no CUDA package is needed for that."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        devices = ctypes.c_int(0)
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(devices)) == 0 and devices.value:
            return Check("nvidia driver", "ok", counted(devices.value, "GPU"))
        return Check("nvidia driver", "missing", "installed, but it sees no GPU", "see what nvidia-smi says")
    return Check("nvidia driver", "missing", "no NVIDIA driver on this machine; the CPU backend needs none")


def _backends() -> Check:
    from akx.backends.registry import backends
    from akx.backends.selection import is_usable

    usable = [name for name in backends() if is_usable(name)]
    lacking = [name for name in backends() if name not in usable]
    return Check(
        "backends", "ok", ", ".join(usable) + (f" (not on this machine: {', '.join(lacking)})" if lacking else "")
    )


def _gpu() -> Iterator[Check]:
    """The GPU that akx would use, its compiler, and what `akx bench` compares with."""
    from akx.backends.cuda.device.compile import compiler_name, store_folder
    from akx.backends.cuda.device.facts import cuda_device, cuda_missing
    from akx.report.comparison.cusparse import cusparse_missing, cusparse_version

    reason = cuda_missing()
    if reason is not None:
        yield Check("gpu", "missing", f"cannot be used: {reason}")
    else:
        device = cuda_device()
        memory = f"{size(device.memory_bytes)} of memory, L2 {size(device.l2_bytes)}"
        shared = f"{size(device.shared_per_block)} of shared memory per block"
        yield Check("gpu", "ok", f"{device.name}, {device.arch}, {device.sms} multiprocessors, {memory}, {shared}")
    compiler = compiler_name()
    if compiler is None:
        yield Check("cuda compiler", "missing", "neither NVRTC nor nvcc", "pip install 'cuda-bindings[all]'")
    else:
        yield Check("cuda compiler", "ok", f"{compiler}; machine code is kept in {store_folder()}")
    hint = cusparse_missing()
    if hint is not None:
        yield Check("cusparse", "missing", "for `akx bench`, to compare with", hint)
    else:
        yield Check("cusparse", "ok", cusparse_version() or "version unknown")


def _gpu_memory() -> Iterator[Check]:
    """What variables say about the GPU's memory, where they say anything."""
    from akx.backends.cuda.device.pool import memory_pool

    given = [name for name in ("AKX_GPU_MEMORY", "AKX_GPU_POOL") if os.environ.get(name, "").strip()]
    if not given:
        return
    try:
        pool = memory_pool()
    except AkxError as error:
        found = f"{error.what}, expected {error.expected}, found {error.found}"
        yield Check("gpu memory", "problem", found, error.hint or f"unset {' and '.join(given)}")
        return
    most = "all there is" if pool.budget is None else f"at most {size(pool.budget)}"
    yield Check("gpu memory", "ok", f"{most}{', nothing kept for later' * pool.exact} (from {', '.join(given)})")


def _machine() -> Iterator[Check]:
    from akx.backends.cpu.device import default_threads, host_device

    device = host_device()
    there = os.cpu_count() or device.cores
    fewer = f" of {there}, by its affinity or a quota of its control group" if device.cores < there else ""
    cores = counted(device.cores, "core")
    yield Check("processor", "ok", f"{device.name}, {cores} for this process{fewer}")
    caches = (("L1", device.l1_bytes), ("L2", device.l2_bytes), ("L3", device.l3_bytes))
    yield Check("cpu caches", "ok", ", ".join(f"{name} {size(nbytes)}" for name, nbytes in caches))
    try:
        threads = default_threads()
    except AkxError as error:
        found = f"{error.what}, expected {error.expected}, found {error.found}"
        yield Check("threads", "problem", found, error.hint or "")
        return
    source = "NUMBA_NUM_THREADS" if os.environ.get("NUMBA_NUM_THREADS", "").strip() else "cores"
    yield Check("threads", "ok", f"{threads} by default (from {source}); --threads overrides")


def _calibrations() -> Iterator[Check]:
    """What predictions go by, for every device that akx can use."""
    from akx.backends.registry import backends
    from akx.backends.selection import backend_of, device_of, is_usable
    from akx.plandb.key import of_other_kernels
    from akx.tuner.model.calibration import best_figures, find_calibration

    for backend in backends():
        if not is_usable(backend):
            continue
        device, linked = device_of(backend), backend_of(backend).has_own_memory
        name, found = f"{backend} calibration", find_calibration(device.device_class)
        if found is None:
            text = "untuned calls choose plans by guessed figures"
            with contextlib.suppress(AkxError):  # what keeps it from being measured is told by another check
                rate = best_figures(device, device.cores).slow_bandwidth
                text = f"memory reads {rate / 1e9:.1f} GB/s, measured now; {text}"
            yield Check(name, "missing", text, "akx doctor --calibrate")
            continue
        kept, path = found
        of = kept.all_threads
        known = not linked or of.link_bandwidth > 0  # an older akx could not measure a GPU's caches and link
        caches = (of.last_level_bandwidth, of.cache_bandwidth) if known else _assumed_caches(device, kept)
        marks = ("", "", "") if known else ("", " (assumed)", " (assumed)")
        rates = zip((of.slow_bandwidth, *caches), marks, strict=True)
        text = "/".join(f"{rate / 1e9:.0f}{mark}" for rate, mark in rates)
        text += " GB/s from memory, last-level and nearer caches"
        if linked:
            text += f"; {1e6 * of.synchronisation:.2f} us a kernel in a graph, {1e6 * of.barrier:.2f} us an exchange"
            if known:
                one_way = f"{of.link_one_way / 1e9:.0f} GB/s from or to the host, " if of.link_one_way else ""
                text += f"; {one_way}{of.link_bandwidth / 1e9:.0f} GB/s both directions together"
        if of.formats:
            fastest = min(of.formats, key=lambda variant: of.formats[variant].slot)
            text += f"; {1e9 * of.formats['csr'].slot:.2f} ns for an entry of csr, " if "csr" in of.formats else "; "
            text += f"{1e9 * of.formats[fastest].slot:.2f} ns of {fastest}"
        old = of_other_kernels(backend, kept.kernel_hash)
        hint = "of other kernels than these: akx doctor --calibrate" if old and of.formats else ""
        hint = hint if known else "of an akx that did not measure caches: akx doctor --calibrate"
        yield Check(name, "ok", f"{text} ({kept.created[:10]}, {path})", hint)


def _assumed_caches(device: Any, kept: Any) -> tuple[float, float]:
    """What predictions take for the last-level and nearer caches of a GPU whose calibration does not know them."""
    from akx.tuner.model.calibration import figures_of

    figures = figures_of(device, kept.threads)
    return figures.last_level_bandwidth, figures.cache_bandwidth


def _compiled_code() -> Iterator[Check]:
    """Whether Numba can compile here, and where it keeps what it compiles."""
    import akx

    name, asked = "compiled code", os.environ.get("NUMBA_CACHE_DIR")
    with contextlib.suppress(AkxError):
        check_numba()  # may choose a folder
    chosen, sources = code_folder(), Path(akx.__file__).resolve().parent
    if asked and not is_writable(Path(asked)):
        hint = "point NUMBA_CACHE_DIR at a folder you can write to"
        yield Check(name, "problem", f"{asked} is not writable", hint)
    elif chosen is not None and not asked:
        found = f"kept in {chosen}, as neither {sources} nor the user's cache folder is writable"
        yield Check(name, "ok", found, "set NUMBA_CACHE_DIR to keep it elsewhere")
    elif chosen is not None:
        yield Check(name, "ok", f"kept in {chosen}")
    elif is_writable(sources):
        yield Check(name, "ok", f"kept in {sources} (__pycache__ folders)")
    else:
        yield Check(name, "ok", f"{sources} is not writable: Numba keeps it in the user's cache folder instead")
    check_numba()  # its failure is what is to be told


def _database(db: str | None) -> Iterator[Check]:
    """The user's plans, then the layers around them in the order of a lookup."""
    from akx.plandb import PlanDatabase, project_plans, shipped_plans, system_plans
    from akx.plandb.places import PROJECT_VARIABLE, SYSTEM_VARIABLE

    name = "plans"
    try:
        with PlanDatabase(db) as database:
            yield _user_plans(name, database)
    except AkxError as error:
        found = error.what if error.found is None else f"{error.what}: {error.found}"
        yield Check(name, "problem", found, error.hint or "")
    yield from _layers("project plans", PROJECT_VARIABLE, project_plans(), "no .akx/plans here or above")
    yield from _layers("system plans", SYSTEM_VARIABLE, system_plans(), "no place for them on this system")
    shipped = shipped_plans()
    total, problems = len(shipped.records()), shipped.problems
    if problems:
        yield Check("shipped plans", "problem", f"{counted(total, 'plan')}; {'; '.join(problems)}", "install akx again")
    else:
        yield Check("shipped plans", "ok", f"{counted(total, 'plan')} in {shipped.directory}")


def _layers(name: str, variable: str, layers: Sequence[ShippedPlans], none: str) -> Iterator[Check]:
    """The layers of a project or of the system: one line for each that is there, or one that says that none is."""
    given = os.environ.get(variable)
    if given is not None and not given.strip():
        yield Check(name, "ok", f"turned off: {variable} is empty")
        return
    there = [layer for layer in layers if os.path.isdir(layer.directory) or layer.problems]
    for layer in there:
        found = f"{counted(len(layer.records()), 'plan')} in {layer.directory}"
        if layer.problems:
            hint = "correct or remove these files; the others are used"
            yield Check(name, "problem", f"{found}; {'; '.join(layer.problems)}", hint)
        else:
            yield Check(name, "ok", found)
    if there:
        return
    if given is not None:
        yield Check(name, "problem", f"{layers[0].directory} is not there", f"make it, or unset {variable}")
    else:
        yield Check(name, "ok", f"none: {', '.join(str(layer.directory) for layer in layers) or none}")


def _user_plans(name: str, database: PlanDatabase) -> Check:
    from akx.plandb.layers import USER

    path = database.path
    if database.exists():
        where = size(path.stat().st_size) if isinstance(path, Path) else database.describe()[1]
        timings = sum(layer == USER for layer, _ in database.timings())
        timed = f", {counted(timings, 'timing')} of solvers" if timings else ""
        return Check(name, "ok", f"{path}: {counted(len(database.list()), 'plan')}{timed}, {where}")
    if not isinstance(path, Path):
        if database.is_writable():
            return Check(name, "ok", f"{path}: no tables yet, the first `akx tune` makes them")
        return Check(name, "problem", f"{path}: no tables, and no right to make them", "ask for CREATE on the schema")
    folder = next(parent for parent in path.parents if parent.exists())
    if is_writable(folder):
        return Check(name, "ok", f"{path}: not there yet, the first `akx tune` makes it")
    hint = "pass --db PATH or set AKX_DB to a file in a writable directory"
    return Check(name, "problem", f"{path}: cannot be made, {folder} is not writable", hint)
