"""Which devices are like, by their classes: careful rather than generous."""

from __future__ import annotations

from typing import Any

import pytest

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.device_similarity import device_similarity, threads_of_class
from akx.backends.host import HostDevice

MIB = 1024 * 1024
RAPIDS = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"


def host(name: str = RAPIDS, cores: int = 8, l2: float = 2, l3: float = 105, threads: int | None = None) -> str:
    found = HostDevice(name, cores, 48 * 1024, int(l2 * MIB), int(l3 * MIB)).device_class
    return found if threads is None else f"{found}/{threads} threads"


def gpu(name: str = "NVIDIA H100 80GB HBM3", **changes: Any) -> str:
    facts: dict[str, Any] = {
        "ordinal": 0, "compute_capability": (9, 0), "sms": 132, "shared_per_block": 232448, "shared_per_sm": 233472,
        "registers_per_sm": 65536, "l2_bytes": 50 * MIB, "memory_bytes": 79 * 1024**3, "clock_hz": 1980000000,
        "memory_bandwidth_hint": 3.35e12,
    }  # fmt: skip
    return CudaDevice(name, **(facts | changes)).device_class


H200 = gpu("NVIDIA H200", l2_bytes=60 * MIB, memory_bytes=140 * 1024**3)
MIG = gpu("NVIDIA H100 80GB HBM3 MIG 3g.40gb", sms=60, l2_bytes=25 * MIB)


@pytest.mark.parametrize(
    ("other", "least", "most"),
    [
        (host(threads=8), 0.0, 0.0),
        (host(threads=4), 0.06, 0.07),
        (host(threads=2), 0.12, 0.13),
        (host(cores=2), 1.0, 2.0),
        (host(cores=2, threads=1), 1.0, 2.0),
        (host("Intel Xeon Platinum 8481C Processor"), 1.0, 2.0),
        (host(l3=120), 1.0, 2.0),
        (host("Intel(R) Xeon(R) Gold 6430"), 2.0, 3.0),
        (host("Intel(R) Xeon(R) Platinum 8480+", cores=112), 2.0, 3.0),
    ],
)
def test_like_processors(other: str, least: float, most: float) -> None:
    for pair in ((host(), other), (other, host())):
        found = device_similarity(*pair)
        assert found is not None
        assert least <= found <= most


@pytest.mark.parametrize(
    "other",
    [
        host("Intel(R) Xeon(R) Platinum 8581C CPU @ 2.30GHz"),  # the next generation
        host("AMD EPYC 9B14"),
        host(l2=1.25),
        host(l3=210),
        host(l3=60),
        host("Intel(R) Core(TM) i9-13900K"),
        gpu(),
        "cpu/Some Processor/2 cores",
        "",
        host() + "/budget 5 bytes",
        host().replace("L3 105 MiB", "L3 -e MiB"),
        host().replace("8 cores", "0 cores"),
        host().replace("8 cores", f"{10**400} cores"),
    ],
)
def test_unlike_processors(other: str) -> None:
    assert device_similarity(host(), other) is None
    assert device_similarity(other, host()) is None


def test_generations_of_other_servers() -> None:
    milan = {"l2": 0.5, "l3": 32}
    found = device_similarity(host("AMD EPYC 7763 64-Core Processor", **milan), host("AMD EPYC 7B13", **milan))
    assert found is not None
    assert device_similarity(host("AMD EPYC 7763 64-Core Processor", **milan), host("AMD EPYC 7742", **milan)) is None
    assert device_similarity(host("AMD EPYC 7763", **milan), host("AMD EPYC 9753", **milan)) is None
    assert device_similarity(host("AMD Ryzen 9 5950X", **milan), host("AMD Ryzen 9 5900X", **milan)) is None


@pytest.mark.parametrize("name", ["aarch64", "x86_64", "unknown processor", "", "AMD EPYC", "armv8l"])
def test_the_name_of_an_architecture_tells_too_little(name: str) -> None:
    assert device_similarity(host(name), host(name, cores=64)) is None
    assert device_similarity(host(name), host(name, threads=2)) == 2 / 16


@pytest.mark.parametrize("name", ["AMD EPYC", "Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel Xeon Processor (Skylake, IBRS)"])
def test_family_and_model_tell_a_design_where_the_name_does_not(name: str) -> None:
    found = device_similarity(host(f"{name} family 26 model 2"), host(f"{name} family 26 model 2", cores=2))
    assert found is not None
    assert 1.0 <= found < 2.0
    for other in ("family 26 model 17", "family 25 model 2"):
        assert device_similarity(host(f"{name} family 26 model 2"), host(f"{name} {other}")) is None
        assert device_similarity(host(f"{name} family 26 model 2"), host(f"{name} {other}", cores=2)) is None
    for plain in (name, "AMD EPYC 9575F", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"):
        assert device_similarity(host(f"{name} family 26 model 2"), host(plain)) is None


def test_gpus() -> None:
    assert device_similarity(gpu(), gpu(memory_bytes=94 * 1024**3)) == 0
    for other in (H200, gpu("NVIDIA H100 PCIe", sms=114)):
        found = device_similarity(gpu(), other)
        assert found is not None
        assert found >= 2
    for other in (MIG, gpu(compute_capability=(10, 0)), gpu(l2_bytes=96 * MIB), gpu(budget=10**9), gpu(sms=66)):
        assert device_similarity(gpu(), other) is None
    budget = gpu(budget=10**9)
    assert device_similarity(budget, gpu(budget=10**9, memory_bytes=94 * 1024**3)) is None


def test_threads_of_a_class() -> None:
    assert threads_of_class(host(cores=8)) == 8
    assert threads_of_class(host(cores=8, threads=3)) == 3
    assert threads_of_class(gpu()) is None
    assert threads_of_class("cpu/nonsense") is None
