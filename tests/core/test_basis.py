from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import mmread

from akx.core.basis import (
    Basis,
    Ellipse,
    capacity,
    chebyshev,
    estimate_spectrum,
    leja_order,
    make_basis,
    monomial,
    newton,
)
from akx.core.errors import ArgumentError, ArgumentTypeError

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def polynomials(basis: Basis, z: np.ndarray) -> np.ndarray:
    """p_0 .. p_k at the points z, by the recurrence."""
    values = [np.ones_like(z, dtype=complex)]
    for j in range(basis.k):
        before = values[j - 1] if j else 0.0
        values.append(basis.a[j] * z * values[j] + basis.b[j] * values[j] + basis.c[j] * before)
    return np.array(values)


def vectors(basis: Basis, A: np.ndarray, x: np.ndarray) -> np.ndarray:
    V = [x]
    for j in range(basis.k):
        V.append(A @ V[j] * basis.a[j] + basis.b[j] * V[j] + (basis.c[j] * V[j - 1] if j else 0))
    return np.array(V).T


def some_bases(k: int) -> list[Basis]:
    return [
        monomial(k),
        newton([0.5, -1.0, 2.0], k),
        newton([1 + 2j, 1 - 2j, -1.0, 0.5 + 1j, 0.5 - 1j], k, scale=1.7),
        newton([1 + 2j, -1j], k, real=False),
        chebyshev(k, (-2.0, 3.0)),
        chebyshev(k, ellipse=Ellipse(0.5, 2.0, 1.0)),
        chebyshev(k, ellipse=Ellipse(0.5, 1.0, 2.0)),
        chebyshev(k, ellipse=Ellipse(0.5 + 0.1j, 1.0, 1.0)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_b_identity(k: int, dtype: type) -> None:
    rng = np.random.default_rng(k)
    n = 30
    A = rng.standard_normal((n, n)) / np.sqrt(n)
    x = rng.standard_normal(n)
    if np.dtype(dtype).kind == "c":
        A, x = A + 1j * rng.standard_normal((n, n)) / np.sqrt(n), x + 1j * rng.standard_normal(n)
    A, x = A.astype(dtype), x.astype(dtype)
    for basis in some_bases(k):
        V = vectors(basis, A, x).astype(np.result_type(dtype, np.complex64) if not basis.is_real else dtype)
        B = basis.matrix()
        assert B.shape == (k + 1, k)
        tolerance = 50 * np.finfo(dtype).eps * np.linalg.norm(V) * np.linalg.norm(B)
        np.testing.assert_allclose(A @ V[:, :-1], V @ B.astype(V.dtype), atol=tolerance, rtol=0)


def test_monomial_is_powers() -> None:
    z = np.array([2.0, -3.0, 1j])
    np.testing.assert_allclose(polynomials(monomial(5), z), [z**j for j in range(6)])


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_newton_is_the_product_over_its_shifts(scale: float) -> None:
    z = np.array([0.3, -2.0, 1.5 + 1j])
    shifts = np.array([3.0, -1.0, 2.0])
    p = polynomials(newton(shifts, 5, scale=scale, order="given"), z)
    used = [3.0, -1.0, 2.0, 3.0, -1.0]  # repeated cyclically
    for j in range(6):
        expected = np.prod([(z - t) / scale for t in used[:j]], axis=0) if j else np.ones(3)
        np.testing.assert_allclose(p[j], expected)


@pytest.mark.parametrize("k", range(1, 8))
def test_newton_pairs_in_real_arithmetic(k: int) -> None:
    shifts = np.array([1 + 2j, 1 - 2j, -1.0, 0.5 + 1j, 0.5 - 1j])
    basis = newton(shifts, k, order="given", scale=1.3)
    assert basis.is_real
    z = np.array([0.3, -2.0, 1.5 + 1j])
    p = polynomials(basis, z)
    used = np.resize(shifts, k)
    for j in range(k + 1):
        middle = j > 0 and used[j - 1].imag > 0  # after the first of a pair: its real part stands for it
        factors = [*used[: j - 1], used[j - 1].real] if middle else used[:j]
        expected = np.prod([(z - t) / 1.3 for t in factors], axis=0) if j else np.ones(3)
        np.testing.assert_allclose(p[j], expected)


def test_newton_complex_arithmetic_and_errors() -> None:
    z = np.array([0.3, -2.0, 1.5 + 1j])
    p = polynomials(newton([1j, 2.0], 2, real=False, order="given"), z)
    np.testing.assert_allclose(p[2], (z - 1j) * (z - 2))
    with pytest.raises(ArgumentError, match="conjugate"):
        newton([1j, 2.0], 2, real=True)
    with pytest.raises(ArgumentError, match="followed by its conjugate"):
        newton([1j, 2.0, -1j], 3, order="given")
    with pytest.raises(ArgumentError, match="not finite"):
        newton([np.nan], 2)
    with pytest.raises(ArgumentError, match="scale"):
        newton([1.0], 2, scale=0.0)
    with pytest.raises(ArgumentError, match="order"):
        newton([1.0], 2, order="sorted")
    with pytest.raises(ArgumentTypeError):
        newton([], 2)


def test_leja_order_of_known_sets() -> None:
    # [-1, 1] in steps of 1/4: ends, middle, then by hand
    np.testing.assert_allclose(leja_order([-1, -0.5, 0, 0.5, 1]), [1, -1, 0, 0.5, -0.5])
    np.testing.assert_allclose(leja_order([1.0, 2.0, 4.0, 10.0]), [10, 1, 4, 2])
    # Unit circle, four points in pairs: +1 (largest real), then -1, then the pair with +i first.
    np.testing.assert_allclose(leja_order([1j, -1j, 1, -1]), [1, -1, 1j, -1j])
    # A pair may come first, its upper member first.
    np.testing.assert_allclose(leja_order([1.0, 1 - 3j, 1 + 3j]), [1 + 3j, 1 - 3j, 1.0])
    # Without pairs, the plain Leja order.
    np.testing.assert_allclose(leja_order([0.0, 1j, 2j], pairs=False), [2j, 0, 1j])


def brute_leja(points: np.ndarray) -> list[complex]:
    left, ordered = list(points), []
    while left:
        score = [np.prod([abs(t - s) for s in ordered]) if ordered else abs(t) for t in left]
        ordered.append(left.pop(int(np.argmax(score))))
    return ordered


@pytest.mark.parametrize("seed", range(5))
def test_leja_order_by_brute_force(seed: int) -> None:
    z = np.random.default_rng(seed).standard_normal(12)
    np.testing.assert_array_equal(leja_order(z), brute_leja(z))
    w = z + 1j * np.random.default_rng(seed + 50).standard_normal(12)
    np.testing.assert_array_equal(leja_order(w, pairs=False), brute_leja(w))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9)), min_size=1, max_size=20))
