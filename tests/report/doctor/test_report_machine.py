"""What ``akx doctor`` says of calibrations: which figures of a GPU are assumed ones."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from akx.backends.host import host_device
from akx.cost.calibration import Calibration
from akx.cost.device_model import Figures
from akx.report.doctor.machine import calibrations
from akx.tuner.model.figures import derived_figures

_GPU: Any = SimpleNamespace(
    backend="cuda", device_class="cuda/Test GPU", sms=100, clock_hz=1e9, memory_bandwidth_hint=1e12, l2_bytes=2**25,
    budget=0, cores=1,
)  # fmt: skip
_GPU.whole = lambda: _GPU


def said(monkeypatch: pytest.MonkeyPatch, device: Any, figures: Figures) -> Any:
    """What is said where a device of this backend is calibrated with these figures."""
    known = Calibration(device.device_class, 1, figures, figures, "", "2026-02-03T00:00:00"), "a file"
    monkeypatch.setattr("akx.backends.registry.backends", lambda: (device.backend,))
    monkeypatch.setattr("akx.backends.selection.is_usable", lambda backend: True)
    monkeypatch.setattr("akx.backends.selection.device_of", lambda backend: device)
    monkeypatch.setattr("akx.cost.calibration.find_calibration", lambda device_class: known)
    (check,) = calibrations()
    return check


def test_figures_of_a_gpu_that_are_guesses_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    guess = derived_figures(_GPU, 1)
    assert (guess.last_level_bandwidth, guess.cache_bandwidth) == (3.2e12, 12.8e12)
    old = replace(guess, slow_bandwidth=9.5e11, last_level_bandwidth=2.4e12, cache_bandwidth=6.4e12, link_bandwidth=0.0)
    found = said(monkeypatch, _GPU, old)  # of an akx that took the caches for slower ones, and did not measure them
    assert found.found.startswith("950/3200 (assumed)/12800 (assumed) GB/s from memory, last-level and nearer caches;")
    assert "host" not in found.found
    assert "akx doctor --calibrate" in found.hint
    found = said(monkeypatch, _GPU, replace(old, link_bandwidth=9.6e10))
    assert found.found.startswith("950/2400/6400 GB/s")
    assert "55 GB/s from or to the host, 96 GB/s both directions together" in found.found
    assert not found.hint


def test_figures_of_a_host_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said(monkeypatch, host_device(), derived_figures(host_device(), 1))
    assert found.found.startswith("10/40/80 GB/s from memory")
