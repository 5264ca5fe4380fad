"""What others wrote, in messages: escaped, and cut."""

from __future__ import annotations

import pytest

from akx.core.errors import CompileError, PlanError, brief, shown

_DEEP: list[object] = []
for _ in range(100_000):
    _DEEP = [_DEEP]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\x1b[31m", r"'a\x1b[31m'"),
        (-(10**5000), "a number of 16610 bits"),
        ([10**5000], "[a number of 16610 bits]"),
        ([0] * 10**6, "[0, 0, 0, 0, 0, 0, ...]"),
        (_DEEP, "[[[[[[[...]]]]]]]"),
        ("x" * 10**6, None),
        ({"k" * 10**6: "\0" * 10**6}, None),
    ],
    ids=["escape", "integer", "integers", "items", "deep", "text", "mapping"],
)
def test_a_value_is_brief(value: object, text: str | None) -> None:
    found = brief(value)
    assert found.isprintable()
    assert len(found) <= 60
    assert text is None or found == text


@pytest.mark.parametrize("given", ["\x1b[31m", "\u202e", "\ud800", "\0", "a\nb"])
@pytest.mark.parametrize("times", [1, 10**5])
def test_text_is_one_printable_line(given: str, times: int) -> None:
    text = shown(given * times)
    assert text.isprintable()
    assert len(text) <= 60


def test_parts_of_a_message_are_cut_and_their_ends_kept() -> None:
    error = PlanError("a" * 10**5 + " is damaged", found="\x1b" * 10**5)
    assert str(error).isprintable()
    assert len(str(error)) < 950
    assert error.what.endswith(" is damaged")


def test_the_log_of_a_compiler_is_whole() -> None:
    assert str(CompileError("no", found="line\n" * 500)).count("\n") == 500
