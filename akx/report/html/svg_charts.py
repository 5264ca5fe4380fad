"""Charts as inline SVG: lines, steps, dots and bars between two axes. Nothing but text; colours are the page's.

A value v lies at    start + (end - start) (f(v) - f(low)) / (f(high) - f(low)),    f = log10 on a logarithmic axis

and an axis ends at round numbers on both sides, so that no mark is outside of it. Every chart has a title that a screen
reader says, every mark its own, which a mouse over it shows. Classes ``c0`` to ``c7`` are coloured by the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from akx.report.html.elements import Markup, element, join

__all__ = ["HEIGHT", "PLOT", "WIDTH", "Axis", "Chart", "Scale", "Series", "bar_chart", "line_chart"]

WIDTH, HEIGHT = 640.0, 330.0
#: Left, top, right and bottom of the area between the axes.
PLOT = (78.0, 14.0, 622.0, 276.0)
#: Colours before they begin again.
_COLOURS = 8
_MOST_TICKS = 8
#: Whole numbers are short, and so may be marked more often.
_MOST_WHOLE = 12
#: Pixels of a character below the bars.
_CHARACTER = 7.2
_NICE = (1.0, 2.0, 5.0)
#: Values that differ by such a share are one: no mark would tell them apart.
_SAME = 1e-9


@dataclass(frozen=True)
class Scale:
    """From values, `low` to `high`, to pixels, `start` to `end`; `ticks` are the values that are marked."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False
    ticks: tuple[float, ...] = ()

    def place(self, value: float) -> float:
        """The pixel of a value."""
        f = math.log10 if self.is_log else float
        return self.start + (self.end - self.start) * (f(value) - f(self.low)) / (f(self.high) - f(self.low))


@dataclass(frozen=True)
class Axis:
    """What an axis is of: its label, with the unit, and how a value that is marked is written.

    A logarithmic one leaves out what is not positive. Of whole numbers only these are marked, and the axis ends at the
    values.
    """

    label: str
    is_log: bool = False
    from_zero: bool = False
    whole: bool = False
    show: Callable[[float], str] = "{:g}".format

    def scale(self, values: Iterable[float], start: float, end: float) -> Scale:
        """The scale for these values between two pixels."""
        given = [value for value in values if self.can_show(value)]
        if self.is_log:
            return _log_scale(given or [1.0], start, end)
        return _linear_scale([*given, *([0.0] if self.from_zero or not given else [])], start, end, self.whole)

    def can_show(self, value: float) -> bool:
        """Whether a value has a place on the axis."""
        return math.isfinite(value) and (value > 0 or not self.is_log)


@dataclass(frozen=True)
class Series:
    """Points that belong together: the name in the legend, and of each point x, y and what is shown for it, "" for
    nothing.

    `kind`: ``"line"``, ``"dash"`` (a line of dashes), ``"step"``, ``"dots"``, ``"dotted line"`` (both), ``"marks"``
    (small horizontal strokes) or ``"feet"`` (strokes at the foot of the chart, whatever their y). `colour`: class
    ``c0`` and so on.
    """

    name: str
    points: tuple[tuple[float, float, str], ...]
    kind: str = "line"
    colour: int = 0

    @property
    def css(self) -> str:
        """The class of its colour."""
        return f"c{self.colour % _COLOURS}"


@dataclass(frozen=True)
class Chart:
    """A picture, and what its colours mean: the name, the class of the colour, and whether it is a line of dashes."""

    svg: Markup
    legend: tuple[tuple[str, str, bool], ...] = field(default=())


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> Chart:
    """Series between two axes; points that an axis cannot show are left out."""
    left, top, right, bottom = PLOT
    fit = [(one, tuple(p for p in one.points if _fits(p, x, y, one.kind))) for one in series]
    used = [(one, points) for one, points in fit if points]
    across = x.scale((p[0] for _, points in used for p in points), left, right)
    up = y.scale((p[1] for one, points in used for p in points if one.kind != "feet"), bottom, top)
    marks = [_series(one, points, across, up) for one, points in used]
    frame = [_grid(up, y), _foot(across, x)]
    return Chart(_svg(title, [*frame, *marks]), tuple((one.name, one.css, one.kind == "dash") for one, _ in used))


def bar_chart(
    title: str, x_label: str, y: Axis, groups: Sequence[tuple[str, Mapping[str, float]]], *, line: float | None = None
) -> Chart:
    """Bars in groups, from 0.

    Parameters
    ----------
    title : str
    x_label : str
    y : Axis
        Of the heights.
    groups : sequence of (str, mapping of str to float)
        The name of a group, and its bars: the name of each and its height. Bars of one name have one colour.
    line : float, optional
        A height that is marked across the chart.
    """
    left, top, right, bottom = PLOT
    names = list(dict.fromkeys(name for _, bars in groups for name in bars))
    heights = [height for _, bars in groups for height in bars.values()]
    up = Axis(y.label, from_zero=True, show=y.show).scale([*heights, *([] if line is None else [line])], bottom, top)
    room = (right - left) / max(1, len(groups))
    width = min(48.0, 0.84 * room / max(1, *(len(bars) for _, bars in groups), 1))
    every = math.ceil((max(len(group) for group, _ in groups) + 1) * _CHARACTER / room) if groups else 1
    marks: list[Markup] = []
    for number, (group, bars) in enumerate(groups):
        middle = left + (number + 0.5) * room
        if number % every == 0:
            marks.append(element("text", group, x=middle, y=bottom + 17, text_anchor="middle"))
        for place, (name, height) in enumerate(bars.items()):
            at, high = middle + (place - len(bars) / 2) * width, up.place(height)
            shape = element(
                "rect",
                element("title", f"{group}, {name}: {y.show(height)}"),
                x=at + 0.06 * width,
                y=high,
                width=0.88 * width,
                height=bottom - high,
                class_=f"bar c{names.index(name) % _COLOURS}",
            )
            marks.append(shape)
            if width >= 36:  # else the values of neighbours would touch
                value = element("text", y.show(height), x=at + width / 2, y=high - 4, text_anchor="middle", class_="n")
                marks.append(value)
    if line is not None:
        at = up.place(line)
        marks.append(element("line", x1=left, x2=right, y1=at, y2=at, class_="reference"))
    frame = [_grid(up, y), _foot(None, Axis(x_label))]
    legend = tuple((name, f"c{place % _COLOURS}", False) for place, name in enumerate(names))
    return Chart(_svg(title, [*frame, *marks]), legend)


