"""The processor, and what predictions of times go by on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from akx.core.errors import AkxError
from akx.report.doctor.check import Check
from akx.report.units import counted, size

__all__ = ["calibrations", "machine"]


def machine() -> Iterator[Check]:
    from akx.backends.host import default_threads, host_device

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


def calibrations() -> Iterator[Check]:
    """What predictions go by, for every device that akx can use."""
    from akx.backends.registry import backends
    from akx.backends.selection import backend_of, device_of, is_usable
    from akx.cost.calibration import find_calibration
    from akx.plandb.key import of_other_kernels
    from akx.tuner.model.figures import best_figures

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
    from akx.tuner.model.figures import figures_of

    figures = figures_of(device, kept.threads)
    return figures.last_level_bandwidth, figures.cache_bandwidth
