"""The backend ``cuda``: NVIDIA GPUs. Nothing here needs one, nor a driver, before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.base import Backend, TrialVectors
from akx.backends.cuda.device import facts, runtime
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.program import PlainProducts
from akx.backends.vectors import Vectors

if TYPE_CHECKING:
    from akx.backends.variant import AnyVariant, VariantTraits
    from akx.core.disk_cache import DiskCache
    from akx.cost.device_model import Figures

__all__ = ["BACKEND", "CudaBackend"]

_LEAST_COPY = 256 * 1024 * 1024


def _late(module: str, name: str) -> Any:
    """A method of the backend that is a function of one of its modules, imported when it is called."""

    def call(self: Backend, *given: Any, **more: Any) -> Any:
        return getattr(import_module(f"{__package__}.{module}"), name)(*given, **more)

    return call


class CudaBackend(Backend):
    """See the module."""

    name = "cuda"
    is_automatic = True
    has_own_memory = True
    keeps_budgets = True
    may_crash = True
    places = 3
    compiles_ahead = True
    tuning_seconds = 60.0
    compilers = ("cuda-bindings",)
    packages = ("pycuda", "cuda-bindings")
    narrowed = ("float64", "complex128")
    extra = "cuda"
    modules = MappingProxyType({"pycuda": "pycuda", "cuda.bindings": "cuda-bindings"})
    has_baselines = True
    loading_seconds = 2.0
    solver_steps = 8
    single_bytes, single_solvers = 256 << 20, ("cg", "gmres")
    #: A launch is dear, and more steps pay.
    steps_to_try = MappingProxyType({"ca_cg": (4, 6, 8, 12)})
    takes_arrays = True
    queues = True
    #: With fewer, the host may be done before kernels are compiled and plans are laid out.
    solving_entries = 1_000_000
    inverse_entries = 100_000

    clock_hz = _late("device.clocks", "gpu_clock_hz")
    to_device = _late("device.memory", "to_device")
    empty = _late("device.memory", "empty")
    synchronize = _late("device.streams", "synchronize")
    all_finite = _late("value_compression.new_values", "all_finite")
    finite_watch = _late("value_compression.new_values", "FiniteWatch")
    free_bytes = _late("timing", "free_bytes")
    watch = _late("device.clocks", "ClockWatch")
    #: On the device, where the matrix is large and has not been looked at.
    looked_at = _late("matrix.features", "copied")
    remember = _late("matrix.features", "remember")
    link_rates = _late("cost.rates", "link_rates")
    scaling = _late("preconditioners.scaling", "Scaling")
    baselines = _late("baselines.calls", "calls")
    baseline_notes = _late("baselines.calls", "notes")

    def missing(self) -> str | None:
        return runtime.cuda_missing()

    def device(self) -> CudaDevice:
        return facts.cuda_device()

    def device_similarity(self, one: str, other: str) -> float | None:
        from akx.backends import device_similarity

        return device_similarity.of_gpus(one, other)

    def to_host(self, values: Any) -> NDArray[Any]:
        found: NDArray[Any] = values.get()
        return found

    def trim(self) -> None:
        from akx.backends.cuda.device.pool import memory_pool

        if memory_pool.is_made:
            memory_pool().trim()

    def memory_pool(self) -> Any:
        from akx.backends.cuda.device.pool import memory_pool

        return memory_pool()

    def interchange(self) -> Any:
        from akx.backends.cuda.device import interchange

        return interchange

    def caller_arrays(self) -> Any:
        from akx.backends.cuda import caller_arrays

        return caller_arrays

    def canonical(self) -> Any:
        from akx.backends.cuda.matrix import canonical

        return canonical

    def baseline_libraries(self) -> dict[str, tuple[str | None, str | None]]:
        from akx.backends.cuda.baselines.cusparse import cusparse_missing, cusparse_version

        return {"cusparse": (cusparse_missing(), cusparse_version())}

    def compiler(self) -> tuple[str, str] | None:
        from akx.backends.cuda.device.compile import compiler_name, store_folder

        name = compiler_name()
        return None if name is None else (name, str(store_folder()))

    def code_cache(self) -> DiskCache:
        from akx.backends.cuda.device.compile import STORE

        return STORE

    def is_memory_limited(self) -> bool:
        from akx.backends.cuda.device.pool import memory_pool

        return memory_pool().budget is not None

    def trial_vectors(self, problem: Any, *, hosted: bool = False) -> TrialVectors:
        from akx.backends.cuda.timing import DeviceProblem, HostProblem

        return HostProblem(problem) if hosted else DeviceProblem(problem)

    def call(
        self, program: Any, x: NDArray[Any], out: NDArray[Any], coefficients: Any, *, hosted: bool = False
    ) -> Callable[[], object]:
        from akx.backends.cuda.timing import DeviceCall, HostCall

        if hosted:
            return HostCall(program, x, out, coefficients)
        return DeviceCall.of(program, self.to_device(x), self.to_device(out), coefficients)

    def variants(self) -> Mapping[str, VariantTraits]:
        from akx.backends.cuda.schedules.sweep.options import VARIANTS
        from akx.backends.variant import VariantTraits

        return dict.fromkeys(VARIANTS, VariantTraits())

    def variant_type(self) -> type[AnyVariant]:
        from akx.backends.cuda.variants.outside import CudaVariant

        return CudaVariant

    def told_by_values(self, matrix: Any, device: Any = None) -> tuple[Any, ...]:
        """In which ways they can be stored; within a memory budget, where plans stream, whether they are symmetric."""
        from akx.backends.cuda.value_compression.encodings import ways_of

        told = tuple(ways_of(matrix).items())
        if device is None or not device.budget:
            return told
        from akx.backends.cuda.schedules.stream.triangle import symmetry_of

        return (*told, symmetry_of(matrix))

    def plain_products(self, indptr: NDArray[Any], indices: Any, data: Any) -> PlainProducts | None:
        from akx.backends.cuda.csr.plain import CudaPlainProducts

        return CudaPlainProducts(indptr, indices, data) if int(indptr[-1]) + indptr.size < 2**32 else None

    def expect(self, A: Any, *, to_plan: bool = False) -> None:
        if self.missing() is None:
            from akx.backends.cuda.csr.plain import expect

            expect(A, to_plan=to_plan)

    def inverse_maker(self) -> Callable[..., Any]:
        from akx.backends.cuda.preconditioners.spai import approximate_inverse

        return approximate_inverse

    def derived_figures(self, device: CudaDevice, threads: int) -> Figures:
        """Of an NVIDIA GPU: a share of the memory's peak, caches and arithmetic by multiprocessor and clock.

        A synchronisation is a kernel in a graph. With a memory budget the slow memory is the host's, whatever the size
        of the problem.
        """
        from akx.cost.coefficients import coefficients
        from akx.cost.device_model import Figures

        guess = coefficients("cuda", "guesses")
        link = guess.link_bytes_per_second
        cycles = device.sms * (device.clock_hz or 1.5e9)
        return Figures(
            slow_bandwidth=link if device.budget else guess.peak_memory_share * (device.memory_bandwidth_hint or 1e12),
            last_level_bandwidth=link if device.budget else guess.cache_bytes_per_cycle * cycles,
            cache_bandwidth=guess.shared_memory_bytes_per_cycle * cycles,
            flops=guess.flops_per_cycle * cycles,
            synchronisation=guess.launch_seconds,
            last_level_bytes=device.l2_bytes,
            link_bandwidth=link,
            link_one_way=guess.link_one_way_bytes_per_second,
        )

    def bandwidth_shares(self) -> tuple[float, float]:
        from akx.cost.coefficients import coefficients

        reached = coefficients("cuda", "bandwidth")
        return reached.memory_share, reached.cache_share

    def measured_figures(self, device: CudaDevice, threads: int) -> Figures:
        """What copies in the device's memory achieve, bytes read and written, and reading again what caches hold."""
        from akx.backends.cuda.cost.rates import cache_rate, memory_rate, shared_memory_rate

        slow = memory_rate(max(8 * device.l2_bytes, _LEAST_COPY))
        near = max(slow, cache_rate(device))
        own = max(near, shared_memory_rate(device))
        guess = self.derived_figures(device, threads)
        return replace(guess, slow_bandwidth=slow, last_level_bandwidth=near, cache_bandwidth=own)

    def vectors(self, dtype: np.dtype[Any], n: int, threads: int | None) -> Vectors:
        from akx.backends.cuda.vectors.solver_vectors import CudaVectorWork

        return CudaVectorWork(dtype, n)


BACKEND = CudaBackend()
