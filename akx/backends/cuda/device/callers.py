"""Arrays of callers, read as fast as their libraries allow, and the streams that they are worked on.

A call that was made before needs little: where its arrays are now, that they look as they did then, and the stream. A
*look* is all that a call depends on but the address: shape, strides, type, device and what else there may be. CuPy and
PyTorch are asked by their own attributes, since ``__cuda_array_interface__`` takes them a microsecond or more; of other
libraries it is all there is, and it names the stream too.

A stream that may be gone, its handle that of another by now, must not be used later on: those of CuPy are held, those
of PyTorch are never given back, and behind work on any other an event is left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from akx.backends.cuda.device.runtime import runtime
from akx.backends.cuda.device.singleton import Once
from akx.backends.cuda.device.streams import CallerStream

__all__ = ["Library", "is_captured", "library_of", "stream_of"]

_LEGACY, _PER_THREAD = 1, 2


class Library(NamedTuple):
    """How arrays of a library are read.

    `read`: the address of an array, and its look. May raise whatever the library raises. `stream`: by a look, the
    stream that work on the array is for, now. `is_there`: whether an array of a type that may be on the device is.
    """

    read: Callable[[Any], tuple[int, Any]]
    stream: Callable[[Any], CallerStream]
    is_there: Callable[[Any], bool]


@Once
def _legacy() -> CallerStream:
    return CallerStream(_LEGACY, lasts=True)


def stream_of(handle: int | None, *, lasts: bool = False, owner: Any = None) -> CallerStream:
    """The stream of a handle; none and 0 are the legacy stream, 2 is another one in every thread."""
    if handle is None or handle in (0, _LEGACY):
        return _legacy()
    return CallerStream(handle, lasts=lasts and handle != _PER_THREAD, owner=owner)


# ------------------------------------------------------------------------------------------------------------- CuPy


def _read_cupy(x: Any) -> tuple[int, Any]:
    return x.data.ptr, (x.shape, x.strides, x.dtype.num, x.data.device_id)


#: CuPy's current stream of the last call, and what it is here.
_of_cupy: tuple[Any, Any] = (None, None)


def _stream_of_cupy(_: Any) -> CallerStream:
    global _of_cupy
    current = sys.modules["cupy"].cuda.get_current_stream()
    known, found = _of_cupy
    if known is not current:
        lasts = type(current).__name__ == "Stream"  # an ExternalStream is another's
        found = stream_of(current.ptr, lasts=lasts, owner=current)
        _of_cupy = current, found
    stream: CallerStream = found
    return stream


# ---------------------------------------------------------------------------------------------------------- PyTorch


def _read_torch(x: Any) -> tuple[int, Any]:
    bits = x.is_conj(), x.is_neg(), x.requires_grad
    return x.data_ptr(), (x.get_device(), x.shape, x.stride(), x.dtype, bits)


#: PyTorch's own streams, by handle.
_of_torch: dict[int, CallerStream] = {}


def _stream_of_torch(look: Any) -> CallerStream:
    cuda, device = sys.modules["torch"].cuda, look[0]
    raw = getattr(sys.modules["torch"]._C, "_cuda_getCurrentRawStream", None)
    handle = cuda.current_stream(device).cuda_stream if raw is None else raw(device)
    found = _of_torch.get(handle)
    if found is None:
        current = cuda.current_stream(device)
        lasts = getattr(current, "stream_id", handle) != handle  # that of an ExternalStream is its handle
        found = stream_of(handle, lasts=lasts)
        if found.lasts:
            _of_torch[handle] = found
    return found


# ----------------------------------------------------------------------------------------------------------- others


def _read_interface(x: Any) -> tuple[int, Any]:
    """With the address in the look: nobody else says on which GPU it is."""
    face = x.__cuda_array_interface__
    place = face["data"]
    return place[0], (face.get("stream"), place, face["shape"], face.get("strides"), face["typestr"], face.get("mask"))


_LIBRARIES = {
    "cupy": Library(_read_cupy, _stream_of_cupy, lambda x: True),
    "torch": Library(_read_torch, _stream_of_torch, attrgetter("is_cuda")),
}
_OTHER = Library(_read_interface, lambda look: stream_of(look[0]), lambda x: hasattr(x, "__cuda_array_interface__"))


#: By type, those that were asked for.
_of_types: dict[type, Library] = {}


def library_of(kind: type) -> Library:
    """That of a type of arrays."""
    found = _of_types.get(kind)
    if found is None:
        found = _of_types[kind] = _LIBRARIES.get(kind.__module__.partition(".")[0], _OTHER)
    return found


def is_captured(x: Any) -> bool:
    """Whether the stream of an array on the device is captured into a graph of the caller's, now."""
    library = library_of(type(x))
    if library is _OTHER and not library.is_there(x):  # by DLPack it comes on the legacy stream
        return False
    with runtime().active():
        return library.stream(library.read(x)[1]).is_capturing
