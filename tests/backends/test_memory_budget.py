"""Memory budgets as users say them, and what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.memory_budget import budgeted_backend, parse_bytes, resolve_budget, within
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError
from akx.core.matrix import Matrix

GPU = CudaDevice("test", 0, (9, 0), 132, 232448, 233472, 65536, 2**25, 2**36, 10**9, 1e12)


HUGE = [2**63, "8192P", "9" * 400, "9" * 400 + ".5", "9" * 5000, 10**5000, "8192.0P", "9223372036854775808.1"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("512M", 512 * 2**20),
        ("2G", 2**31),
        ("2g", 2**31),
        ("80GiB", 80 * 2**30),
        ("80 GiB", 80 * 2**30),
        ("1.5K", 1536),
        ("2GB", 2 * 10**9),
        ("7b", 7),
        ("1T", 2**40),
        (np.int64(4096), 4096),
        (np.uint8(7), 7),
        (2**63 - 1, 2**63 - 1),
        ("9223372036854775807", 2**63 - 1),
        ("4.7G", 5046586572),
        ("8191.999999999P", 9223372036853649908),
        ("0" * 50 + "7", 7),
        ("1." + "0" * 50, 1),
        (".5K", 512),
        ("1.K", 1024),
    ],
)
def test_bytes(value: Any, expected: int) -> None:
    assert parse_bytes(value) == expected


@pytest.mark.parametrize("value", ["", "G", "12Q", "-5M", "1e9", "0", 0, -1, "0.0001", "5 M G"])
def test_no_bytes(value: Any) -> None:
    with pytest.raises(ArgumentError, match="memory budget"):
        parse_bytes(value)


@pytest.mark.parametrize("value", HUGE, ids=range(len(HUGE)))
def test_more_bytes_than_there_are(value: Any) -> None:
    with pytest.raises(ArgumentError, match="memory budget is out of range") as refusal:
        parse_bytes(value)
    assert len(str(refusal.value)) < 250


@pytest.mark.parametrize("value", [None, 1.5, True, b"5", [1], np.float64(5), np.bool_(True)])
def test_bytes_of_another_type(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="memory budget"):
        parse_bytes(value)


def test_budget_and_fraction() -> None:
    matrix = Matrix.from_any(sp.eye_array(99, format="csr"))
    csr = 99 * 12 + 4 * 100
    assert resolve_budget(matrix, None, None) is None
    assert resolve_budget(matrix, "1K", None) == 1024
    assert resolve_budget(matrix, None, 0.25) == csr // 4
    assert resolve_budget(matrix, 100, 0.25) == 100
    assert resolve_budget(matrix, "1G", 0.25) == csr // 4
    assert matrix.csr_bytes == csr
    assert resolve_budget(matrix, None, np.float32(0.25)) == resolve_budget(matrix, None, np.float64(0.25)) == csr // 4
    assert resolve_budget(matrix, np.int64(10**6), np.int8(2)) == 2 * csr
    for huge in (1e308, 10**5000, 2**62, np.float32(3e38), np.finfo(np.float64).max):
        assert resolve_budget(matrix, None, huge) == 2**63 - 1
        assert resolve_budget(matrix, "1K", huge) == 1024
    assert resolve_budget(matrix, None, 1e-300) == 1
    for wrong in (0, -0.5, float("nan"), float("inf"), "1/4", True, np.float64("nan"), np.int64(-1), -(10**5000), [1]):
        with pytest.raises(AkxError, match="fraction"):
            resolve_budget(matrix, None, wrong)  # type: ignore[arg-type]


def test_a_budget_is_for_the_gpu_and_a_device_class_of_its_own() -> None:
    assert budgeted_backend("cpu", None) == "cpu"
    assert budgeted_backend("auto", 5) == budgeted_backend("cuda", 5) == "cuda"
    with pytest.raises(ArgumentError, match="leave the budget out, or use the backend cuda"):
        budgeted_backend("cpu", 5)
    assert within(GPU, None) is GPU
    classes = {GPU.device_class, within(GPU, 5).device_class, within(GPU, 6).device_class}
    assert len(classes) == 3
    assert within(GPU, 5).device_class == f"{GPU.device_class}/budget 5 bytes"
