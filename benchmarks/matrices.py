"""What is measured: the gallery, and the real matrices that lie beside the repository in ../shared/matrices.

Matrices of few values (``NAME-constant``, the group ``constant``) and large ones (the group ``large``) are only taken
where they are named.

A real matrix is divided by the power of two that brings its largest row sum to 1 or less, which changes no bit of any
mantissa and keeps k = 16 powers from overflowing. Matrices that are not square, or have fewer than 10,000 entries
(samples for readers), are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx.core.errors import AkxError
from benchmarks.gallery import CONSTANT, GALLERY, IRREGULAR, LARGE, small

__all__ = ["LEAST_ENTRIES", "REAL", "Case", "available", "select"]

#: Where the real matrices are, if they are.
REAL = Path(__file__).resolve().parents[2] / "shared" / "matrices"
LEAST_ENTRIES = 10_000
_SUFFIXES = (".mtx.gz", ".mtx", ".npz", ".tar.gz", ".rsa", ".rua", ".mat")
_LOWER = "_lower"


@dataclass(frozen=True)
class Case:
    """A matrix to measure: its name, group (gallery, real, constant or large), and how to make it.

    `reordered` asks for the extra figure of a plain sweep on the matrix in a better order: for gallery matrices that
    come in a random one.
    """

    name: str
    group: str
    load: Callable[[], sparse.csr_array]
    reordered: bool = False


def available(folder: Path = REAL, *, reduced: bool = False) -> Iterator[Case]:
    """Every case, the gallery first; `reduced` gives the gallery in its small form. A real one may yet be refused."""
    for name, make in GALLERY.items():
        yield _made(name, "gallery", make, reduced)
    for path in sorted(folder.iterdir(), key=lambda p: p.name.lower()) if folder.is_dir() else ():
        suffix = next((s for s in _SUFFIXES if path.name.endswith(s)), None)
        if suffix is not None and path.is_file():
            name = path.name.removesuffix(suffix).removesuffix(_LOWER)
            yield Case(name, "real", partial(_read, path))


def select(names: Sequence[str] | None, folder: Path = REAL, *, reduced: bool = False) -> list[Case]:
    """The cases called `names` (groups stand for their matrices), or all that are available. Raises KeyError."""
    cases = list(available(folder, reduced=reduced))
    if not names:
        return cases
    cases += [_made(name, "constant", make, reduced) for name, make in CONSTANT.items()]
    cases += [_made(name, "large", make, reduced) for name, make in LARGE.items()]
    for name in names:
        if not any(name in (case.name, case.group) for case in cases):
            raise KeyError(name)
    return [case for case in cases if case.name in names or case.group in names]


def _made(name: str, group: str, make: Callable[[], sparse.csr_array], reduced: bool) -> Case:
    irregular = name.removesuffix("-constant") in IRREGULAR
    return Case(name, group, partial(small, name) if reduced else make, irregular)


def _read(path: Path) -> sparse.csr_array:
    """Read, complete and scale a real matrix. Raises ValueError where it is not one to measure."""
    import akx

    try:
        matrix = sparse.csr_array(akx.read_matrix(path))
    except AkxError as error:
        raise ValueError(str(error)) from error
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"not square: {matrix.shape[0]} x {matrix.shape[1]}")
    if path.stem.endswith(_LOWER):
        matrix = sparse.csr_array(matrix + matrix.T - sparse.diags_array(matrix.diagonal()))
    if matrix.nnz < LEAST_ENTRIES:
        raise ValueError(f"only {matrix.nnz} entries")
    return _scaled(matrix)


def _scaled(matrix: sparse.csr_array) -> sparse.csr_array:
    values: Any = matrix.data
    if values.dtype.kind not in "fc":
        values = values.astype(np.float64)
    largest = float(abs(matrix).sum(axis=1).max())
    factor = 2.0 ** -np.ceil(np.log2(largest)) if largest > 0 else 1.0
    return sparse.csr_array((values * values.dtype.type(factor), matrix.indices, matrix.indptr), shape=matrix.shape)
