"""Draws the trade-off curve of a mixed-precision search."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from PIL import Image, ImageDraw, ImageFont

from service.quantize.search.sensitivity import Point

_SIZE, _MARGIN, _RADIUS, _TICKS = (720, 420), 60, 4, 5
_COLORS = {"float": "#1f5fbf", "16x8": "#c65d0e", "bfloat16": "#7a3fa0", "mixed": "#4d8a2f"}


@dataclass(frozen=True)
class _Dot:
    x: float
    y: float
    kind: str
    label: str


@dataclass(frozen=True)
class _Picture:
    """The parts of the picture, independent of its format.

    Attributes:
        lines: each from (x, y) to (x, y).
        texts: (x, y, text), centered.
    """

    dots: tuple[_Dot, ...]
    lines: tuple[tuple[float, float, float, float], ...]
    texts: tuple[tuple[float, float, str], ...]


def svg(curve: Sequence[Point]) -> str:
    """Draws the fraction of right answers against the latency, if that was measured, or else against the number of
    layers that are not in int8. The tooltip of each dot contains the noise of the output.
    """
    picture, (width, height) = _draw(curve), _SIZE
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    parts += [
        f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="#999"/>' for a, b, c, d in picture.lines
    ]
    parts += [
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="middle">{escape(label)}</text>'
        for x, y, label in picture.texts
    ]
    parts += [
        f'<circle cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="{_RADIUS}" fill="{_COLORS[dot.kind]}">'
        f"<title>{escape(dot.label)}</title></circle>"
        for dot in picture.dots
    ]
    return "\n".join([*parts, "</svg>\n"])


def png(curve: Sequence[Point]) -> bytes:
    """Draws the same picture as `svg`, without tooltips."""
    picture, image = _draw(curve), Image.new("RGB", _SIZE, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for line in picture.lines:
        draw.line(line, fill="#999999")
    for x, y, label in picture.texts:
        draw.text((x, y), label, fill="black", font=font, anchor="mb")
    for dot in picture.dots:
        ends = (dot.x - _RADIUS, dot.y - _RADIUS, dot.x + _RADIUS, dot.y + _RADIUS)
        draw.ellipse(ends, fill=_COLORS[dot.kind])
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _draw(curve: Sequence[Point]) -> _Picture:
    width, height = _SIZE
    is_timed = all(point.latency_s is not None for point in curve)
    positions = [1e3 * (point.latency_s or 0) if is_timed else point.raised for point in curve]
    least, most = min(positions), max(positions)
    if most == least:
        most += 1
    low = min(point.share for point in curve)
    high = max(point.share for point in curve)
    if high == low:
        low, high = max(0.0, low - 0.01), min(1.0, high + 0.01)

    def place(cost: float, share: float) -> tuple[float, float]:
        x = _MARGIN + (width - 2 * _MARGIN) * (cost - least) / (most - least)
        return x, height - _MARGIN - (height - 2 * _MARGIN) * (share - low) / (high - low)

    dots = []
    for point, cost in zip(curve, positions, strict=True):
        kind = (
            "float"
            if point.raised == len(point.kept)
            else "mixed"
            if point.kept
            else "16x8"
            if point.wide
            else "bfloat16"
        )
        noise = "no noise" if math.isinf(point.noise) else f"{point.noise:.1f} dB"
        others = f"{len(point.bfloat16)} in bfloat16" if point.bfloat16 else f"{len(point.wide)} of 16x8"
        label = f"{len(point.kept)} in float, {others}: {point.share:.2%}, {noise}"
        dots.append(_Dot(*place(cost, point.share), kind, f"{label}, {cost:.3g} ms" if is_timed else label))
    bottom, right = height - _MARGIN, width - _MARGIN
    lines = [(_MARGIN, bottom, right, bottom), (_MARGIN, _MARGIN, _MARGIN, bottom)]
    texts: list[tuple[float, float, str]] = [
        (width / 2, height - 16, "ms for a call" if is_timed else "layers raised from int8"),
        (width / 2, 24, "Share of answers kept"),
    ]
    for step in range(_TICKS + 1):
        share, cost = low + (high - low) * step / _TICKS, least + (most - least) * step / _TICKS
        texts.append((_MARGIN - 28, place(least, share)[1] + 4, f"{100 * share:.1f} %"))
        texts.append((place(cost, low)[0], bottom + 18, f"{cost:.3g}" if is_timed else f"{cost:.0f}"))
    for number, kind in enumerate(dict.fromkeys(dot.kind for dot in dots)):
        x, y = width - _MARGIN - 40, bottom - 20 - 18 * number
        dots.append(_Dot(x - 32, y - 4, kind, kind))
        texts.append((x, y, kind))
    return _Picture(tuple(dots), tuple(lines), tuple(texts))
