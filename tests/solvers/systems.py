"""Small systems that every solver of a family should solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def spd(n: int = 300, dtype: Any = float) -> sp.csr_array:
    """Hermitian positive definite, condition about 40: a chain with a varying diagonal; complex with complex phases."""
    diagonal = 2.1 + np.abs(np.sin(np.arange(n)))
    off = -np.ones(n - 1, dtype=dtype)
    if np.dtype(dtype).kind == "c":
        off = off * np.exp(0.7j * np.arange(n - 1))
    return sp.csr_array(sp.diags_array([off.conj(), diagonal, off], offsets=[-1, 0, 1]).astype(dtype))


def nonsymmetric(n: int = 300, dtype: Any = float) -> sp.csr_array:
    """Convection and diffusion along a line, upwinded, with a spectrum in the right half plane."""
    A = sp.diags_array([-1.6, 3.0, -0.6, 0.3], offsets=[-1, 0, 1, 7], shape=(n, n)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        A = A + sp.diags_array(0.4j * np.cos(np.arange(n)))
    return sp.csr_array(A.astype(dtype))


def is_of_hermitian(name: str) -> bool:
    """Whether a solver is for Hermitian matrices alone."""
    return name.endswith(("cg", "minres"))


def fitting(name: str, n: int = 300, dtype: Any = float) -> sp.csr_array:
    """A matrix that the solver is meant for."""
    return spd(n, dtype) if is_of_hermitian(name) else nonsymmetric(n, dtype)


def rhs(n: int, dtype: Any = float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    b = rng.standard_normal(n)
    return (b + 1j * rng.standard_normal(n) if np.dtype(dtype).kind == "c" else b).astype(dtype)


def relative(A: Any, x: np.ndarray, b: np.ndarray) -> float:
    """||b - A x|| / ||b||."""
    return float(np.linalg.norm(b - A @ x) / np.linalg.norm(b))


def outliers(seed: int, small: float, largest: float, n: int = 2000) -> tuple[Any, Any]:
    """Eigenvalues 1 .. 2, three tiny and three large ones, and b, which has little of the large ones."""
    random = np.random.default_rng(seed)
    values = np.linspace(1, 2, n)
    values[:3] = 1e-3, 3e-3, 1e-2
    values[-3:] *= largest
    b = random.standard_normal(n)
    b[-3:] *= small
    return sp.csr_array(sp.diags_array(values)), b


#: What :func:`outliers` takes: how little of the large ones is in b, and how large they are.
FAR = [(1e-5, 1e3), (1e-8, 1e3), (1e-8, 10.0), (1e-3, 1e2)]


def steps_with_outliers(solve: Any, small: float, largest: float, basis: str, seeds: int = 12) -> np.ndarray:
    """Steps of ca_cg over those of cg for :func:`outliers`, s = 6 and 12, ascending; each solve is checked.

    What becomes of one of them depends on the last bits, and so on the processor: of all together it does not.

    Parameters
    ----------
    solve : callable
        ``solve(method, A, b, rtol=, ...)`` gives x, info and stats.
    """
    ratios = []
    for seed in range(seeds):
        A, b = outliers(seed, small, largest)
        classic = solve("cg", A, b, rtol=1e-12)[2].iterations
        for s in (6, 12):
            x, info, stats = solve("ca_cg", A, b, rtol=1e-12, s=s, basis=basis, maxiter=300)
            assert info == 0
            assert relative(A, x, b) <= 1e-12
            ratios.append(stats.iterations / classic)
    return np.sort(ratios)
