"""Errors, exit codes and streams: what scripts rely on."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba.core import event

from akx.cli import exit_codes
from akx.cli import run as command_line
from akx.cli.output import data_console
from akx.core import progress
from akx.core.errors import AkxError, DatabaseError, MatrixError
from cli.golden import check_shape
from cli.running import Ran


def _raise(error: BaseException) -> Callable[[list[str]], int]:
    def invoke(arguments: list[str]) -> int:
        raise error

    return invoke


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (MatrixError("matrix is not square", found="2 x 3", hint="pass A[:2, :2]"), 2, "not square, found 2 x 3; pass"),
        (DatabaseError("database is locked", hint="wait"), 2, "database is locked; wait"),
        (FileNotFoundError(2, "No such file or directory", "a.mtx"), 2, "a.mtx: No such file or directory; check the"),
        (MemoryError(), 2, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("division by zero"), 1, "a defect of akx: ZeroDivisionError: division by zero; run again"),
        (MatrixError("two\nlines"), 2, "two lines"),
    ],
)
def test_every_error_is_one_line_and_an_exit_code(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, says: str
) -> None:
    monkeypatch.setattr(command_line, "_invoke", _raise(error))
    ran = akx("info", "x")
    assert ran.code == code
    assert says in ran.error
    assert ran.out == ""


def test_json_mode_also_prints_the_error_as_an_object(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    error = MatrixError("matrix is not square", expected="n x n", found="2 x 3", hint="pass A[:2, :2]")
    monkeypatch.setattr(command_line, "_invoke", _raise(error))
    ran = akx("info", "x", "--json")
    assert ran.error == "matrix is not square, expected n x n, found 2 x 3; pass A[:2, :2]"
    assert ran.json == {
        "schema": command_line.ERROR_SCHEMA,
        "error": {
            "type": "MatrixError",
            "message": "matrix is not square, expected n x n, found 2 x 3; pass A[:2, :2]",
            "what": "matrix is not square",
            "expected": "n x n",
            "found": "2 x 3",
            "hint": "pass A[:2, :2]",
            "exit_code": 2,
        },
    }


@pytest.mark.parametrize("error", [AkxError("no"), ZeroDivisionError("no"), OSError("no")])
def test_debug_keeps_the_traceback(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(command_line, "_invoke", _raise(error))
    with pytest.raises(type(error)):
        akx("info", "x", "--debug")
    monkeypatch.setenv("AKX_DEBUG", "1")
    with pytest.raises(type(error)):
        akx("info", "x")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tune",), "Missing argument 'FILE'; see 'akx tune --help'"),
        (("nonsense",), "No such command 'nonsense'"),
        (("tune", "x", "--k", "many"), "'--k'"),
        (("tune", "x", "--backend", "fpga"), "'--backend'"),
        (("tune", "x", "--basis", "legendre"), "'--basis'"),
        (("tune", "x", "--frobnicate"), "--frobnicate"),
        (("tune", "x", "--for", "minres"), "Invalid value for '--for': 'minres' is not one of 'ca-cg', 'ca-minres'"),
        (("solve", "x", "--method", "lsqr"), "Invalid value for '--method': 'lsqr' is not one of 'auto', 'cg'"),
        (("solve", "x", "--precond", "ilu"), "Invalid value for '--precond': 'ilu' is not one of 'jacobi'"),
        (("solve", "x", "--dtype", "Value error, no"), "'Value error, no' is not one of 'float32'"),
    ],
)
def test_bad_options_exit_with_2_and_point_to_the_help(
    akx: Callable[..., Ran], arguments: tuple[str, ...], says: str
) -> None:
    ran = akx(*arguments)
    assert ran.code == 2
    assert says in ran.error
    assert "--help" in ran.error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tune", "x", "--k", "0"), "--k is out of range, expected an integer >= 1, found 0; try --k 8"),
        (("tune", "x", "--k", "-1"), "found -1"),
        (("info", "x", "--k", "0"), "--k is out of range"),
        (("bench", "x", "--k", "4,0"), "--k is out of range"),
        (("bench", "x", "--k", "4;8"), "integers separated by commas"),
        (("tune", "x", "--threads", "0"), "--threads is out of range"),
        (("tune", "x", "--trials", "0"), "--trials is out of range"),
        (("tune", "x", "--time", "0"), "--time is out of range"),
        (("tune", "x", "--time", "nan"), "--time is out of range"),
        (("bench", "x", "--time", "-3"), "--time is out of range"),
    ],
)
def test_numbers_out_of_range_are_refused_before_any_work(
    akx: Callable[..., Ran], arguments: tuple[str, ...], says: str
) -> None:
    ran = akx(*arguments)  # the file "x" does not exist: the option is looked at first
    assert ran.code == 2
    assert says in ran.error


@pytest.mark.parametrize("failure", [MatrixError("no"), KeyboardInterrupt(), MemoryError(), ZeroDivisionError("no")])
def test_an_answer_is_not_lost_with_what_fails_after_it(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: BaseException
) -> None:
    monkeypatch.setattr(command_line, "_invoke", _raise(failure))
    plain = akx("info", "x", "--json")
    if not isinstance(failure, AkxError):
        check_shape("error.json", plain.json)
    monkeypatch.setattr(
        command_line, "_invoke", _raise(exit_codes.AnsweredError({"schema": 7, "residual": 0.5}, failure))
    )
    ran = akx("info", "x", "--json")
    assert (ran.code, ran.error) == (plain.code, plain.error)
    assert ran.json == {"schema": 7, "residual": 0.5, "error": plain.json["error"]}
    if isinstance(failure, Exception):
        with pytest.raises(type(failure)):
            akx("info", "x", "--json", "--debug")
        assert json.loads(capsys.readouterr().out) == {"schema": 7, "residual": 0.5}


def test_no_command_shows_the_help_on_stderr(akx: Callable[..., Ran]) -> None:
    ran = akx()
    assert ran.code == 2
    assert ran.out == ""
    assert "tune" in ran.err


def test_help_and_version(akx: Callable[..., Ran]) -> None:
    from akx import __version__

    assert akx("--version").out == f"akx {__version__}\n"
    shown = akx("--help")
    assert shown.code == 0
    assert all(name in shown.out for name in ("tune", "info", "bench", "plans", "doctor"))
    options = akx("tune", "--help").out
    for name in (
        "--k",
        "--backend",
        "--basis",
        "--dtype",
        "--trials",
        "--time",
        "--threads",
        "--db",
        "--retune",
        "--fresh",
        "--json",
    ):
        assert name in options
    listed = akx("plans", "--help").out
    assert all(name in listed for name in ("list", "show", "export", "import", "rm"))


def test_warnings_are_status_lines(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(arguments: list[str]) -> int:
        warnings.warn("half of it\nis gone", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(command_line, "_invoke", invoke)
    ran = akx("info", "x")
    assert (ran.code, ran.out, ran.err) == (0, "", "akx: warning: half of it is gone\n")


@pytest.mark.parametrize(
    ("arguments", "compiles", "says"),
    [
        (["info"], False, "akx: working\n"),
        (["info"], True, "akx: compiling akx's own code, which is kept"),
        (["info", "--json"], True, ""),
    ],
)
def test_a_command_that_is_silent_for_long_says_why(
    arguments: list[str], compiles: bool, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_: Any) -> int:
        for _ in range(4):
            time.sleep(0.1)
            if compiles:
                with event.trigger_event("numba:compile"):
                    time.sleep(0.01)
        return 0

    monkeypatch.setattr(sys, "argv", ["akx", *arguments])
    monkeypatch.setattr(progress, "AFTER", 0.05)
    monkeypatch.setattr(progress, "_LOOK", 0.02)
    monkeypatch.setattr(command_line, "_invoke", work)
    assert command_line.run() == 0
    said = capsys.readouterr().err
    assert says in said
    assert ("compiling" in said) is ("compiling" in says)
    assert bool(said) is bool(says)
    monkeypatch.setattr(command_line, "_invoke", lambda _: print("something") or work(_))
    assert command_line.run() == 0
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """``akx doctor --json | true``: no traceback, no message, the exit code of SIGPIPE."""
    script = "import sys; from akx.cli import main; sys.exit(main(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == exit_codes.EXIT_BROKEN_PIPE


class _Full(io.StringIO):
    """A stream whose disk is full, as its buffer finds out when it is flushed."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Ascii(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", errors="strict")


