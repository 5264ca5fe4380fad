"""A backend: devices of one kind, their memory, clock and compilers, and what solvers do with vectors there.

Everything that akx asks of a backend is a member of :class:`Backend`: a trait with a default, or a method. What its
schedules do is theirs (:mod:`akx.backends.schedule`). There is one object for each backend
(`BACKENDS`); making it, and reading its traits, imports neither a compiler nor a driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.device import Device

if TYPE_CHECKING:
    from akx.backends.program import PlainProducts
    from akx.backends.variant import AnyVariant, VariantTraits
    from akx.backends.vectors import Vectors
    from akx.core.disk_cache import DiskCache
    from akx.cost.device_model import Figures

__all__ = ["Backend", "TrialVectors"]


class TrialVectors:
    """The vectors of trials: where programs are timed, and what is judged afterwards. These are the host's own.

    Parameters
    ----------
    problem : Problem
        With x, out and the coefficients of the basis.
    """

    def __init__(self, problem: Any) -> None:
        self._problem = problem

    def poison(self) -> None:
        """Fill the output with NaN, so that what is not written shows; that of the problem is by then."""

    def fetch(self) -> None:
        """Bring the output to that of the problem, which judges it."""

    def queue(self, program: Any) -> None:
        """Queue the call once; on a GPU nothing is waited for."""
        self.call(program)()

    def call(self, program: Any) -> Callable[[], None]:
        """The call to be timed; it may have methods ``warm(batch)`` and ``timed(batch)`` (:mod:`akx.tuner.measure`)."""
        return partial(program.run, self._problem.x, self._problem.out, self._problem.coefficients)


class Backend(ABC):
    """What is asked of a backend. Names of plans, of keys and of schedules begin with its `name`.

    Attributes
    ----------
    name : str
        Of its plans, e.g. ``"cpu"``.
    is_automatic : bool
        Whether ``"auto"`` tunes for it.
    uses_threads : bool
        Whether plans have threads of the host; else one feeds the device.
    has_own_memory : bool
        Whether it has a memory of its own, with a link to that of the host.
    keeps_budgets : bool
        Whether plans can keep to a memory budget: its devices have a field `budget`, one of its schedules streams.
    may_crash : bool
        Whether a wrong candidate may take the device or the process with it: trials run in another process first.
    places : int
        Places of memory in which the plans of a run-off are timed, where results depend on where arrays lie.
    compiles_ahead : bool
        Whether what its schedules lay out is compiled in processes beside a search (:attr:`Schedule.layout_shares`).
    compiles_first : bool
        Whether the code of its plans is Numba's, which is compiled on all cores before a search.
    tuning_seconds : float
        What a tuning may take where nobody says.
    compilers : tuple of str
        Packages whose minor version decides which machine code its kernels become.
    packages : tuple of str
        Others whose versions are kept with what was measured.
    narrowed : tuple of str
        Types of values that its programs may store with an error, where one is allowed.
    extra : str
        The extra of akx that brings what it needs, as in ``pip install 'akx[NAME]'``; "" where there is none.
    modules : mapping of str to str
        Optional modules that it needs, and the packages that they are of.
    has_baselines : bool
        Whether ``akx bench`` compares its plans with :meth:`baselines`; else with SciPy and MKL on the host.
    priced_by_format : bool
        Whether a calibration prices the formats of its `sweep`, and meetings of threads.
    loading_seconds : float
        What the first solve of a process takes longer, for kernels that are loaded.
    solver_steps : int
        Steps per pass of a CA solver in a trial, where nothing is known.
    steps_to_try : mapping of str to tuple of int
        By CA solver, the steps per pass worth trying, where they are not what suits most.
    single_bytes : int
        Bytes of a matrix and vectors from which on solvers gain by single precision: what caches do not hold.
    single_solvers : tuple of str
        The solvers that do; all where there is none.
    takes_arrays : bool
        Whether arrays of other libraries in GPU memory (``__cuda_array_interface__``, DLPack) are its own: what they
        are given to is computed there.
    queues : bool
        Whether solvers queue work ahead of the host: asking for x after each step would wait for it.
    solving_entries, inverse_entries : int
        Entries of a matrix from which on ``akx solve`` and ``spai`` choose its device, where nobody says.
    """

    name: str
    is_automatic = False
    uses_threads = False
    has_own_memory = False
    keeps_budgets = False
    may_crash = False
    places = 1
    compiles_ahead = False
    compiles_first = False
    tuning_seconds = 30.0
    compilers: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()
    extra = ""
    modules: Mapping[str, str] = MappingProxyType({})
    has_baselines = False
    priced_by_format = False
    loading_seconds = 0.2
    solver_steps = 4
    steps_to_try: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    single_bytes = 4 << 20
    single_solvers: tuple[str, ...] = ()
    takes_arrays = False
    queues = False
    solving_entries = 0
    inverse_entries = 0

    # The device.

    def missing(self) -> str | None:
        """Why there is no such device that can be used here; None where there is one."""
        return None

    @abstractmethod
    def device(self) -> Device:
        """This machine's device. Raises :class:`akx.AkxError` where :meth:`missing` says why there is none."""

    def clock_hz(self) -> float | None:
        """Hertz of its processor now; None where nobody tells."""
        return None

    def compiler(self) -> tuple[str, str] | None:
        """What compiles its kernels, and where machine code is kept; None where nothing can, of a GPU."""
        return None

    def code_cache(self) -> DiskCache | None:
        """Where what its compiler made is kept, of a GPU."""
        return None

    def device_similarity(self, one: str, other: str) -> float | None:
        """How far two device classes are from one another (`device_similarity`); None if not alike."""
        return None

    # Memory.

    def to_device(self, values: NDArray[Any]) -> Any:
        """A copy of an array in the device's memory; `values` itself where that is the host's."""
        return values

    def to_host(self, values: Any) -> NDArray[Any]:
        """An array of the device as one of the host."""
        return np.asarray(values)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Room for an array in the device's memory, not filled."""
        return np.empty(shape, dtype)

    def synchronize(self) -> None:  # noqa: B027
        """Wait for all work on the device."""

    def trim(self) -> None:  # noqa: B027
        """Give memory of the device that is kept for later back to it: others may need it."""

    def free_bytes(self) -> int:
        """Bytes of the device's memory that other processes of a search may share; 0 where akx may not take all."""
        return 0

    def is_memory_limited(self) -> bool:
        """Whether somebody has limited what akx may take of the device's memory."""
        return False

    def memory_pool(self) -> Any:
        """What keeps memory of the device for later, with its `budget`; raises where there is none."""
        raise NotImplementedError(f"the backend {self.name} keeps no memory for later")

    # Arrays of other libraries in the device's memory, of a backend that `takes_arrays`.

    def interchange(self) -> Any:
        """The module that reads them, makes results of their kind, and orders work behind that of their streams."""
        raise NotImplementedError(f"the backend {self.name} takes no arrays of other libraries")

    def caller_arrays(self) -> Any:
        """The module of what calls with them are made of: streams, events, programs, looks at what has changed."""
        raise NotImplementedError(f"the backend {self.name} takes no arrays of other libraries")

    def all_finite(self, values: Any) -> bool:
        """Whether all values of an array of the device are finite."""
        return bool(np.isfinite(values).all())

    def finite_watch(self, powers: int) -> Any:
        """What looks, beside the host, for the first of so many powers in V that is not finite."""
        raise NotImplementedError(f"the backend {self.name} takes no arrays of other libraries")

    def canonical(self) -> Any:
        """The module of canonical matrices that are in the device's memory (:meth:`akx.Matrix.from_any`)."""
        raise NotImplementedError(f"the backend {self.name} takes no arrays of other libraries")

    # Timing.

    def trial_vectors(self, problem: Any, *, hosted: bool = False) -> TrialVectors:
        """The vectors of trials; in the host's memory, whatever the backend, where they are `hosted`."""
        return TrialVectors(problem)

    def call(
        self, program: Any, x: NDArray[Any], out: NDArray[Any], coefficients: Any, *, hosted: bool = False
    ) -> Callable[[], object]:
        """A call of a program to be timed, on vectors of its own where those of the device are others."""
        return partial(program.run, x, out, coefficients)

    def watch(self) -> Any:
        """What looks at the device's clock while something is timed, or None."""
        return None

    # Comparisons.

    def baselines(self, matrix: Any, x: NDArray[Any], k: int) -> dict[str, tuple[Callable[[], object], str]]:
        """k products from x (n,) by other libraries for the device: calls to be timed, and how they work, by name."""
        return {}

    def baseline_notes(self) -> tuple[str, ...]:
        """Which of these are missing, and what to do."""
        return ()

    def baseline_libraries(self) -> dict[str, tuple[str | None, str | None]]:
        """By library what to do where it is not there, else None; and its version, where it is known."""
        return {}

    # Figures.

    @abstractmethod
    def derived_figures(self, device: Any, threads: int) -> Figures:
        """Careful figures from the facts of the device; nothing is measured."""

    @abstractmethod
    def measured_figures(self, device: Any, threads: int) -> Figures:
        """The same with bandwidths as measured now."""

    def bandwidth_shares(self) -> tuple[float, float]:
        """Shares of the bandwidths of memory and of the last-level cache that kernels reach, where work is counted."""
        return 1.0, 1.0

    def link_rates(self) -> tuple[float, float] | None:
        """Bytes a second between host and device, one way and both ways at once, measured; None where it has no link.

        Raises :class:`akx.DeviceMemoryError` where there is no room for that.
        """
        return None

    # Variants.

    def variants(self) -> Mapping[str, VariantTraits]:
        """What others must know of the SpMV variants that akx has for it, by name; nothing of most."""
        return {}

    def variant_names(self) -> Collection[str]:
        """Their names alone, for which no kernel is imported."""
        return self.variants().keys()

    def variant_type(self) -> type[AnyVariant] | None:
        """The class of variants that other packages may register for it; None, the default, where they may none."""
        return None

    # Plans.

    def told_by_values(self, matrix: Any, device: Any = None) -> tuple[Any, ...]:
        """What the values of a matrix tell of plans on a device, beside its pattern and type; nothing by default."""
        return ()

    def looked_at(self, matrix: Any, device: Any) -> Any:
        """The matrix where predictions find the soonest what they ask of it: as it is, by default."""
        return matrix

    def remember(self, matrix: Any, seen: Any) -> None:  # noqa: B027
        """Let a matrix know what was found in another place (:meth:`looked_at`)."""

    # First calls.

    def plain_products(self, indptr: NDArray[Any], indices: Any, data: Any) -> PlainProducts | None:
        """What does products of CSR arrays as they are, without a plan, on the device; `indptr` is of the host.

        None where calls are to be prepared at once, or, the default, where the host's own products are that.
        """
        return None

    def expect(self, A: Any, *, to_plan: bool = False) -> None:  # noqa: B027
        """Begin to compile what a first solve with a caller's matrix needs on the device; nothing is waited for.

        `to_plan`: what to choose a plan for it needs, instead.
        """

    # Solvers.

    def inverse_maker(self) -> Callable[..., Any] | None:
        """What makes a sparse approximate inverse on the device, called as :func:`akx.solvers.preconditioners.spai` is.

        None, the default, where the host does.
        """
        return None

    def scaling(self, diagonal: NDArray[Any]) -> Any:
        """A diagonal matrix (n,) on the device; its ``apply(x, out)`` does out = D x, both (n,) and there."""
        raise NotImplementedError(f"the backend {self.name} does not queue work on vectors")

    @abstractmethod
    def vectors(self, dtype: np.dtype[Any], n: int, threads: int | None) -> Vectors:
        """What solvers do with vectors of n entries."""
