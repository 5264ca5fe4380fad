"""Where entries are: counts, characters, and a picture that is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.errors import ArgumentError, MissingDependencyError
from akx.report import pictures
from akx.report.matrix.spy_plot import braille, cell_counts, plain, text_grid
from akx.report.pictures import plot_spy


def counts_of(A: sp.sparray, rows: int, columns: int) -> np.ndarray:
    csr = sp.csr_array(A)
    return cell_counts(csr.indptr.astype(np.int32), csr.indices.astype(np.int32), rows, columns)


def test_cells_count_their_entries() -> None:
    A = sp.csr_array(sp.random_array((50, 50), density=0.2, rng=np.random.default_rng(0)))
    expected = np.zeros((7, 9), dtype=int)
    for i, j in zip(*A.nonzero(), strict=True):
        expected[i * 7 // 50, j * 9 // 50] += 1
    assert np.array_equal(counts_of(A, 7, 9), expected)


def test_dots_stand_where_entries_are() -> None:
    assert braille(counts_of(sp.eye_array(8), 8, 8)) == ["⠑⢄⠀⠀", "⠀⠀⠑⢄"]
    corner = sp.csr_array(([1.0], ([0], [7])), shape=(8, 8))
    assert braille(counts_of(corner, 8, 8)) == ["⠀⠀⠀⠈", "⠀⠀⠀⠀"]
    assert braille(counts_of(sp.eye_array(3), 3, 3)) == ["⠑⠄"]  # a character is not full


def test_marks_are_heavier_where_cells_are_fuller() -> None:
    A = sp.block_diag([np.ones((100, 100)), sp.csr_array(([1.0], ([5], [5])), shape=(100, 100))])
    assert plain(counts_of(A, 2, 2), 200) == ["# ", " ."]
    half = sp.csr_array(sp.random_array((100, 100), density=0.05, rng=np.random.default_rng(0)))
    assert plain(counts_of(half, 1, 1), 100) == ["*"]
    assert plain(counts_of(sp.csr_array((4, 4)), 2, 4), 4) == ["    ", "    "]


@pytest.mark.parametrize(("n", "width", "dots", "grid"), [
    (10**6, 500, True, (128, 128)),  # 64 characters at most
    (10**6, 30, True, (60, 60)),
    (10**6, 80, False, (32, 64)),
    (10**6, 1, False, (1, 1)),
    (5, 80, True, (5, 5)),
    (5, 80, False, (5, 5)),
    (1, 80, False, (1, 1)),
])  # fmt: skip
def test_the_grid_suits_the_line(n: int, width: int, dots: bool, grid: tuple[int, int]) -> None:
    assert text_grid(n, width, dots=dots) == grid


@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_picture(tmp_path: Path, ending: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    A = sp.csr_array(sp.diags_array([1.0, 2.0], offsets=[0, 3], shape=(2000, 2000)))
    plot_spy(A.indptr, A.indices, tmp_path / f"a{ending}", "two diagonals")
    assert (tmp_path / f"a{ending}").read_bytes().startswith(begins)
    empty = np.zeros(4, np.int32)
    plot_spy(empty, empty[:0], tmp_path / f"b{ending}", "no entries")
    assert (tmp_path / f"b{ending}").stat().st_size > 1000


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    pattern = np.array([0, 1], np.int32), np.array([0], np.int32)
    with pytest.raises(ArgumentError, match="format"):
        plot_spy(*pattern, tmp_path / "a.docx", "")
    with pytest.raises(ArgumentError, match="cannot be written"):
        plot_spy(*pattern, tmp_path / "nowhere" / "a.png", "")
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"akx\[plot\]"):
        plot_spy(*pattern, tmp_path / "a.png", "")
