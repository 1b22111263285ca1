"""Draws the trade-off curve of a mixed-precision search.

The page draws the same curve in JavaScript. `make messages` writes the names, colours and titles below for it
(`scripts.page_tables`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape

from PIL import Image, ImageDraw, ImageFont

from service.quantize.search.sensitivity import Point

_SIZE, _MARGIN, _RADIUS, _TICKS, _CAP = (720, 420), 60, 4, 5, 4
_CHARACTER = 6.0  # the mean width of a character, in pixels


@dataclass(frozen=True)
class Series:
    """A series of mixtures.

    Attributes:
        name: the types of the raised layers, as the legend shows it.
        variable: the name of the colour in the page's style sheet.
        color: that colour in the page's light scheme.
        is_line: true if a line joins the points.
    """

    name: str
    variable: str
    color: str
    is_line: bool


FLOAT = Series("in float", "--accent", "#2f6fdf", True)
WIDE = Series("of 16x8 (8-bit weights, 16-bit activations)", "--second", "#9a4a10", True)
BFLOAT16 = Series("in bfloat16", "--good", "#157347", False)
MIXED = Series("mixed", "--quiet", "#5b6470", False)
SERIES = (FLOAT, WIDE, BFLOAT16, MIXED)
LAYERS_TITLE, LATENCY_TITLE = "layers in a larger type", "latency"  # of the horizontal axis
ERROR_TITLE = "± one standard error"


@dataclass(frozen=True)
class _Dot:
    x: float
    y: float
    color: str
    label: str


@dataclass(frozen=True)
class _Line:
    ends: tuple[float, float, float, float]  # from (x, y) to (x, y)
    color: str = "#999999"


@dataclass(frozen=True)
class _Picture:
    """The parts of the picture, independent of its format.

    Attributes:
        texts: (x, y, text), centered.
    """

    dots: tuple[_Dot, ...]
    lines: tuple[_Line, ...]
    texts: tuple[tuple[float, float, str], ...]


def series_of(point: Point) -> tuple[Series, ...]:
    """Returns the series of a point. The mixture without raised layers is on both lines."""
    if point.bfloat16:
        return (BFLOAT16,)
    if point.kept and point.wide:
        return (MIXED,)
    if point.wide:
        return (WIDE,)
    return (FLOAT,) if point.kept else (FLOAT, WIDE)


def svg(curve: Sequence[Point], inputs: int) -> str:
    """Draws the fraction of right answers of `inputs` against the latency, if that was measured, or else against the
    number of layers that are not in int8. The tooltip of each dot contains the noise of the output.
    """
    picture, (width, height) = _draw(curve, inputs), _SIZE
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for line in picture.lines:
        a, b, c, d = line.ends
        parts.append(f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="{line.color}"/>')
    parts += [
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="middle">{escape(label)}</text>'
        for x, y, label in picture.texts
    ]
    parts += [
        f'<circle cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="{_RADIUS}" fill="{dot.color}">'
        f"<title>{escape(dot.label)}</title></circle>"
        for dot in picture.dots
    ]
    return "\n".join([*parts, "</svg>\n"])


def png(curve: Sequence[Point], inputs: int) -> bytes:
    """Draws the same picture as `svg`, without tooltips."""
    picture, image = _draw(curve, inputs), Image.new("RGB", _SIZE, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for line in picture.lines:
        draw.line(line.ends, fill=line.color)
    for x, y, label in picture.texts:
        draw.text((x, y), label, fill="black", font=font, anchor="mb")
    for dot in picture.dots:
        ends = (dot.x - _RADIUS, dot.y - _RADIUS, dot.x + _RADIUS, dot.y + _RADIUS)
        draw.ellipse(ends, fill=dot.color)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


class _Axes:
    """The scales of the picture: cost to x, and share to y."""

    def __init__(self, costs: Sequence[float], bounds: Sequence[float]) -> None:
        self.least, self.most = min(costs), max(costs)
        if self.most == self.least:
            self.most += 1
        self.low, self.high = max(0.0, min(bounds)), min(1.0, max(bounds))
        if self.high == self.low:
            self.low, self.high = max(0.0, self.low - 0.01), min(1.0, self.high + 0.01)

    def place(self, cost: float, share: float) -> tuple[float, float]:
        (width, height), (across, up) = _SIZE, (self.most - self.least, self.high - self.low)
        x = _MARGIN + (width - 2 * _MARGIN) * (cost - self.least) / across
        return x, height - _MARGIN - (height - 2 * _MARGIN) * (share - self.low) / up

    def ticks(self, *, whole: bool) -> list[float]:
        """Returns positions on the horizontal axis; whole numbers if `whole`."""
        step = (self.most - self.least) / _TICKS
        step = math.ceil(step) if whole else step
        return [self.least + step * number for number in range(_TICKS + 1) if self.least + step * number <= self.most]


def _draw(curve: Sequence[Point], inputs: int) -> _Picture:
    (width, height), is_timed = _SIZE, all(point.latency_s is not None for point in curve)
    costs = [1e3 * (point.latency_s or 0) if is_timed else point.raised for point in curve]
    errors = [math.sqrt(point.share * (1 - point.share) / inputs) if inputs else 0.0 for point in curve]
    bounds = [point.share + sign * error for point, error in zip(curve, errors, strict=True) for sign in (-1, 1)]
    axes = _Axes(costs, bounds)
    bottom, right = height - _MARGIN, width - _MARGIN
    lines = [_Line((_MARGIN, bottom, right, bottom)), _Line((_MARGIN, _MARGIN, _MARGIN, bottom))]
    lines += _error_bars(axes, costs, curve, errors)
    dots: list[_Dot] = []
    measured = sorted(zip(costs, curve, strict=True), key=lambda each: each[0])
    shown = [each for each in SERIES if any(each in series_of(point) for point in curve)]
    for series in shown:
        found = [(*axes.place(cost, each.share), cost, each) for cost, each in measured if series in series_of(each)]
        if series.is_line:
            pairs = pairwise(found)
            lines += [_Line((one[0], one[1], other[0], other[1]), series.color) for one, other in pairs]
        dots += [_Dot(x, y, series.color, _label(point, cost if is_timed else None)) for x, y, cost, point in found]
    texts: list[tuple[float, float, str]] = [
        (width / 2, height - 16, f"{LATENCY_TITLE} (ms)" if is_timed else LAYERS_TITLE),
        (width / 2, 24, f"Share of answers kept, {ERROR_TITLE}"),
    ]
    for step in range(_TICKS + 1):
        share = axes.low + (axes.high - axes.low) * step / _TICKS
        texts.append((_MARGIN - 28, axes.place(axes.least, share)[1] + 4, f"{100 * share:.1f} %"))
    for cost in axes.ticks(whole=not is_timed):
        texts.append((axes.place(cost, axes.low)[0], bottom + 18, f"{cost:.3g}"))
    x = float(_MARGIN)
    for series in shown:
        half = _CHARACTER * len(series.name) / 2
        dots.append(_Dot(x, 40, series.color, series.name))
        texts.append((x + 12 + half, 44, series.name))
        x += 2 * half + 40
    return _Picture(tuple(dots), tuple(lines), tuple(texts))


def _error_bars(
    axes: _Axes, costs: Sequence[float], curve: Sequence[Point], errors: Sequence[float]
) -> Iterator[_Line]:
    """Yields a bar of two standard errors for each point, with caps."""
    for cost, point, error in zip(costs, curve, errors, strict=True):
        (x, top), (_, bottom) = (axes.place(cost, min(1.0, max(0.0, point.share + each))) for each in (error, -error))
        yield _Line((x, top, x, bottom), MIXED.color)
        for y in (top, bottom):
            yield _Line((x - _CAP, y, x + _CAP, y), MIXED.color)


def _label(point: Point, latency_ms: float | None) -> str:
    noise = "no noise" if math.isinf(point.noise) else f"{point.noise:.1f} dB"
    others = f"{len(point.bfloat16)} in bfloat16" if point.bfloat16 else f"{len(point.wide)} of 16x8"
    label = f"{len(point.kept)} in float, {others}: {point.share:.2%}, {noise}"
    return label if latency_ms is None else f"{label}, {latency_ms:.3g} ms"
