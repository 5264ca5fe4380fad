"""Polynomial bases: v_0 = x, v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} for j = 0 .. k-1, with c_0 = 0.

Solved for A v_j this reads A V_k = V_{k+1} B, with the (k+1) x k tridiagonal matrix

    B[j+1, j] = 1 / a_j,    B[j, j] = -b_j / a_j,    B[j-1, j] = -c_j / a_j.

Monomial      a = 1, b = c = 0: v_j = A^j x. Its vectors turn to the dominant eigenvector: of use up to k of about 5.
Newton        v_{j+1} = (A - t_j) v_j / s with shifts t_j in modified Leja order and a scale s (Bai, Hu, Reichel 1994;
              Reichel 1990). A conjugate pair t, t* is done in real arithmetic in two steps:
              v_{j+1} = (A - Re t) v_j / s,  v_{j+2} = (A - Re t) v_{j+1} / s + (Im t / s)^2 v_j.
Chebyshev     on the ellipse with centre d, semi-axes p along the real and q along the imaginary axis, foci d +- f with
              f^2 = p^2 - q^2 of either sign, and r = p + q: v_j = (f/r)^j T_j((A - d)/f) x, that is
              v_1 = (A - d) v_0 / r,  v_{j+1} = 2 (A - d) v_j / r - (f/r)^2 v_{j-1}
              (Joubert, Carey 1992; scaled so that |p_j| <= 1 on the ellipse, and real for imaginary f).
              The interval [lo, hi] is q = 0: then v_j = T_j((A - d)/p) x.

The recurrence is fused into every kernel: for each step it costs two multiply-adds for each row beside the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from akx.core.arguments import check_count, check_number, unknown_name
from akx.core.errors import ArgumentError, ArgumentTypeError, brief
from akx.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from akx.core.leja import capacity, leja_order
    from akx.core.spectrum import Ellipse, Spectrum, estimate_spectrum

__all__ = [
    "KINDS",
    "Basis",
    "Ellipse",
    "Spectrum",
    "capacity",
    "chebyshev",
    "estimate_spectrum",
    "leja_order",
    "make_basis",
    "monomial",
    "newton",
]

_SPECTRUM = dict.fromkeys(("Ellipse", "Spectrum", "estimate_spectrum"), "akx.core.spectrum")
__getattr__ = lazy_names(__name__, {"capacity": "akx.core.leja", "leja_order": "akx.core.leja", **_SPECTRUM})

#: The names of the bases.
KINDS = ("monomial", "newton", "chebyshev")


@dataclass(frozen=True, eq=False)
class Basis:
    """The coefficients of a recurrence v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.

    Attributes
    ----------
    kind : str
        ``"monomial"``, ``"newton"``, ``"chebyshev"``, or any name for coefficients of your own.
    a, b, c : (k,) arrays of float64 or complex128
        Read-only. All `a` are non-zero, and ``c[0]`` is zero.
    """

    kind: str
    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]

    def __post_init__(self) -> None:
        arrays = [np.array(v) for v in (self.a, self.b, self.c)]
        if any(v.ndim != 1 or v.size == 0 or v.size != arrays[0].size or v.dtype.kind not in "iufc" for v in arrays):
            expected, found = "three numeric arrays of one length k >= 1", str([v.shape for v in arrays])
            raise ArgumentError("basis coefficients are malformed", expected=expected, found=found)
        kind = np.result_type(np.float64, *arrays)
        if kind.kind == "c" and all(not np.any(np.imag(v)) for v in arrays):
            arrays, kind = [np.real(v) for v in arrays], np.dtype(np.float64)
        for name, values in zip("abc", arrays, strict=True):
            fixed = np.ascontiguousarray(values, dtype=kind)
            if not np.all(np.isfinite(fixed)):
                raise ArgumentError(f"basis coefficient '{name}' is not finite", found=str(fixed))
            fixed.flags.writeable = False
            object.__setattr__(self, name, fixed)
        if np.any(self.a == 0) or self.c[0] != 0:
            raise ArgumentError("basis is degenerate", expected="every a non-zero and c[0] = 0")

    @property
    def k(self) -> int:
        """Number of steps: the basis has k + 1 vectors."""
        return int(self.a.size)

    @property
    def is_real(self) -> bool:
        """Whether all coefficients are real, so that real matrices give real vectors."""
        return self.a.dtype.kind == "f"

    def matrix(self) -> NDArray[Any]:
        """The (k+1, k) matrix B with A V_k = V_{k+1} B, where V_m = [v_0 .. v_{m-1}]; float64 or complex128."""
        k = self.k
        B = np.zeros((k + 1, k), dtype=self.a.dtype)
        j = np.arange(k)
        B[j + 1, j] = 1 / self.a
        B[j, j] = -self.b / self.a
        B[j[1:] - 1, j[1:]] = -self.c[1:] / self.a[1:]
        return B

    def head(self, k: int) -> Basis:
        """The basis of the first k steps, 1 <= k <= self.k."""
        k = check_count("k", k, most=self.k)
        return Basis(self.kind, self.a[:k], self.b[:k], self.c[:k])

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, exact; complex numbers become [real, imaginary]. :meth:`from_json` inverts it."""
        values = {name: getattr(self, name).tolist() for name in "abc"}
        if not self.is_real:
            values = {name: [[v.real, v.imag] for v in of_name] for name, of_name in values.items()}
        return {"kind": self.kind, **values}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Basis:
        """Make a basis from :meth:`to_json`'s dict. Raises :class:`ArgumentError` where it is not one."""
        try:
            values = ([complex(*v) if isinstance(v, (list, tuple)) else float(v) for v in data[x]] for x in "abc")
            return Basis(str(data["kind"]), *map(np.array, values))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError("not the JSON form of a basis", expected="kind, a, b, c", found=str(data)) from error

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Basis):
            return NotImplemented
        return self.kind == other.kind and all(np.array_equal(getattr(self, x), getattr(other, x)) for x in "abc")

    def __hash__(self) -> int:
        return hash((self.kind, self.a.tobytes(), self.b.tobytes(), self.c.tobytes()))


