"""The preprocessing of pictures of a model, from `preprocessor_config.json` of transformers.

The file defines up to five steps: resize, crop, rescale, normalize and flip the channels. The class that it names
determines the meaning of some members, and their defaults. Rescaling and normalizing are combined into a mean and a
standard deviation of pixel / 255, the convention of `ModelMetadata`:

    (pixel * factor + offset - mean) / std = (pixel / 255 - (mean - offset) / (255 * factor)) / (std / (255 * factor))
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from service.compiler.importers.published.files import Folder
from service.core.errors import Unsupported
from service.core.models.metadata import MAX_SIDE, Channels, ModelMetadata, Resample

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
# The classes for which a number as size is the shorter edge. For the others, it is the height and the width.
_BY_EDGE = frozenset(
    (
        *("Bit", "BridgeTower", "Chameleon", "ChineseCLIP", "CLIP", "ConditionalDetr", "ConvNext", "DeformableDetr"),
        *("Detr", "GroundingDino", "Levit", "Mask2Former", "MaskFormer", "MobileNetV1", "MobileNetV2", "MobileViT"),
        *("OneFormer", "PoolFormer", "RtDetr", "Siglip", "TextNet", "VideoMAE", "Vilt", "Yolos"),
    )
)
# Those of them that do not crop, so that the sizes of the results differ.
_NEVER_CROPPED = frozenset(
    (
        *("ConditionalDetr", "DeformableDetr", "Detr", "GroundingDino", "Mask2Former", "MaskFormer", "OneFormer"),
        *("RtDetr", "Yolos"),
    )
)
_DEFAULT_CROP: Mapping[str, float] = {"ConvNext": 224 / 256, "PoolFormer": 0.9}
_LEVIT = 256 / 224  # LeViT's preprocessing enlarges the shorter edge by this factor


def read_pictures(folder: Folder) -> ModelMetadata:
    """Returns the preprocessing of pictures that the folder defines; empty if it defines none.

    Raises:
        InvalidInput: the file is not a JSON object.
        Unsupported: the pictures are resized in a way that Octet does not compute.
    """
    config = folder.json(PREPROCESSOR)
    if "sampling_rate" in config or not ({"do_resize", "do_normalize", "image_mean", "crop_size"} & config.keys()):
        return ModelMetadata()  # it is about audio, or missing
    kind = _kind(config)
    mean, std = _normalization(config, kind)
    sizes = _resizing(config, kind)
    flips = config.get("do_flip_channel_order", config.get("do_flip_channels", kind == "MobileViT")) is True
    return ModelMetadata(
        mean=mean,
        std=std,
        resample=_filter(config) if sizes else None,
        resize_to=sizes,
        channels=Channels.BGR if flips else None,
    )


def read_input_size(folder: Folder) -> tuple[int, int] | None:
    """Returns the height and width of the pictures after the preprocessing; None if the folder does not define them."""
    config = folder.json(PREPROCESSOR)
    kind = _kind(config)
    size = config.get("size")
    edge = size.get("shortest_edge") if isinstance(size, dict) else size
    if config.get("do_center_crop") and "crop_size" in config:
        size = config["crop_size"]
    elif kind in _DEFAULT_CROP or "crop_pct" in config:
        size = edge
    elif isinstance(size, int) and kind in _BY_EDGE:
        return None
    height, width = (size.get("height"), size.get("width")) if isinstance(size, dict) else (size, size)
    return (_side(height), _side(width)) if isinstance(height, int) and isinstance(width, int) else None


def _kind(config: Mapping[str, Any]) -> str:
    """Returns the class of the preprocessing without its suffix: `CLIP` for CLIPFeatureExtractor and
    CLIPImageProcessorFast; "" if the file names none.
    """
    name = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    return re.sub(r"(FeatureExtractor|ImageProcessor(Fast|Pil)?)$", "", name)


def _normalization(config: Mapping[str, Any], kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    factor = _number(config, "rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    has_offset = bool(config.get("rescale_offset")) and config.get("do_rescale", True)
    offset = -1.0 if has_offset else 0.0  # transformers subtracts 1 after a factor of 2 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if config.get("do_normalize", "image_mean" in config):
        mean, std = _channels(config, "image_mean", 0.5), _channels(config, "image_std", 0.5)
    if kind == "EfficientNet" and config.get("include_top", True):
        # transformers divides by the standard deviation once more
        again = _channels(config, "image_std", 0.5)
        std = tuple(value * value for value in again) if config.get("do_normalize", "image_mean" in config) else again
    scale = 255 * factor
    if scale == 1.0:  # the usual case; 255 * (1 / 255) is exactly 1
        return tuple(value - offset for value in mean), std
    return tuple((value - offset) / scale for value in mean), tuple(value / scale for value in std)


def _resizing(config: Mapping[str, Any], kind: str) -> tuple[int, ...]:
    """Returns `ModelMetadata.resize_to`: the size to which pictures are resized before their center is cropped."""
    if not config.get("do_resize", True):
        return ()
    size, portion = config.get("size"), config.get("crop_pct", _DEFAULT_CROP.get(kind))
    if isinstance(size, int) and portion is None:
        # A file that names no class is from an early release.
        is_edge = kind in _BY_EDGE if kind else bool(config.get("do_center_crop"))
        size = {"shortest_edge": size} if is_edge else {"height": size, "width": size}
    if not isinstance(size, dict):
        size = {"shortest_edge": size}
    if "height" in size and "width" in size:
        return _side(size["height"]), _side(size["width"])
    if set(size) == {"shortest_edge"}:
        if kind in _NEVER_CROPPED or "max_size" in config:
            raise _by_picture({**size, "longest_edge": None})
        edge = _side(size["shortest_edge"])
        if kind == "Levit":
            return (int(_LEVIT * edge),)
        if portion is None:
            return (edge,)
        if kind != "PoolFormer" and edge >= _CROP_BELOW:
            return edge, edge
        return (_side(int(edge / _number(config, "crop_pct", portion))),)
    raise _by_picture(size)


def _by_picture(size: Mapping[str, Any]) -> Unsupported:
    return Unsupported(
        f"{PREPROCESSOR} resizes pictures by {', '.join(sorted(map(str, size)))}, so that each has another size",
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
