"""The packets of an FPGA: every entry once, a product from the packets alone, and the published utilisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.errors import ArgumentError
from akx.core.io import read_matrix
from akx.report.matrix.fpga_packets import PADDING, TERMINATION, pack, schedule

_DW8192 = Path(__file__).resolve().parents[4] / "shared" / "matrices" / "dw8192.mtx.gz"


def of_lengths(*lengths: int) -> sp.csr_array:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)
    return sp.csr_array((np.ones(indices.size), indices, indptr), shape=(len(lengths), len(lengths)))


@pytest.mark.parametrize(("slots", "least"), [(1, 1), (2, 3), (5, 8), (15, 8), (64, 8)])
def test_a_product_from_the_packets_alone(slots: int, least: int) -> None:
    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((53, 53), density=0.2, rng=rng))
    x = rng.standard_normal(53)
    made = pack(A.indptr, A.indices, slots=slots, least=least)
    np.testing.assert_allclose(made.multiply(A.data, x), A @ x, rtol=1e-13, atol=1e-14)


def test_every_entry_is_there_once_and_rows_keep_to_their_slot() -> None:
    A = sp.csr_array(sp.random_array((40, 40), density=0.3, rng=np.random.default_rng(1)))
    made = pack(A.indptr, A.indices)
    held = made.entry >= 0
    assert sorted(made.entry[held]) == list(range(A.nnz))
    rows = np.repeat(np.arange(40), np.diff(A.indptr))
    assert np.array_equal(made.row[held], rows[made.entry[held]])
    for i in range(40):
        slots = np.unique(np.nonzero(made.row == i)[1])
        assert slots.tolist() == [made.schedule.slot[i]]
    assert np.count_nonzero(made.entry == TERMINATION) == 40
    assert np.all(made.column[made.entry == PADDING] == 0)


def test_a_short_row_is_padded_to_eight_with_its_termination() -> None:
    A = of_lengths(3, 7, 8, 1)
    made = pack(A.indptr, A.indices, slots=2)
    # Rows 0 and 1 take eight packets each, row 2 (nine) and row 3 (eight) come after them.
    assert made.schedule.length.tolist() == [8, 8, 9, 8]
    assert made.schedule.start.tolist() == [0, 0, 8, 8]
    assert made.schedule.packets == 17
    assert made.entry[:8, 0].tolist() == [0, 1, 2, PADDING, PADDING, PADDING, PADDING, TERMINATION]
    assert made.column[7].tolist() == [2, 3]  # the rows that come next
    assert made.column[16, 0] == 4
    assert made.column[15, 1] == 4
    assert made.row[16].tolist() == [2, -1]  # the slot of row 3 has run out of rows
    assert made.schedule.utilisation == 19 / 34


def test_rows_go_to_the_slot_that_is_free_first() -> None:
    made = schedule(of_lengths(19, 2, 2, 2, 2, *[0] * 14).indptr, slots=2)
    assert made.slot[:5].tolist() == [0, 1, 1, 1, 0]
    assert made.start[:5].tolist() == [0, 0, 8, 16, 20]


def test_what_clock_and_width_make_of_it() -> None:
    made = schedule(of_lengths(*[7] * 10).indptr)
    assert made.utilisation == 7 / 8
    assert made.gflops(170e6) == pytest.approx(7 / 8 * 1.7)
    assert made.bandwidth(170e6) == 8.5e9  # as published for 400 bits at 170 MHz


@pytest.mark.skipif(not _DW8192.exists(), reason="the real matrices are not beside the repository")
def test_the_published_utilisation() -> None:
    A = sp.csr_array(read_matrix(_DW8192))
    five, fifteen = schedule(A.indptr), schedule(A.indptr, slots=15)
    assert round(five.utilisation, 3) == 0.637
    assert round(five.gflops(170e6), 2) == 1.08
    # Published as 0.635 and 3.24; three packets at the end make the difference (docs/literature.md).
    assert (fifteen.packets, round(fifteen.utilisation, 3)) == (4377, 0.636)
    assert round(fifteen.gflops(170e6), 2) == 3.24


def test_without_rows_and_without_entries() -> None:
    assert schedule(np.zeros(1, np.int32)).utilisation == 0
    made = pack(np.zeros(4, np.int32), np.zeros(0, np.int32))
    assert made.multiply(np.zeros(0), np.ones(3)).tolist() == [0, 0, 0]
    assert made.schedule.packets == 8


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"least": 0}])
def test_what_is_no_packet_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        schedule(np.array([0, 1]), **wrong)
