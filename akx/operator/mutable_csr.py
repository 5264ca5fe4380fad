"""CSR matrices of callers on the GPU, who may change them: a call is queued at once, and waits for nothing.

A call that looks like one before, by CuPy's and PyTorch's own attributes (the arrays of the matrix where they were, x
of the same kind), is queued on the stream of x without a word to the device:

    tier 0    the products of the arrays as they are (`CsrPowers`): there is nothing to be stale
    prepared  1. the checksums of the arrays, and whether they are those of what is kept *then*, in a word of the device
              2. the kept program
              3. where the word says so, the products of the arrays as they are, in V once more; else that kernel ends

So V is that of the matrix as it is when the stream comes to the call. A word of the host tells the next call, which
renews what is kept, or says what is wrong. A matrix that changes all the time goes back to products as they are. In a
capture the same goes into the caller's graph, and nothing is read or waited for; what is not like a call before is
refused there (:func:`akx.operator.lookup.operator_for`). The last bits of calls after a change are not those of every
run; those of a matrix that does not change are.

Host, per call: four arrays read, one to three launches. Device: one read of A beside the work, and two short kernels.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from akx.backends.selection import array_backend, backend_of
from akx.core.basis import make_basis
from akx.operator.cache import CACHE
from akx.operator.lookup import Recent, recent
from akx.operator.overflow import OverflowWatch
from akx.operator.recurrence import Recurrence
from akx.operator.tiers import AUTO, Rent, begin_again, setting
from akx.operator.workspaces import hold_in_graph

if TYPE_CHECKING:
    from akx.operator.powers import MatrixPowers

__all__ = ["MutableCsr", "again", "forget", "of_products", "remember"]

#: What the backend of such arrays has for calls with them.
interchange: Any = backend_of(array_backend()).interchange()
_gpu: Any = backend_of(array_backend()).caller_arrays()
library_of, runtime, wrap = _gpu.library_of, _gpu.runtime, _gpu.wrap
CsrPowers, CaptureWords, Comparison = _gpu.CsrPowers, _gpu.CaptureWords, _gpu.Comparison
host_word, is_sound, INDICES, VALUES = _gpu.host_word, _gpu.is_sound, _gpu.INDICES, _gpu.VALUES
#: Matrices that are remembered, each for one k, and kinds of start vectors of one.
_MOST, _FORMS = 32, 16
_MOST_ROWS = 2**31 - 1
#: Entries of a matrix with a few long rows up to which products of the arrays as they are are not slow.
_MOST_UNEVEN = 1 << 21
#: A prepared matrix that has got new values so many times in a row, each for so few calls, is not worth it.
_RENEWALS, _FEW_CALLS = 2, 2
_LIVE: dict[tuple[int, int], MutableCsr] = {}


@dataclass(frozen=True)
class _Form:
    """Start vectors by their look: what V is like."""

    vectors: int
    single: bool
    x_bytes: int
    shape: tuple[int, ...]
    out_bytes: int
    out_look: Any


class MutableCsr:
    """The arrays of one matrix of a caller's as a call has found them, for calls of k steps.

    `given` are its arrays now, which are not held; `longest` the most entries of a row; `rent` that of products of the
    arrays as they are, None for a prepared matrix.
    """

    def __init__(self, given: Any, longest: int, k: int, rent: Rent | None) -> None:
        self.owner: Callable[[], Any] = lambda: None
        self.n, self.k, self.dtype, self.rent = int(given.shape[0]), k, given.dtype, rent
        self.looks, self._library = _looks(given.arrays)
        self.told = host_word()
        self.powers = CsrPowers(given.on_device, self.n, longest, k, self.told)
        #: Whether products of a copy are quicker: one launch for all steps shares rows out badly where some are long
        #: (263 us a product of the gallery's `rmat` on an H100; from a copy 93, and a call 0.3 ms more on the host).
        self.is_slow = given.nnz > _MOST_UNEVEN and self.powers.has_long_rows
        self._coefficients = Recurrence(make_basis("monomial", k), self.dtype).coefficients(self.dtype)
        self.watch = OverflowWatch(SimpleNamespace(n=self.n, pattern=None), k)
        self.forms: dict[Any, _Form] = {}
        self._recent: Recent | None = None
        self._token: Any = None
        self._comparison: Any = None
        self._words, self._in_use = CaptureWords(), list[Any]()
        self.calls, self.renewals = 0, 0  # on a prepared operator; and one after another, before this one

    def operator(self, k: int) -> MutableCsr:
        """Itself: what a call asks for."""
        return self

    def program(self, vectors: int, basis: Any) -> tuple[Any, Any]:
        """What does a call with so many start vectors, and the coefficients to give it, those of monomials."""
        return self.powers, self._coefficients

    def know(self, x: Any, answer: Any, vectors: int, single: bool) -> None:
        """Let the next call with such start vectors be queued at once; nothing of them was copied."""
        library = library_of(type(x))
        if library is not self._library or library_of(type(answer)) is not library or len(self.forms) >= _FORMS:
            return
        size, shape = self.dtype.itemsize, (self.k + 1, vectors, self.n)
        x_bytes = vectors * self.n * size
        out_look = library.read(answer)[1]
        self.forms[library.read(x)[1]] = _Form(vectors, single, x_bytes, shape, (self.k + 1) * x_bytes, out_look)
        self.powers.ready(vectors)
        self.powers.take(self._coefficients)

    def is_of(self, given: Any) -> bool:
        """Whether it is for these arrays, of which nothing wrong has been told."""
        return self.owner() is given.owner and not self.told[0] and self.looks == _looks(given.arrays)[0]

    def is_prepared(self, token: Any) -> bool:
        """Whether calls run on an operator for this content."""
        return self._recent is not None and self._token is token

    def prepare(self, found: Recent, operator: MatrixPowers, arrays: list[Any]) -> None:
        """Let calls from now on run on a prepared operator, while the arrays are those that its values are of."""
        with CACHE.lock:  # under which it gets other values
            self._recent, self._token = found, found.token
            known = operator._prepared.know([part[2] for part in found.token[3:]])
        self._comparison = Comparison(arrays, known, self.told)

    def call(self, owner: Any, looks: Any, x: Any, out: Any) -> Any:
        """V; None where this is not like a call before, and nothing is done."""
        library = self._library
        if looks != self.looks or library_of(type(x)) is not library:
            return None
        at, look = library.read(x)
        form = self.forms.get(look)
        if form is None or at % self.dtype.itemsize:
            return None
        stream = library.stream(look)
        if self.told[0] and not _is_captured(stream):  # a graph looks for itself
            return None
        to = at
        if out is not None:
            if library_of(type(out)) is not library:
                return None
            to, found = library.read(out)
            if found != form.out_look or (at != to and at < to + form.out_bytes and to < at + form.x_bytes):
                return None
        operator, is_captured = None, False
        if self.rent is not None:
            is_captured = _is_captured(stream)  # then it is no call: it may be done never, or often
            if not is_captured and (self.is_slow or setting() != AUTO or not self.rent.goes_on(self.k, form.vectors)):
                return None
        else:
            assert self._recent is not None
            operator = self._recent.operator(owner, x)
            if operator is None and _is_captured(stream):
                operator = self._recent.operator(owner, x, is_captured=True)
            if operator is None or self._recent.token is not self._token:
                return None
            self.calls += 1
        if self._words.are_few and not _is_captured(stream):
            with self.powers.lock:
                self._words.make()
        if out is None:
            powers, out = interchange.make_result(x, form.shape, self.dtype, form.single)
            to = powers.pointer
        if operator is None:
            self._queue_products(stream, form, at, to, is_captured)
            return out
        operator.looks_for_overflow = True
        calls = operator._device_calls()
        is_queued = calls.again_at(at, to, look, form.out_look, stream, self._around)
        return out if is_queued else calls(x, out, None, self._around)

    def _queue_products(self, stream: Any, form: _Form, at: int, to: int, is_captured: bool) -> None:
        """Queue products of the arrays as they are."""

        arrived = self._words_in_a_graph()[1].pointer if is_captured else 0

        def queue(on: Any) -> None:
            self.powers.queue(on, at, to, form.vectors, arrived=arrived)

        with runtime().active():
            if is_captured:
                queue(stream)
                return
            stream.submit(queue)
            self.watch.looks = True
            self.watch.look_on_device(lambda: wrap(to, form.shape, self.dtype, None), stream)

    def _around(
        self, work: Callable[[Any], None], at: int, to: int, vectors: int, captured: bool
    ) -> Callable[[Any], None]:
        """A look at the arrays before the work of a call, and their products behind it, where they have changed."""
        comparison, arrived = self._comparison, 0
        assert comparison is not None
        if captured:
            words, meeting = self._words_in_a_graph()
            comparison, arrived = comparison.working_in(words), meeting.pointer

        def queue(stream: Any) -> None:
            with self.powers.lock:
                comparison.queue(stream)
                work(stream)
                self.powers.queue(stream, at, to, vectors, only=comparison.differs.pointer, arrived=arrived)

        return queue

    def _words_in_a_graph(self) -> tuple[Any, Any]:
        """Words for a captured call; they stay as long as the owner does: the graph has their addresses."""
        hold_in_graph(self.owner(), self)
        with self.powers.lock:
            found: tuple[Any, Any] = self._words.take()
        self._in_use.append(found)
        return found


def again(A: Any, x: Any, k: int, out: Any) -> Any:
    """V of a call like one before, queued now; None where it has to be looked at."""
    try:
        found = _arrays_of(A) if _LIVE else None
        if found is None:
            return None
        owner, arrays, shape = found
        live = _LIVE.get((id(owner), k))
        if live is None or live.owner() is not owner or (shape is not None and tuple(shape) != (live.n, live.n)):
            return None
        looks = _looks(arrays)[0]
    except (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError):
        return None  # it cannot be read like this: the long way says why
    return live.call(owner, looks, x, out)


def of_products(given: Any, dtype: Any, k: int, rent: Rent) -> MutableCsr | None:
    """What does products of a caller's arrays as they are; None where kernels cannot, or something is wrong."""
    found = _LIVE.get((id(given.owner), k))
    if found is not None and found.is_of(given) and found.rent is rent and found.dtype == dtype:
        return found
    if not _is_readable(given, dtype):
        return None
    sound, longest = is_sound(given.on_device, int(given.shape[0]))
    return _kept(MutableCsr(given, longest, k, rent), given.owner) if sound else None


