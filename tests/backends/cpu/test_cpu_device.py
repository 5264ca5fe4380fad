"""Facts of the host, and the number of threads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akx.backends import host
from akx.backends.host import HostDevice, default_threads, host_device, resolve_threads
from akx.backends.selection import plan_threads
from akx.core import process
from akx.core.errors import ArgumentError, ArgumentTypeError


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


@pytest.mark.parametrize(
    ("name", "family", "model", "told"),
    [
        ("AMD EPYC", 26, 2, "AMD EPYC family 26 model 2"),
        ("AMD  EPYC ", 25, 17, "AMD EPYC family 25 model 17"),
        ("Intel Xeon Processor (Skylake, IBRS)", 6, 85, "Intel Xeon Processor (Skylake, IBRS) family 6 model 85"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", 6, 79, "Intel(R) Xeon(R) CPU @ 2.20GHz family 6 model 79"),
        ("QEMU Virtual CPU version 2.5+", 15, 107, "QEMU Virtual CPU version 2.5+ family 15 model 107"),
        ("AMD EPYC 64-Core Processor", 23, 49, "AMD EPYC 64-Core Processor family 23 model 49"),
        ("AMD EPYC 7763 64-Core Processor", 25, 1, "AMD EPYC 7763 64-Core Processor"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", 6, 143, "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"),
        ("AMD EPYC", "?", 2, "AMD EPYC"),
    ],
)
def test_a_name_that_tells_no_model_is_told_with_family_and_model(
    tmp_path: Path, name: str, family: object, model: int, told: str
) -> None:
    """Virtual machines give processors of any generation one name."""
    cores = [
        f"processor\t: {core}\nvendor_id\t: x\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\n"
        for core in range(2)
    ]
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("\n".join(cores))
    assert host._model_name(cpuinfo) == told
    cpuinfo.write_text(f"model name\t: {name}\n")
    assert host._model_name(cpuinfo) == " ".join(name.split())


def test_without_a_model_name_the_system_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nCPU part\t: 0xd0c\n")
    assert host._model_name(tmp_path / "cpuinfo") == host._model_name(tmp_path / "none") == "aarch64"


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert default_threads() == host_device().cores
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert default_threads() == resolve_threads(None) == 3
    assert resolve_threads(5) == 5
    for wrong in ("0", "many", "-1", "²"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", wrong)
        with pytest.raises(ArgumentError, match="NUMBA_NUM_THREADS"):
            default_threads()
    assert resolve_threads(np.int64(5)) == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [0, -2])
def test_threads_out_of_range_are_refused(threads: int) -> None:
    with pytest.raises(ArgumentError):
        resolve_threads(threads)


@pytest.mark.parametrize("threads", [True, 1.5, 2.0, "abc", "2", float("nan"), float("inf"), [2], np.ones(2)])
def test_threads_that_are_no_integer_are_refused(threads: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="an integer"):
        resolve_threads(threads)


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, None),
        ({"": "max 100000"}, None),
        ({"": "400000 100000"}, 4),
        ({"a/b": "250000 100000"}, 2),  # half a core pays for no thread
        ({"a/b": "5000 100000"}, 1),
        ({"a/b": "max 100000", "a": "300000 100000"}, 3),
        ({"a/b": "800000 100000", "a": "200000 100000", "": "max 100000"}, 2),
        ({"other": "100000 100000"}, None),
        ({"a/b": "nonsense"}, None),
    ],
)
def test_a_quota_of_the_control_group_limits_the_cores(
    tmp_path: Path, quotas: dict[str, str], cores: int | None
) -> None:
    own = tmp_path / "own"
    own.write_text("3:cpuset:/\n0::/a/b\n")
    for group, text in quotas.items():
        (tmp_path / "root" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / group / "cpu.max").write_text(text + "\n")
    assert process._quota_cores(tmp_path / "root", own) == cores
    outermost = 4 if quotas.get("", "").startswith("4") else None  # where nothing says which group it is
    assert process._quota_cores(tmp_path / "root", tmp_path / "missing") == outermost


def test_the_quota_counts_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_quota_cores", lambda: 1)
    assert host_device.__wrapped__().cores == 1


def test_one_thread_feeds_a_gpu() -> None:
    assert plan_threads("cuda") == plan_threads("cuda", 5) == 1
    assert plan_threads("cpu", 5) == 5
    assert plan_threads("cpu") == default_threads()
    with pytest.raises(ArgumentError):
        plan_threads("cuda", 0)
