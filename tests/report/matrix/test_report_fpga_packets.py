"""The packets of an FPGA: rows in their slots, and the published utilisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.errors import ArgumentError
from akx.core.io import read_matrix
from akx.report.matrix.fpga_packets import schedule_rows

_DW8192 = Path(__file__).resolve().parents[4] / "shared" / "matrices" / "dw8192.mtx.gz"


def of_lengths(*lengths: int) -> sp.csr_array:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)
    return sp.csr_array((np.ones(indices.size), indices, indptr), shape=(len(lengths), len(lengths)))


def test_a_short_row_is_padded_to_eight_with_its_termination() -> None:
    made = schedule_rows(of_lengths(3, 7, 8, 1).indptr, slots=2)
    # Rows 0 and 1 take eight packets each, row 2 (nine) and row 3 (eight) come after them.
    assert made.length.tolist() == [8, 8, 9, 8]
    assert made.start.tolist() == [0, 0, 8, 8]
    assert made.slot.tolist() == [0, 1, 0, 1]
    assert made.packets == 17
    assert made.utilisation == 19 / 34


@pytest.mark.parametrize(("slots", "least"), [(1, 1), (2, 3), (5, 8), (15, 8), (64, 8)])
def test_rows_of_a_slot_come_one_after_another(slots: int, least: int) -> None:
    A = sp.csr_array(sp.random_array((53, 53), density=0.2, rng=np.random.default_rng(0)))
    made = schedule_rows(A.indptr, slots=slots, least=least)
    assert made.length.tolist() == np.maximum(np.diff(A.indptr) + 1, least).tolist()
    for slot in range(slots):
        rows = made.slot == slot
        ends = made.start[rows] + made.length[rows]
        assert made.start[rows].tolist() == [0, *ends[:-1]][: np.count_nonzero(rows)]
        assert made.packets >= max(ends, default=0)
    assert made.packets == (made.start + made.length).max()


def test_rows_go_to_the_slot_that_is_free_first() -> None:
    made = schedule_rows(of_lengths(19, 2, 2, 2, 2, *[0] * 14).indptr, slots=2)
    assert made.slot[:5].tolist() == [0, 1, 1, 1, 0]
    assert made.start[:5].tolist() == [0, 0, 8, 16, 20]


def test_what_clock_and_width_make_of_it() -> None:
    made = schedule_rows(of_lengths(*[7] * 10).indptr)
    assert made.utilisation == 7 / 8
    assert made.gflops(170e6) == pytest.approx(7 / 8 * 1.7)


@pytest.mark.skipif(not _DW8192.exists(), reason="the real matrices are not beside the repository")
def test_the_published_utilisation() -> None:
    A = sp.csr_array(read_matrix(_DW8192))
    five, fifteen = schedule_rows(A.indptr), schedule_rows(A.indptr, slots=15)
    assert round(five.utilisation, 3) == 0.637
    assert round(five.gflops(170e6), 2) == 1.08
    # Published as 0.635 and 3.24; three packets at the end make the difference (docs/literature.md).
    assert (fifteen.packets, round(fifteen.utilisation, 3)) == (4377, 0.636)
    assert round(fifteen.gflops(170e6), 2) == 3.24


def test_without_rows_and_without_entries() -> None:
    assert schedule_rows(np.zeros(1, np.int32)).utilisation == 0
    assert schedule_rows(np.zeros(4, np.int32)).packets == 8


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"least": 0}])
def test_what_is_no_packet_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        schedule_rows(np.array([0, 1]), **wrong)
