"""Reading the same words again and again: what the memories of a processor can do at most."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["read_again"]


@njit(nogil=True, cache=True)
def read_again(words: NDArray[Any], turns: int) -> Any:
    """The sum of ``words[i] xor t`` over all words and all t below `turns`, modulo 2^64.

    Every turn is another sum, so that no turn can be left out.

    `words`: (n,).
    """
    total = np.uint64(0)
    for turn in range(turns):
        mask = np.uint64(turn)
        for i in range(words.size):
            total += words[i] ^ mask
    return total
