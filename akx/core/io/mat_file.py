"""Sparse variables of MATLAB .mat files (versions 4 to 7), read by SciPy; those inside structures too.

The SuiteSparse collection ships its matrices as a structure ``Problem`` with the matrix in the field ``A``.

SciPy's reader is compiled code that follows what the file says, and a damaged file can end the process it runs in. So
it runs in a process of its own, :func:`main`, with as much memory and time as the tags of the file can need. They talk
through pipes: the file goes in; a list of its variables comes back as JSON, or the reason against the file; then one
variable is asked for by its name and comes as the three arrays of compressed columns. Nothing of it is a pickle.

A version 5 file is 128 bytes, then elements: a tag (type, bytes; 4 each) and their content. A variable is an element of
type miMATRIX, or miCOMPRESSED with such an element inside.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.spawn import get_executable
from typing import IO, Any, NoReturn, cast

import numpy as np
import scipy.io
import scipy.sparse as sp

from akx.core import process
from akx.core.errors import AkxError, ArgumentError, FileFormatError, brief, listed, shown
from akx.core.io.stream import INFLATION

__all__ = ["is_mat_file", "read_mat_file", "sparse_variables"]

_COLLECTION = "Problem.A"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_AGAIN = 'the file is truncated or damaged: save it again with save(file, "A", "-v7")'
_HEADER, _COMPRESSED, _REASON = 128, 15, 160
#: Bytes that a process takes for itself, and for each byte of content: a cell is a Python object of about 250 bytes for
#: a tag of 8.
_OWN_BYTES, _BYTES_PER_BYTE = 512 * 1024**2, 32
#: Seconds of the processor that it takes for itself, and bytes of content that it reads in another one at least.
_OWN_SECONDS, _BYTES_PER_SECOND = 60, 10_000_000
#: What a process says first, and how much may come before it: a word of an interpreter about itself.
_READY, _CHATTER = b"akx reads .mat files\n", 65536
#: Seconds for a process that closed its pipe to end.
_PATIENCE = 5.0


@dataclass(frozen=True)
class _Variable:
    shape: tuple[int, ...]
    text: str  # for messages
    sparse: bool = False
    dense: bool = False  # a matrix of numbers


def is_mat_file(raw: bytes) -> bool:
    """Whether the bytes begin as a MATLAB file of version 5 or later does (version 4 has no mark)."""
    return raw.startswith((b"MATLAB ", _HDF5)) or raw[512:520] == _HDF5


def read_mat_file(raw: bytes, name: str, variable: str | None) -> Any:
    """The variable called `variable` (``"field"`` of a structure: ``"Problem.A"``), or the only sparse one.

    Returns
    -------
    scipy.sparse matrix or array
        A dense two-dimensional numeric variable is taken where it is asked for by name.
    """
    with _opened(raw, name) as (variables, fetch):
        return fetch(_chosen(variables, variable, name))


def sparse_variables(raw: bytes, name: str) -> dict[str, tuple[int, int]]:
    """Shapes of the sparse variables, by name."""
    with _opened(raw, name) as (variables, _):
        return {key: (value.shape[0], value.shape[1]) for key, value in variables.items() if value.sparse}


def _chosen(variables: dict[str, _Variable], wanted: str | None, name: str) -> str:
    """The name of the variable to read."""
    found = [key for key, value in variables.items() if value.sparse]
    if wanted is not None:
        return _named(variables, found, wanted, name)
    if len(found) == 1:
        return found[0]
    if _COLLECTION in found:
        return _COLLECTION
    if not found:
        raise FileFormatError(
            f"{name} holds no sparse variable",
            found=listed(f"{key} ({value.text})" for key, value in variables.items()) or "nothing",
            hint='save one with save(file, "A") where A is sparse, or name a dense one by variable=',
        )
    raise FileFormatError(
        f"{name} holds several sparse variables",
        found=listed(f"{key} ({variables[key].text})" for key in found),
        hint=f'choose one, for example variable="{shown(found[0])}"',
    )


def _named(variables: dict[str, _Variable], found: list[str], wanted: str, name: str) -> str:
    value = variables.get(wanted)
    if value is None:
        raise ArgumentError(
            f"{name} has no variable {brief(wanted)}",
            expected=listed(found or variables) or None,
            hint="choose one of these",
        )
    if value.sparse or value.dense:
        return wanted
    raise ArgumentError(
        f"variable {brief(wanted)} of {name} is not a matrix",
        found=value.text,
        hint=f"choose one of: {listed(found)}" if found else "the file holds no sparse variable",
    )


def _content_bytes(raw: bytes, name: str) -> int:
    """Bytes that the variables of a file have once inflated, as its tags say, which are checked."""
    if raw.startswith((b"MATLAB 7.3", _HDF5)) or raw[512:520] == _HDF5:
        raise FileFormatError(
            f"{name} is a MATLAB 7.3 (HDF5) file",
            expected="version 7 or older",
            hint='save it again in MATLAB with save(file, "A", "-v7")',
        )
    order = {b"IM": "<", b"MI": ">"}.get(raw[126:128])
    if order is None or 0 in raw[:4]:  # version 4, whose variables lie there as they are
        return len(raw)
    place, total = _HEADER, 0
    while place + 8 <= len(raw):
        kind, size = struct.unpack_from(f"{order}II", raw, place)
        place += 8
        if size > len(raw) - place:
            raise FileFormatError(
                f"{name} is truncated or damaged",
                expected=f"an element of {size} bytes from byte {place} on",
                found=f"{len(raw) - place}",
                hint=_AGAIN,
            )
        claimed = size
        if kind == _COMPRESSED:
            with contextlib.suppress(zlib.error, struct.error):  # SciPy's reader will say so
                inside = zlib.decompressobj().decompress(raw[place : place + min(size, 4096)], 8)
                claimed = 8 + struct.unpack(f"{order}II", inside)[1]
            if claimed > INFLATION * size + 8:
                raise FileFormatError(
                    f"{name} is damaged",
                    expected=f"at most {INFLATION * size} bytes from the {size} compressed ones at byte {place}",
                    found=f"a tag that says {claimed}",
                    hint=_AGAIN,
                )
        total += claimed
        place += size
    return total


@contextlib.contextmanager
def _opened(raw: bytes, name: str) -> Iterator[tuple[dict[str, _Variable], Callable[[str], sp.csc_array]]]:
    """The variables of a file by name, and what reads one of them; within, there is a process that has the file."""
    content = _content_bytes(raw, name)
    room = process.available_bytes() // 2
    if room and content > room:
        _fail_for_memory(name, f"{content} bytes once inflated", room)
    executable = get_executable()
    if not executable or getattr(sys, "frozen", False):  # this program is no Python that could be started again
        try:
            contents = _load(raw)
        except Exception as error:
            _fail(name, f"{type(error).__name__}: {error}")
        yield {key: _described(value) for key, value in contents.items()}, lambda key: _columns(contents[key])
        return
    memory = _OWN_BYTES + len(raw) + _BYTES_PER_BYTE * content
    limits = {
        "bytes": min(memory, room) if room else memory,
        "seconds": _OWN_SECONDS + content // _BYTES_PER_SECOND,
        "size": len(raw),
    }
    with _started(os.fsdecode(executable)) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        try:
            _tell(reader.stdin, limits)
            reader.stdin.write(raw)
            reader.stdin.flush()
            answer = _answer(reader.stdout)
            if "memory" in answer:
                _fail_for_memory(name, f"a reader that asks for more ({answer['memory']})", limits["bytes"])
            if "error" in answer:
                _fail(name, answer["error"])
            variables = {
                key: _Variable(**{**value, "shape": tuple(value["shape"])})
                for key, value in answer["variables"].items()
            }
        except (OSError, EOFError):
            _fail(name, _end_of(reader))

        def fetch(key: str) -> sp.csc_array:
            try:
                return _fetched(reader, key)
            except (OSError, EOFError):
                _fail(name, _end_of(reader))

        yield variables, fetch


@contextlib.contextmanager
def _started(executable: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs :func:`main` and has said so; it ends with the block."""
    heard = b""
    try:
        reader = subprocess.Popen(
            process.command(__name__, executable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=process.environment() | {"OPENBLAS_NUM_THREADS": "1"},
        )
    except (OSError, ValueError) as error:
        _fail_to_start(executable, str(error))
    try:
        assert reader.stdin is not None
        assert reader.stdout is not None
        while not heard.endswith(_READY):
            line = reader.stdout.readline(_CHATTER)
            heard += line
            if not line or len(heard) > _CHATTER:
                last = heard.decode("utf-8", "replace").split("\n")
                _fail_to_start(executable, next((text for text in reversed(last) if text.strip()), _end_of(reader)))
        yield reader
    finally:
        reader.kill()
        for pipe in (reader.stdin, reader.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        reader.wait()


def _fetched(reader: subprocess.Popen[bytes], key: str) -> sp.csc_array:
    assert reader.stdin is not None
    assert reader.stdout is not None
    _tell(reader.stdin, key)
    answer = _answer(reader.stdout)
    if "memory" in answer:
        raise EOFError
    arrays = []
    for dtype, size in answer["arrays"]:
        array = np.empty(size, dtype=dtype)
        if size and cast(io.BufferedReader, reader.stdout).readinto(array.view(np.uint8).data) < array.nbytes:
            raise EOFError
        arrays.append(array)
    return sp.csc_array(tuple(arrays), shape=tuple(answer["shape"]))


def _tell(pipe: IO[bytes], value: Any) -> None:
    pipe.write(json.dumps(value).encode() + b"\n")
    pipe.flush()


def _answer(pipe: IO[bytes]) -> Any:
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _end_of(reader: subprocess.Popen[bytes]) -> str:
    """What a process that says no more has ended with."""
    try:
        code = reader.wait(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return "a reader that says no more"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"a reader that was ended by {signal.Signals(-code).name}"
    return f"a reader that ended with {code}"


def _fail(name: str, found: str) -> NoReturn:
    raise FileFormatError(f"{name} cannot be read as a MATLAB file", found=shown(found, _REASON), hint=_AGAIN)


def _fail_for_memory(name: str, found: str, room: int) -> NoReturn:
    raise FileFormatError(
        f"{name} does not fit the memory",
        expected=f"at most {room} bytes for reading it",
        found=found,
        hint="save the one variable alone, or read it where more memory is free",
    )


def _fail_to_start(executable: str, found: str) -> NoReturn:
    raise AkxError(
        "the process that reads .mat files does not start",
        expected=f"a Python with SciPy at {executable}",
        found=found,
        hint="name one by multiprocessing.set_executable(path), or save the matrix as .npz",
    )


def main(parent: int) -> None:
    """Read the file that comes by the standard input, and answer; `parent` ends this process when it has heard all."""
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in (1, 2):
        os.dup2(nothing, place)
    answers.write(_READY)
    answers.flush()
    asks = sys.stdin.buffer
    limits = _answer(asks)
    _limit(limits["bytes"], limits["seconds"])
    try:
        contents = _load(asks.read(limits["size"]))
        described = {key: asdict(_described(value)) for key, value in contents.items()}
    except MemoryError as error:
        _tell(answers, {"memory": str(error) or "MemoryError"})
        return
    except Exception as error:
        _tell(answers, {"error": f"{type(error).__name__}: {error}"})
        return
    _tell(answers, {"variables": described})
    with contextlib.suppress(EOFError):  # nothing more is asked for
        columns = _columns(contents[_answer(asks)])
        arrays = [np.ascontiguousarray(array) for array in (columns.data, columns.indices, columns.indptr)]
        _tell(answers, {"shape": columns.shape, "arrays": [(array.dtype.str, array.size) for array in arrays]})
        for array in arrays:
            answers.write(array.data)
        answers.flush()


def _limit(memory: int, seconds: int) -> None:
    """Bound what this process takes from now on, where the system can; it leaves no core file either."""
    try:
        import resource
    except ImportError:
        return
    used = 0
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, used + memory)):
        with contextlib.suppress(OSError, ValueError):
            _, hardest = resource.getrlimit(kind)
            if hardest == resource.RLIM_INFINITY or most < hardest:
                resource.setrlimit(kind, (most, hardest))


def _load(raw: bytes) -> dict[str, Any]:
    """All variables, and the fields of structures as ``structure.field``."""
    contents: dict[str, Any] = {}
    for key, value in scipy.io.loadmat(io.BytesIO(raw)).items():
        if key.startswith("__"):
            continue
        contents[key] = value
        if isinstance(value, np.ndarray) and value.dtype.names and value.size == 1:
            record = value.reshape(-1)[0]
            contents |= {f"{key}.{field}": record[field] for field in value.dtype.names}
    return contents


def _columns(value: Any) -> sp.csc_array:
    return sp.csc_array(value)


def _described(value: Any) -> _Variable:
    shape = tuple(int(s) for s in getattr(value, "shape", ()))
    sizes = " x ".join(str(s) for s in shape)
    if sp.issparse(value):
        return _Variable(shape, f"{sizes}, {value.nnz} entries", sparse=True)
    if isinstance(value, np.ndarray):
        dense = value.ndim == 2 and value.dtype.kind in "biufc"
        return _Variable(shape, f"{sizes} {'structure' if value.dtype.names else value.dtype.name}", dense=dense)
    return _Variable(shape, type(value).__name__)
