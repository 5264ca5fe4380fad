"""Numbers as people read them."""

from __future__ import annotations

import pytest

from akx.report.units import count, counted, duration, over_untuned, ratio, share, size


def test_one_is_singular() -> None:
    one = [counted(1, name) for name in ("plan", "pass", "entry")]
    assert one == ["1 plan", "1 pass", "1 entry"]
    assert [counted(2000, name) for name in ("plan", "pass", "entry")] == [
        "2,000 plans",
        "2,000 passes",
        "2,000 entries",
    ]
    assert over_untuned(2.0, 1, is_same=False).endswith("after 1 call")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.5e-9, "1.50 ns"),
        (1.234e-6, "1.23 us"),
        (0.00123, "1.23 ms"),
        (0.0123, "12.3 ms"),
        (0.5, "500 ms"),
        (0.123, "123 ms"),
        (1.0, "1.00 s"),
        (9.999e-3, "10.0 ms"),
        (59.96, "60.0 s"),
        (119.0, "119 s"),
        (125.4, "2 min 05 s"),
        (None, "-"),
        (float("inf"), "-"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1536, "1.50 KiB"), (32 * 1024, "32 KiB"), (2**31, "2 GiB"), (2**45, "32768 GiB")]
)
def test_size(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


def test_counts_ratios_and_shares() -> None:
    assert count(1234567) == "1,234,567"
    assert ratio(1.756) == "1.76x"
    assert share(0.613) == "61%"
    assert share(None) == "-"
