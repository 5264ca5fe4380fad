"""Checksums (:mod:`akx._checksum`) by a team of threads that listen for the next ones: what a call reads beside a GPU.

Each thread has a share of every array. In a row of calls it begins within a microsecond; a thread that is woken comes
a twentieth of a millisecond later, by when a core has read a megabyte.

Bytes: each array is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx._checksum import checksums, compiled_sum, end_of, words_of
from akx.device.forks import ForkSafeLock
from akx.errors import DeviceError
from akx.kernels.cpu.jit import jit
from akx.kernels.cpu.sync import (
    advanced,
    array_at,
    begin,
    finish,
    first_part,
    hold_undone,
    let_go,
    part_count,
    turn,
)
from akx.kernels.cpu.team import Job

__all__ = ["sums_of"]

#: Arrays of a matrix, at most.
_MOST = 3
_word_sum = compiled_sum()
_LOCK = ForkSafeLock()
#: By threads: the job, where arrays are and how long, and the sums of each thread.
_JOBS: dict[int, tuple[Job, NDArray[np.int64], NDArray[np.uint64]]] = {}


def sums_of(arrays: Sequence[NDArray[Any]], threads: int) -> list[int]:
    """The checksum of each of up to three arrays, by so many threads, at least 2."""
    parts = [words_of(array) for array in arrays]
    with _LOCK:
        if threads not in _JOBS:
            words, sums = np.zeros(2 * _MOST, dtype=np.int64), np.zeros((threads, _MOST), dtype=np.uint64)
            _JOBS[threads] = Job(_sum, (words, sums), threads, np.dtype(np.uint64)), words, sums
        job, words, sums = _JOBS[threads]
        words[:] = 0
        for number, (own, _, _) in enumerate(parts):
            words[2 * number : 2 * number + 2] = own.__array_interface__["data"][0], own.size
        try:
            job.run(*job.empty)
        except DeviceError:  # from a signal handler in the midst of a call
            return checksums(arrays, threads=threads)
        found = [int(one) for one in sums.sum(axis=0, dtype=np.uint64)]
    return [(one + end_of(*part)) % 2**64 for one, part in zip(found, parts, strict=False)]


@jit
def _sum(words: Any, sums: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool) -> Any:
    """A job of a team (:mod:`akx.kernels.cpu.sync`); words: address and number of those of each array. x: not used."""
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    while number > 0:
        part, idle = first_part(calls, thread), 0
        while part >= 0:
            idle += 1
            if hold_undone(calls, thread, number, part):
                parts = part_count(calls)
                for one in range(_MOST):
                    own = array_at(words[2 * one], words[2 * one + 1], sums)
                    first, last = own.size * part // parts, own.size * (part + 1) // parts
                    sums[part, one] = _word_sum(own[first:last], np.uint64(first))
                advanced(calls, number, part, 1, 1)
                let_go(calls, thread, number, part)
                idle = 0
            part = turn(calls, thread, number, part, idle)
        number = finish(calls, thread, number)
    return number == 0
