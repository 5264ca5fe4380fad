"""Symmetric matrices by diagonals: exact on small integers, at home in their range, and in full once they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import registry
from akx.backends.cpu import value_update
from akx.backends.cpu.cost import bytes_per_entry, multiplied, padding_of
from akx.backends.cpu.jit import jit
from akx.backends.cpu.layout import dependencies, lay_out
from akx.backends.cpu.products import product
from akx.backends.cpu.value_update import _FAR
from akx.backends.host import host_device
from akx.backends.schedule import as_coefficients
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Format, pattern_of
from akx.formats.dia_sym import diagonals_of
from akx.formats.symmetry import has_symmetric_pattern, has_symmetric_values
from akx.plandb import PlanRecord
from akx.tuner import plan_key
from akx.tuner.space import build_space

#: Entries that nobody may read or write, before, between and after x and y.
GUARD = 11
OFFSETS = (0, 1, 7, 45, 130)


@jit
def _call(m: Any, w: Any, x: int, y: int, first: int, last: int) -> None:
    product(m, w, x, y, first, last, 0, 0, 0)


def symmetric(
    n: int, dtype: str = "float64", *, offsets: tuple[int, ...] = OFFSETS, full: float = 0.8, far: int = 3
) -> sp.csr_array:
    """Diagonals with a share `full` of their entries, and for each 100 rows `far` entries somewhere; integers."""
    rng = np.random.default_rng(n)
    pairs = [(i, i + d) for d in offsets for i in range(n - d) if rng.random() < full]
    pairs += [tuple(sorted(pair)) for pair in rng.integers(0, n, (n * far // 100, 2)).tolist()]
    rows, columns = np.array(sorted(set(pairs)) or np.zeros((0, 2), int)).T
    values = rng.integers(1, 10, rows.size) * rng.choice([-1, 1], rows.size)
    upper = sp.coo_array((values.astype(dtype), (rows, columns)), shape=(n, n))
    return sp.csr_array(upper + sp.triu(upper, 1).T)


def laid_out(A: sp.csr_array) -> Format:
    layout = lay_out(pattern_of(Matrix.from_any(A)), A.dtype, "dia-sym", sigma=1, block=1)
    layout.fill(A.data)
    return layout


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_and_within_its_range(dtype: str) -> None:
    for n in (1, 2, 31, 32, 65, 131, 200, 403):
        A = symmetric(n, dtype)
        layout = laid_out(A)
        source = np.random.default_rng(n).integers(-9, 10, n).astype(dtype)
        truth = A.toarray() @ source
        x, y = GUARD, 2 * GUARD + n
        w = np.full(y + n + GUARD, np.nan, dtype)
        w[x : x + n] = source
        for first in range(0, n, layout.align):
            expected, last = w.copy(), min(n, first + layout.align)
            expected[y + first : y + last] = truth[first:last]
            _call(layout.arrays, w, x, y, first, last)
            np.testing.assert_array_equal(w, expected, f"{n} rows, from {first}")


def test_a_value_is_stored_for_two_entries_and_the_rest_as_it_is() -> None:
    A = symmetric(3000, full=1.0)
    found, layout = diagonals_of(pattern_of(Matrix.from_any(A))), laid_out(A)
    assert tuple(found.offset) == OFFSETS
    off = np.abs(A.tocoo().row - A.tocoo().col)
    assert found.rest == np.isin(off, OFFSETS, invert=True).sum() > 50
    assert layout.stored < 0.57 * A.nnz + found.rest
    rows, columns = A.nonzero()
    slot = sp.csr_array((1 + np.asarray(layout.slot, dtype=np.int64), A.indices, A.indptr))  # type: ignore[arg-type]
    on = np.isin(off, OFFSETS)
    np.testing.assert_array_equal(slot[rows[on], columns[on]], slot[columns[on], rows[on]])
    sparse_ones = symmetric(3000, offsets=(0, 1, 9), full=0.25)
    assert diagonals_of(pattern_of(Matrix.from_any(sparse_ones))).offset.size == 0


def test_what_a_share_of_the_rows_reads_is_said() -> None:
    """Padding included, and no column beyond the matrix, whose last slice is not whole."""
    A = symmetric(1001, full=0.5, far=0)
    layout, pattern = laid_out(A), pattern_of(Matrix.from_any(A))
    cuts = np.append(np.arange(0, 1001, layout.align), 1001)
    low, high = dependencies(pattern, layout, cuts)
    assert low.min() >= 0
    assert high.max() == cuts.size - 2
    for block in range(cuts.size - 1):
        x = np.ones(1001)
        x[: cuts[low[block]]] = np.nan
        x[cuts[high[block] + 1] :] = np.nan
        w = np.concatenate([x, np.zeros(1001)])
        _call(layout.arrays, w, 0, 1001, int(cuts[block]), int(cuts[block + 1]))
        assert np.isfinite(w[1001 + cuts[block] : 1001 + cuts[block + 1]]).all()


@pytest.mark.parametrize("schedule", ["sweep", "wavefront"])
def test_bits_do_not_depend_on_the_number_of_threads(schedule: str) -> None:
    A = symmetric(4000)
    A.data = sp.csr_array(A).data / 40
    matrix, x = Matrix.from_any(A), np.random.default_rng(2).standard_normal((1, 4000))
    coefficients = as_coefficients(np.ones(4), np.zeros(4), np.zeros(4), matrix.dtype)
    found = []
    for threads in (1, 2, 3, 5):
        depth = {"k_per_pass": 4, "block_bytes": 8192} if schedule == "wavefront" else {}
        plan = Plan("cpu", schedule, "dia-sym", k=4, threads=threads, **depth)
        out = np.full((5, 1, 4000), np.nan)
        registry.get("cpu", schedule).prepare(matrix, plan).run(x, out, coefficients)
        found.append(out)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_it_is_offered_where_pattern_and_values_are_symmetric() -> None:
    def offered(A: Any) -> bool:
        space = build_space(Matrix.from_any(A), 4, host_device(), threads=2)
        assert "dia-sym" not in space.choices("ghost", "variant")
        return "dia-sym" in space.choices("sweep", "variant") and "dia-sym" in space.choices("wavefront", "variant")

    A = symmetric(4000)
    assert offered(A)
    assert offered(A.astype(np.float32))
    assert not offered(A.astype(np.complex128))
    other = A.copy()
    other[5, 12] += 1
    assert not offered(other)
    assert not offered(sp.csr_array(sp.triu(A)))
    assert not offered(sp.csr_array(sp.random_array((4000, 4000), density=1e-3, rng=np.random.default_rng(1))))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda A: A.astype(np.complex64), "real values"),
        (lambda A: sp.csr_array(sp.triu(A)), "pattern is not symmetric"),
        (lambda A: sp.csr_array(A @ sp.diags_array(np.arange(1.0, 4001.0))), "values are not symmetric"),
        (lambda A: symmetric(4000, offsets=(0,), far=200), "too few entries lie on diagonals"),
    ],
)
def test_what_it_cannot_store_is_refused_in_words(change: Any, words: str) -> None:
    matrix, plan = Matrix.from_any(change(symmetric(4000))), Plan("cpu", "sweep", "dia-sym", k=2)
    with pytest.raises(InfeasibleError, match=words):
        registry.get("cpu", "sweep").prepare(matrix, plan)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["natural", "rcm"])
def test_values_that_are_no_longer_symmetric_are_stored_in_full(order: str, threads: int) -> None:
    A = symmetric(3001, offsets=(0, 1), far=0)
    plan = Plan("cpu", "sweep", "dia-sym", order, k=2, threads=threads)
    matrix, x, out = Matrix.from_any(A), np.arange(3001.0)[None], np.empty((3, 1, 3001))
    program: Any = registry.get("cpu", "sweep").prepare(matrix, plan)
    coefficients = as_coefficients(np.ones(2), np.zeros(2), np.zeros(2), matrix.dtype)
    other = A.copy()
    other[7, 8], other[8, 7] = 3.0, -3.0
    for B, as_planned in ((2 * A, True), (other, False), (-other, False), (A, True), (other, False), (3 * A, True)):
        program.update_values(B.data)
        program.run(x, out, coefficients)
        np.testing.assert_array_equal(out[2, 0], B @ (B @ x[0]))
        assert program.is_as_planned is as_planned
        assert program.variant_instead == (None if as_planned else "csr")


def test_an_operator_goes_on_with_values_of_any_kind() -> None:
    A, x = symmetric(2000), np.arange(2000.0)
    plan = Plan("cpu", "sweep", "dia-sym", k=2, threads=2)
    op = akx.MatrixPowers(A, 2, plan=plan)
    other = sp.csr_array(A @ sp.diags_array(np.arange(2000.0) + 1))
    for B in (A, 3 * A, other, A):
        op.update_values(B)
        np.testing.assert_array_equal(op(x)[:, 2], B @ (B @ x))


@pytest.mark.parametrize("schedule", ["sweep", "wavefront"])
def test_an_explanation_says_how_a_given_plan_keeps_other_values(schedule: str) -> None:
    """And the bytes that are moved, which are those of the plan again where values are symmetric again."""
    A = symmetric(4000)
    depth = {"k_per_pass": 2, "block_bytes": 8192} if schedule == "wavefront" else {}
    op = akx.MatrixPowers(A, 2, plan=Plan("cpu", schedule, "dia-sym", k=2, threads=1, **depth))

    def lines() -> dict[str, str]:
        return {line[:12].strip(): line[12:] for line in op.explain(measure=False).splitlines()}

    op(np.ones(4000))
    before = lines()
    assert "values" not in before
    op.update_values(sp.csr_array(A @ sp.diags_array(np.arange(4000.0) + 1)))
    then = lines()
    assert then["plan"] == before["plan"]
    assert then["values"].startswith("kept as csr")
    assert "values are not symmetric" in then["values"]
    assert float(then["expected"].split()[0]) > float(before["expected"].split()[0])
    op.update_values(A)
    assert "values" not in lines()
    assert lines()["expected"] == before["expected"]


def test_a_tuned_plan_gives_way_to_values_that_are_not_symmetric(tmp_path: Path) -> None:
    A, x, db = symmetric(2000), np.arange(2000.0), akx.PlanDatabase(tmp_path / "plans.sqlite")
    plan = Plan("cpu", "sweep", "dia-sym", k=2, threads=1)
    db.put(PlanRecord(plan_key(Matrix.from_any(A), 2, threads=2), plan, 1e-3, "sweep/csr", 2e-3))
    op = akx.MatrixPowers(A, 2, db=db, threads=2)
    assert op.plan == plan
    op.update_values(2 * A)
    assert op.plan == plan
    other = sp.csr_array(A @ sp.diags_array(np.arange(2000.0) + 1))
    op.update_values(other)
    assert op.plan != plan
    assert "values are not symmetric" in op.explain(measure=False)
    np.testing.assert_array_equal(op(x)[:, 2], other @ (other @ x))


@pytest.mark.parametrize(("size", "far"), [(403, _FAR), (403, -1), (512, -1), (100_000, _FAR)])
def test_new_values_find_their_places(monkeypatch: pytest.MonkeyPatch, size: int, far: int) -> None:
    """Those of few rows, where they count as many, and of more than a thread does alone."""
    monkeypatch.setattr(value_update, "_FAR", far)
    diagonals = [np.arange(1.0, size + 1 - d) for d in (0, 1, 40)]
    A = sp.csr_array(sp.diags_array([*diagonals, *diagonals[1:]], offsets=[0, 1, 40, -1, -40]))
    op = akx.MatrixPowers(A, 1, plan=Plan("cpu", "sweep", "dia-sym", k=1, threads=2))
    for scale in (1.0, -0.5):
        op.update_values(scale * A)
        np.testing.assert_array_equal(op(np.ones(size))[:, 1], scale * A @ np.ones(size))


def test_symmetry_of_patterns_and_of_values() -> None:
    rng = np.random.default_rng(3)
    for number in range(60):
        n = int(rng.integers(1, 12))
        A = sp.csr_array(sp.random_array((n, n), density=rng.random(), rng=rng))
        if number % 2:
            A = sp.csr_array(A + A.T)
        if number % 4 == 3:
            A.data = rng.integers(1, 3, A.nnz).astype(float)
        A.sort_indices()
        there = A.toarray() != 0
        assert has_symmetric_pattern(pattern_of(Matrix.from_any(A))) == np.array_equal(there, there.T)
        if np.array_equal(there, there.T):
            is_so = np.array_equal(A.toarray(), A.toarray().T)
            assert has_symmetric_values(A.indptr, A.indices, A.data) == is_so


def test_the_model_counts_what_is_laid_out() -> None:
    matrix = Matrix.from_any(symmetric(20_000, full=1.0))
    plan = Plan("cpu", "sweep", "dia-sym", k=2, threads=2)
    program: Any = registry.get("cpu", "sweep").prepare(matrix, plan)
    arrays = program._layout.arrays
    held = arrays.values.nbytes + arrays.column.nbytes + arrays.row.nbytes
    assert bytes_per_entry(plan, matrix) * padding_of(plan, matrix) * matrix.nnz == pytest.approx(held, rel=1e-3)
    assert held < 6.5 * matrix.nnz
    assert 1 <= multiplied(plan, matrix) < 1.2
