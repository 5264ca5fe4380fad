"""Numbers in columns, read through Harwell-Boeing files; the values are those of a READ by gfortran 12."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from akx.core.errors import FileFormatError
from akx.core.io import read_matrix
from akx.core.io.fortran_format import parse_format


@pytest.fixture
def column(tmp_path: Path) -> Callable[..., list[float]]:
    """The first `count` values of lines of text in some format, as the only column of a matrix."""

    def read(layout: str, count: int, *lines: str, kind: str = "RRA") -> list[float]:
        indices = [f"{i + 1:8d}" for i in range(count)]
        sizes = (2 + count + len(lines), 2, count, len(lines), 0)
        path = tmp_path / "a.rra"
        text = [
            f"{'title':72}{'KEY':8}",
            "".join(f"{size:14d}" for size in sizes),
            f"{kind:14}{count:14d}{1:14d}{count:14d}{0:14d}",
            f"{'(I8)':16}{'(1X,I7)':16}{layout:20}",
            *(f"{1:8d}", f"{count + 1:8d}"),
            *indices,
            *lines,
        ]
        path.write_text("\n".join(text) + "\n")
        return read_matrix(path).toarray()[:, 0].tolist()

    return read


@pytest.mark.parametrize(
    ("layout", "lines", "expected"),
    [
        ("(2F6.2)", ["  1.5   2.5", "  3.5"], [1.5, 2.5, 3.5]),
        ("(1x,2f6.2)", ["#  1.5   2.5", "#  3.5"], [1.5, 2.5, 3.5]),
        ("( 2 F 6.2 )", ["  1.5   2.5", "  3.5"], [1.5, 2.5, 3.5]),
        ("(3(1P,E10.2))", ["  1.00E+00  2.00E+01  3.00E-01"], [1, 20, 0.3]),
        ("(3(1X,F4.1))", ["# 1.5# 2.5# 3.5", "#45.5"], [1.5, 2.5, 3.5, 45.5]),
        ("(2(F4.1,2(1X,I1)))", [" 1.5 2 3 4.5 5 6"], [1.5, 2, 3, 4.5, 5, 6]),
        ("(F4.1,2(I2))", [" 1.5 2 3", " 4 5", " 6"], [1.5, 2, 3, 4, 5, 6]),  # goes on at the group, not at the start
        ("(1P4E10.3)", ["1.000E+00 2.000E+00"], [1, 2]),
        ("(1P,F6.1,0P,F6.1)", ["  12.5  12.5", "  12.5  12.5"], [1.25, 12.5, 1.25, 12.5]),
        ("(F6.1,1P,F6.1)", ["  12.5  12.5", "  12.5  12.5"], [12.5, 1.25, 1.25, 1.25]),  # a scale factor stays
        ("(-2P,2F6.1)", ["  12.51.5E+2"], [1250, 150]),
        ("(2ES12.4E3)", [" 1.2500E+100 1.2500E-100"], [1.25e100, 1.25e-100]),
        ("(EN12.3,D12.3,G12.3)", ["  12.500E+03   0.125D+02        12.5"], [12500, 12.5, 12.5]),
        ("(T5,F4.1,T1,F4.1,TR4,F4.1,TL8,I4)", [" 1.5 2.5 3.5"], [2.5, 1.5, 3.5, 2.5]),
        ("(F4.1/F5.1)", [" 1.5", "  2.5", " 3.5", "no"], [1.5, 2.5, 3.5]),  # the last READ meets the second F
        ("(2F4.1/)", [" 1.5 2.5", "", " 3.5"], [1.5, 2.5, 3.5]),
        ("(BN,SP,2F6.1:)", ["  +1.5  +2.5"], [1.5, 2.5]),
        ("(2I6)", ["   -12     7"], [-12, 7]),
        ("(2I6.4)", ["  0012  0007"], [12, 7]),
    ],
)
def test_where_numbers_stand(
    column: Callable[..., list[float]], layout: str, lines: list[str], expected: list[float]
) -> None:
    assert column(layout, len(expected), *lines) == expected


@pytest.mark.parametrize(
    ("layout", "field", "expected"),
    [
        ("(E14.4)", "  0.25-119", 0.25e-119),
        ("(E14.4)", "  -0.25+103", -0.25e103),
        ("(D14.4)", "  2-3", 2e-7),
        ("(E14.4)", "  1.0D+02", 100),
        ("(E14.4)", "  1.0q2", 100),
        ("(E14.4)", "  0.5E 01", 5),
        ("(E14.4)", "  1 . 5 E 0 1", 15),
        ("(F14.4)", "  12 34", 0.1234),
        ("(F10.4)", "     12345", 1.2345),
        ("(F10.3)", "    5E2", 0.5),
        ("(F20.17)", "   12345678901234567", 0.12345678901234567),  # rounded once
        ("(2P,F10.2)", "     12345", 1.2345),
        ("(2P,F10.2)", "   12345E0", 123.45),
        ("(F10.4)", "          ", 0),
        ("(I10)", "   1 2    ", 12),
        ("(I10)", "          ", 0),
        ("(I10)", "+7", 7),
        ("(F10.4)", ".5", 0.5),
        ("(F10.4)", "-inf", -np.inf),
        ("(I30)", "123456789012345678901234567890", 123456789012345678901234567890.0),
    ],
)
def test_what_a_field_is_worth(column: Callable[..., list[float]], layout: str, field: str, expected: float) -> None:
    if field.strip():  # a line of blanks at the end of a file is none
        assert column(layout, 1, f"{field:30}") == [expected]
    # among plain ones
    assert column(layout, 3, f"{'1.0E0' if 'I' not in layout else '1':30}", f"{field:30}", f"{'0':30}")[1] == expected


@pytest.mark.parametrize(
    "field", ["1.5x", "1..5", "--1", "1E", "E5", ".", "-", "1_0", "1E5.0", "1-", "0x1", "1,5", "1\0"]
)
def test_what_is_no_number(column: Callable[..., list[float]], field: str) -> None:
    for layout, kind in (("(E20.4)", "a number"), ("(I20)", "a whole number")):
        with pytest.raises(FileFormatError, match=rf"a value is not {kind}, found .*as number 2; write") as caught:
            column(layout, 2, f"{'1':20}", f"{field:20}")
        assert "\n" not in str(caught.value)


def test_a_number_beyond_the_digits_of_python(column: Callable[..., list[float]]) -> None:
    """Python converts no more than 4300 digits from text to an integer."""
    with pytest.raises(FileFormatError, match="Fortran format is not understood"):
        column("(I5000)", 1, "1" * 5000)
    assert column("(I255)", 1, "1" * 255) == [float("1" * 255)]


@pytest.mark.parametrize(
    "layout",
    ["(16I5", "(A8)", "(Z8)", "('x',I5)", "(3HabcI5)", "(BZ,I5)", "(I0)", "(F256.3)", "()", "(1X)", "(I5,(1X))", "(L4)",
     "(99(99(99(I5))))", "(9999(9999()),I5)", "(" * 150 + "I5" + ")" * 150, "(I)", "(*(I5))", "(I5))"],
)  # fmt: skip
def test_formats_that_are_refused(layout: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_format(layout)
