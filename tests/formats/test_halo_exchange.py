"""What parts publish: the protocol of ``exchange.cuh``, where what is taken back is seen as late as a fence lets it."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from akx.backends.cuda.variants.block_local.exchange import ABSENT, TURNS

ABSENT_PLACE = -1


def run_often(reads: list[set[int]], turns: int) -> None:
    for seed in range(200):
        run(reads, 40, turns, seed)


def run(reads: list[set[int]], steps: int, turns: int, seed: int) -> None:
    """Parts that exchange `steps` times, in any order; raises AssertionError where one takes what is out of date.

    A part publishes its number m, and ends the step when it has found the number of all that it reads. What it takes
    back in a step is seen when the step after has ended, and not before.
    """
    rng, count = random.Random(seed), len(reads)
    memory = [[ABSENT_PLACE] * turns for _ in reads]
    step, published = [1] * count, [False] * count
    taken: list[list[int]] = [[] for _ in reads]  # slots taken back in this step
    unseen: list[list[int]] = [[] for _ in reads]  # and in the step before
    while min(step) <= steps:
        g = rng.choice([g for g in range(count) if step[g] <= steps])
        m = step[g]
        if not published[g]:
            if m > 2:
                taken[g].append((m - 2) % turns)
            for slots in (taken[g], unseen[g]):  # a later value of the same place comes later
                if m % turns in slots:
                    slots.remove(m % turns)
            memory[g][m % turns], published[g] = m, True
        found = [memory[q][m % turns] for q in reads[g]]
        if ABSENT_PLACE in found:
            continue
        assert found == [m] * len(found), "out of date"
        for slot in unseen[g]:
            memory[g][slot] = ABSENT_PLACE
        unseen[g], taken[g] = taken[g], []
        step[g], published[g] = m + 1, False


CHAIN = [{1}, {0, 2}, {1, 3}, {2}]
RING = [{1, 4}, {0, 2}, {1, 3}, {2, 4}, {3, 0}]


@pytest.mark.parametrize("reads", [CHAIN, RING, [{1}, {0}]])
def test_nobody_takes_what_is_out_of_date(reads: list[set[int]]) -> None:
    run_often(reads, TURNS)


def test_with_fewer_turns_somebody_does() -> None:
    with pytest.raises(AssertionError, match="out of date"):
        run_often(CHAIN, TURNS - 1)


def test_who_reads_is_read_from_or_what_he_needs_is_taken_back() -> None:
    with pytest.raises(AssertionError, match="out of date"):
        run_often([set(), {0}, {1}], TURNS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_arithmetic_makes_what_stands_for_nothing(dtype: str) -> None:
    """It is a signalling NaN, the quiet bit of which is zero, and arithmetic returns quiet ones."""
    kind, size = np.dtype(dtype), np.dtype(dtype).itemsize
    absent = np.array([ABSENT[dtype]] * (size // 4), dtype=np.uint32).view(kind)
    quiet = np.array([1 << (22 if size == 4 else 51)], dtype=f"u{size}")
    assert np.isnan(absent).all()
    assert not (absent.view(quiet.dtype) & quiet).any()
    with np.errstate(invalid="ignore"):
        for a, b in itertools.product((absent, np.ones(1, kind)), repeat=2):
            made = a * b + a
            assert not np.isnan(made).any() or (made.view(quiet.dtype) & quiet).any()
