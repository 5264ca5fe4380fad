"""The space of `stream` on the GPU.

Of what a plan may say, threads per block are left out, which only a launch per step has (it won nowhere), what stays,
which is never worse, and how the processor's threads do the powers of its rows; their variant is the best that fits.
One triangle of a symmetric matrix travels by default where that is fewer bytes.
"""

from __future__ import annotations

from math import ceil

from akx.backends.cpu.cost import padding_of
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.stream import rows
from akx.backends.cuda.schedules.stream.host_share import host_plan, host_reason
from akx.backends.cuda.schedules.stream.options import AHEADS, MOVE, PARTITIONERS, SHARES, STORED, VARIANTS, VECTORS
from akx.backends.cuda.schedules.stream.triangle import is_smaller, symmetry_of
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.options import CudaStream
from akx.core.plan import FULL

__all__ = ["space"]

#: Variants of the processor's rows, the better ones first, and how much padding one may have.
_HOSTS, _MOST_PADDING = ("bell16", "sell16", "csr16"), 1.25


def space(matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    per_row = matrix.nnz / max(1, matrix.n)
    variants = sorted(VARIANTS, key=lambda v: (v.startswith("sell-"), per_row < 8 * int(v.split("-")[1])))
    whole = rows.fits_device(matrix, k, int(rows.MOST_OF_DEVICE * device.memory_bytes))
    if not device.budget and whole:  # nothing to search: no plan without a budget will do
        return (Parameter("variant", tuple(variants[:1]), variants[0], "width of columns and lanes per row"),)
    passes = tuple(dict.fromkeys(max(1, ceil(k / p)) for p in (8, 4, 3, 2, 1)))
    budget: tuple[Parameter, ...] = ()
    if device.budget:  # a plan says it, so that it keeps within it wherever it is used
        passes = tuple(dict.fromkeys((1, *passes)))
        budget = (Parameter("budget", (device.budget,), device.budget, "bytes of device memory, vectors included"),)
    fitting = (one for one in _HOSTS if host_reason(matrix, one) is None)
    host = next((one for one in fitting if padding_of(host_plan(one), matrix) <= _MOST_PADDING), "csr")
    stored = STORED if symmetry_of(matrix) and is_smaller(matrix) else (FULL,)
    return (
        Parameter("variant", tuple(variants), variants[0], "width of columns and lanes per row"),
        Parameter("partitioner", PARTITIONERS, "natural", "order of the rows"),
        Parameter("k_per_pass", passes, passes[-1], "powers done each time the matrix comes by"),
        Parameter(
            "move", MOVE, CudaStream.move, "what moves: one kernel's blocks, copies, or copies there, launches back"
        ),
        Parameter("ahead", AHEADS, CudaStream.ahead, "chunks of the matrix that are on their way at a time"),
        Parameter("vectors", VECTORS, CudaStream.vectors, "start vectors at a time"),
        Parameter("share", SHARES, CudaStream.share, "of the entries of the matrix, what the processor does meanwhile"),
        Parameter("host", (host,), host, "SpMV variant of the processor's rows"),
        Parameter("stored", stored, stored[-1], "what travels: all, or one triangle of a symmetric matrix"),
        *budget,
    )
