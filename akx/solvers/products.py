"""Products with the matrix of a system, and its powers: planned ones, or plain ones until preparing has paid."""

from __future__ import annotations

import math
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
from akx.backends.vectors import Vectors
from akx.core.basis import Basis
from akx.core.errors import PlanError
from akx.core.matrix import Matrix
from akx.core.progress import working
from akx.operator import host_products, tiers
from akx.operator.background_compile import Coming, compiled_in_background, look
from akx.operator.cache import CACHE, Cache, Entry
from akx.operator.lookup import owner_of
from akx.solvers.stats import SolveStats
from akx.solvers.vector_work import compiling_job, make_work

if TYPE_CHECKING:
    from akx.core.plan import Plan
    from akx.operator.device_products import PlainOperator, PlainPowers
    from akx.operator.powers import MatrixPowers

__all__ = ["TOGETHER", "Products", "Rows", "product_seconds"]

#: Vectors as rows: a NumPy array, or a DeviceArray.
Rows = Any

#: Seconds that a call by a plan takes beside its products, more than a plain one does.
_OVERHEAD = 6e-6
#: Of a product, and each entry and row of it.
_PRODUCT, _OF_PRODUCT, _OF_SUM = 4e-6, 9e-10, 1e-9
#: What does products of a solve, ``product(products, v, out)``, with those of others (:mod:`akx.solvers.lockstep`);
#: False where it does not.
TOGETHER: ContextVar[Any] = ContextVar("akx.together", default=None)


def product_seconds(matrix: Matrix) -> float:
    """Of a product with A, on one machine."""
    return _PRODUCT + _OF_PRODUCT * matrix.nnz * (1 + (matrix.dtype.kind == "c")) + _OF_SUM * matrix.n


