"""Arrays of other libraries that do not want to be read, or not as their memory is: by stand-ins, without a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.backends.cuda.device import interchange
from akx.core.errors import ArgumentError, ArgumentTypeError


class Stubborn:
    """A tensor that requires its gradient, as PyTorch has it."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")


class Lost:
    """An exporter whose device cannot be had."""

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("not of this kind")

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("not this one")


class Conjugated:
    """A tensor whose memory is not what it says, but for a bit."""

    def __init__(self, conjugated: bool) -> None:
        self._bit = conjugated
        shape = (0,) if conjugated else (0, 7)  # how the other one is told from this
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<c16", "data": (0, False), "version": 3}

    def is_conj(self) -> bool:
        return self._bit

    def is_neg(self) -> bool:
        return False

    def resolve_conj(self) -> Conjugated:
        return Conjugated(False)

    def resolve_neg(self) -> Conjugated:
        return self


Conjugated.__module__ = "torch"


@pytest.mark.parametrize("x", [Stubborn(), Lost()])
def test_what_cannot_be_read_is_named(x: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"x cannot be read as it is[\s\S]*detach"):
        interchange.is_on_device(x)
    with pytest.raises(ArgumentTypeError, match="values cannot be read"):
        interchange._read(x, "values")


def test_what_is_read_only_is_no_place_for_a_result() -> None:
    interface = {"shape": (0, 1), "typestr": "<f8", "data": (0, True), "version": 3, "strides": None}
    out = SimpleNamespace(__cuda_array_interface__=interface)
    with pytest.raises(ArgumentError, match="out is read-only"):
        interchange.result_in(out, (0, 1), np.dtype(float), (1, 1, 0))
    interface["data"] = (0, False)
    assert interchange.result_in(out, (0, 1), np.dtype(float), (1, 1, 0))[0].size == 0


def test_a_lazy_conjugate_is_made_first(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(cuda_stream=5)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: stream)))
    found = interchange._read(Conjugated(True))
    assert found.shape == (0, 7)
    assert (found.dtype, found.stream) == (np.dtype(complex), 5)
    assert not found.owner.is_conj()
    with pytest.raises(ArgumentError, match="out is conjugated"):
        interchange._read(Conjugated(True), "out")
