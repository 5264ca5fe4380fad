"""The process that reads .mat files: a file that ends it costs one error."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from akx.core.errors import AkxError, FileFormatError
from akx.core.io import list_variables, mat_file, read_matrix

A = sp.csc_array(np.array([[1.0, 0, 2], [0, 3, 0], [0, 0, 4]]))


def saved(variables: dict[str, Any] | None = None, **options: Any) -> bytearray:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, variables or {"A": A}, **options)
    return bytearray(buffer.getvalue())


def put(folder: Path, content: bytes) -> Path:
    (folder / "a.mat").write_bytes(content)
    return folder / "a.mat"


def test_damage_that_ends_the_reader(tmp_path: Path) -> None:
    raw = saved()
    assert raw[176] == 5  # the type of the row indices
    raw[176] = 0x84  # which SciPy looks up beyond the end of a table
    with pytest.raises(FileFormatError, match=r"a\.mat cannot be read as a MATLAB file, found a reader that .*damaged"):
        read_matrix(put(tmp_path, raw))
    with pytest.raises(FileFormatError, match="found a reader that"):
        list_variables(tmp_path / "a.mat")


@pytest.mark.parametrize("values", [A, A * 1j, sp.csc_array((3, 3)), sp.csc_array((0, 0))])
def test_values_come_as_they_are(tmp_path: Path, values: Any) -> None:
    found = read_matrix(put(tmp_path, saved({"A": values}, do_compression=True)))
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(found.toarray(), values.toarray())


def test_tags_are_checked_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mat_file.subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    raw = saved()
    raw[132:136] = (10**9).to_bytes(4, "little")
    with pytest.raises(FileFormatError, match=r"truncated or damaged, expected an element of 1000000000 bytes"):
        read_matrix(put(tmp_path, raw))
    import zlib

    bomb = zlib.compress((14).to_bytes(4, "little") + (2**32 - 8).to_bytes(4, "little") + bytes(2**16))
    raw[128:] = (15).to_bytes(4, "little") + len(bomb).to_bytes(4, "little") + bomb
    with pytest.raises(FileFormatError, match="a tag that says 4294967296"):
        read_matrix(put(tmp_path, raw))
    monkeypatch.setattr(mat_file.process, "available_bytes", lambda: 100)
    with pytest.raises(FileFormatError, match="does not fit the memory, expected at most 50 bytes"):
        read_matrix(put(tmp_path, saved()))


def test_memory_of_the_reader_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resource")
    if sys.platform != "linux":
        pytest.skip("this system does not bound what a process takes")
    monkeypatch.setattr(mat_file, "_OWN_BYTES", 2**20)
    monkeypatch.setattr(mat_file, "_BYTES_PER_BYTE", 1)
    with pytest.raises(FileFormatError, match="does not fit the memory"):
        read_matrix(put(tmp_path, saved({"A": A, "B": np.zeros(2**22)}, do_compression=True)))


@pytest.mark.parametrize("program", ["import sys; print('no SciPy here'); sys.exit(3)", "pass"])
def test_a_process_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(mat_file.process, "command", lambda *_: [sys.executable, "-c", program])
    path = put(tmp_path, saved())
    with pytest.raises(AkxError, match=r"does not start, .*(no SciPy here|ended with 0); name one by multiprocessing"):
        read_matrix(path)
    monkeypatch.setattr(mat_file, "get_executable", lambda: str(tmp_path / "none"))
    monkeypatch.setattr(mat_file.process, "command", lambda *_: [str(tmp_path / "none")])
    with pytest.raises(AkxError, match="does not start"):
        read_matrix(path)


@pytest.mark.parametrize("executable", [None, "", b""])
def test_where_there_is_no_python_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: Any) -> None:
    monkeypatch.setattr(mat_file, "get_executable", lambda: executable)
    assert (read_matrix(put(tmp_path, saved())) != A).nnz == 0
    with pytest.raises(FileFormatError, match="cannot be read as a MATLAB file"):
        read_matrix(put(tmp_path, saved()[:130]))


def test_a_script_without_a_guard_or_standard_streams(tmp_path: Path) -> None:
    script = f"""
        import os
        for place in (0, 1, 2):
            os.close(place)
        from akx.core.io import read_matrix
        with open({str(tmp_path / "runs")!r}, "a") as file:
            file.write(f"{{read_matrix({str(put(tmp_path, saved()))!r}).sum()}}\\n")
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    assert subprocess.run([sys.executable, str(tmp_path / "script.py")], check=False).returncode == 0
    assert (tmp_path / "runs").read_text() == "10.0\n"