@dataclass(eq=False, repr=False, kw_only=True)
class Products:
    """Products with A, counted and timed.

    `given` is A, `matrix` the same in units of the system's own; `work` does what is done with vectors, where they are.
    What is prepared comes from `cache` and goes back there, `work` for those who ask for `kind_of_work`. `under_way`
    says that it solves, where that takes long.
    """

    matrix: Matrix
    work: Vectors
    stats: SolveStats
    threads: int | None = None
    db: Any = None
    cache: Cache = CACHE
    kind_of_work: Any = None
    given: Any = None
    under_way: working = field(default_factory=lambda: working("solving"))
    _operators: dict[tuple[int, str], MatrixPowers] = field(default_factory=dict)
    _borrowed: list[Entry] = field(default_factory=list)
    _rent: tiers.Rent | None = None
    _plain: PlainPowers | None = None
    _counted: int = 0
    _epoch: int = 0
    _pair: Rows | None = None
    _arrays: tuple[NDArray[Any], ...] = ()
    _spared: float = math.inf  # by a plan, of a plain product on the host; always plans without an end
    _is_short: bool = False  # a single product is quicker without one
    _together: Any = field(default_factory=TOGETHER.get)

    @property
    def n(self) -> int:
        """Rows."""
        return self.matrix.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of all vectors."""
        return self.matrix.dtype

    @property
    def on_device(self) -> bool:
        """Whether vectors are on a device, and work on them is queued."""
        return self.work.on_device

    def rows(self, count: int) -> Rows:
        """Room for so many vectors, shape (count, n), not filled."""
        return self.work.rows(count, self.n)

    def operator(self, k: int, kind: str = "monomial", plan: Plan | None = None) -> MatrixPowers | PlainOperator:
        """The operator for k steps of bases of a kind, this solve's alone until :meth:`release`.

        On a device it does plain products until preparing has paid, unless a plan is given.
        """
        if plan is None and self.is_plain:
            assert self._plain is not None
            return self._plain.operator(k)
        found = self._operators.get((k, kind))
        if found is None:
            with self.stats.phase("setup"):
                basis: Any = kind if kind == "monomial" else _placeholder(k, kind)
                options: dict[str, Any] = {"threads": self.threads, "db": self.db, "backend": self.work.backend}
                entry = self.cache.borrow(self.matrix, k, basis=basis, plan=plan, **options)
                self._borrowed.append(entry)
                found = entry.operator
                found.looks_for_overflow = False  # solvers do themselves
            self._operators[k, kind] = found
        return found

    def release(self) -> None:
        """Give the operators and the work on vectors back, for the next solve: nothing is done with them after that."""
        self.under_way.end()
        if self._plain is not None:
            if self.is_plain:
                from akx.operator.device_products import give_back

                give_back(self.matrix, self.work.backend, self._plain, self._epoch)
            self._plain = None
        self._operators.clear()
        while self._borrowed:
            self.cache.keep(self._borrowed.pop())
        if self.kind_of_work is not None:
            self.cache.give_spare(self.kind_of_work, self.work)
            self.kind_of_work = None

    def _count(self, begin: float, products: int = 1) -> None:
        """One pass over the matrix since `begin`."""
        self.stats.add("matrix", begin)
        self.stats.products += products
        self.stats.matrix_passes += 1

    def product(self, v: Rows, out: Rows, *, apart: bool = False) -> Rows:
        """out = A v, counted and timed; both (n,), contiguous, not the same.

        Where `out` is the row behind `v` in one array nothing is copied; `apart`: it is not.
        """
        if self._together is not None and self._together.product(self, v, out):
            return out
        if self._is_short or self._is_plain(1, 1):
            return self._plain_product(v, out)
        operator = self.operator(1)
        begin = time.perf_counter()
        both = None if apart else self.work.following(v, out)
        pair = both
        if pair is None:
            if self._pair is None:
                self._pair = self.rows(2)
            pair = self._pair
        _apply(operator, v.reshape(1, self.n), pair.reshape(2, 1, self.n), None)
        if both is None:
            out[:] = pair[1]
        self._count(begin)
        return out

    def product_in(self, V: Rows, j: int) -> None:
        """Row j + 1 of V becomes A times row j, counted and timed; :meth:`product` has to see where vectors are."""
        if self._together is not None and self._together.product(self, V[j], V[j + 1]):
            return
        if self._is_short or (self._rent is not None and self._is_plain(1, 1)):
            self._plain_product(V[j], V[j + 1])
            return
        operator = self.operator(1)
        begin = time.perf_counter()
        _apply(operator, V[j : j + 1], V[j : j + 2].reshape(2, 1, self.n), None)
        self._count(begin)

    def powers(self, block: Rows, out: Rows, basis: Basis, plan: Plan | None = None) -> Rows:
        """out[j, i] = p_j(A) block[i] in one pass over the matrix, counted and timed.

        block (b, n), out (s+1, b, n), C-contiguous, and a basis of s steps.
        """
        if plan is None and self._is_plain(basis.k, len(block), basis.kind):
            begin = time.perf_counter()
            out[0] = block
            host_products.powers_into(self._arrays, out, basis)
        else:
            operator = self.operator(basis.k, basis.kind, plan)
            begin = time.perf_counter()
            _apply(operator, block, out, basis)
        self._count(begin, basis.k * len(block))
        return out

    def _plain_product(self, v: Rows, out: Rows) -> Rows:
        stats, begin = self.stats, time.perf_counter()
        host_products.product_into(self._arrays, v, out)
        stats.add("matrix", begin)
        stats.products += 1
        stats.matrix_passes += 1
        return out

    # ------------------------------------------------------------------------------------------- plain or planned

    def _is_plain(self, k: int, vectors: int, kind: str = "monomial") -> bool:
        """Whether k products are SciPy's: where a plan is no quicker, and until preparing has paid and all is compiled.

        See :mod:`akx.operator.tiers`.
        """
        if tiers.gain(self._spared, k, vectors, _OVERHEAD) <= 0:
            return True
        if self._rent is None or self.on_device:
            return False
        if self._rent.goes_on(k, vectors):
            return True
        try:
            with compiled_in_background():
                look(compiling_job(self.stats.method), self.matrix)
                self.operator(k, kind)
        except Coming as coming:
            self._rent.coming = coming.is_coming
            return True
        self.prepare()
        return False

    def plain_where_short(self) -> None:
        """Have plain products on the host where prepared ones would take longer."""
        matrix = self.matrix
        self._arrays = matrix.indptr, matrix.indices, matrix.data
        self._spared = tiers.spared(matrix.nnz, matrix.nbytes)
        self._is_short = tiers.gain(self._spared, 1, 1, _OVERHEAD) <= 0

    def rent(self) -> None:
        """Have plain products as long as preparing has not paid for this matrix."""
        if not self.on_device:
            size = self.matrix.nnz, self.matrix.nbytes
            self._rent = tiers.rent_of(owner_of(self.given), "solve", *size, _OVERHEAD)
            return
        from akx.operator.device_products import device_rent, plain_on

        self._rent = device_rent(self.given, "solve", self.work.backend)
        if self._rent is not None:
            self._epoch = self.cache.epoch
            self._plain = plain_on(self.matrix, self.work.backend)
            self._rent = None if self._plain is None else self._rent

    @property
    def is_plain(self) -> bool:
        """Whether products on the device are plain ones yet; those that the record has are counted."""
        if self._rent is None or not self.on_device:
            return False
        done, self._counted = self.stats.products - self._counted, self.stats.products
        if done and not self._rent.goes_on(done):
            self.prepare()
        return self._rent is not None

    @property
    def plain_left(self) -> int | None:
        """Products after which :attr:`is_plain` has to be asked again; None where they are plain no more."""
        return self._rent.left() if self.is_plain and self._rent is not None else None

    def prepare(self) -> None:
        """Have products by the plan, and compiled vector work, from now on."""
        self._rent = None
        if self.on_device:
            self.cache.drop_plain(owner_of(self.matrix), self.work.backend)
        if isinstance(self.work, NumpyVectors):
            other = make_work(self.work.backend, self.dtype, self.n, self.threads)
            if not isinstance(other, NumpyVectors):
                self.work.give_way(other)

    def follow(self, other: Products) -> None:
        """Have compiled vector work as soon as another has that."""
        if self._rent is not None and other._rent is None:
            self.prepare()

    # ------------------------------------------------------------------------------------------- queued on a device

    @property
    def tier(self) -> int:
        """1 once what is queued is to be by the plan; 0 while products are plain ones."""
        return 0 if self.is_plain else 1

    def step_queue(self, V: Rows, diagonal: Rows | None = None) -> Any:
        """Steps of conjugate gradients on V = [p, w, r, x, ...], queued ahead of the host.

        `diagonal`: the preconditioner, as :meth:`positive_diagonal` has it.
        """
        return self.work.step_queue(*self.queued(self.operator(1), 1), V, diagonal)

    def block_queue(self, W: Rows, x: Rows, s: int, operator: MatrixPowers | PlainOperator) -> Any:
        """The same for blocks of s steps on W = [P, A P, v_0 .. v_s], by the operator's s powers."""
        return self.work.block_queue(self.queued(operator, 1)[0], W, x, s)

    def queued(
        self, operator: MatrixPowers | PlainOperator, vectors: int, basis: Basis | None = None
    ) -> tuple[Any, Any]:
        """The program for powers of so many vectors and its coefficients, to be part of what is queued.

        Raises PlanError where the plan brings the matrix from the host while it is used.
        """
        with self.stats.phase("setup"):
            program, coefficients = operator.program(vectors, basis)
        if not program.is_recordable:
            from akx.operator.device_products import PlainOperator

            assert not isinstance(operator, PlainOperator)
            raise PlanError(
                "a solver on the GPU cannot use a plan that streams the matrix",
                found=operator.plan.label(),
                hint="use backend='cpu', or a plan with the matrix in the device's memory",
            )
        return program, coefficients


def _apply(operator: MatrixPowers | PlainOperator, block: Rows, out: Rows, basis: Basis | None) -> None:
    """out (s+1, b, n) from block (b, n), where the vectors are: a solver's own arrays, of which nothing is checked."""
    program, coefficients = operator.program(len(block), basis)
    program.run(block, out, coefficients)


def _placeholder(k: int, kind: str) -> Basis:
    """A basis of a kind whose coefficients do not matter: each call brings its own."""
    zeros = np.zeros(k)
    return Basis(kind, np.ones(k), zeros, zeros)
