"""Figures of a machine: bandwidths for the predictor's model and for the roofline, and what formats cost a core.

Derived figures cost nothing and are careful guesses from the facts of a device. Measured bandwidths take about a fifth
of a second; a share of the roofline is given against these. Both are the backend's
(:meth:`akx.backends.base.Backend.measured_figures`). What kernels of a GPU cost in cycles is theirs
(`cost.model` of the GPU backend); here are its rates, and what a kernel and an exchange take. All that a model
wants to know is measured once for a device by ``akx doctor --calibrate`` (:mod:`akx.tuner.model.calibration`), and then
takes the place of the guesses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from akx.backends.cpu.device_model import FORMATS
from akx.backends.device_model import Figures, FormatCost
from akx.backends.selection import backend_of

__all__ = ["FORMATS", "Figures", "FormatCost", "derived_figures", "faster", "measured_figures"]


def derived_figures(device: Any, threads: int) -> Figures:
    """Careful figures from the number of cores, or from the facts of a GPU; nothing is measured."""
    return backend_of(device.backend).derived_figures(device, threads)


def measured_figures(device: Any, threads: int) -> Figures:
    """Bandwidths with `threads` threads, the best that any call in this process has measured.

    Each call measures: what disturbs one hardly disturbs all. Flops and synchronisation as in :func:`derived_figures`,
    and on a GPU its link to the host.
    """
    if device.budget:  # what measures would itself take more
        return derived_figures(device, threads)
    now, before = _measure(device, threads), _BEST.get((device, threads))
    best = now if before is None else faster(now, before)
    _BEST[device, threads] = best
    return best


_BEST: dict[tuple[Any, int], Figures] = {}


def faster(one: Figures, other: Figures) -> Figures:
    """`one` with the higher bandwidth of the two for each memory: a measurement can only be too low."""
    return replace(
        one,
        slow_bandwidth=max(one.slow_bandwidth, other.slow_bandwidth),
        last_level_bandwidth=max(one.last_level_bandwidth, other.last_level_bandwidth),
        cache_bandwidth=max(one.cache_bandwidth, other.cache_bandwidth),
    )


def _measure(device: Any, threads: int) -> Figures:
    return backend_of(device.backend).measured_figures(device, threads)
