"""The receipt of the last run on a GPU: what it says is well formed, and whether it is of these sources."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from benchmarks import gpu_receipt


@pytest.fixture
def receipt() -> dict[str, Any]:
    if not gpu_receipt._RECEIPT.is_file():
        pytest.skip("no receipt: `make gpu-test` has not been run on a GPU")
    found: dict[str, Any] = json.loads(gpu_receipt._RECEIPT.read_text())
    return found


def test_every_test_passed_on_a_device(receipt: dict[str, Any]) -> None:
    assert receipt["schema"] == gpu_receipt.SCHEMA
    assert receipt["exit_code"] == 0
    assert receipt["device"]["name"]
    assert receipt["outcomes"]
    assert set(receipt["outcomes"].values()) <= {"passed", "skipped"}


def test_the_sources_are_those_that_ran(receipt: dict[str, Any]) -> None:
    """A warning and no failure: whoever changes a kernel may have no GPU."""
    now = gpu_receipt.source_hash(gpu_receipt.cuda_sources())
    if receipt["cuda_sources"]["sha256"] != now:
        warnings.warn(
            f"the CUDA sources have changed since they ran on a {receipt['device']['name']} ({receipt['date']}): "
            "run `make gpu-test` on a machine with a GPU",
            stacklevel=1,
        )


def test_the_hash_sees_every_source() -> None:
    names = {path.name for path in gpu_receipt.cuda_sources()}
    assert {"common.cuh", "sweep.cuh", "sweep.cu"} <= names
