"""Tables in Markdown, and their place in a page: between two comment lines of a name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

__all__ = ["keep", "page_for", "replace_block", "rows", "show"]


def rows(head: Sequence[str], body: Iterable[Sequence[str]], *, left: int | Collection[int] = 1) -> str:
    """A table; its first `left` columns, or those of these numbers, are text, the others figures."""
    text = range(left) if isinstance(left, int) else left
    marks = ["---" if column in text else "--:" for column in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, marks, *body))


def page_for(output: Path, docs: Path | None, *, usual: Path, page: Path | None) -> Path | None:
    """Where the table of a file of results goes: to `docs` where that is given, else to `page` from the usual file."""
    return page if docs is None and output == usual else docs


def show(block: str, name: str, page: Path | None) -> None:
    """Print a block, and put it into its place in a page, where there is one."""
    print(block)
    if page is not None:
        page.write_text(replace_block(page.read_text(), name, block))


def keep(page: Path, text: str, *, check: bool) -> int:
    """Write a page; with `check` nothing, and 1 where the page is not the text, as an exit code."""
    if check:
        return int(not page.exists() or page.read_text() != text)
    page.write_text(text)
    return 0


def replace_block(text: str, name: str, block: str) -> str:
    """`text` with what lies between ``<!-- name:begin -->`` and ``<!-- name:end -->`` replaced.

    Raises
    ------
    ValueError
        Where the two lines are not there once, in this order.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"expected one {begin} and, after it, one {end}")
    return f"{text.split(begin)[0]}{begin}\n{block}\n{end}{text.split(end)[1]}"
