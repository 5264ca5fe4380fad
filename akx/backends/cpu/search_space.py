"""The tuning parameters that the schedules of the CPU share: variant, order of the rows, threads, powers per pass.

What an option means where a plan does not mention it is not here: plans and trials stay valid where a search has more
to choose from (:mod:`akx.backends.revisions`).
"""

from __future__ import annotations

from collections.abc import Callable

from akx.backends.cpu.feasibility import variants_for
from akx.backends.cpu.variants import VARIANTS, layout_of
from akx.backends.host import HostDevice
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.formats.base import lanes_of

__all__ = ["common_parameters", "per_pass_choices", "thread_choices", "without_variants"]

#: Below the first many entries one thread is all there is to try: a second pays from 2,500 entries (5 a row, k = 8, two
#: cores of Zen 4). Above the second, one thread never wins.
_SMALL, _LARGE = 2_500, 1_000_000


def common_parameters(
    matrix: Matrix, device: HostDevice, orders: tuple[str, ...] | None = None
) -> tuple[Parameter, ...]:
    """variant, partitioner, threads and sigma.

    Where another order of the rows is offered, so are the variants that natural order is no good for: columns that lie
    far apart come near. Which combination fits is known when that order is made; `feasible` then says.
    """
    window = 32 * lanes_of(matrix.dtype)
    named = orders or (("natural", "rcm") if matrix.n > 1 else ("natural",))
    fitting = set(variants_for(matrix, "natural", sigma=window, threads=device.cores))
    if named != ("natural",):
        fitting |= {VARIANTS[v].narrow for v in VARIANTS if _may_come_near(v, v in fitting)}
    variants = tuple(v for v in VARIANTS if v in fitting)
    threads = thread_choices(matrix, device)
    meaning = "SpMV variant: " + "; ".join(f"{v}: {VARIANTS[v].description}" for v in variants)
    parameters = [
        Parameter("variant", variants, variants[0], meaning),
        Parameter("partitioner", named, named[0], "order of the rows"),
        Parameter("threads", threads, threads[0], "threads"),
    ]
    if any(layout_of(v).sorts for v in variants):
        parameters.append(Parameter("sigma", (1, window), 1, "rows per sorting window of sliced ELL, 1 for none"))
    return tuple(parameters)


def _may_come_near(variant: str, fits: bool) -> bool:
    """Whether columns may come near in another order of the rows, where the variant has a twin of 16 bits for them."""
    layout = layout_of(variant)
    return not layout.has_blocks and (fits or layout.pads_by_order)


def without_variants(parameter: Parameter, is_dropped: Callable[[str], object]) -> Parameter:
    """`parameter`, without the choices that are dropped, where it is the variant."""
    if parameter.name != "variant":
        return parameter
    choices = tuple(v for v in parameter.choices if not is_dropped(str(v)))
    return Parameter(parameter.name, choices, choices[0], parameter.description)


def thread_choices(matrix: Matrix, device: HostDevice) -> tuple[int, ...]:
    """All threads, one thread for a small matrix, or both to choose from."""
    most = device.cores
    if most == 1 or matrix.nnz < _SMALL:
        return (1,)
    return (most,) if matrix.nnz > _LARGE else (most, 1)


def per_pass_choices(k: int) -> tuple[int, ...]:
    """Powers per pass worth trying, ascending: k shared evenly over 1, 2 and 4 passes, at least two powers each."""
    return tuple(sorted({-(-k // passes) for passes in (1, 2, 4)} - {1})) or (k,)
