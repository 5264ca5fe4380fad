"""Scratch memory of calls: each is for one call at a time, and the next may take it."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from akx.core.fork_safety import ForkSafeLock

__all__ = ["IN_GRAPHS", "KEPT", "KEPT_BYTES", "Workspaces", "hold_in_graph"]

#: Of each kind so many are kept, for callers and for solvers each, and of so many bytes in all.
KEPT, KEPT_BYTES = 8, 1 << 30
#: What is kept for the next one, of each kind and of each matrix.
_SPARE = 2


#: By the id of its owner, what is in CUDA graphs of callers, which are launched without a word to us.
IN_GRAPHS: dict[int, list[Any]] = {}


def hold_in_graph(owner: Any, one: Any) -> None:
    """Keep what is in a graph of a caller's as long as its owner lives, whatever is forgotten meanwhile."""
    held = IN_GRAPHS.get(id(owner))
    if held is None:
        held = IN_GRAPHS.setdefault(id(owner), [])
        weakref.finalize(owner, IN_GRAPHS.pop, id(owner), None).atexit = False
    if not any(one is other for other in held):
        held.append(one)


class _Plain(NamedTuple):
    """What does plain products of a matrix on a device, and is not in use; whose it is, and of which content."""

    owner: Callable[[], Any]
    token: tuple[Any, ...]
    ones: list[Any]


class Workspaces:
    """What is kept to be taken; `is_bounded`: there are limits to that."""

    def __init__(self, *, is_bounded: bool = True) -> None:
        self.lock = ForkSafeLock()
        self.is_bounded = is_bounded
        self.epoch = 0  # how often it was cleared
        self._spare: dict[Any, list[Any]] = {}
        self._plain: OrderedDict[tuple[Any, ...], _Plain] = OrderedDict()

    def clear(self) -> None:
        """Forget everything but what graphs of callers need, and what is lent too once it is given back."""
        with self.lock:
            self.epoch += 1
            self._plain.clear()
            self._spare = {}

    def take_spare(self, kind: Any) -> Any:
        """Something of a kind that a solver has done with, for the taker alone; None where there is nothing."""
        try:
            return self._spare[kind].pop()
        except (KeyError, IndexError):
            return None

    def give_spare(self, kind: Any, one: Any) -> None:
        """Let something be there for the next solver that needs one of its kind."""
        spare = self._spare
        if kind not in spare and len(spare) >= KEPT:
            spare.clear()
        ones = spare.setdefault(kind, [])
        if len(ones) < _SPARE:
            ones.append(one)

    def take_plain(self, owner: Any, types: tuple[str, ...], backend: str) -> tuple[Any, tuple[Any, ...]]:
        """What does plain products of an object's arrays on a device, for the taker alone, and the content it is of.

        None where nothing is kept.
        """
        with self.lock:
            found = self._plain.get((id(owner), types, backend))
            if owner is None or found is None or found.owner() is not owner or not found.ones:
                return None, ()
            return found.ones.pop(), found.token

    def give_plain(
        self, owner: Any, types: tuple[str, ...], backend: str, one: Any, token: tuple[Any, ...], epoch: int
    ) -> None:
        """Keep it for the next call, where that can be; `epoch` is that of the cache before it was made or taken."""
        if owner is None:
            return
        key = id(owner), types, backend
        with self.lock:
            if epoch != self.epoch:
                return
            found = self._plain.get(key)
            if found is None or found.owner() is not owner or found.token != token:
                held = weakref.ref(owner, lambda _: self._plain.pop(key, None))
                found = self._plain[key] = _Plain(held, token, [])
            if len(found.ones) < _SPARE:
                found.ones.append(one)
            self._plain.move_to_end(key)
            while self.is_bounded and (len(self._plain) > KEPT or self._plain_bytes > KEPT_BYTES):
                self._plain.popitem(last=False)

    def drop_plain(self, owner: Any, backend: str) -> None:
        """Forget what does plain products of an object on a device: it is prepared now."""
        with self.lock:
            for key in [key for key in list(self._plain) if key[0] == id(owner) and key[2] == backend]:
                del self._plain[key]

    @property
    def _plain_bytes(self) -> int:
        return sum(one.nbytes for kept in list(self._plain.values()) for one in kept.ones)
