"""The table of orders, from a file."""

from __future__ import annotations

from benchmarks import ordering


def test_a_line_of_the_table_has_milliseconds() -> None:
    entry = {"matrix": "a grid", "rows": 8_000_000, "entries": 55_760_000, "levels": 598, "cores": 16}
    entry |= {"device_seconds": [0.0645, 0.0035], "host_seconds": [1.25, 0.25, 6.5]}
    entry |= {"commit": "0123456789abcdef", "date": "2026-11-29T00:00"}
    machine = {"processor": "a GPU", "threads": 16}
    found = ordering.table({"machine": machine, "ordering": [entry]}).splitlines()
    assert found[0] == "Measured on a GPU, 16 threads, commit 0123456789, 2026-11-29."
    assert found[-1] == "| a grid | 8,000,000 | 55,760,000 | 598 | 64 | 4 | 1,250 | 250 | 6,500 |"
