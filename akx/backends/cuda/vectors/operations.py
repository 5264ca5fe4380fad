"""Dense work on rows of vectors on the GPU: the twin of ``cpu/vectors/team_vectors.py``.

An array of rows W (m, n) is a :class:`DeviceArray`; row i is ``W[i]``. Operations are kernels of ``vectors.cuh``, one
pass over memory each, queued on the stream of all work; those that return numbers wait for them: the kernel's last
block writes them straight to page-locked memory. Sums are in double precision and in a fixed order, without
floating-point atomics: the same input gives the same bits on the same device.

Words moved are those of the host's twins. Flops of `gram` and `products` are done by tiles of 8 x 8 pairs on the tensor
cores, which have twice the rate of the other units in double precision, rows beyond the last being the last one again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.copies import send
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Stream, default_stream
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, wrap
from akx.backends.cuda.device.pool import pinned
from akx.backends.cuda.program import C_TYPES
from akx.backends.householder import orthonormal_rows
from akx.backends.vectors import MOST_ROWS, Vectors
from akx.core.errors import ArgumentError

__all__ = ["CudaBlockWork", "Tiles", "VectorOperations"]

_HERE = Path(__file__).parent
_T = TypeVar("_T")
_THREADS = 256
#: Warps of a block of products, at most; rows and columns of a tile of them.
_WARPS, _TILE = 16, 8
#: Rows that `mix` reads at a time: factors are there for whole turns.
_UNROLLED = 8
#: Numbers that factors or results of one operation may take, and operations whose factors may be on their way.
_FACTORS, _SLOTS = 2 * MOST_ROWS * MOST_ROWS, 16


class Tiles:
    """How products of m rows with the last s of them are cut into tiles: ``Rounds`` and ``products`` in vectors.cuh.

    `n`: columns. `triangular`: every two of m rows once; s is m then. `blocks`: most blocks of a launch. `macros`: what
    the kernel is an instance for. `pairs`: sums. `rounds`: tiles of each round. `blocks`, `warps`: of a launch, and of
    a block: no more than have columns.
    """

    def __init__(self, m: int, s: int, n: int, dtype: DTypeLike, *, triangular: bool, blocks: int) -> None:
        is_complex = np.dtype(dtype).kind == "c"
        down, across = -(-m // _TILE), -(-s // _TILE)
        self.macros = {"AKX_DOWN": down, "AKX_ACROSS": across}
        self.pairs = m * (m + 1) // 2 if triangular else m * s
        self._number = 16 if is_complex else 8
        words = 4 if is_complex else 2  # of a tile, of a lane
        self.rounds: list[int] = []
        columns, first = 0, 0  # of a warp's turn, in the round where they are most
        while first < across:
            tiles, last = 0, first
            while last < across:
                more = last + 1 if triangular else down
                if last > first and tiles + more > 32 // words:
                    break
                tiles, last = tiles + more, last + 1
            groups = last if triangular else down
            columns = max(columns, 4 * ((8 if groups <= 2 else 4 if groups <= 5 else 2) // (words // 2)))
            self.rounds.append(tiles)
            first = last
        turns = -(-n // columns)
        self.blocks = max(1, min(blocks, turns))
        self.warps = max(1, min(_WARPS, -(-turns // self.blocks)))
        self._room = self.warps // 2 * max(self.rounds) * words * 32 * 8

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps

    def shared(self, more: int = 0) -> int:
        """Bytes of shared memory: the sums of half of the warps, or those of all pairs with `more` numbers behind."""
        return max(self._room, self._number * (self.pairs + more))


class VectorOperations(Vectors):
    """The operations, for vectors of one type.

    `dtype`: float32, float64, complex64 or complex128. `n`: entries of a vector.
    """

    backend = "cuda"
    on_device = True

    def __init__(self, dtype: DTypeLike, n: int) -> None:
        self.dtype, self.n = np.dtype(dtype), n
        self.wide = np.dtype(np.complex128 if self.dtype.kind == "c" else np.float64)
        device = cuda_device()
        self.blocks = device.sms
        #: Of kernels on single vectors.
        self.grid = max(1, min(-(-n // _THREADS), 4 * device.sms))
        self.stream: Stream = default_stream()
        self.partial = empty(max(_FACTORS * self.blocks, self.grid), self.wide)
        self.counter = to_device(np.zeros(1, dtype=np.uint32))
        self.found = pinned(_FACTORS, self.wide)
        self._where = np.uint64(self.found.ctypes.data)
        self._host = pinned((_SLOTS, _FACTORS), self.wide)
        self._factors = empty((_SLOTS, _FACTORS), self.wide)
        self._slot = 0
        self._kernels: dict[tuple[Any, ...], Any] = {}
        self._kept: dict[Hashable, Any] = {}

    # ------------------------------------------------------------------------------------------------ rows

    def rows(self, count: int, n: int) -> DeviceArray:
        return empty((count, n), self.dtype)

    def from_host(self, v: NDArray[Any]) -> DeviceArray:
        return to_device(np.ascontiguousarray(v, dtype=self.dtype))

    def to_host(self, v: DeviceArray) -> NDArray[Any]:
        return v.get()

    def taken(self, v: DeviceArray, factor: float = 1.0) -> DeviceArray:
        out, given = empty(self.n, self.dtype), {"AKX_FROM": C_TYPES[v.dtype.name]}
        self._launch("taken", [v, np.float64(factor), out], self.kernel("taken", "taken", **given))
        return out

    def following(self, v: DeviceArray, w: DeviceArray) -> DeviceArray | None:
        return wrap(v.pointer, (2, self.n), self.dtype, (v, w)) if v.pointer + v.nbytes == w.pointer else None

    # ------------------------------------------------------------------------------------------------ operations

    def norm(self, v: DeviceArray) -> float:
        return float(np.sqrt(self._dot(v, v).real))

    def dot(self, V: DeviceArray, i: int, j: int) -> complex:
        return complex(self._dot(V[i], V[j]))

    def add(self, x: DeviceArray, factor: complex, v: DeviceArray) -> None:
        self._mix(np.array([[factor]]), v.reshape(1, self.n), x, None)

    def divide(self, v: DeviceArray, by: float) -> None:
        self._mix(np.array([[1 / by]]), v.reshape(1, self.n), None, v)

    def remain(self, b: DeviceArray, w: DeviceArray) -> float:
        self.queue_remain(b, w, stream=self.stream)
        return self.norm_found()

    def gram(self, W: DeviceArray, first: int = 0) -> NDArray[Any]:
        m = self._check(W)
        self._products("gram", W, self.tiles(m, m, triangular=True), [np.uint32(m)])
        return self._read(m * m).reshape(m, m)[first:].copy()

    def combine(self, C: NDArray[Any], W: DeviceArray, out: DeviceArray, *, add: bool = False) -> DeviceArray:
        self._check(W)
        self._mix(C, W, None, out, add=add)
        return out

    def advance(self, C: NDArray[Any], W: DeviceArray, x: DeviceArray) -> None:
        self._check(W)
        self._mix(C, W, x, W)

    def advance_block(self, C: NDArray[Any], moved: NDArray[Any], W: DeviceArray, x: DeviceArray) -> None:
        """The end of a block of s steps of conjugate gradients, on W = [P, A P, v_0 .. v_s] (3 s + 1, n).

        `C` (s, 3 s + 1): coordinates of each new direction in those before (s) and in v_0 .. v_{s-1} (s), and those of
        its image in v_0 .. v_s (s + 1), beside the image of what it has of the directions before. `moved` (s,): what x
        moves along each; r = v_0 goes with it.
        """
        factors = self._factor(np.concatenate([C.reshape(-1), moved]))
        self.queue_advance(W, x, factors, len(moved), stream=self.stream)

    def descend(self, V: DeviceArray, alpha: complex) -> float:
        factor = self._factor(np.array([-alpha]))
        self._launch("descend", [factor, V[1], V[2], self.partial, self.counter, self._where])
        return float(self._read(1)[0].real)

    def turn(self, V: DeviceArray, alpha: complex, beta: complex, u: int) -> None:
        self._launch("turn", [self._factor(np.array([alpha, beta])), V[0], V[u], V[3]])

    def over(self, W: DeviceArray) -> CudaBlockWork:
        return CudaBlockWork(W, self)

    # ------------------------------------------------------------------------------------------------ for queues

    def kept(self, what: Hashable, make: Callable[[], _T]) -> _T:
        """What a queue has beside its vectors, the same for the next one of its kind: only one is at work at a time."""
        found: _T | None = self._kept.get(what)
        if found is None:
            found = self._kept[what] = make()
        return found

    def tiles(self, m: int, s: int, *, triangular: bool = False) -> Tiles:
        """How products of m rows with the last s of them are made."""
        found = Tiles(m, s, self.n, self.dtype, triangular=triangular, blocks=self.blocks)
        if m * s > _FACTORS:
            raise ArgumentError("too many rows at a time", expected=f"{_FACTORS} products", found=f"{m} x {s}")
        return found

    def kernel(self, name: str, source: str = "vectors", **macros: int | str) -> Any:
        """A kernel for this type, in the instance that the macros ask for."""
        key = (name, source, *macros.items())
        found = self._kernels.get(key)
        if found is None:
            given: dict[str, int | str] = {"AKX_VALUE": C_TYPES[self.dtype.name], **macros}
            found = self._kernels[key] = load(_HERE / f"{source}.cu", given, device=cuda_device()).kernel(name)
        return found

    def queue_remain(self, b: DeviceArray, w: DeviceArray, *, stream: Stream) -> None:
        """Queue w = b - w, whose norm :meth:`norm_found` is to wait for."""
        self._launch("remain", [b, w, self.partial, self.counter, self._where], stream=stream)

    def norm_found(self) -> float:
        """The norm that :meth:`queue_remain` leaves, once it is there."""
        return float(np.sqrt(self._read(1)[0].real))

    def queue_mix(
        self,
        mixes: int,
        W: DeviceArray,
        F: DeviceArray,
        x: DeviceArray | None,
        out: DeviceArray | None,
        *,
        stream: Stream,
        add: bool = False,
        active: Any = None,
    ) -> None:
        """Queue what :meth:`advance` and :meth:`combine` do, with factors F (mixes, m) that are on the device."""
        m, nothing = W.shape[0], np.uint64(0)
        shared = -(-m // _UNROLLED) * _UNROLLED * mixes * self.dtype.itemsize
        arguments = [W, np.uint32(m), F, nothing if x is None else x, nothing if out is None else out, np.uint32(add)]
        self._launch(
            "mix_rows",
            [*arguments, nothing if active is None else active],
            self.kernel("mix_rows", "mix", AKX_MIXES=mixes),
            shared=shared,
            stream=stream,
        )

    def queue_advance(
        self, W: DeviceArray, x: DeviceArray, F: DeviceArray, s: int, *, stream: Stream, active: Any = None
    ) -> None:
        """Queue the end of a block of s steps of conjugate gradients, with factors F that are on the device."""
        given = [W, x, F, np.uint64(0) if active is None else active]
        self._launch("end_of_block", given, self.kernel("end_of_block", "advance", AKX_STEPS=s), stream=stream)

    # ------------------------------------------------------------------------------------------------ inside

    def _dot(self, a: DeviceArray, b: DeviceArray) -> Any:
        self._launch("dot", [a, b, self.partial, self.counter, self._where])
        return self._read(1)[0]

    def _mix(
        self, C: NDArray[Any], W: DeviceArray, x: DeviceArray | None, out: DeviceArray | None, *, add: bool = False
    ) -> None:
        self.queue_mix(len(C), W, self._factor(C), x, out, stream=self.stream, add=add)

    def _products(self, name: str, W: DeviceArray, tiles: Tiles, extent: list[Any]) -> None:
        arguments = [np.uint64(self.n), W, *extent, self.partial, self.counter, self._where]
        kernel = self.kernel(name, "products", **tiles.macros)
        kernel.launch(tiles.blocks, tiles.threads, arguments, shared=tiles.shared(), stream=self.stream)

    def _launch(
        self, name: str, arguments: list[Any], kernel: Any = None, *, shared: int = 0, stream: Stream | None = None
    ) -> None:
        found = self.kernel(name) if kernel is None else kernel
        found.launch(self.grid, _THREADS, [np.uint64(self.n), *arguments], shared=shared, stream=stream or self.stream)

    def _factor(self, C: NDArray[Any]) -> DeviceArray:
        """Factors on their way to the device; those of the operations before are still there."""
        if self._slot == _SLOTS:
            self.stream.synchronize()
            self._slot = 0
        if C.size > _FACTORS:
            raise ArgumentError("too many rows at a time", expected=f"{_FACTORS} factors", found=f"{C.shape}")
        here, there = self._host[self._slot], self._factors.view(self._slot * _FACTORS, C.shape)
        self._slot += 1
        here[: C.size] = C.reshape(-1)
        send(there.pointer, here.ctypes.data, C.size * self.wide.itemsize, self.stream)
        return there

    def _read(self, count: int) -> NDArray[Any]:
        """The numbers found, once they are there."""
        self.stream.synchronize()
        self._slot = 0
        return self.found[:count]

    def _check(self, W: DeviceArray) -> int:
        assert W.dtype == self.dtype
        assert W.shape[1:] == (self.n,)
        assert len(W) <= MOST_ROWS
        return len(W)


class CudaBlockWork:
    """Products and replacements of the last rows of W (m, n); as
    :class:`akx.backends.cpu.vectors.orthogonalisation.BlockWork`.
    """

    def __init__(self, W: DeviceArray, work: VectorOperations) -> None:
        self.W, self._work = W, work

    def products(self, k: int, s: int) -> NDArray[Any]:
        """conj(W[:k+s]) W[k:k+s]^T, (k+s, s), in float64 or complex128."""
        work, m = self._work, k + s
        work._products("some", self.W, work.tiles(m, s), [np.uint32(m), np.uint32(s)])
        return work._read(m * s).reshape(m, s).copy()

    def replace(self, k: int, s: int, F: NDArray[Any], *, check: bool = False) -> NDArray[Any]:
        """Rows k .. k+s-1 become F^T W[:k+s], F (k+s, s); with `check`, the products of the new ones."""
        self._work._mix(np.ascontiguousarray(F.T), self.W[: k + s], None, self.W[k : k + s])
        return self.products(k, s) if check else np.zeros((k + s, s), dtype=self._work.wide)

    def add(self, y: NDArray[Any], x: DeviceArray) -> None:
        """x (n,) += sum_j y[j] W[j], y (j,)."""
        if y.size:
            self._work._mix(y[None, :], self.W[: y.size], x, None)

    def is_zero(self, k: int) -> bool:
        """Whether all entries of row k are zero."""
        return not self.W[k].get().any()

    def factorise(self, k: int, s: int) -> NDArray[Any]:
        """Rows k .. k+s-1 become orthonormal by Householder reflections, on the host; the triangle (s, s)."""
        self.W[k : k + s], upper = orthonormal_rows(self.W[k : k + s].get())
        return upper
