"""How fast balls grow in the graph of a matrix: what ghost zones of compact blocks cost, without cutting any.

B(r) is the set of rows within r steps row -> column of a row. A compact block of m rows is about a ball of the radius r
with |B(r)| = m, and its rows at distance <= d are about B(r + d) (exactly so for a ball in a graph of uniform growth).
Hence, for k steps,

    closure  ~ |B(r + k - 1)| / m          rows computed at all, over own rows
    work     ~ mean_{d < k} |B(r + d)| / m     row products over those needed: the redundancy

with |B| the mean over a few rows, interpolated between whole radii. In a 2-D 9-point grid (2 r + 1)^2, as for squares.
Cost: a breadth-first search from each of the rows, up to the size asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["ball_sizes", "closure_and_work", "grow"]

#: Rows that balls are grown around.
_SAMPLES = 8
#: How many times larger than the last one measured a ball is taken to be at most.
_FAR = 100.0


def ball_sizes(indptr: NDArray[Any], indices: NDArray[Any], most: int) -> NDArray[np.float64]:
    """Mean |B(r)| over rows at even distances in the order given, for r = 0, 1, ... until one ball has `most` rows.

    `indptr` (n+1,) and `indices` (nnz,), unsigned, are a CSR pattern, n at least 1.
    """
    n = indptr.size - 1
    centres = (np.arange(_SAMPLES) * n + n // 2) // _SAMPLES
    found = [grow(indptr, indices, int(centre), int(most), n) for centre in centres]
    radii = min((s.size for s in found if s[-1] >= most), default=max(s.size for s in found))
    # A ball that has taken all it can reach stays as it is.
    full = [np.append(sizes, np.full(max(0, radii - sizes.size), sizes[-1]))[:radii] for sizes in found]
    return np.asarray(np.mean(full, axis=0), dtype=np.float64)


def closure_and_work(sizes: NDArray[np.float64], rows: float, k: int) -> tuple[float, float]:
    """Rows computed over own rows, and the redundancy, of compact blocks of `rows` rows each in k steps."""
    own = max(rows, 1.0)
    if sizes[-1] <= own:
        return 1.0, 1.0
    radii = np.arange(sizes.size)
    last = int(np.searchsorted(sizes, own, side="right"))  # sizes[last] is the first larger than own
    radius = last - 1 + (own - sizes[last - 1]) / (sizes[last] - sizes[last - 1]) if last else 0.0
    wanted = radius + np.arange(k)
    # Beyond the last radius it is taken to go on as it did: a ball that was cut short is no ball that has ended.
    ratio = sizes[-1] / sizes[-2] if sizes.size > 1 else 1.0
    beyond = np.minimum(ratio ** np.maximum(0.0, wanted - radii[-1]), _FAR)
    grown = np.interp(wanted, radii, sizes) * beyond / own
    return float(grown[-1]), float(grown.mean())


@njit(cache=True, nogil=True)
def grow(indptr: Any, indices: Any, centre: int, most: int, depth: int) -> Any:
    """Rows within r steps of a row, for r = 0, 1, ... until there are `most`, or r is `depth`, or there are no more."""
    n = indptr.size - 1
    seen = np.zeros(n, np.bool_)
    queue = np.empty(n, np.int64)
    sizes = np.empty(n + 1, np.float64)
    queue[0] = centre
    seen[centre] = True
    head, tail, radius = 0, 1, 0
    sizes[0] = 1.0
    while tail < most and radius < depth:
        end = tail
        for t in range(head, end):
            row = queue[t]
            for p in range(np.int64(indptr[row]), np.int64(indptr[row + 1])):
                j = np.int64(indices[p])
                if not seen[j]:
                    seen[j] = True
                    queue[tail] = j
                    tail += 1
        head = end
        if tail == end:
            break
        radius += 1
        sizes[radius] = tail
    return sizes[: radius + 1].copy()
