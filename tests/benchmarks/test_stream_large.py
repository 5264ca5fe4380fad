"""The shipped figure of a budget of more than 64 partitions is what was asked for."""

from __future__ import annotations

import json

from benchmarks.gpu import RESULTS


def test_more_than_64_partitions_to_the_last_digit() -> None:
    entries = json.loads(RESULTS.with_name("stream_large.json").read_text())["large"]
    assert entries
    for one in entries:
        assert one["partitions"] > 64
        assert one["equal_bits"] is True
        assert one["error"] <= 1
        assert one["device_bytes"] <= one["budget_bytes"] < one["matrix_bytes"] / 4
