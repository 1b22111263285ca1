"""Pictures with one face at a known position: the portrait `grace_hopper.bmp`, cropped, scaled, mirrored and lit at
random, on photographs without people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from benchmarks.harness.home import SHARED

Array = np.ndarray[Any, np.dtype[Any]]
_PORTRAIT, _FACE = SHARED / "grace_hopper.bmp", (155, 130, 375, 335)  # left, top, right, bottom, for a width of 512
_EYES = ((223, 190), (305, 187))
_CUT = (85, 30, 445, 390)  # the crop of the portrait around the face


def scenes(count: int, size: int, seed: int) -> tuple[Array, Array]:
    """Returns the portrait at a random position on a photograph, `[count, size, size, 3]` from -1 to 1, and the face's
    box in each, `[count, (left, top, right, bottom)]`, as shares of the sides.
    """
    rng, portrait = np.random.default_rng(seed), _portrait()
    files = sorted((SHARED / "images").glob("*.JPEG"))
    made, boxes = [], []
    for _ in range(count):
        scene = Image.open(files[int(rng.integers(len(files)))]).convert("RGB").resize((size, size))
        cut, mirrored = portrait.crop(_CUT), bool(rng.integers(2))
        side = int(size * rng.uniform(0.35, 0.9))
        left, top = (int(rng.integers(0, size - side + 1)) for _ in range(2))
        cut = _lit(ImageOps.mirror(cut) if mirrored else cut, rng).resize((side, side))
        scene.paste(cut, (left, top))
        wide = _CUT[2] - _CUT[0]
        x0, x1 = ((position - _CUT[0]) / wide for position in (_FACE[0], _FACE[2]))
        x0, x1 = (1 - x1, 1 - x0) if mirrored else (x0, x1)
        y0, y1 = ((position - _CUT[1]) / wide for position in (_FACE[1], _FACE[3]))
        corner, share = np.array([left, top, left, top]) / size, side / size
        boxes.append(np.array([x0, y0, x1, y1]) * share + corner)
        made.append(np.asarray(scene, np.float32) / 127.5 - 1)
    return np.stack(made), np.stack(boxes)


def faces(count: int, size: int, seed: int) -> Array:
    """Returns the face alone, from 0 to 1, with a margin of about a quarter: `[count, size, size, 3]`."""
    rng = np.random.default_rng(seed)
    return np.stack([_around(rng, (265, 232), rng.uniform(270, 340), size) for _ in range(count)])


def eyes(count: int, size: int, seed: int) -> Array:
    """Returns pictures of one eye alone, in the same format as `faces`."""
    rng = np.random.default_rng(seed)
    return np.stack([_around(rng, _EYES[index % 2], rng.uniform(60, 90), size) for index in range(count)])


def _around(rng: np.random.Generator, middle: tuple[int, int], width: float, size: int) -> Array:
    turned = _portrait().rotate(float(rng.uniform(-10, 10)), Image.Resampling.BILINEAR, center=middle)
    x, y = (position + float(rng.uniform(-0.05, 0.05)) * width for position in middle)
    cut = turned.crop((x - width / 2, y - width / 2, x + width / 2, y + width / 2))
    cut = _lit(ImageOps.mirror(cut) if rng.integers(2) else cut, rng).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(cut, np.float32) / 255


def _lit(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Makes the picture lighter or darker, and adds noise."""
    values = np.asarray(picture, np.float32) * rng.uniform(0.6, 1.25)
    values = values + rng.normal(0, rng.uniform(0, 12), values.shape)
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _portrait() -> Image.Image:
    with Image.open(_PORTRAIT) as picture:
        rgb = picture.convert("RGB")
    return rgb.resize((512, round(rgb.height * 512 / rgb.width)))


OF_FACES = ((16, 2), (8, 6))  # MediaPipe's short-range face detector: grid positions along a side, boxes at each
OF_POSES = ((28, 2), (14, 2), (7, 6))


def anchors(grids: Sequence[tuple[int, int]]) -> Array:
    """Returns the centres of a detector's boxes, `[boxes, (x, y)]`, as shares of the sides."""
    found = []
    for grid, times in grids:
        along = (np.arange(grid) + 0.5) / grid
        y, x = np.meshgrid(along, along, indexing="ij")
        found.append(np.stack([x, y], axis=-1).reshape(-1, 2).repeat(times, axis=0))
    return np.concatenate(found)
