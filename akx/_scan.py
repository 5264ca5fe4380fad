"""A compiled scan of the body of a Matrix Market file: is every line what the header promises?

Fast readers of numbers stop at the first character they do not understand and drop the rest: ``1.5D+01`` is read as
1.5, ``1 1 2.0 7`` as an entry, and a stray NUL crashes SciPy's. So each byte first runs through a small automaton
for ``index index value...`` lines, at several hundred MB/s, and what passes is read by SciPy.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["BAD_COUNT", "BAD_TOKEN", "FLAG_COMMENT", "FLAG_D", "FLAG_PLUS", "INDEX", "INTEGER", "REAL", "scan_body"]

#: Kinds of number: digits; digits with a sign; a decimal number with an exponent (E or D), NaN or Inf.
INDEX, INTEGER, REAL = 0, 1, 2
#: What can be wrong with a line.
BAD_TOKEN, BAD_COUNT = 1, 2
#: What SciPy's reader does not take: an exponent with D; a leading plus; a comment among the entries.
FLAG_D, FLAG_PLUS, FLAG_COMMENT = 1, 2, 4

_REJECT = 255
_CHARACTERS = 256


def _tables() -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Next state by (kind, state, byte) and accepting states; state 0 is before the first character."""
    sign, whole, point, fraction, mark, mark_sign, exponent = 1, 2, 3, 4, 5, 6, 7
    words = {"inf": 8, "infinity": 16, "nan": 24}  # first state of each word's letters
    states = 32
    table = np.full((3, states, _CHARACTERS), _REJECT, dtype=np.uint8)
    accept = np.zeros((3, states), dtype=np.bool_)

    def arc(kind: int, origin: int, characters: str, target: int) -> None:
        for character in characters:
            table[kind, origin, ord(character)] = target

    digits = "0123456789"
    for kind in (INDEX, INTEGER, REAL):
        arc(kind, 0, digits, whole)
        arc(kind, whole, digits, whole)
        accept[kind, whole] = True
    for kind in (INTEGER, REAL):
        arc(kind, 0, "+-", sign)
        arc(kind, sign, digits, whole)
    for origin in (0, sign):
        arc(REAL, origin, ".", point)
    arc(REAL, whole, ".", fraction)
    for origin in (point, fraction):
        arc(REAL, origin, digits, fraction)
    for origin in (whole, fraction):
        arc(REAL, origin, "eEdD", mark)
    arc(REAL, mark, "+-", mark_sign)
    for origin in (mark, mark_sign, exponent):
        arc(REAL, origin, digits, exponent)
    accept[REAL, [fraction, exponent]] = True
    for word in ("infinity", "nan"):
        previous: tuple[int, ...] = (0, sign)
        for step, letter in enumerate(word):
            target = words[word] + step
            for origin in previous:
                arc(REAL, origin, letter + letter.upper(), target)
            previous = (target,)
        accept[REAL, target] = True
    accept[REAL, words["infinity"] + 2] = True  # "inf"
    return table, accept


_TABLE, _ACCEPT = _tables()


@njit(nogil=True, cache=True)
def _scan(
    octets: NDArray[np.uint8],
    kinds: NDArray[np.uint8],
    table: NDArray[np.uint8],
    accept: NDArray[np.bool_],
) -> tuple[int, int, int, int]:
    entries, line, tokens, flags = 0, 0, 0, 0
    state = np.uint8(0)
    kind = kinds[0]
    comment = False
    for p in range(octets.size + 1):
        octet = octets[p] if p < octets.size else np.uint8(10)
        if comment and octet != 10:
            continue
        if octet == 32 or octet == 9 or octet == 10 or octet == 13:
            if state != 0:
                if not accept[kind, state]:
                    return BAD_TOKEN, line, entries, flags
                state = np.uint8(0)
                tokens += 1
                if tokens < kinds.size:
                    kind = kinds[tokens]
            if octet == 10:
                comment = False
                if tokens:
                    if tokens != kinds.size:
                        return BAD_COUNT, line, entries, flags
                    entries += 1
                    tokens = 0
                    kind = kinds[0]
                line += 1
        elif octet == 37 and state == 0 and tokens == 0:
            flags |= FLAG_COMMENT
            comment = True
        else:
            if tokens == kinds.size:
                return BAD_COUNT, line, entries, flags
            if octet == 43 and state == 0:
                flags |= FLAG_PLUS
            elif octet == 68 or octet == 100:
                flags |= FLAG_D
            state = table[kind, state, octet]
            if state == _REJECT:
                return BAD_TOKEN, line, entries, flags
    return 0, line, entries, flags


def scan_body(body: bytes, kinds: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Check that every line but blanks and comments holds one number of each of `kinds`, in that order.

    Returns
    -------
    problem : int
        0, ``BAD_TOKEN`` (not a number of the kind) or ``BAD_COUNT`` (too few or too many numbers).
    line : int
        Where the problem is, from 0.
    entries : int
        Good lines before the problem.
    flags : int
        ``FLAG_D``, ``FLAG_PLUS`` and ``FLAG_COMMENT`` where such was seen, or-ed together.
    """
    octets = np.frombuffer(body, dtype=np.uint8)
    problem, line, entries, flags = _scan(octets, np.array(kinds, dtype=np.uint8), _TABLE, _ACCEPT)
    return int(problem), int(line), int(entries), int(flags)
