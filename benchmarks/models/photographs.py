"""Photographs prepared as inputs of networks: for calibration, to set batch normalization's statistics, and to judge
classifiers.

Runs in the peers' environments: needs numpy and Pillow only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # ImageNet's, per channel


Pixels = np.ndarray[Any, np.dtype[np.float32]]


def photographs(folder: Path, count: int, size: int) -> Pixels:
    """Returns `[count, size, size, 3]` float32, normalized. The photographs are the same on every call.

    The short side is scaled to size / 0.875 and the centre is cropped, as in the evaluation of ImageNet models.

    Raises:
        FileNotFoundError: the folder has fewer than `count` photographs.
    """
    files = sorted(folder.glob("*.JPEG"))
    if len(files) < count:
        raise FileNotFoundError(f"{folder} has {len(files)} photographs (*.JPEG), but {count} are needed")
    chosen = np.random.default_rng(0).choice(len(files), count, replace=False)
    pixels = np.stack([_centre(files[index], size) for index in chosen])
    normalized: Pixels = ((pixels / 255 - _MEAN) / _STD).astype(np.float32)
    return normalized


def slim_pixels(path: Path, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Returns `[size, size, 3]` as TF-slim prepares it: the central 87.5 % of each side, resized without keeping the
    aspect ratio.
    """
    with Image.open(path) as file:
        image = file.convert("RGB")
    width, height = image.size
    crop_width, crop_height = int(width * 0.875), int(height * 0.875)
    left, top = (width - crop_width) // 2, (height - crop_height) // 2
    cropped = image.crop((left, top, left + crop_width, top + crop_height))
    return np.asarray(cropped.resize((size, size), Image.Resampling.BILINEAR), np.uint8)


def _centre(path: Path, size: int) -> Pixels:
    image = Image.open(path).convert("RGB")
    scale = round(size / 0.875) / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image.crop((left, top, left + size, top + size)), np.float32)
