"""Figures of a machine to predict with and to hold results against: calibrated, measured now, or careful guesses.

Guesses cost nothing and come from the facts of a device. Measured bandwidths take about a fifth of a second; a share of
the roofline is given against these. Both are the backend's (:meth:`akx.backends.base.Backend.measured_figures`). All
that a model wants to know is measured once for a device (:mod:`akx.tuner.model.calibrate`), and then takes the place of
the guesses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from akx.backends.selection import backend_of
from akx.cost.calibration import find_calibration
from akx.cost.device_model import Figures

__all__ = ["best_figures", "ceiling_of", "derived_figures", "faster", "figures_of", "measured_figures"]


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


def figures_of(device: Any, threads: int) -> Figures:
    """The figures to predict with: calibrated ones where there are any, else derived ones.

    Parameters
    ----------
    device : HostDevice or CudaDevice
        Of the plans; where its `cores` are limited to `threads`, of the same class all the same.
    threads : int
        Most threads of a plan.
    """
    whole, backend = device.whole(), backend_of(device.backend)
    found = find_calibration(whole.device_class)
    if found is None or found[0].threads < min(threads, device.cores):
        return derived_figures(device, threads)
    figures = found[0].figures(max(1, threads))
    guess = derived_figures(whole, threads)
    if backend.has_own_memory and not figures.link_bandwidth:  # of an akx that could measure neither it nor caches
        figures = replace(
            figures,
            last_level_bandwidth=max(figures.slow_bandwidth, guess.last_level_bandwidth),
            cache_bandwidth=guess.cache_bandwidth,
            link_bandwidth=guess.link_bandwidth,
        )
    if backend.has_own_memory and not figures.link_one_way:  # of an akx that measured both directions together
        one_way = min(figures.link_bandwidth, max(guess.link_one_way, figures.link_bandwidth / 2))
        figures = replace(figures, link_one_way=one_way)
    link = figures.link_bandwidth  # within a budget the slow memory is the host's
    return replace(figures, slow_bandwidth=link, last_level_bandwidth=link) if device.budget else figures


def ceiling_of(measured: Figures, known: Figures, device: Any, threads: int) -> Figures:
    """`measured` figures, with the bandwidths of those `known` where these are higher and no guesses: for bounds.

    Within a memory budget nothing is measured, so that what is known is all there is.
    """
    if device.budget:
        return known
    return measured if known == derived_figures(device, threads) else faster(measured, known)


def best_figures(device: Any, threads: int) -> Figures:
    """Bandwidths as measured now, or as calibrated where these are higher: what is shown, and what bounds go by."""
    return ceiling_of(measured_figures(device, threads), figures_of(device, threads), device, threads)
