"""Memory of results, and how vectors are turned."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import result_pool as results

SHAPE = (9, 2, 10_000)


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    results.forget()


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_for_the_next_result_when_the_last_view_is_gone() -> None:
    V = results.new_result(SHAPE, np.dtype(float))
    place, view = address(V), V[3].T
    del V
    assert address(results.new_result(SHAPE, np.dtype(float))) != place, "a view is left"
    results.forget()
    del view
    gc.collect()
    assert address(results.new_result((20_000, 9), np.dtype(float))) == place, "of the same size"


def test_what_stays_is_bounded_and_forgotten_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT_BYTES", 4 << 20)
    several = [results.new_result(SHAPE, np.dtype(float)) for _ in range(5)]
    large = results.new_result((1 << 20,), np.dtype(float))
    del several, large
    assert 0 < sum(one.size for one in results._KEPT) <= results.KEPT_BYTES
    akx.clear_cache()
    assert not results._KEPT


def test_results_of_calls_are_apart_while_they_are_held() -> None:
    A = sp.eye_array(20_000, format="csr") * 2.0
    first = akx.matrix_powers(A, np.ones(20_000), 8)
    kept = first.copy()
    second = akx.matrix_powers(A, np.full(20_000, 3.0), 8)
    np.testing.assert_array_equal(first, kept)
    del second
    np.testing.assert_array_equal(akx.matrix_powers(A, np.ones(20_000), 8), kept)


def test_threads_never_get_the_same_memory() -> None:
    wrong = []

    def work(number: int) -> None:
        for _ in range(200):
            V = results.new_result((1 << 17,), np.dtype(float))
            V[::1024] = number
            if not np.all(V[::1024] == number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("shape", [(1000, 3), (1000, 17), (17, 1000), (5, 4), (40, 40)])
def test_turned_is_transposed(shape: tuple[int, int]) -> None:
    rows = np.arange(np.prod(shape), dtype=float).reshape(shape)
    into = np.empty(shape[::-1])
    results.turn(rows, into)
    np.testing.assert_array_equal(into, rows.T)
    np.testing.assert_array_equal(results.rows_of(rows.T, np.dtype(np.float32)), rows.T)
