"""Sparse variables of MATLAB .mat files (versions 4 to 7), read by SciPy; those inside structures too.

The SuiteSparse collection ships its matrices as a structure ``Problem`` with the matrix in the field ``A``.

SciPy's reader is compiled code that follows what the file says, and a damaged file can end the process it runs in. So
it runs in a process of its own, :func:`main`, with as much memory and time as the tags of the file can need. The file
goes in by a pipe; a line of JSON comes back, with the variables or the reason against the file, and behind it the three
arrays of compressed columns of the one that is asked for.

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
from multiprocessing.spawn import get_executable
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

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
#: What a process says first, behind what an interpreter says about itself.
_READY = b"akx reads .mat files\n"
#: Seconds for a process that closed its pipe to end.
_PATIENCE = 5.0


class _Variable(NamedTuple):
    shape: tuple[int, ...]
    text: str  # for messages
    kind: str  # "sparse", "dense" (a matrix of numbers) or ""


def is_mat_file(raw: bytes) -> bool:
    """Whether the bytes begin as a MATLAB file of version 5 or later does (version 4 has no mark)."""
    return raw.startswith((b"MATLAB ", _HDF5)) or raw[512:520] == _HDF5


def read_mat_file(raw: bytes, name: str, variable: str | None) -> Any:
    """The variable called `variable` (``"field"`` of a structure: ``"Problem.A"``), or the only sparse one.

    A dense two-dimensional numeric variable is taken where it is asked for by name.
    """
    variables, columns = _read(raw, name, {"variable": variable})
    _chosen(variables, variable, name)
    return columns


def sparse_variables(raw: bytes, name: str) -> dict[str, tuple[int, int]]:
    """Shapes of the sparse variables, by name."""
    variables, _ = _read(raw, name, {})
    return {key: (value.shape[0], value.shape[1]) for key, value in variables.items() if value.kind == "sparse"}


def _chosen(variables: dict[str, _Variable], wanted: str | None, name: str) -> str:
    """The name of the variable to read."""
    found = [key for key, value in variables.items() if value.kind == "sparse"]
    if wanted in variables:
        if variables[wanted].kind:
            return wanted
        raise ArgumentError(
            f"variable {brief(wanted)} of {name} is not a matrix",
            found=variables[wanted].text,
            hint=f"choose one of: {listed(found)}" if found else "the file holds no sparse variable",
        )
    if wanted is not None:
        expected = listed(found or variables) or None
        raise ArgumentError(f"{name} has no variable {brief(wanted)}", expected=expected, hint="choose one of these")
    if len(found) == 1 or _COLLECTION in found:
        return found[0] if len(found) == 1 else _COLLECTION
    texts = listed(f"{key} ({variables[key].text})" for key in found or variables)
    if not found:
        hint = 'save one with save(file, "A") where A is sparse, or name a dense one by variable='
        raise FileFormatError(f"{name} holds no sparse variable", found=texts or "nothing", hint=hint)
    hint = f'choose one, for example variable="{shown(found[0])}"'
    raise FileFormatError(f"{name} holds several sparse variables", found=texts, hint=hint)


def _content_bytes(raw: bytes, name: str) -> int:
    """Bytes of all variables once inflated, by their tags, which are checked."""
    if _HDF5 in (raw[:8], raw[512:520]) or raw.startswith(b"MATLAB 7.3"):
        raise FileFormatError(
            f"{name} is a MATLAB 7.3 file (HDF5), which SciPy does not read",
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
            expected, found = f"an element of {size} bytes from byte {place} on", f"{len(raw) - place}"
            raise FileFormatError(f"{name} is truncated or damaged", expected=expected, found=found, hint=_AGAIN)
        claimed = size
        if kind == _COMPRESSED:
            with contextlib.suppress(zlib.error, struct.error):  # SciPy's reader will say so
                inside = zlib.decompressobj().decompress(raw[place : place + min(size, 4096)], 8)
                claimed = 8 + struct.unpack(f"{order}II", inside)[1]
            if claimed > INFLATION * size + 8:
                expected = f"at most {INFLATION * size} bytes from the {size} compressed ones at byte {place}"
                found = f"a tag that says {claimed}"
                raise FileFormatError(f"{name} is damaged", expected=expected, found=found, hint=_AGAIN)
        total += claimed
        place += size
    return total


def _read(raw: bytes, name: str, asked: dict[str, Any]) -> tuple[dict[str, _Variable], sp.csc_array | None]:
    """The variables of a file by name, and the one of :func:`_chosen` where ``asked["variable"]`` can be had."""
    content = _content_bytes(raw, name)
    room = process.available_bytes() // 2
    if room and content > room:
        _fail_for_memory(name, f"{content} bytes once inflated", room)
    executable = get_executable()
    if not executable or getattr(sys, "frozen", False):  # this program is no Python that could be started again
        try:
            return _loaded(raw, asked)
        except Exception as error:
            _fail(name, f"{type(error).__name__}: {error}")
    memory = _OWN_BYTES + len(raw) + _BYTES_PER_BYTE * content
    limit = min(memory, room) if room else memory
    asked |= {"bytes": limit, "seconds": _OWN_SECONDS + content // _BYTES_PER_SECOND}
    answer, arrays, end = _answered(os.fsdecode(executable), json.dumps(asked).encode() + b"\n", raw)
    if "memory" in answer:
        _fail_for_memory(name, f"a reader that asks for more ({answer['memory']})", limit)
    if "variables" not in answer:
        _fail(name, answer.get("error", end))
    variables = {key: _Variable(tuple(shape), *rest) for key, (shape, *rest) in answer["variables"].items()}
    return variables, sp.csc_array(tuple(arrays), shape=tuple(answer["shape"])) if arrays else None


def _answered(executable: str, asked: bytes, raw: bytes) -> tuple[dict[str, Any], list[NDArray[Any]], str]:
    """What a process that runs :func:`main` answers, the arrays behind it, and how it has ended.

    The answer is empty where the process ends before it has said everything.
    """
    said, line, end = b"", b"", "a reader that says no more"
    answer: dict[str, Any] = {}
    arrays: list[NDArray[Any]] = []
    try:
        with subprocess.Popen(
            process.command(__name__, executable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=process.environment() | {"OPENBLAS_NUM_THREADS": "1"},
        ) as reader:
            assert reader.stdin is not None
            out = cast(io.BufferedReader, reader.stdout)
            try:
                with contextlib.suppress(OSError):  # one that has ended reads no more
                    reader.stdin.write(asked)
                    reader.stdin.write(raw)
                    reader.stdin.close()
                while (line := out.readline()) and not line.endswith(_READY):
                    said = line if line.strip() else said
                text = out.readline()
                if text.endswith(b"\n"):
                    answer = json.loads(text)
                    arrays = [np.empty(size, dtype) for dtype, size in answer.get("arrays", ())]
                if any(array.size and out.readinto(array.view(np.uint8).data) < array.nbytes for array in arrays):
                    answer, arrays = {}, []
                with contextlib.suppress(subprocess.TimeoutExpired):
                    end = f"a reader that ended with {reader.wait(timeout=_PATIENCE)}"
                with contextlib.suppress(ValueError):
                    end = f"a reader that was ended by {signal.Signals(-(reader.returncode or 0)).name}"
            finally:
                reader.kill()
    except (OSError, ValueError) as error:
        end = str(error)
    if not line:
        raise AkxError(
            "the process that reads .mat files does not start",
            expected=f"a Python with SciPy at {executable}",
            found=said.decode("utf-8", "replace").strip() or end,
            hint="name one by multiprocessing.set_executable(path), or save the matrix as .npz",
        )
    return answer, arrays, end


def _fail(name: str, found: str) -> NoReturn:
    raise FileFormatError(f"{name} cannot be read as a MATLAB file", found=shown(found, _REASON), hint=_AGAIN)


def _fail_for_memory(name: str, found: str, room: int) -> NoReturn:
    expected = f"at most {room} bytes for reading it"
    hint = "save the one variable alone, or read it where more memory is free"
    raise FileFormatError(f"{name} does not fit the memory", expected=expected, found=found, hint=hint)


def main(parent: int) -> None:
    """Read the file that comes by the standard input behind a line with what is asked for, and answer."""
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in (1, 2):
        os.dup2(nothing, place)
    answers.write(_READY)
    answers.flush()
    asked = json.loads(sys.stdin.buffer.readline())
    _limit(asked["bytes"], asked["seconds"])
    arrays = []
    try:
        variables, columns = _loaded(sys.stdin.buffer.read(), asked)
        answer: dict[str, Any] = {"variables": variables}
        if columns is not None:
            arrays = [np.ascontiguousarray(array) for array in (columns.data, columns.indices, columns.indptr)]
            answer |= {"shape": columns.shape, "arrays": [(array.dtype.str, array.size) for array in arrays]}
    except MemoryError as error:
        answer = {"memory": str(error) or "MemoryError"}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer).encode() + b"\n")
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


def _loaded(raw: bytes, asked: dict[str, Any]) -> tuple[dict[str, _Variable], sp.csc_array | None]:
    """All variables, fields of structures as ``structure.field``, and the columns of the one that is asked for."""
    contents: dict[str, Any] = {}
    for key, value in scipy.io.loadmat(io.BytesIO(raw)).items():
        if key.startswith("__"):
            continue
        contents[key] = value
        if isinstance(value, np.ndarray) and value.dtype.names and value.size == 1:
            record = value.reshape(-1)[0]
            contents |= {f"{key}.{field}": record[field] for field in value.dtype.names}
    variables = {key: _described(value) for key, value in contents.items()}
    if "variable" in asked:
        with contextlib.suppress(AkxError):  # which is raised where the name of the file is known
            return variables, sp.csc_array(contents[_chosen(variables, asked["variable"], "")])
    return variables, None


def _described(value: Any) -> _Variable:
    shape = tuple(int(s) for s in getattr(value, "shape", ()))
    sizes = " x ".join(str(s) for s in shape)
    if sp.issparse(value):
        return _Variable(shape, f"{sizes}, {value.nnz} entries", "sparse")
    if isinstance(value, np.ndarray):
        dense = value.ndim == 2 and value.dtype.kind in "biufc"
        return _Variable(shape, f"{sizes} {'structure' if value.dtype.names else value.dtype.name}", "dense" * dense)
    return _Variable(shape, type(value).__name__, "")
