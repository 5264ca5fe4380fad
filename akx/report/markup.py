"""HTML and SVG from plain functions: an element is made of its name, its children and its attributes.

What is not :class:`Markup` is text, and is escaped: nothing that a file, a plan or a reason says can become an element.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

__all__ = ["Markup", "element", "join", "text"]

#: Characters that neither HTML nor XML can hold.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
#: Elements of HTML without content, and so without an end.
_VOID = ("br", "meta")


class Markup(str):
    """Text that is markup already."""


def text(value: object) -> Markup:
    """`value` as escaped text, characters that cannot be written replaced; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    plain = str(value).encode("utf-8", "replace").decode()
    return Markup(html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", plain)))


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
