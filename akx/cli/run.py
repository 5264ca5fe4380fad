"""What every command has around it: errors become one line and an exit code, never a traceback unless asked for."""

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

from akx.cli.output import emit_json, note, standard_streams, words_of_a_command
from akx.core.errors import AkxError, shown

__all__ = [
    "ERROR_SCHEMA",
    "EXIT_BROKEN_PIPE",
    "EXIT_DEFECT",
    "EXIT_INPUT",
    "EXIT_INTERRUPTED",
    "EXIT_UNMET",
    "AnsweredError",
    "run",
]

EXIT_DEFECT = 1
EXIT_INPUT = 2
EXIT_UNMET = 3  # an answer that is not as good as was asked for (`akx solve`), plans that are not (`akx plans verify`)
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

#: Version of the JSON object that a failing command prints under ``--json``.
ERROR_SCHEMA = 1

#: The most characters of the line of an error.
_LONGEST = 4000

#: What Typer, from some version on, puts before what is wrong with the value of an option.
_PREFIX = "Value error, "


class AnsweredError(Exception):
    """What comes after the answer of a command failed, under ``--json``: one object is to hold answer and error.

    Parameters
    ----------
    answer : dict
        The object of the command.
    failure : BaseException
        What happened: it decides on the line and the exit code.
    """

    def __init__(self, answer: dict[str, Any], failure: BaseException) -> None:
        super().__init__(str(failure))
        self.answer, self.failure = answer, failure


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
        _complain("interrupted", kind="Interrupted", exit_code=EXIT_INTERRUPTED, as_json=as_json, answer=answer)
        return EXIT_INTERRUPTED
    except AkxError as error:
        if debug:
            raise
        details = {"what": error.what, "expected": error.expected, "found": error.found, "hint": error.hint}
        _complain(str(error), type(error).__name__, error.exit_code, as_json, details, answer=answer)
        return error.exit_code
    except _UsageProblem as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
            return EXIT_INPUT
        _complain(_usage(error), kind="UsageError", exit_code=EXIT_INPUT, as_json=as_json, answer=answer)
        return EXIT_INPUT
    except OSError as error:
        if debug:
            raise
        place = f" {error.filename}" if error.filename is not None else ""
        text = f"cannot use{place}: {error.strerror or error}; check the path, its permissions and the free space"
        _complain(text, type(error).__name__, EXIT_INPUT, as_json, answer=answer)
        return EXIT_INPUT
    except MemoryError:
        if debug:
            raise
        text = "out of memory; free some, or use a smaller --k, or --dtype float32"
        _complain(text, kind="MemoryError", exit_code=EXIT_INPUT, as_json=as_json, answer=answer)
        return EXIT_INPUT
    except Exception as error:
        if debug:
            raise
        cure = _cure(error)
        if cure is not None:
            _complain(cure, type(error).__name__, EXIT_INPUT, as_json, answer=answer)
            return EXIT_INPUT
        text = f"a defect of akx: {type(error).__name__}: {error}; run again with --debug and report the traceback"
        _complain(text, type(error).__name__, EXIT_DEFECT, as_json, answer=answer)
        return EXIT_DEFECT


def _cure(error: Exception) -> str | None:
    """What to do about an error that is the environment's and not akx's; None where it is not known to be one."""
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "akx":
        return f"a package that akx needs cannot be imported: {error}; see what akx doctor says"
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "no thread can be started; raise the limit on processes (ulimit -u), or pass --threads 1"
    return None


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
    details: dict[str, str | None] | None = None,
    *,
    answer: dict[str, Any],
) -> None:
    line = shown(" ".join(text.split()), _LONGEST)
    print(f"akx: error: {line}", file=sys.stderr, flush=True)
    if as_json:
        error = {"type": kind, "message": line, **(details or {}), "exit_code": exit_code}
        with contextlib.suppress(BrokenPipeError, AkxError):  # stdout is what failed
            emit_json({"schema": ERROR_SCHEMA, **answer, "error": error})
