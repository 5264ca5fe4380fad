"""The page of published tables: it is what the results say, and the published figures are consistent as it says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from akx.core.matrix import Matrix
from akx.report.matrix.fpga_packets import schedule
from benchmarks import gallery, literature
from benchmarks.literature import (
    BLOCKS,
    CLOCK,
    READINGS,
    RESULTS,
    TABLE_II,
    most_packets,
    most_utilised,
    packets_between,
    readings,
)


def test_the_page_is_up_to_date() -> None:
    assert literature.main(["--check"]) == 0


def test_published_rates_are_those_of_published_utilisations() -> None:
    """Guards the table against slips of the typist: printed Gflop/s follow from printed utilisations."""
    for name, _, _, used, gflops, times, scaled, scaled_gflops in TABLE_II:
        assert 2 * used * 5 * CLOCK / 1e9 == pytest.approx(gflops, abs=0.0062), name
        assert 2 * scaled * 5 * times * CLOCK / 1e9 == pytest.approx(scaled_gflops, abs=0.007 * times), name
    for side, nbytes, gflops in BLOCKS:
        assert 8 + 4 / side**2 + 8 / side == pytest.approx(nbytes, abs=0.05)
        assert 2 * 144 / (8 + 4 / side**2 + 8 / side) == pytest.approx(gflops, abs=0.07)


def test_the_table_itself_decides_between_readings() -> None:
    bounds = {name: (used, most_utilised(rows, entries)) for name, rows, entries, used, *_ in TABLE_II}
    assert all(used <= first + 0.0005 for used, (first, _, _) in bounds.values())
    assert {name for name, (used, (_, _, third)) in bounds.items() if used > third + 0.0005} == {
        "mark3jac020sc", "dw8192", "psse1",
    }  # fmt: skip
    for name in ("E40r1000", "olafu", "garon2"):
        used, (first, second, _) = bounds[name]
        assert round(first, 3) == used < second


def test_counts_of_dw8192() -> None:
    (one,) = (entry for entry in json.loads(RESULTS.read_text()) if entry["matrix"] == "dw8192")
    assert round(one["nnz"] / (5 * one["packets"]["5"]), 3) == 0.637
    assert one["packets"]["15"] == 4377
    assert packets_between(41746, 15, 0.635) == (4380, 4386)
    for slots in ("5", "15"):
        assert one["readings"][slots][READINGS[0]] == one["packets"][slots] <= one["most_packets"][slots]
    assert one["most_packets"]["15"] < 4380


def test_no_order_of_the_rows_takes_more_packets_than_the_bound() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 60)
    found = []
    for _ in range(100):
        rng.shuffle(lengths)
        found.append(schedule(np.concatenate([[0], np.cumsum(lengths)]), slots=7).packets)
    assert max(found) <= most_packets(lengths, 7)
    longest_last = np.array([7] * 12 + [23])
    taken = schedule(np.concatenate([[0], np.cumsum(longest_last)]), slots=4).packets
    assert taken == most_packets(longest_last, 4) == 48


def test_readings_of_rows_that_can_be_counted_by_hand() -> None:
    """Two slots: rows of 3, 8 and 9 entries."""
    found = list(readings(np.array([3, 8, 9]), 2).values())
    assert found == [18, 17, 19, 18, 26, 25]


def test_what_is_recorded_of_a_matrix() -> None:
    matrix = Matrix.from_any(gallery.small("brick"))
    one = literature.count_matrix("brick", "gallery", matrix)
    assert one["fill"]["blocks-3"] == 1.0
    assert one["bytes_per_entry"]["blocks-3"] < 9
    assert set(one["packets"]) == {"5", "15"}
    assert "readings" not in one