def remember(given: Any, k: int, operator: MatrixPowers, x: Any, answer: Any, backend: str) -> None:
    """Let calls like this one be queued at once, on an operator that is kept for a matrix of the caller's.

    Where that gets new values again and again, products of the arrays as they are come back, with their rent anew.
    """
    entry, known = recent(operator, x), _LIVE.get((id(given.owner), k))
    if entry is None or not entry.token or not _is_readable(given, operator.dtype):
        return
    if known is None or not known.is_of(given) or not known.is_prepared(entry.token):
        renewals = 0
        if known is not None and known.rent is None and not known.is_prepared(entry.token):
            renewals = known.renewals + 1 if known.calls <= _FEW_CALLS else 0
        if renewals >= _RENEWALS and setting() == AUTO:
            begin_again(given.owner, (k, backend))
            return
        known = MutableCsr(given, -(-given.nnz // int(given.shape[0])), k, None)
        known.renewals = renewals
        known.prepare(entry, operator, given.on_device)
        _kept(known, given.owner)
    start, single = interchange.start_of(x, known.n)
    b, n = start.shape
    size = known.dtype.itemsize
    if start.dtype == known.dtype and start.strides[1] == size and (b == 1 or start.strides[0] == n * size):
        known.know(x, answer, b, single)


def forget() -> None:
    """Look at all matrices in their next calls."""
    _LIVE.clear()


def _kept(one: MutableCsr, owner: Any) -> MutableCsr:
    key = id(owner), one.k
    _LIVE.pop(key, None)
    while len(_LIVE) >= _MOST and (oldest := next(iter(list(_LIVE)), None)):
        _LIVE.pop(oldest, None)
    forget = _LIVE.pop  # names of modules are gone while Python ends
    one.owner = weakref.ref(owner, lambda _: forget(key, None))
    _LIVE[key] = one
    return one


def _is_readable(given: Any, dtype: Any) -> bool:
    """Whether kernels read these arrays as they are, and results are of their type."""
    if given.format != "csr" or given.dtype != dtype or dtype.name not in VALUES or not dtype.isnative:
        return False
    if len({library_of(type(one)) for one in given.arrays}) > 1 or not interchange.brings_memory(given.arrays[0]):
        return False
    _, index, pointer = given.on_device
    n = int(given.shape[0])
    is_same = index.dtype == pointer.dtype and index.dtype.name in INDICES
    is_as_given = all(at == one.pointer for (at, _), one in zip(_looks(given.arrays)[0], given.on_device, strict=True))
    return is_same and is_as_given and 0 < n < _MOST_ROWS and pointer.size == n + 1 and given.nnz > 0


def _is_captured(stream: Any) -> bool:
    with runtime().active():
        return bool(stream.is_capturing)


def _arrays_of(A: Any) -> tuple[Any, tuple[Any, Any, Any], Any] | None:
    """Owner, arrays (data, indices, row pointers), and shape where that is told, of a CSR matrix of CuPy or PyTorch."""
    kind = type(A)
    if kind is tuple:
        return (A[0], (A[0], A[1], A[2]), A[3] if len(A) > 3 else None) if len(A) in (3, 4) else None
    library = kind.__module__.partition(".")[0]
    if library == "cupyx":
        return (A, (A.data, A.indices, A.indptr), A.shape) if A.format == "csr" else None
    if library == "torch" and A.layout is sys.modules["torch"].sparse_csr:
        held = A.detach()
        return A, (held.values(), held.col_indices(), held.crow_indices()), A.shape
    return None


def _looks(arrays: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """Where arrays are and what they look like; and their library."""
    library = library_of(type(arrays[0]))
    return tuple(library.read(one) for one in arrays), library