@pytest.mark.parametrize("command", [["--version"], ["--help"], ["doctor", "--json"]])
def test_closed_streams_are_no_error(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert command_line.run(command) == 0
    assert sys.stdout is sys.stderr is None


def test_a_full_stdout_is_an_error_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Full())
    for command in (["--help"], ["plans", "list"], ["plans", "list", "--json"]):
        assert command_line.run(command) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("akx: error: stdout cannot be written, found No space left")
        assert "free some space" in error


def test_a_full_stderr_loses_status_and_nothing_else(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", _Full())
    assert akx("--version").code == 0
    assert akx("info", "no such file").code == 2


def test_characters_that_the_terminal_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Ascii()
    monkeypatch.setattr(sys, "stderr", stream)
    assert command_line.run(["info", "fl\u00e4che\udcff.mtx"]) == 2
    stream.flush()
    assert b"fl\\xe4che\\udcff.mtx does not exist" in stream.buffer.getvalue()  # type: ignore[attr-defined]
    assert stream.errors == "strict"


def test_a_standard_descriptor_that_is_closed_is_never_that_of_a_file(tmp_path: Path) -> None:
    """What a C library prints would go into the file that has the number of stdout."""
    script = "import os; from akx.cli import main; main(['--version']); print(open(os.environ['FILE'], 'w').fileno())"
    command = f'exec "{sys.executable}" -c "{script}" 2>&-'
    environment = {**os.environ, "FILE": str(tmp_path / "file")}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout.split()[-1]) > 2


def test_a_reader_that_goes_away_ends_a_table_as_well(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    assert command_line.run(["doctor"]) == exit_codes.EXIT_BROKEN_PIPE


def test_warnings_that_are_errors_outside_are_status_here(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def invoke(arguments: list[str]) -> int:
        warnings.warn("only so", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(command_line, "_invoke", invoke)
    monkeypatch.setattr(sys, "warnoptions", ["error"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert akx("info", "x").err == "akx: warning: only so\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ImportError("Numba needs NumPy 9.9 or less", name="numba"),
            "cannot be imported: Numba needs NumPy 9.9 or less",
        ),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_what_the_environment_lacks_is_no_defect(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    monkeypatch.setattr(command_line, "_invoke", _raise(error))
    ran = akx("info", "x")
    assert ran.code == 2
    assert says in ran.error


def test_help_starts_fast_because_it_imports_no_numerics() -> None:
    script = (
        "import sys, json; from akx.cli import main; main(['--help']);"
        "heavy = {'numpy', 'scipy', 'numba', 'optuna', 'sqlalchemy', 'rich', 'pymetis'} & set(sys.modules);"
        "print(json.dumps(sorted(heavy)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr) == []


@pytest.mark.parametrize("columns", ["0", "000"])
def test_a_terminal_of_no_columns_is_none(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    data_console().print("all of it")
    assert capsys.readouterr().out == "all of it\n"