def _fits(point: tuple[float, float, str], x: Axis, y: Axis, kind: str) -> bool:
    return x.can_show(point[0]) and (kind == "feet" or y.can_show(point[1]))


def _series(one: Series, points: tuple[tuple[float, float, str], ...], across: Scale, up: Scale) -> Markup:
    feet = one.kind == "feet"
    at = [(across.place(x), up.start - 7 if feet else up.place(y), label) for x, y, label in points]
    marks: list[Markup] = []
    if one.kind in ("line", "dash", "step", "dotted line"):
        path = [f"M{at[0][0]:.1f} {at[0][1]:.1f}"]
        for px, py, _ in at[1:]:
            path.append(f"H{px:.1f}V{py:.1f}" if one.kind == "step" else f"L{px:.1f} {py:.1f}")
        named = element("title", one.name)
        marks.append(element("path", named, d="".join(path), class_=f"line {one.css}" + " dash" * (one.kind == "dash")))
    if one.kind in ("dots", "dotted line"):
        marks += [
            element("circle", element("title", label), cx=px, cy=py, r=4.0, class_=f"dot {one.css}")
            for px, py, label in at
        ]
    if one.kind == "marks":
        marks += [_stroke(f"M{px - 9:.1f} {py:.1f}h18", label, one.css) for px, py, label in at]
    if feet:
        marks += [_stroke(f"M{px:.1f} {py:.1f}v6", label, one.css) for px, py, label in at]
    return join(marks)


def _stroke(path: str, label: str, css: str) -> Markup:
    return element("path", element("title", label), d=path, class_=f"line {css}")


def _grid(up: Scale, y: Axis) -> Markup:
    left, _, right, _ = PLOT
    marks = []
    for tick in up.ticks:
        at = up.place(tick)
        marks.append(element("line", x1=left, x2=right, y1=at, y2=at, class_="grid"))
        marks.append(element("text", y.show(tick), x=left - 7, y=at + 4, text_anchor="end"))
    middle = (up.start + up.end) / 2
    turned = f"rotate(-90 14 {middle:.0f})"
    marks.append(element("text", y.label, x=14.0, y=middle, text_anchor="middle", transform=turned, class_="label"))
    return join(marks)


def _foot(across: Scale | None, x: Axis) -> Markup:
    left, _, right, bottom = PLOT
    marks = [element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis")]
    for tick in () if across is None else across.ticks:
        at = across.place(tick) if across is not None else 0.0
        marks.append(element("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="axis"))
        marks.append(element("text", x.show(tick), x=at, y=bottom + 18, text_anchor="middle"))
    middle = (left + right) / 2
    marks.append(element("text", x.label, x=middle, y=HEIGHT - 12, text_anchor="middle", class_="label"))
    return join(marks)


def _svg(title: str, marks: Sequence[Markup]) -> Markup:
    box = f"0 0 {WIDTH:g} {HEIGHT:g}"
    return element("svg", element("title", title), *marks, viewBox=box, role="img", class_="chart")


def _log_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """Ends at 1, 2 or 5 times a power of ten; marks there, or at powers of ten alone where those are too many."""
    first, last = math.floor(math.log10(min(values))) - 1, math.ceil(math.log10(max(values))) + 1
    nice = [float(f"{digit:g}e{power}") for power in range(first, last + 1) for digit in _NICE]
    low = max(value for value in nice if value <= min(values))
    high = min(value for value in nice if value >= max(values))
    if low == high:
        at = nice.index(low)
        low, high = nice[at - 1], nice[at + 1]
    ticks = [value for value in nice if low <= value <= high]
    if len(ticks) > _MOST_TICKS:
        tens = [value for value in ticks if f"{value:e}".startswith("1.0")]
        ticks = tens[:: 1 + (len(tens) - 1) // _MOST_TICKS]
    return Scale(low, high, start, end, is_log=True, ticks=tuple(ticks))


def _linear_scale(values: Sequence[float], start: float, end: float, whole: bool) -> Scale:
    low, high = min(values), max(values)
    if high - low <= _SAME * max(abs(low), abs(high)):
        low, high = (low - 1, high + 1) if whole or low else (low, high + 1)
    rough = (high - low) / ((_MOST_WHOLE if whole else _MOST_TICKS) - 1)
    power = math.floor(math.log10(rough))
    step = next(float(f"{digit:g}e{power}") for digit in (*_NICE, 10.0) if digit * 10.0**power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
        marked = range(math.ceil(low / step), math.floor(high / step) + 1)
        return Scale(low, high, start, end, ticks=tuple(number * step for number in marked))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(float(f"{number * step:.12g}") for number in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, end, ticks=ticks)
