"""Calls beside their kernels: what is timed, and the table."""

from __future__ import annotations

import time

from benchmarks import host_time, record


def test_times_are_those_of_calls_that_are_waited_for_and_of_rows() -> None:
    waited = []
    found = host_time.times(lambda: time.sleep(1e-4), lambda: waited.append(1), rounds=2)
    assert len(waited) == 6 + 2 * (40 + 2)
    low, high = found["spread"]
    assert low <= found["row"] <= high
    assert min(found[name] for name in ("first", "second", "each", "row", "host")) >= 1e-4


def test_a_line_for_each_matrix() -> None:
    seconds = {"first": 1.0, "second": 3e-4, "each": 2e-4, "row": 1e-4, "host": 1e-5, "spread": [1e-4, 1e-4]}
    origin = dict(record.provenance(1))
    entry = {"matrix": "brick", "rows": 5, "nnz": 1234, "calls": dict.fromkeys(host_time.CALLS, seconds)}
    entry |= {"check": 9e-6, "upload": 2e10, "pinned": 5e10, "commit": origin["commit"], "date": origin["date"]}
    shown = host_time.table({**origin, "host_time": [entry]})
    assert f"| brick | 1,234 |{6 * ' 100 (300) |'} 9 | 20.0 | 50.0 |" in shown
