"""A compiled scan of the body of a Matrix Market file: is every line what the header promises?

Fast readers of numbers stop at the first character they do not understand and drop the rest: ``1.5D+01`` is read as
1.5, ``1 1 2.0 7`` as an entry, and a stray NUL crashes SciPy's. So each byte first runs through a small automaton
for ``index index value...`` lines, at several hundred MB/s, and what passes is read by SciPy.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["BAD_COUNT", "BAD_TOKEN", "INDEX", "INTEGER", "REAL", "scan_body"]

#: Kinds of number: digits; digits with a sign; a decimal number with an exponent (E or D), NaN or Inf.
INDEX, INTEGER, REAL = 0, 1, 2
#: What can be wrong with a line.
BAD_TOKEN, BAD_COUNT = 1, 2

#: A long body is scanned in parts, cut at line ends, by as many threads.
_PART_BYTES, _MOST_PARTS = 4 * 1024 * 1024, 8

_CHARACTERS = 256
#: What the table holds beside the next state (0 to 31): the number ends; it ends with its line; the line ends; a
#: comment begins; no number has this character here.
_END, _END_LINE, _LINE, _COMMENT, _REJECT = 32, 33, 34, 35, 36
#: States: 0 before a number, 1 behind its sign, 2 in digits, 3 behind a point, 4 in a fraction, 5 behind the mark of an
#: exponent, 6 behind its sign, 7 in it; then the letters of words. For each kind: states, characters, the next state.
_WORDS: list[tuple[tuple[int, ...], str, int]] = [
    ((first + step - 1,) if step else (0, 1), letter + letter.upper(), first + step)
    for first, word in ((8, "infinity"), (16, "nan"))
    for step, letter in enumerate(word)
]
_DIGITS = "0123456789"
_ARCS: dict[int, list[tuple[tuple[int, ...], str, int]]] = {
    INDEX: [((0, 2), _DIGITS, 2)],
    INTEGER: [((0,), "+-", 1), ((0, 1, 2), _DIGITS, 2)],
    REAL: [
        *(((0,), "+-", 1), ((0, 1, 2), _DIGITS, 2), ((0, 1), ".", 3), ((2,), ".", 4), ((3, 4), _DIGITS, 4)),
        *(((2, 4), "eEdD", 5), ((5,), "+-", 6), ((5, 6, 7), _DIGITS, 7), *_WORDS),
    ],
}
#: States that a number can end in: digits, a fraction, an exponent, inf, infinity, nan; INDEX and INTEGER have one.
_LAST = (2, 4, 7, 10, 15, 18)


def _table() -> NDArray[np.int32]:
    """What follows, by (kind, state, byte), for one addition and one load: offsets of states, others negative."""
    table = np.full((3, _END, _CHARACTERS), _REJECT, dtype=np.int64)
    for kind, arcs in _ARCS.items():
        for states, characters, target in arcs:
            table[np.ix_([kind], states, [ord(character) for character in characters])] = target
    for character, before, behind in (("\t", 0, _END), ("\r", 0, _END), (" ", 0, _END), ("\n", _LINE, _END_LINE)):
        table[:, 0, ord(character)] = before
        table[:, _LAST, ord(character)] = behind
    table[:, 0, ord("%")] = _COMMENT
    offset = (np.arange(3)[:, None, None] * _END + table) * _CHARACTERS
    return np.where(table < _END, offset, -table).astype(np.int32).reshape(-1)


_TABLE = _table()
_KIND_OFFSET = _END * _CHARACTERS


@njit(nogil=True, cache=True)
def _scan(octets: NDArray[np.uint8], kinds: NDArray[np.int64], table: NDArray[np.int32]) -> tuple[int, int, int]:
    entries, line, tokens = 0, 0, 0
    start = kinds[0] * _KIND_OFFSET
    state = start
    p = 0
    while p < octets.size:
        following = np.int64(table[state + octets[p]])
        p += 1
        if following >= 0:
            if tokens == kinds.size and following != start:
                return BAD_COUNT, line, entries
            state = following
            continue
        if following == -_REJECT or (following == -_COMMENT and 0 < tokens < kinds.size):
            return (BAD_COUNT if tokens == kinds.size else BAD_TOKEN), line, entries
        if following == -_COMMENT:
            while p < octets.size and octets[p] != 10:
                p += 1
            continue
        if following != -_LINE:
            tokens += 1
        if following != -_END:
            if tokens and tokens != kinds.size:
                return BAD_COUNT, line, entries
            entries += tokens > 0
            tokens = 0
            line += 1
        if tokens < kinds.size:
            start = kinds[tokens] * _KIND_OFFSET
        state = start
    return 0, line, entries


def scan_body(body: bytes, kinds: tuple[int, ...]) -> tuple[int, int, int]:
    """Check that every line but blanks and comments holds one number of each of `kinds`, in that order.

    `body` ends with a newline; `kinds` are ``INDEX``, ``INTEGER`` or ``REAL``. Returns the problem: 0, ``BAD_TOKEN``
    (not a number of the kind) or ``BAD_COUNT`` (too few or too many numbers); its line, from 0; good lines before it.
    """
    octets, wanted = np.frombuffer(body, dtype=np.uint8), np.array(kinds, dtype=np.int64)
    parts = max(1, min(_MOST_PARTS, os.cpu_count() or 1, len(body) // _PART_BYTES))
    cuts = [body.find(b"\n", len(body) * part // parts) + 1 for part in range(1, parts)]
    spans = zip([0, *cuts], [*cuts, len(body)], strict=True)
    with ThreadPoolExecutor(parts) as pool:
        results = list(pool.map(lambda span: _scan(octets[span[0] : span[1]], wanted, _TABLE), spans))
    lines, good = 0, 0
    for problem, line, entries in results:
        lines, good = lines + int(line), good + int(entries)
        if problem:
            return int(problem), lines, good
    return 0, lines, good