def monomial(k: int) -> Basis:
    """The monomial basis v_j = A^j x, j = 0 .. k."""
    k = check_count("k", k)
    return Basis("monomial", np.ones(k), np.zeros(k), np.zeros(k))


def newton(
    shifts: ArrayLike, k: int, *, scale: float | str = 1.0, order: str = "leja", real: bool | None = None
) -> Basis:
    """The Newton basis v_{j+1} = (A - t_j) v_j / scale.

    Parameters
    ----------
    shifts : (m,) array
        Approximate eigenvalues, m >= 1. With fewer than k they are used again in the same order.
    k : int
        Steps, at least 1. A conjugate pair cut at the end is one step with its real part.
    scale : float or ``"capacity"``
        What each new vector is divided by; ``"capacity"`` takes an estimate of the capacity of the set of shifts, so
        that the vectors neither grow nor shrink by much.
    order : ``"leja"`` or ``"given"``
        Sort the shifts in modified Leja order, or keep theirs (in real arithmetic, conjugates must then be adjacent).
    real : bool, optional
        Real arithmetic: complex shifts must come in conjugate pairs. Default: where they do.

    Raises
    ------
    ArgumentError
        Where the shifts are not finite, none, or not in conjugate pairs although `real` is asked for.
    """
    from akx.core.leja import are_paired, as_points, capacity, leja_order, pair_steps

    k = check_count("k", k)
    points = as_points(shifts)
    in_pairs = are_paired(points)
    if real and not in_pairs:
        expected = "t and its conjugate for each complex t"
        found = str(points)
        hint = "add the conjugates, or pass real=False for complex arithmetic"
        raise ArgumentError("complex shifts are not in conjugate pairs", expected=expected, found=found, hint=hint)
    pairs = in_pairs if real is None else real
    if order == "leja":
        points = leja_order(points, pairs=pairs)
    elif order != "given":
        raise unknown_name("order of shifts", order, ("leja", "given"))
    if isinstance(scale, str) and scale == "capacity":
        size = capacity(points)
    else:
        size = check_number("scale", scale, "a finite number > 0, or 'capacity'", lambda number: 0 < number < np.inf)
    if not pairs:
        t = np.resize(points, k)
        return Basis("newton", np.full(k, 1 / size), -t / size, np.zeros(k))
    t_real, pair_term = pair_steps(points)
    b, c = np.resize(-t_real / size, k), np.resize(pair_term / size**2, k)
    return Basis("newton", np.full(k, 1 / size), b, c)


