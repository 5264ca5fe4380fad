"""What a user sees of a bad file or a bad place for the database: one line, the cure, exit code 2."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from akx.cli.inputs import matrix_name
from cli.running import Ran

_HEADER = "%%MatrixMarket matrix coordinate real general\n"
_BAD = {
    "truncated.mtx": (_HEADER + "3 3 3\n1 1 1.0\n2 2 2.0\n", "truncated"),
    "rectangular.mtx": (_HEADER + "2 3 2\n1 1 1.0\n2 3 2.0\n", "not square"),
    "nan.mtx": (_HEADER + "2 2 2\n1 1 1.0\n2 1 nan\n", "finite"),
    "header.mtx": ("%%MatrixMatket matrix coordinate real general\n2 2 1\n1 1 1.0\n", "header"),
    "empty.mtx": ("", "empty"),
    "text.mtx": ("these are not the numbers you are looking for\n", "header"),
    "range.mtx": (_HEADER + "2 2 1\n1 3 1.0\n", "3"),
}


@pytest.mark.parametrize("name", list(_BAD))
@pytest.mark.parametrize("command", ["tune", "info", "bench"])
def test_bad_files(akx: Callable[..., Ran], tmp_path: Path, name: str, command: str) -> None:
    path = tmp_path / name
    path.write_text(_BAD[name][0])
    ran = akx(command, path)
    assert ran.code == 2
    assert ";" in ran.error, "the line must name the cure"
    assert ran.out == ""
    ran = akx(command, path, "--json")
    assert (ran.code, ran.json["error"]["exit_code"]) == (2, 2)
    assert ran.json["error"]["hint"]


@pytest.mark.parametrize("name", ["rectangular.mtx", "nan.mtx"])
def test_the_line_says_what_is_wrong(akx: Callable[..., Ran], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(_BAD[name][0])
    assert _BAD[name][1] in akx("info", path).error


def test_missing_file_directory_and_broken_gzip(akx: Callable[..., Ran], tmp_path: Path) -> None:
    missing = akx("tune", tmp_path / "no.mtx")
    assert (missing.code, "no.mtx" in missing.error) == (2, True)
    assert akx("tune", tmp_path).code == 2
    broken = tmp_path / "half.mtx.gz"
    broken.write_bytes(gzip.compress((_HEADER + "1 1 1\n1 1 1.0\n").encode())[:-12])
    ran = akx("info", broken)
    assert (ran.code, "half.mtx" in ran.error) == (2, True)


def _unwritable(tmp_path: Path) -> Path:
    """A folder in which nobody, root included, can make a file."""
    if os.geteuid() != 0:
        folder = tmp_path / "locked"
        folder.mkdir()
        folder.chmod(0o500)
        return folder
    for name in ("/sys/kernel", "/proc"):
        if Path(name).is_dir():
            return Path(name)
    pytest.skip("root can write everywhere here")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
def test_read_only_database_directory(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    ran = akx("tune", poisson, "--trials", 1, "--db", _unwritable(tmp_path) / "plans.sqlite")
    assert ran.code == 2
    assert "--db" in ran.error.replace("AKX_DB", "--db")


def test_database_that_is_a_directory(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    for arguments in (["tune", poisson], ["plans", "list"]):
        ran = akx(*arguments, "--db", tmp_path)
        assert (ran.code, "directory" in ran.error) == (2, True)


def test_as_a_user_meets_it(tmp_path: Path) -> None:
    """One run as a process of its own: nothing but the line, exit code 2."""
    path = tmp_path / "truncated.mtx"
    path.write_text(_BAD["truncated.mtx"][0])
    done = subprocess.run([sys.executable, "-m", "akx", "tune", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = (
        line
        for line in done.stderr.splitlines()
        if not line.startswith(("akx: working", "akx: compiling", "akx: reading"))
    )
    assert line.startswith("akx: error: ")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a/b/brick.mtx.gz", "brick"),
        ("G3.npz", "G3"),
        ("epb0.tar.gz", "epb0"),
        ("bcsstk01.rsa", "bcsstk01"),
        ("a.b.c", "a.b.c"),
        (".mtx", ".mtx"),
    ],
)
def test_names(file: str, name: str) -> None:
    assert matrix_name(file) == name
