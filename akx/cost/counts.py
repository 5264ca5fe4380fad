"""`Work`, the counts of a cost model: bytes by tier, flops, cycles, chains of loads, launches and barriers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Traffic", "Work"]


@dataclass(frozen=True)
class Traffic:
    """Modelled work of one call for one start vector: bytes moved from and to slow memory, and floating-point work.

    Attributes
    ----------
    matrix_bytes, vector_bytes : float
        Bytes of matrix data and of vectors that cross the slow-memory bus in all k steps.
    flops : float
        Floating-point operations done, redundant ones included (one multiply-add counts two).
    redundancy : float
        flops done / flops needed, >= 1.
    cache_bytes : float
        Bytes the kernels read through the fast memory (L2) in all k steps.
    synchronisations : float
        Times a thread waits for others.
    """

    matrix_bytes: float
    vector_bytes: float
    flops: float
    redundancy: float = 1.0
    cache_bytes: float = 0.0
    synchronisations: float = 0.0

    @property
    def bytes(self) -> float:
        return self.matrix_bytes + self.vector_bytes


@dataclass(frozen=True)
class Work:
    """What a call with all its powers and start vectors makes a device do.

    Attributes
    ----------
    loaded_bytes : float
        Bytes that come before the first step and are hidden by nothing: the matrix, where it stays on the chip.
    memory_bytes, cache_bytes : float
        Bytes between L2 and memory, and between the multiprocessors and L2, in all steps.
    cycles : float
        Cycles that the busiest multiprocessor issues instructions, or reads its shared memory.
    chain : float
        Cycles that the longest chain of loads takes, each of which waits for the one before.
    launches, barriers : float
        Kernels in a graph; times that multiprocessors wait for one another.
    """

    loaded_bytes: float = 0.0
    memory_bytes: float = 0.0
    cache_bytes: float = 0.0
    cycles: float = 0.0
    chain: float = 0.0
    launches: float = 1.0
    barriers: float = 0.0
