"""Charts: where marks lie, what axes say, and that the SVG is XML with everything escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from akx.report.html.elements import Markup, element, text
from akx.report.html.svg_charts import HEIGHT, PLOT, WIDTH, Axis, Series, bar_chart, line_chart

_LEFT, _TOP, _RIGHT, _BOTTOM = PLOT


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def path_points(element: ET.Element) -> list[tuple[float, float]]:
    """The places that a path of M, L, H, V, h and v goes through."""
    x = y = 0.0
    found = []
    for command, numbers in re.findall(r"([MLHVhv])([-\d. ]+)", element.get("d", "")):
        values = [float(number) for number in numbers.split()]
        if command in "ML":
            x, y = values
        elif command in "Hh":
            x = values[0] + (x if command == "h" else 0.0)
        else:
            y = values[0] + (y if command == "v" else 0.0)
        found.append((x, y))
    return found


def test_a_bar_is_twice_as_high_for_twice_the_speed_up() -> None:
    groups = [("k = 4", {"sweep": 1.0, "wavefront": 2.0}), ("k = 8", {"wavefront": 3.0})]
    chart = bar_chart("speed", "k", Axis("speed-up"), groups, line=1.0)
    bars = list(parse(chart.svg).iter("rect"))
    heights = [float(bar.get("height", 0)) for bar in bars]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.02)
    assert heights[2] == pytest.approx(3 * heights[0], abs=0.03)
    for bar in bars:
        x, y, width, height = (float(bar.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert _LEFT <= x < x + width <= _RIGHT
        assert y >= _TOP - 0.01
        assert y + height == pytest.approx(_BOTTOM, abs=0.01)
    assert bars[1].get("class") == bars[2].get("class") != bars[0].get("class"), "a name has one colour"
    (line,) = [e for e in parse(chart.svg).iter("line") if e.get("class") == "reference"]
    assert float(line.get("y1", 0)) == pytest.approx(float(bars[0].get("y", 0)), abs=0.01)
    assert [name for name, _, _ in chart.legend] == ["sweep", "wavefront"]


def test_many_groups_keep_their_labels_apart() -> None:
    groups = [(f"k = {k}", {"sweep": 1.0}) for k in range(1, 41)]
    root = parse(bar_chart("speed", "k", Axis("speed-up"), groups).svg)
    places = [float(e.get("x", 0)) for e in root.iter("text") if (e.text or "").startswith("k = ")]
    assert 2 <= len(places) < 40
    assert min(b - a for a, b in pairwise(places)) > 6 * 7


@pytest.mark.parametrize("is_log", [False, True])
def test_points_are_within_the_axes_and_in_order(is_log: bool) -> None:
    values = [3.1e-6, 4.4e-5, 0.9e-3, 0.27]
    points = tuple((float(i), v, f"p{i}") for i, v in enumerate(values))
    root = parse(line_chart("t", Axis("x"), Axis("y", is_log=is_log), [Series("s", points, "dots")]).svg)
    at = [(float(e.get("cx", 0)), float(e.get("cy", 0))) for e in root.iter("circle")]
    assert len(at) == 4
    assert all(_LEFT - 0.01 <= x <= _RIGHT + 0.01 and _TOP - 0.01 <= y <= _BOTTOM + 0.01 for x, y in at)
    assert at == sorted(at, key=lambda place: (place[0], -place[1]))
    assert [title.text for e in root.iter("circle") for title in e.iter("title")] == ["p0", "p1", "p2", "p3"]


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios_and_marks_its_ends() -> None:
    scale = Axis("y", is_log=True).scale([1.1, 900.0], 276.0, 14.0)
    assert (scale.low, scale.high) == (1.0, 1000.0)
    assert scale.place(10.0) - scale.place(1.0) == pytest.approx(scale.place(1000.0) - scale.place(100.0))
    assert {1.0, 10.0, 100.0, 1000.0} == set(scale.ticks)
    near = Axis("y", is_log=True).scale([2.0, 2.0], 0.0, 1.0)
    assert (near.low, near.high) == (1.0, 5.0)
    assert near.ticks == (1.0, 2.0, 5.0)
    wide = Axis("y", is_log=True).scale([1e-9, 1e12], 0.0, 1.0)
    assert 3 <= len(wide.ticks) <= 9


@pytest.mark.parametrize(
    ("axis", "values", "ends", "ticks"),
    [
        (Axis("y", from_zero=True), [0.3, 0.9], (0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (Axis("y"), [1.0, 1.0], (0.0, 2.0), (0.0, 0.5, 1.0, 1.5, 2.0)),
        (Axis("y"), [1.0, 1.0 + 4e-15], (0.0, 2.0), (0.0, 0.5, 1.0, 1.5, 2.0)),  # redundancy, of closures that are all
        (Axis("y"), [0.0], (0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (Axis("y"), [], (0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (Axis("x", whole=True), [1.0, 8.0], (1.0, 8.0), (1, 2, 3, 4, 5, 6, 7, 8)),
        (Axis("x", whole=True), [1.0, 40.0], (1.0, 40.0), (5, 10, 15, 20, 25, 30, 35, 40)),
        (Axis("x", whole=True), [1.0], (0.0, 2.0), (0, 1, 2)),
    ],
)
def test_a_linear_axis_ends_at_round_numbers(
    axis: Axis, values: list[float], ends: tuple[float, float], ticks: tuple[float, ...]
) -> None:
    scale = axis.scale(values, 0.0, 100.0)
    assert (scale.low, scale.high) == ends
    assert scale.ticks == pytest.approx(ticks)
    assert scale.place(scale.low) == 0.0
    assert scale.place(scale.high) == 100.0


def test_steps_go_across_before_they_go_down() -> None:
    points = ((1.0, 4.0, ""), (3.0, 2.0, ""), (5.0, 2.0, ""))
    root = parse(line_chart("t", Axis("x"), Axis("y"), [Series("best", points, "step")]).svg)
    (path,) = root.iter("path")
    corners = path_points(path)
    assert corners[1] == (corners[2][0], corners[0][1])
    assert corners[2][1] > corners[0][1], "fewer is lower, and pixels grow downwards"


def test_what_an_axis_cannot_show_is_left_out_and_feet_need_no_value() -> None:
    points = ((1.0, 0.0, "zero"), (2.0, float("nan"), "nan"), (3.0, 1.0, "one"))
    feet = Series("lost", ((2.0, 0.0, "lost one"),), "feet")
    chart = line_chart("t", Axis("x"), Axis("y", is_log=True), [Series("s", points, "dots"), feet, Series("none", ())])
    root = parse(chart.svg)
    assert [e.findtext("title") for e in root.iter("circle")] == ["one"]
    (path,) = root.iter("path")
    assert path_points(path)[-1][1] == pytest.approx(_BOTTOM - 1, abs=0.01)
    assert [name for name, _, _ in chart.legend] == ["s", "lost"]


def test_screen_readers_and_units() -> None:
    series = [Series("s", ((1.0, 1.0, ""),))]
    root = parse(line_chart("seconds by trial", Axis("trial"), Axis("seconds a call"), series).svg)
    assert root.get("role") == "img"
    assert root[0].tag == "title"
    assert root[0].text == "seconds by trial"
    assert root.get("viewBox") == f"0 0 {WIDTH:g} {HEIGHT:g}"
    assert {"trial", "seconds a call"} <= {e.text for e in root.iter("text")}


def test_text_is_escaped_and_markup_is_not() -> None:
    assert text("<b>&\"'") == "&lt;b&gt;&amp;&quot;&#x27;"
    assert text(Markup("<b>")) == "<b>"
    assert element("p", "<", element("b", "x"), None, title='"', class_="a", hidden=None) == (
        '<p title="&quot;" class="a">&lt;<b>x</b></p>'
    )
    assert element("meta", name="a") == '<meta name="a">'
    series = [Series("</svg>", ((1.0, 1.0, "</title><b>"),), "dots")]
    nasty = line_chart("<b>&\x00\x1b\ud800", Axis("<x>"), Axis("&y"), series)
    root = parse(nasty.svg)
    assert root.findtext("title") == r"<b>&\x00\x1b\ud800"
    assert not list(root.iter("b"))
