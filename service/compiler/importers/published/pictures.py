"""The preprocessing of pictures of a model, from `preprocessor_config.json` of transformers.

The file defines up to four steps: resize, crop, rescale and normalize. The last two are combined into a mean and a
standard deviation of pixel / 255, the convention of `ModelMetadata`:

    (pixel * factor + offset - mean) / std = (pixel / 255 - (mean - offset) / (255 * factor)) / (std / (255 * factor))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from service.compiler.importers.published.files import Folder
from service.core.errors import Unsupported
from service.core.models.metadata import MAX_SIDE, ModelMetadata, Resample

PREPROCESSOR = "preprocessor_config.json"

# Pillow's numbers of its filters.
_FILTERS: Mapping[int, Resample] = {
    0: Resample.NEAREST,
    1: Resample.LANCZOS,
    2: Resample.BILINEAR,
    3: Resample.BICUBIC,
    4: Resample.BOX,
    5: Resample.HAMMING,
}
_CROP_BELOW = 384  # ConvNext's preprocessing crops smaller pictures only


def read_pictures(folder: Folder) -> ModelMetadata:
    """Returns the preprocessing of pictures that the folder defines; empty if it defines none.

    Raises:
        InvalidInput: the file is not a JSON object.
        Unsupported: the pictures are resized in a way that Octet does not compute.
    """
    config = folder.json(PREPROCESSOR)
    if not ({"do_resize", "do_normalize", "image_mean", "crop_size"} & config.keys()):
        return ModelMetadata()  # it is about audio, or missing
    mean, std = _normalization(config)
    sizes = _resizing(config)
    return ModelMetadata(mean=mean, std=std, resample=_filter(config) if sizes else None, resize_to=sizes)


def _normalization(config: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    factor = _number(config, "rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    has_offset = bool(config.get("rescale_offset")) and config.get("do_rescale", True)
    offset = -1.0 if has_offset else 0.0  # transformers subtracts 1 after a factor of 2 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if config.get("do_normalize", "image_mean" in config):
        mean, std = _channels(config, "image_mean", 0.5), _channels(config, "image_std", 0.5)
    scale = 255 * factor
    if scale == 1.0:  # the usual case; 255 * (1 / 255) is exactly 1
        return tuple(value - offset for value in mean), std
    return tuple((value - offset) / scale for value in mean), tuple(value / scale for value in std)


def _resizing(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns `ModelMetadata.resize_to`: the size to which pictures are resized before their center is cropped."""
    if not config.get("do_resize", True):
        return ()
    size = config.get("size")
    if isinstance(size, int) and "crop_pct" not in config:
        # In the files of early releases, a number is the shorter edge if the picture is cropped afterwards.
        return (_side(size),) if config.get("do_center_crop") else (_side(size), _side(size))
    if not isinstance(size, dict):
        size = {"shortest_edge": size}
    if "height" in size and "width" in size:
        return _side(size["height"]), _side(size["width"])
    if set(size) == {"shortest_edge"}:
        edge = _side(size["shortest_edge"])
        portion = config.get("crop_pct")
        if portion is None:
            return (edge,)
        return (int(edge / _number(config, "crop_pct", 1.0)),) if edge < _CROP_BELOW else (edge, edge)
    raise Unsupported(
        f"{PREPROCESSOR} resizes pictures by {', '.join(sorted(map(str, size)))}, which depends on the picture",
        hint="--resize stretch or crop replaces it",
    )


def _filter(config: Mapping[str, Any]) -> Resample | None:
    number = config.get("resample")
    return _FILTERS.get(number) if isinstance(number, int) else None


def _channels(config: Mapping[str, Any], name: str, default: float) -> tuple[float, ...]:
    values = config.get(name, default)
    numbers = values if isinstance(values, list) else [values]
    if len(numbers) not in (1, 3) or not all(map(_is_number, numbers)):
        raise Unsupported(f"{name} in {PREPROCESSOR} is not one number or three", hint="--mean and --std replace it")
    return tuple(map(float, numbers))


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name, default)
    if not _is_number(value) or value <= 0:
        raise Unsupported(f"{name} in {PREPROCESSOR} is not a number above 0", hint="--mean and --std replace it")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _side(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SIDE:
        raise Unsupported(f"the size in {PREPROCESSOR} is not valid", hint="--resize stretch or crop replaces it")
    return value
