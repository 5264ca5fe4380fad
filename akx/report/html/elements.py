"""HTML and SVG from plain functions: an element is made of its name, its children and its attributes.

What is not :class:`Markup` is text, and is escaped: nothing that a file, a plan or a reason says can become an element,
or be taken for other text than it is; what is very long is cut.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from akx.core.errors import shown_lines

__all__ = ["Markup", "element", "join", "text"]

#: The most characters of a text.
_LONGEST = 2000
#: Elements of HTML without content, and so without an end.
_VOID = ("br", "meta")


class Markup(str):
    """Text that is markup already."""


def text(value: object) -> Markup:
    """`value` as escaped text, what cannot be seen or written as escapes too; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(shown_lines(str(value)[:_LONGEST])))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element, ended even where HTML would not need it, so that SVG is XML too.

    Parameters
    ----------
    name : str
        Of the element.
    *children : object
        Markup, or anything else as text; None is left out.
    **attributes : object
        A final underscore goes, others become hyphens; None is left out. Numbers are written to a tenth of a pixel.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[object], between: str = "") -> Markup:
    """Children one after another; None is left out."""
    return Markup(between.join(text(child) for child in children if child is not None))


def _attribute(value: object) -> str:
    # viewBox is the one attribute that has capitals; nothing else needs more than names in lower case.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else text(value)
