"""Hypergraph partitioning by Mt-KaHyPar (optional): parts of equal weight with the least communication volume.

The column-net model (Catalyurek, Aykanat 1999): rows are vertices, and column j is a net of the rows that read x_j and
of row j, which owns it. A net that touches lambda parts costs lambda - 1 ("km1"), exactly the copies of x_j that a step
of k = 1 sends; unlike the edge cut it is right for nonsymmetric patterns and for rows read by many.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from akx.core.errors import MissingDependencyError
from akx.partition.adjacency import transposed, unsigned_pattern
from akx.partition.base import IndexArray
from akx.partition.metis import checked_parts, checked_weights, flop_weights

__all__ = ["hypergraph_partition"]


def hypergraph_partition(
    indptr: IndexArray,
    indices: IndexArray,
    parts: int,
    *,
    weights: ArrayLike | None = None,
    imbalance: float = 0.03,
    seed: int = 0,
    threads: int = 1,
) -> NDArray[np.int32]:
    """Part numbers of the rows, by Mt-KaHyPar's deterministic preset on the column-net hypergraph.

    Parameters and result are those of :func:`akx.partition.metis.metis_partition`, and:

    Parameters
    ----------
    imbalance : float
        How much heavier than the mean a part may be.
    threads : int
        Threads of the partitioner; the same seed gives the same parts, whatever their number.

    Raises
    ------
    MissingDependencyError
        Where mtkahypar is not installed.
    """
    pointer, columns = unsigned_pattern(indptr, indices)
    n = pointer.size - 1
    vertex_weights = flop_weights(pointer) if weights is None else checked_weights(weights, n)
    count = checked_parts(parts)
    if count == 1 or n <= 1:
        return np.zeros(n, dtype=np.int32)
    if count >= n:
        return np.arange(n, dtype=np.int32)
    try:
        import mtkahypar
    except ImportError as error:
        raise MissingDependencyError(
            "mtkahypar is not installed", expected="it for hypergraph partitions", hint="pip install 'akx[hypergraph]'"
        ) from error
    nets = _nets(*transposed(pointer, columns))
    kahypar = mtkahypar.initialize(int(threads), False)
    mtkahypar.set_seed(int(seed))
    context = kahypar.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(count, float(imbalance), mtkahypar.Objective.KM1)
    context.logging = False
    hypergraph = kahypar.create_hypergraph(
        context, n, len(nets), nets, np.maximum(vertex_weights, 1).tolist(), [1] * len(nets)
    )
    return np.asarray(hypergraph.partition(context).get_partition()).astype(np.int32)


def _nets(t_pointer: NDArray[np.uint64], t_rows: NDArray[np.uint64]) -> list[list[int]]:
    """The pins of each column with two or more of them, its own row included, as the lists the library asks for."""
    rows = t_rows.tolist()
    nets = [rows[first:stop] for first, stop in pairwise(t_pointer.tolist())]
    own = np.repeat(np.arange(len(nets)), [len(net) for net in nets])
    for j in np.setdiff1d(np.arange(len(nets)), own[t_rows == own]).tolist():
        nets[j].append(j)
    return [net for net in nets if len(net) > 1]