def test_leja_order_keeps_pairs_and_the_multiset(points: list[tuple[int, int]]) -> None:
    z = np.array([t for re, im in points for t in ([complex(re, im), complex(re, -im)] if im else [complex(re)])])
    ordered = leja_order(z)
    np.testing.assert_array_equal(np.sort_complex(ordered.astype(complex)), np.sort_complex(z))
    j = 0
    while j < ordered.size:
        if ordered[j].imag:
            assert ordered[j].imag > 0
            assert ordered[j + 1] == ordered[j].conjugate()
            j += 1
        j += 1
    # all distinct points come before any repetition
    distinct = np.unique(z).size
    assert np.unique(ordered[:distinct]).size == distinct


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_leja_products_neither_overflow_nor_underflow(scale: float) -> None:
    z = np.linspace(-1, 1, 200)
    ordered = leja_order(z * scale) / scale
    np.testing.assert_allclose(ordered, leja_order(z), rtol=1e-12)


def test_leja_needs_pairs_when_told() -> None:
    with pytest.raises(ArgumentError, match="conjugate"):
        leja_order([1j], pairs=True)


def test_capacity() -> None:
    assert capacity(np.cos(np.linspace(0, np.pi, 400))) == pytest.approx(0.5, rel=0.02)
    assert capacity(3 * np.exp(2j * np.pi * np.arange(300) / 300)) == pytest.approx(3, rel=0.03)
    assert capacity([-7.0]) == 7
    assert capacity([0.0, 0.0]) == 1