def chebyshev(k: int, interval: tuple[float, float] | None = None, *, ellipse: Ellipse | None = None) -> Basis:
    """The Chebyshev basis of an interval or an ellipse; give one of the two. Real, unless the ellipse's centre is not.

    Parameters
    ----------
    k : int
        Steps, at least 1.
    interval : (lo, hi), optional
        Real, lo < hi: encloses the spectrum of a Hermitian matrix.
    ellipse : Ellipse, optional
        Encloses the spectrum of any matrix.
    """
    from akx.core.spectrum import Ellipse

    k = check_count("k", k)
    if (interval is None) == (ellipse is None):
        raise ArgumentError("Chebyshev basis needs one domain", expected="interval=(lo, hi) or ellipse=Ellipse(...)")
    if interval is not None:
        lo, hi = _check_interval(interval)
        ellipse = Ellipse(lo + 0.5 * (hi - lo), 0.5 * (hi - lo), 0.0)
    assert ellipse is not None
    d = complex(ellipse.center)
    r = float(ellipse.semi_real) + float(ellipse.semi_imag)
    a, b, c = np.full(k, 2 / r), np.full(k, -2 * d / r), np.full(k, -ellipse.focal_squared / r / r)
    a[0], b[0], c[0] = 1 / r, -d / r, 0.0
    return Basis("chebyshev", a, b, c)


def make_basis(
    kind: str | Basis,
    k: int,
    matrix: Any = None,
    *,
    shifts: ArrayLike | None = None,
    interval: tuple[float, float] | None = None,
    ellipse: Ellipse | None = None,
    spectrum: Spectrum | None = None,
    steps: int = 20,
    seed: int = 0,
) -> Basis:
    """A basis by name, with the spectrum of the matrix estimated where nothing else tells it.

    Parameters
    ----------
    kind : str or Basis
        ``"monomial"``, ``"newton"`` or ``"chebyshev"``; a Basis of k or more steps is returned, cut to k.
    k : int
        Steps, at least 1.
    matrix : Matrix or SciPy sparse array, optional
        Its spectrum is estimated (`estimate_spectrum`) for Newton without shifts and for Chebyshev
        without an interval or ellipse. Also says whether the arithmetic is real.
    shifts, interval, ellipse, spectrum : optional
        What is known of the spectrum.
    steps, seed : int
        Of the estimation; at least k steps are done for a Newton basis.
    """
    k = check_count("k", k)
    if isinstance(kind, Basis):
        return kind if kind.k == k else kind.head(k)
    if kind not in KINDS:
        raise unknown_name("basis", kind, KINDS)
    allowed = {"monomial": (), "newton": ("shifts",), "chebyshev": ("interval", "ellipse")}[kind]
    for name, value in (("shifts", shifts), ("interval", interval), ("ellipse", ellipse)):
        if value is not None and name not in allowed:
            raise ArgumentError(f"the {kind} basis takes no {name}", hint=f"leave out {name}=, or choose another basis")
    if kind == "monomial":
        return monomial(k)
    real = None if matrix is None else np.dtype(matrix.dtype).kind != "c"
    if shifts is not None:
        return newton(shifts, k, real=real)
    if interval is not None or ellipse is not None:
        return chebyshev(k, interval, ellipse=ellipse)
    if spectrum is None:
        if matrix is None:
            hint = f"pass the matrix, or {' or '.join(f'{name}=' for name in allowed)}"
            raise ArgumentError(f"nothing is known of the spectrum for the {kind} basis", hint=hint)
        from akx.core.spectrum import estimate_spectrum

        spectrum = estimate_spectrum(matrix, steps=max(steps, k) if kind == "newton" else steps, seed=seed)
    if kind == "newton":
        return newton(spectrum.ritz, k, scale="capacity", real=real)
    return chebyshev(k, spectrum.interval) if spectrum.hermitian else chebyshev(k, ellipse=spectrum.ellipse)


def _check_interval(interval: Iterable[float]) -> tuple[float, float]:
    try:
        lo, hi = (float(v) for v in interval)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError("interval is no pair of numbers", expected="(lo, hi)", found=brief(interval)) from error
    if not (np.isfinite(lo) and np.isfinite(hi) and lo < hi):
        raise ArgumentError("interval is degenerate", expected="finite lo < hi", found=f"({lo}, {hi})")
    return lo, hi
