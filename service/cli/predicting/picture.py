"""Renders a picture as text, so that a terminal can show the input of a prediction."""

from __future__ import annotations

import io

from PIL import Image

_SHADES = " ░▒▓█"  # dark to bright on the usual dark terminal


def as_blocks(data: bytes, columns: int = 32) -> str:
    """Renders `data` (a JPEG or PNG) in shades of grey. A pixel is two characters wide, as characters are twice as
    high.

    Pictures wider than `columns / 2` pixels are scaled down; smaller ones are shown pixel by pixel.
    """
    with Image.open(io.BytesIO(data)) as image:
        grey = image.convert("L")
    width = min(grey.width, columns // 2)
    grey = grey.resize((width, max(1, round(grey.height * width / grey.width))), Image.Resampling.BOX)
    pixels = grey.tobytes()
    rows = (pixels[start : start + width] for start in range(0, len(pixels), width))
    return "\n".join("".join(_SHADES[level * len(_SHADES) // 256] * 2 for level in row) for row in rows)
