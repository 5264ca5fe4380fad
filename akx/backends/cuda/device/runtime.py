"""The driver, reached through ``cuda.bindings``: the primary context, and error codes as typed errors.

There is one context, the primary one of the first visible GPU (``CUDA_VISIBLE_DEVICES`` chooses which that is). It is
retained, never created, so that memory is shared with every other library of the process that uses the runtime API. It
is made current for the length of an operation and no longer: the caller's own choice of device is left as it was.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from akx.backends.cuda.device.singleton import Once
from akx.core.errors import DeviceError, DeviceMemoryError, IllegalAddressError, LaunchError, MissingDependencyError

__all__ = [
    "STARTS_EARLY",
    "Runtime",
    "beside_captures",
    "call",
    "cuda_missing",
    "driver",
    "failed",
    "give_back",
    "open_library",
    "pycuda_driver",
    "runtime",
]

_INSTALL = "pip install 'akx[cuda]'"
#: The compute capability from which on a kernel may begin before the one before it has ended.
STARTS_EARLY = (9, 0)
#: Results of the driver that leave the context unusable: every later call fails with the same.
_ADDRESS = (
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
)
_LAUNCH = (
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ASSERT",
)


@lru_cache(maxsize=1)
def driver() -> Any:
    """The module ``cuda.bindings.driver``, initialised. Raises :class:`MissingDependencyError` or DeviceError."""
    try:
        module = import_module("cuda.bindings.driver")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("cuda"):
            raise MissingDependencyError("the CUDA backend is not installed", hint=_INSTALL) from error
        raise MissingDependencyError(
            "the CUDA backend cannot be loaded", found=f"{type(error).__name__}: {error}", hint=_INSTALL
        ) from error
    try:
        (code,) = module.cuInit(0)
    except RuntimeError as error:  # no libcuda
        raise DeviceError("no NVIDIA driver on this machine", found=str(error), hint="use backend='cpu'") from error
    if int(code) != 0:
        raise DeviceError("the NVIDIA driver does not start", found=code.name, hint="see what nvidia-smi says")
    return module


@lru_cache(maxsize=8)
def open_library(name: str, sonames: tuple[str, ...]) -> ctypes.CDLL | None:
    """A shared library, from the wheels of the environment or from the system; None where it is not there.

    `name`: as cuda-pathfinder calls it, e.g. ``"cusparse"``. `sonames`: file names to try where that does not know it.
    """
    try:
        found = import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name)
        return ctypes.CDLL(found.abs_path)
    except Exception:
        pass
    for soname in sonames:
        try:
            return ctypes.CDLL(soname)
        except OSError:
            continue
    return None


@lru_cache(maxsize=1)
def pycuda_driver() -> Any:
    """The module ``pycuda.driver``, initialised, or None where pycuda is not installed or does not load."""
    try:
        module = import_module("pycuda.driver")
        module.init()
    except Exception:
        return None
    return module


def failed(code: Any, doing: str, *, hint: str | None = None) -> DeviceError:
    """The typed error for a result of the driver other than success."""
    name = str(getattr(code, "name", code))
    if name == "CUDA_ERROR_OUT_OF_MEMORY":
        return DeviceMemoryError(f"{doing}: the device is out of memory", found=name, hint=hint)
    if name == "CUDA_ERROR_NOT_INITIALIZED":
        hint = "a forked process cannot use the GPU of its parent: start it with multiprocessing's 'spawn' method"
    if name.startswith("CUDA_ERROR_STREAM_CAPTURE"):
        hint = hint or "a capture is going on: make calls once before it, and end it before other work"
    if name in _ADDRESS:
        return IllegalAddressError(
            f"{doing}: a kernel used an illegal address", found=name, hint="the GPU is lost to this process; restart it"
        )
    if name in _LAUNCH:
        return LaunchError(f"{doing}: a kernel failed", found=name, hint=hint)
    return DeviceError(f"{doing} failed", found=name, hint=hint)


class Runtime:
    """The driver and the primary context of one GPU; ``with runtime():`` makes that context current.

    `driver`: ``cuda.bindings.driver``. `device`, `context`: handles. `starts_early`: whether a kernel may begin before
    the one before it has ended.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self.driver = driver()
        self.ordinal = ordinal
        count = self.call("cuDeviceGetCount", doing="counting GPUs")
        if not 0 <= ordinal < count:
            raise DeviceError("no such GPU", expected=f"0 .. {count - 1}" if count else "a GPU", found=str(ordinal))
        self.device = self.call("cuDeviceGet", ordinal, doing="opening the GPU")
        self.context = self.call("cuDevicePrimaryCtxRetain", self.device, doing="retaining the primary context")
        self._address = int(self.context)
        major = self.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        found = int(self.call("cuDeviceGetAttribute", major, self.device, doing="asking the GPU"))
        self.starts_early = (found, 0) >= STARTS_EARLY

    def call(self, name: str, *arguments: Any, doing: str = "") -> Any:
        """Call a function of the driver by name; its value (a tuple where there are several), or a typed error."""
        code, *values = getattr(self.driver, name)(*arguments)
        if int(code) != 0:
            raise failed(code, doing or name)
        return values[0] if len(values) == 1 else (tuple(values) or None)

    @property
    def is_current(self) -> bool:
        """Whether the primary context is current in this thread."""
        _, current = self.driver.cuCtxGetCurrent()
        return current is not None and int(current) == self._address

    def active(self) -> _Active:
        """A context manager within which the primary context is current in this thread."""
        return _Active(self)


class _Active:
    """Pushes the context where another one is current, and pops it again."""

    __slots__ = ("_pushed", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pushed = False

    def __enter__(self) -> Runtime:
        library = self._runtime.driver
        code, current = library.cuCtxGetCurrent()
        if current is None:
            raise failed(code, "asking for the current context")
        if int(current) != self._runtime._address:
            self._runtime.call("cuCtxPushCurrent", self._runtime.context, doing="making the context current")
            self._pushed = True
        return self._runtime

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            self._runtime.driver.cuCtxPopCurrent()


@Once
def runtime() -> Runtime:
    """The runtime of the GPU that akx works on. Raises :class:`DeviceError` or :class:`MissingDependencyError`."""
    return Runtime(0)


def call(name: str, *arguments: Any, doing: str = "") -> Any:
    """Call a function of the driver by name where the context is current; see :meth:`Runtime.call`."""
    with runtime().active() as live:
        return live.call(name, *arguments, doing=doing)


@contextlib.contextmanager
def beside_captures() -> Iterator[None]:
    """Within, this thread may make, wait for and give back what it likes while graphs are recorded, and spoils none."""
    live = runtime()
    mode = live.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = live.call("cuThreadExchangeStreamCaptureMode", mode, doing="letting others record")
    try:
        yield
    finally:
        live.call("cuThreadExchangeStreamCaptureMode", before, doing="letting others record")


def give_back(name: str, made: Any, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
    """Give back what the driver made, by its function of this name; what fails is nobody's matter any more.

    For ``__del__``, which may run while Python ends and names of modules are gone: the driver frees all then.
    """
    if is_ending() or not runtime.is_made:
        return
    try:
        with runtime().active() as live, beside_captures():  # it may run in the midst of one
            getattr(live.driver, name)(made)
    except Exception:
        return


@lru_cache(maxsize=1)
def cuda_missing() -> str | None:
    """None where the GPU backend can work here, else one line that says why not."""
    try:
        runtime()
    except (DeviceError, MissingDependencyError) as error:
        return str(error)
    return None