def test_scaled_newton_stays_in_range() -> None:
    points = 1e30 * np.cos(np.linspace(0, np.pi, 40))
    p = abs(polynomials(newton(points, 40, scale="capacity"), points + 1e28)).max(axis=1)
    assert p.max() < 1e6
    assert p.min() > 1e-6


@pytest.mark.parametrize(("lo", "hi"), [(-1.0, 1.0), (2.0, 10.0), (-1e-9, 5e9)])
def test_chebyshev_on_an_interval(lo: float, hi: float) -> None:
    x = np.linspace(lo, hi, 301)
    p = polynomials(chebyshev(12, (lo, hi)), x).real
    theta = np.arccos(np.clip((x - (lo + hi) / 2) / ((hi - lo) / 2), -1, 1))
    for j in range(13):
        np.testing.assert_allclose(p[j], np.cos(j * theta), atol=1e-9)
    assert abs(p).max() <= 1 + 1e-9


@pytest.mark.parametrize("center", [0.0, 3.0, -2.0 + 1j])
@pytest.mark.parametrize(("p", "q"), [(2.0, 1.0), (1.0, 2.0), (1.5, 1.5), (1.0, 0.0), (0.0, 4.0)])
def test_chebyshev_on_an_ellipse(p: float, q: float, center: complex) -> None:
    k = 16
    ellipse = Ellipse(center, p, q)
    basis = chebyshev(k, ellipse=ellipse)
    assert basis.is_real == (np.imag(center) == 0)
    angle = np.linspace(0, 2 * np.pi, 400)
    edge = center + p * np.cos(angle) + 1j * q * np.sin(angle)
    values = abs(polynomials(basis, edge)).max(axis=1)
    assert np.all(values <= 1 + 1e-12)
    assert np.all(values >= 0.5 - 1e-12)
    # Against the definition T_j((z - d)/f) / |T_j|-like scale: equal up to the factor (f/r)^j.
    f = np.sqrt(complex(p * p - q * q))
    if f != 0:
        w = np.arccos((edge - center) / f)
        expected = np.array([(f / (p + q)) ** j * np.cos(j * w) for j in range(k + 1)])
        np.testing.assert_allclose(polynomials(basis, edge), expected, atol=1e-9)
    outside = center + 1.5 * max(p, q) * (1 + 1j)
    assert abs(polynomials(basis, np.array([outside])))[-1, 0] > 10


def test_ellipse_contains() -> None:
    ellipse = Ellipse(1.0, 3.0, 2.0)
    assert ellipse.contains([1.0, 4.0, 1 + 2j, -2.0]).all()
    assert not ellipse.contains([4.01, 1 + 2.01j, 3.9 + 1j]).any()
    with pytest.raises(ArgumentError, match="degenerate"):
        Ellipse(0.0, 0.0, 0.0)


@pytest.mark.parametrize("basis", some_bases(4), ids=lambda basis: basis.kind)
def test_json_round_trip(basis: Basis) -> None:
    again = Basis.from_json(json.loads(json.dumps(basis.to_json())))
    assert again == basis
    assert hash(again) == hash(basis)
    assert again != basis.head(3)
    assert not again.a.flags.writeable


def test_wrong_coefficients() -> None:
    for a, b, c in [([1, 1], [0], [0, 0]), ([0.0], [0], [0]), ([1.0], [0], [1]), ([], [], []), ([np.inf], [0], [0])]:
        with pytest.raises(ArgumentError):
            Basis("own", np.array(a), np.array(b), np.array(c))
    with pytest.raises(ArgumentError, match="JSON form"):
        Basis.from_json({"kind": "newton", "a": [1.0]})


@pytest.mark.parametrize("k", [0, -1])
def test_k_out_of_range(k: int) -> None:
    for make in (lambda: monomial(k), lambda: newton([1.0], k), lambda: chebyshev(k, (0, 1))):
        with pytest.raises(ArgumentError, match="k is out of range"):
            make()
    with pytest.raises(ArgumentTypeError):
        monomial(2.0)


