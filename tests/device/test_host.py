"""Facts of the host, and the number of threads."""

from __future__ import annotations

import os

import pytest

from akx.device.host import HostDevice, default_threads, host_device, resolve_threads
from akx.errors import ArgumentError


def test_facts_are_plausible() -> None:
    device = host_device()
    assert 1 <= device.cores <= (os.cpu_count() or 1)
    assert 8 * 1024 <= device.l1_bytes <= device.l2_bytes <= device.l3_bytes
    assert device.name in device.device_class
    assert f"{device.cores} cores" in device.device_class


def test_classes_differ_by_what_matters() -> None:
    one = HostDevice("x", 2, 32768, 1 << 20, 1 << 25)
    assert one.device_class != HostDevice("x", 4, 32768, 1 << 20, 1 << 25).device_class
    assert one.device_class != HostDevice("x", 2, 32768, 1 << 21, 1 << 25).device_class
    assert one.device_class != HostDevice("y", 2, 32768, 1 << 20, 1 << 25).device_class


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert default_threads() == host_device().cores
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert default_threads() == resolve_threads(None) == 3
    assert resolve_threads(5) == 5
    for wrong in ("0", "many", "-1"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", wrong)
        with pytest.raises(ArgumentError, match="NUMBA_NUM_THREADS"):
            default_threads()
    for bad in (0, -2, True, 1.5):
        with pytest.raises(ArgumentError):
            resolve_threads(bad)  # type: ignore[arg-type]
