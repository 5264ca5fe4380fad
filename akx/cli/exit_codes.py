"""How a command ends: its exit code, and an answer that comes with an error."""

from __future__ import annotations

from typing import Any

__all__ = [
    "EXIT_BROKEN_PIPE",
    "EXIT_DEFECT",
    "EXIT_INPUT",
    "EXIT_INTERRUPTED",
    "EXIT_UNMET",
    "AnsweredError",
]

EXIT_DEFECT = 1
EXIT_INPUT = 2
EXIT_UNMET = 3  # an answer that is not as good as was asked for (`akx solve`), plans that are not (`akx plans verify`)
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


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