# --- estimation of the spectrum -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_symmetric_interval_encloses_the_spectrum(dtype: type) -> None:
    rng = np.random.default_rng(5)
    S = sp.random_array((300, 300), density=0.02, rng=rng, dtype=np.float64)
    if np.dtype(dtype).kind == "c":
        S = S + 1j * sp.random_array((300, 300), density=0.02, rng=rng, dtype=np.float64)
    A = sp.csr_array(S + S.conj().T + sp.diags_array(rng.standard_normal(300))).astype(dtype)
    spectrum = estimate_spectrum(A)
    assert spectrum.hermitian
    assert spectrum.ritz.dtype == np.float64
    true = np.linalg.eigvalsh(A.toarray())
    lo, hi = spectrum.interval
    assert lo <= true[0]
    assert hi >= true[-1]
    assert hi - lo < 1.4 * (true[-1] - true[0])
    assert spectrum.ritz.min() == pytest.approx(true[0], rel=0.1)


def test_interval_of_a_laplacian_stays_positive() -> None:
    A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(500, 500)).tocsr()
    lo, hi = estimate_spectrum(A).interval
    assert 0 <= lo < 0.05  # Gershgorin
    assert 3.99 < hi <= 4.0


@pytest.mark.parametrize("seed", range(3))
def test_ellipse_encloses_a_nonsymmetric_spectrum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = sp.csr_array(rng.standard_normal((120, 120)) / np.sqrt(120) + np.diag(rng.uniform(0, 6, 120)))
    spectrum = estimate_spectrum(A, steps=40)
    assert not spectrum.hermitian
    np.testing.assert_array_equal(np.sort_complex(spectrum.ritz), np.sort_complex(spectrum.ritz.conj()))
    assert spectrum.ellipse.contains(spectrum.ritz).all()
    true = np.linalg.eigvals(A.toarray())
    assert spectrum.ellipse.contains(true).mean() > 0.97
    assert isinstance(spectrum.ellipse.center, float)


def test_imaginary_spectrum() -> None:
    K = sp.diags_array([np.ones(99), -np.ones(99)], offsets=[1, -1]).tocsr()
    spectrum = estimate_spectrum(K)
    assert spectrum.ellipse.semi_imag == pytest.approx(2.0, rel=0.12)
    assert spectrum.ellipse.semi_real < 0.1
    basis = make_basis("chebyshev", 8, K)
    assert basis.is_real
    assert abs(polynomials(basis, np.linalg.eigvals(K.toarray()))).max() <= 1.01


def test_full_arnoldi_gives_the_eigenvalues() -> None:
    A = np.random.default_rng(0).standard_normal((12, 12))
    spectrum = estimate_spectrum(sp.csr_array(A), steps=50)
    np.testing.assert_allclose(spectrum.ritz, np.sort_complex(np.linalg.eigvals(A)), atol=1e-8)


@pytest.mark.parametrize(
    ("A", "eigenvalues"),
    [
        (3.0 * sp.eye_array(50), [3.0]),
        (sp.csr_array((50, 50)), [0.0]),
        (sp.diags_array(np.repeat([1.0, -2.0, 5.0], [20, 20, 10])), [-2.0, 1.0, 5.0]),
        (sp.csr_array(np.array([[7.0]])), [7.0]),
    ],
)
def test_breakdown(A: sp.sparray, eigenvalues: list[float]) -> None:
    spectrum = estimate_spectrum(sp.csr_array(A))
    assert spectrum.exhausted
    np.testing.assert_allclose(spectrum.ritz, eigenvalues, atol=1e-12)
    lo, hi = spectrum.interval
    assert lo < min(eigenvalues) + 1e-9
    assert hi > max(eigenvalues) - 1e-9
    for kind in ("newton", "chebyshev"):
        assert np.isfinite(make_basis(kind, 5, sp.csr_array(A)).matrix()).all()


