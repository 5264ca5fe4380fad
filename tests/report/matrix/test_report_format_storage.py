"""What layouts store: as counted by hand, as SciPy and akx lay it out, and as published for full blocks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.formats.base import pattern_of
from akx.formats.sell import sell_slots
from akx.report.matrix.format_storage import FormatStorage, format_storages, hybrid_width


def of(A: sp.sparray, itemsize: int = 8) -> dict[str, FormatStorage]:
    csr = sp.csr_array(A)
    csr.sort_indices()
    return {
        one.name: one for one in format_storages(csr.indptr.astype(np.int32), csr.indices.astype(np.int32), itemsize)
    }


@pytest.fixture(scope="module")
def uneven() -> sp.csr_array:
    """500 rows of 0 to 40 entries, some of them empty."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 41, 500) * (rng.random(500) < 0.9)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.sort(rng.choice(500, length, replace=False)) for length in lengths])
    return sp.csr_array((np.ones(indices.size), indices, indptr), shape=(500, 500))


def test_rows_padded_to_a_factor() -> None:
    """Rows of 1, 4, 5 and 0 entries."""
    pattern = np.array([[0, 0, 0, 0, 1], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    found = of(sp.csr_array(pattern))
    assert {name: found[f"pcsr-{name}"].values for name in (2, 4, 8, 16)} == {2: 12, 4: 16, 8: 24, 16: 48}
    assert found["pcsr-4"].fill == 10 / 16
    assert found["csr"].fill == 1
    assert found["csr"].nbytes == 10 * 12 + 6 * 4
    assert found["pcsr-4"].nbytes == 16 * 12 + 6 * 4 + 4
    assert found["ell"].values == 25
    assert found["ell"].bytes_per_entry == 25 * 12 / 10
    assert found["sell-32"].values == 32 * 5


def test_sliced_ell_is_what_akx_lays_out(uneven: sp.csr_array) -> None:
    found, matrix = of(uneven), Matrix.from_any(uneven)
    for name, sigma, chunk in (("sell-32", 1, 32), ("sell-32-1024", 1024, 32), ("sell-64-65536", 65536, 64)):
        assert found[name].values == sell_slots(pattern_of(matrix), matrix.dtype, sigma, chunk=chunk)
    assert found["sell-32-1024"].fill > 1.4 * found["sell-32"].fill
    large = np.concatenate([np.arange(1024) % 7, np.full(1024, 3), np.arange(100)])  # windows end within the rows
    A = sp.csr_array((np.ones(large.sum()), np.concatenate([np.arange(m) for m in large]), [0, *np.cumsum(large)]))
    A.resize(large.size, large.size)
    expected = sell_slots(pattern_of(Matrix.from_any(A)), np.dtype(float), 1024, chunk=32)
    assert of(A)["sell-32-1024"].values == expected


def test_blocks_and_diagonals_are_what_scipy_lays_out(uneven: sp.csr_array) -> None:
    A = sp.csr_array(uneven[:480, :480])
    found = of(A)
    for side in (2, 3, 4, 5, 6):
        blocked = A.tobsr(blocksize=(side, side))
        assert found[f"blocks-{side}"].values == blocked.data.size
        assert found[f"blocks-{side}"].nbytes == 8 * blocked.data.size + 4 * (blocked.indices.size + 480 // side + 1)
        assert found[f"blocks-{side}"].loads == blocked.indices.size * side
    assert found["dia"].values == np.unique(A.indices - np.repeat(np.arange(480), np.diff(A.indptr))).size * 480
    odd = sp.csr_array(uneven[:481, :481])  # the last block hangs over
    assert of(odd)["blocks-2"].values == 4 * (np.unique(np.stack(odd.nonzero()) // 2, axis=1).shape[1])


def test_diagonals_of_slices() -> None:
    """A diagonal that ends after 32 of 64 rows is stored for one slice of two; without locality they are left out."""
    ends = np.concatenate([np.ones(32), np.zeros(32)])
    A = sp.csr_array(sp.diags_array([np.ones(64), ends[:63]], offsets=[0, 1], shape=(64, 64)))
    A.eliminate_zeros()
    found = of(A)
    assert found["dia"].values == 128
    assert found["sliced dia"].values == 96
    assert found["sliced dia"].nbytes == 8 * 96 + 4 * (3 + 2 + 1)
    scattered = sp.random_array((3000, 3000), density=3 / 3000, rng=np.random.default_rng(0))
    assert "sliced dia" not in of(scattered)


def test_hybrid_ell_has_a_column_while_a_third_of_the_rows_reaches_it() -> None:
    rows = 3 * 5000
    lengths = np.full(rows, 2)
    lengths[:5000] = 7  # a third
    lengths[:4999] = 9  # less
    assert hybrid_width(lengths) == 7
    assert hybrid_width(np.full(4096, 5)) == 5
    assert hybrid_width(np.full(4095, 5)) == 0
    lengths = np.full(5000, 2)
    lengths[:3000] = 4  # more than a third, fewer than 4096 rows
    A = sp.csr_array(
        (np.ones(lengths.sum()), np.concatenate([np.arange(m) for m in lengths]), [0, *np.cumsum(lengths)])
    )
    A.resize(5000, 5000)
    one = of(A)["hyb"]
    assert one.values == 5000 * 2 + 3000 * 2
    assert one.nbytes == 5000 * 2 * 12 + 3000 * 2 * 16


@pytest.mark.parametrize(("side", "nbytes", "gflops"), [(2, 13.0, 22.2), (3, 11.1, 25.9), (6, 9.4, 30.5)])
def test_full_blocks_take_what_is_published(side: int, nbytes: float, gflops: float) -> None:
    """Rennich's table for 144 GB/s: 8 + 4 / b^2 + 8 / b bytes an entry. The word for a row of blocks is not in it."""
    one = of(sp.csr_array(np.ones((600, 600))))[f"blocks-{side}"]
    assert one.fill == 1
    assert one.far_moved / one.entries == pytest.approx(nbytes, abs=0.05)
    assert one.far_bound(144e9) == pytest.approx(gflops, abs=0.06)


def test_the_plain_product_takes_what_is_published() -> None:
    one = of(sp.csr_array(np.ones((600, 600))))["csr"]
    assert one.far_bound(144e9) == pytest.approx(14.4, abs=0.01)
    assert one.bound(144e9) == pytest.approx(2 * 360000 * 144 / (360000 * 12 + 601 * 4 + 2 * 600 * 8))


def test_without_entries_nothing_is_stored() -> None:
    found = of(sp.csr_array((5, 5)))
    assert all(one.values == 0 and one.fill == 1 and one.bytes_per_entry == 0 for one in found.values())
    assert all(one.bound(1e9) == 0 and one.far_bound(1e9) == 0 for one in found.values())
