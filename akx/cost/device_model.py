"""Figures of a machine that models of plans go by: rates of its memories and of arithmetic, and what steps cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from akx.cost.coefficients import coefficients

__all__ = ["FORMATS", "Figures", "FormatCost", "format_cost"]

#: Seconds of an exchange between the multiprocessors of a GPU, where nobody has measured it.
_BARRIER = 1.5e-6


@dataclass(frozen=True)
class FormatCost:
    """What a product in one format takes a core whose data are in its own cache, values of 8 bytes.

    Attributes
    ----------
    slot : float
        Seconds for a value, padding or not: it is loaded, with its column and the entry of x, and multiplied.
    row : float
        Seconds for a row: begun, and its result put together and stored.
    uneven : float
        Seconds more for a row whose end the processor does not foresee (:func:`akx.cost.rows.surprises`), in
        formats that end each row by itself.
    sorted : float
        Seconds more for a row where rows are sorted by their entries, and their results stored out of order.
    scattered : float
        Seconds more for an entry whose entry of x is not in the nearest cache (:func:`akx.cost.rows.missed`) but
        in the next one.
    """

    slot: float
    row: float
    uneven: float = 0.0
    sorted: float = 0.0
    scattered: float = 0.0


@dataclass(frozen=True)
class Figures:
    """What the traffic model needs to become seconds.

    Attributes
    ----------
    slow_bandwidth : float
        Bytes a second from memory, all threads together.
    last_level_bandwidth : float
        Bytes a second from the last-level cache, all threads together.
    cache_bandwidth : float
        Bytes a second from the cores' own caches, all threads together.
    flops : float
        Sparse floating-point operations a second, all threads together (bound by gathers, far below the peak).
    synchronisation : float
        Seconds that each further thread adds to what it takes all of them to meet once; on a GPU, of a kernel in a
        graph.
    last_level_bytes : int
        Size of the last-level cache.
    waking : float
        Seconds to set more than one thread to work, once a call.
    formats : mapping of str to FormatCost
        By SpMV variant; empty where nothing is known of them but their bytes and flops.
    barrier : float
        Seconds that it takes the multiprocessors of a GPU to exchange something within a kernel.
    link_bandwidth : float
        Bytes a second between a GPU and its host's memory, page-locked, both directions at once; 0 for a host.
    link_one_way : float
        The same in one direction while the other is idle.
    foreseen : float
        Branches whose outcome a core remembers from one product to the next.
    """

    slow_bandwidth: float
    last_level_bandwidth: float
    cache_bandwidth: float
    flops: float
    synchronisation: float
    last_level_bytes: int
    waking: float = 0.0
    formats: Mapping[str, FormatCost] = field(default_factory=dict)
    barrier: float = _BARRIER
    link_bandwidth: float = 0.0
    link_one_way: float = 0.0
    foreseen: float = coefficients("cpu", "guesses").remembered_branches_count

    def bandwidth(self, working_set: float) -> float:
        """Bytes a second at which a working set of that many bytes is read again and again."""
        fits = working_set <= 0.75 * self.last_level_bytes
        return self.last_level_bandwidth if fits else self.slow_bandwidth


def format_cost(seconds: Mapping[str, Any]) -> FormatCost:
    """A cost as the data file has it: ``slot_seconds``, ``row_seconds``, ..."""
    return FormatCost(**{name.removesuffix("_seconds"): value for name, value in seconds.items()})


#: By SpMV variant of the processor, what it costs a core where nobody has measured it.
FORMATS = {name: format_cost(one["cost"]) for name, one in vars(coefficients("cpu", "variants")).items()}