def test_nonsymmetric_breakdown() -> None:
    A = sp.block_array([[sp.csr_array(np.array([[0.0, 1.0], [-1.0, 0.0]])), None], [None, 2 * sp.eye_array(30)]])
    spectrum = estimate_spectrum(sp.csr_array(A))
    assert spectrum.exhausted
    np.testing.assert_allclose(spectrum.ritz, [-1j, 1j, 2], atol=1e-10)


def test_function_and_determinism() -> None:
    A = sp.diags_array(np.linspace(1, 2, 80)).tocsr()
    one = estimate_spectrum(lambda v: A @ v, 80, symmetric=True, steps=10)
    two = estimate_spectrum(A, steps=10)
    np.testing.assert_array_equal(one.ritz, two.ritz)
    np.testing.assert_array_equal(two.ritz, estimate_spectrum(A, steps=10).ritz)
    assert estimate_spectrum(A, steps=10, seed=1).ritz[0] != two.ritz[0]
    with pytest.raises(ArgumentError, match="rows"):
        estimate_spectrum(lambda v: v)
    with pytest.raises(ArgumentError, match="steps"):
        estimate_spectrum(A, steps=0)
    with pytest.raises(ArgumentError, match="not finite"):
        estimate_spectrum(lambda v: v * np.inf, 5)
    with pytest.raises(ArgumentError, match="square"):
        estimate_spectrum(sp.csr_array((3, 4)))


# --- bases by name --------------------------------------------------------------------------------------------------


def test_better_conditioned_than_monomial() -> None:
    A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(400, 400)).tocsr()
    x = np.random.default_rng(0).standard_normal(400)

    def condition(kind: str) -> float:
        return float(np.linalg.cond(vectors(make_basis(kind, 16, A), A, x)))

    assert condition("newton") < 1e-5 * condition("monomial")
    assert condition("chebyshev") < 1e-6 * condition("monomial")


def test_make_basis() -> None:
    assert make_basis("monomial", 3) == monomial(3)
    assert make_basis("newton", 3, shifts=[1.0, 2.0]) == newton([1.0, 2.0], 3)
    assert make_basis("chebyshev", 3, interval=(0.0, 1.0)) == chebyshev(3, (0.0, 1.0))
    assert make_basis(monomial(5), 3) == monomial(3)
    A = sp.csr_array(np.random.default_rng(3).standard_normal((40, 40)))
    assert make_basis("newton", 30, A).is_real
    assert make_basis("newton", 30, A).k == 30
    assert not make_basis("newton", 4, A.astype(complex) * (1 + 1j)).is_real
    with pytest.raises(ArgumentError, match="unknown basis"):
        make_basis("legendre", 3)
    with pytest.raises(ArgumentError, match="nothing is known"):
        make_basis("newton", 3)
    with pytest.raises(ArgumentError, match="takes no shifts"):
        make_basis("monomial", 3, shifts=[1.0])
    with pytest.raises(ArgumentError, match="k is out of range"):
        make_basis(monomial(2), 3)
    with pytest.raises(ArgumentError, match="conjugate"):
        make_basis("newton", 3, A, shifts=[1j])
    with pytest.raises(ArgumentError, match="degenerate"):
        make_basis("chebyshev", 3, interval=(1.0, 1.0))


@pytest.mark.parametrize("name", ["cavity14.mtx.gz", "helmholtz_2D.mtx.gz", "rail_20209.mtx.gz"])
def test_estimated_bases_of_real_matrices(shared_matrices: Path, name: str) -> None:
    A = sp.csr_array(mmread(shared_matrices / name))
    x = np.random.default_rng(0).standard_normal(A.shape[0])
    lengths, conditions = {}, {}
    for kind in ("monomial", "newton", "chebyshev"):
        V = vectors(make_basis(kind, 12, A), A, x / np.linalg.norm(x))
        lengths[kind] = np.linalg.norm(V, axis=0)
        conditions[kind] = np.linalg.cond(V / lengths[kind])
    for kind in ("newton", "chebyshev"):
        assert lengths[kind].min() > 1e-3
        assert lengths[kind].max() < 1e3
        assert conditions[kind] < 0.2 * conditions["monomial"]
