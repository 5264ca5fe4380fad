"""Run one command line: errors become one line on stderr and an exit code, never a traceback unless asked for."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from akx.cli.exit_codes import EXIT_BROKEN_PIPE, EXIT_DEFECT, EXIT_INPUT, EXIT_INTERRUPTED, AnsweredError
from akx.cli.output import emit_json, note, standard_streams, words_of_a_command
from akx.core.errors import AkxError, shown

__all__ = ["ERROR_SCHEMA", "run"]

#: Version of the JSON object that a failing command prints under ``--json``.
ERROR_SCHEMA = 1

#: The most characters of the line of an error.
_LONGEST = 4000

#: What Typer, from some version on, puts before what is wrong with the value of an option.
_PREFIX = "Value error, "


# Typer carries its own copy of click from some version on: take the exception class from what it raises.
_UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line. Returns the exit code; see :func:`akx.cli.main`."""
    usual = sys.unraisablehook
    sys.unraisablehook = _raise_again
    try:
        with standard_streams():
            # In a process of its own, for people: what calls this from Python, or reads JSON, knows that it waits.
            if arguments is not None or "--json" in sys.argv:
                return _run(arguments)
            with words_of_a_command():
                return _run(arguments)
    finally:
        sys.unraisablehook = usual


def _interrupt() -> None:
    """Ctrl-C for the main thread, which may be asleep."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _raise_again(lost: Any) -> None:
    """Ctrl-C in a place that cannot raise, such as a callback of the compiler, is Ctrl-C a moment later."""
    if lost.exc_type is not None and issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(0.1, _interrupt).start()
    else:
        sys.__unraisablehook__(lost)


def _run(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or os.environ.get("AKX_DEBUG", "") not in ("", "0")
    given = [argument for argument in given if argument != "--debug"]
    as_json = "--json" in given
    answer: dict[str, Any] = {}
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            if any(option.startswith("e") for option in sys.warnoptions):
                warnings.simplefilter("default")  # "error", from PYTHONWARNINGS, would make a status line a failure
            try:
                code = _invoke(given)
            except AnsweredError as late:
                if debug:
                    emit_json(late.answer)
                answer = late.answer
                raise late.failure from late.failure.__cause__
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted", "Interrupted", EXIT_INTERRUPTED, as_json, answer)
        return EXIT_INTERRUPTED
    except _UsageProblem as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
        else:
            _complain(_usage(error), "UsageError", EXIT_INPUT, as_json, answer)
        return EXIT_INPUT
    except Exception as error:
        if debug:
            raise
        text, exit_code = _explained(error)
        _complain(text, type(error).__name__, exit_code, as_json, answer, _details(error))
        return exit_code


def _explained(error: Exception) -> tuple[str, int]:
    """The line that says what happened and what to do, and the exit code."""
    if isinstance(error, AkxError):
        return str(error), error.exit_code
    if isinstance(error, OSError):
        place = f" {error.filename}" if error.filename is not None else ""
        text = f"cannot use{place}: {error.strerror or error}; check the path, its permissions and the free space"
        return text, EXIT_INPUT
    if isinstance(error, MemoryError):
        return "out of memory; free some, or use a smaller --k, or --dtype float32", EXIT_INPUT
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "akx":
        return f"a package that akx needs cannot be imported: {error}; see what akx doctor says", EXIT_INPUT
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "no thread can be started; raise the limit on processes (ulimit -u), or pass --threads 1", EXIT_INPUT
    text = f"a defect of akx: {type(error).__name__}: {error}; run again with --debug and report the traceback"
    return text, EXIT_DEFECT


def _details(error: Exception) -> dict[str, str | None]:
    """What the JSON object has of an error of akx beside its line."""
    if not isinstance(error, AkxError):
        return {}
    return {"what": error.what, "expected": error.expected, "found": error.found, "hint": error.hint}


def _invoke(arguments: list[str]) -> int:
    from akx.cli.app import app

    command = typer.main.get_command(app)
    try:
        with command.make_context("akx", arguments) as context:
            result = command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    return int(result) if isinstance(result, int) else 0


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, (DeprecationWarning, PendingDeprecationWarning)):
        return
    text = str(message).partition("Traceback (most recent call last)")[0]  # Numba puts one into its own
    note(f"warning: {' '.join(text.split()).rstrip(':')}")


def _usage(error: Any) -> str:
    error.message = (error.message or "").removeprefix(_PREFIX)
    text = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "akx"
    return f"{text}; see '{path} --help'" if text else f"no command given; see '{path} --help'"


def _complain(
    text: str,
    kind: str,
    exit_code: int,
    as_json: bool,
    answer: dict[str, Any],
    details: dict[str, str | None] | None = None,
) -> None:
    line = shown(" ".join(text.split()), _LONGEST)
    print(f"akx: error: {line}", file=sys.stderr, flush=True)
    if as_json:
        error = {"type": kind, "message": line, **(details or {}), "exit_code": exit_code}
        with contextlib.suppress(BrokenPipeError, AkxError):  # stdout is what failed
            emit_json({"schema": ERROR_SCHEMA, **answer, "error": error})
