"""The command ``akx``. :func:`main` is its entry point; each command is a module of its own."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: ``sys.argv[1:]``) and return the exit code.

    Exit codes: 0 done; 2 bad input, bad options or a missing piece (one line on stderr says the cure); 3 ``akx solve``
    did not converge; 130 interrupted (``akx tune`` still prints and keeps its best so far); 141 the reader of stdout
    went away; 1 a defect of akx.
    """
    from akx.cli.run import run

    if arguments is None:  # a process of its own
        from akx.cli.output import keep_stdout

        keep_stdout()
    return run(arguments)
