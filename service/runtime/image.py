"""Converts a picture (JPEG, PNG, WebP, BMP, or the first frame of a GIF) to the input of an image model.

The picture is turned upright by its EXIF orientation and resized to the input's height and width (bilinear, unless the
model's metadata names another filter; the aspect ratio is kept only if the metadata has `crop`). If the metadata has a
size to resize to, the picture is resized to that size, and its center is cropped. Transparent parts become white. For a
one-channel input it is converted to gray. The pixels are then written as

    UINT8  pixel              INT8  pixel - 128              FP32  pixel / 255

If the model's metadata has the channels `bgr`, their order is reversed before.

If the model's metadata has a mean and a standard deviation, real = (pixel / 255 - mean) / std is computed instead. An
FP32 input contains real itself. An integer input contains real / scale + zero_point, rounded to the nearest (halves to
even) and clipped to the range of its type.

INT8 is right for models that were calibrated over the full range of a picture, as post-training quantization of [0, 1]
or [-1, 1] inputs does: the affine map of [0, 255] onto [-128, 127] is then the same as quantizing.

The data may be hostile: everything that the decoder may allocate or repeat is limited by the values in the file's
header before any pixel is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO

import numpy as np
from PIL import Image, ImageOps
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from service.core.artifacts.buffers import aligned_empty
from service.core.errors import InvalidInput, InvalidTensor, OctetError, TooLarge, UnsupportedFormat
from service.core.models.arrays import Array
from service.core.models.metadata import MAX_SIDE, NOTHING, Channels, Layout, ModelMetadata, Resample, Resize
from service.core.models.picture import MAX_PIXELS, PictureFormat, format_of
from service.core.models.signature import TensorSpec

MAX_SCANS = 64  # most JPEGs have at most ten; even a scan of ten bytes can make the decoder process all pixels
MAX_SCANNED_PIXELS = 12 * MAX_PIXELS  # each scan can take as long as all pixels of a simple JPEG
# A thread cannot be stopped while it decodes a WebP, which takes about a second for so many pixels of noise.
MAX_WEBP_PIXELS = 8 << 20
MAX_RUN_LENGTH_BYTES = 1 << 20  # Pillow decodes run lengths of a BMP in Python, about a million of them in a second

_BMP_RUN_LENGTHS = (b"\1\0\0\0", b"\2\0\0\0")  # the values of the header's field biCompression
_PLUGINS: Mapping[PictureFormat, type[ImageFile]] = {
    PictureFormat.JPEG: JpegImageFile,
    PictureFormat.PNG: PngImageFile,
    PictureFormat.WEBP: WebPImageFile,
    PictureFormat.BMP: BmpImageFile,
    PictureFormat.GIF: GifImageFile,
}
_START_OF_SCAN = b"\xff\xda"  # cannot occur inside a scan, where 0xff is followed by 0x00 or a restart marker

_FILTERS = {each: Image.Resampling[each.name] for each in Resample}

# How much of the file the decoder receives at a time; deflate expands data at most a thousandfold.
_PIECE_BYTES = 8 << 10


class DecodingStopped(Exception):
    """The picture was withdrawn while it was decoded."""


def _never() -> bool:
    return False


class _Source(BytesIO):
    """A file in memory that can be read until the picture is withdrawn."""

    def __init__(self, data: bytes, is_withdrawn: Callable[[], bool]) -> None:
        super().__init__(data)
        self._is_withdrawn = is_withdrawn

    def check(self) -> None:
        """Raises `DecodingStopped` if the picture is withdrawn."""
        if self._is_withdrawn():
            raise DecodingStopped

    def read(self, size: int | None = -1, /) -> bytes:
        self.check()
        return super().read(size)


def decode(
    data: bytes,
    spec: TensorSpec,
    metadata: ModelMetadata = NOTHING,
    *,
    is_withdrawn: Callable[[], bool] = _never,
    most_pixels: int = MAX_PIXELS,
) -> Array:
    """Decodes the picture in `data` into the input `spec`: `[1, H, W, C]` or `[1, C, H, W]`, 64-byte aligned.

    Args:
        is_withdrawn: called from time to time; once it returns true the decoding stops.
        most_pixels: the number of pixels that memory was reserved for, by the first size in the file. A file that
            contains another size later is damaged.

    Raises:
        DecodingStopped: `is_withdrawn` has returned true.
        InvalidTensor: the input does not take a picture, or `metadata` does not fit it.
        UnsupportedFormat: `data` is not a picture, or has another format.
        TooLarge: the picture has more than `MAX_PIXELS` pixels.
        InvalidInput: `data` is damaged.
    """
    axes = _axes(spec, metadata)
    if axes is None or spec.shape[0] != 1:
        raise InvalidTensor(
            f"input {spec.name!r} does not take a picture",
            tensor=spec.name,
            hint=f"send it as {spec.datatype} of shape {list(spec.shape)}",
        )
    height, width, channels = (spec.shape[axis] for axis in axes)
    try:
        source = _Source(data, is_withdrawn)
        opened = _open(data, source)
        if opened.width * opened.height > most_pixels:
            raise InvalidInput(
                f"the picture for input {spec.name!r} is damaged: its file contains two sizes", tensor=spec.name
            )
        pixels = _pixels(opened, source, height, width, "L" if channels == 1 else "RGB", metadata)
    except (OctetError, DecodingStopped):
        raise
    except (
        Exception
    ) as exc:  # Pillow's parsers raise many types of exceptions for damaged files, such as struct.error and KeyError
        raise InvalidInput(f"the picture for input {spec.name!r} is damaged: {exc}", tensor=spec.name) from exc
    picture = pixels.reshape(1, height, width, channels)
    if metadata.channels is Channels.BGR:
        picture = picture[..., ::-1]
    order = 0, *(axes.index(axis) + 1 for axis in (1, 2, 3))
    if metadata.is_normalized:
        return _normalize(picture, metadata, spec, order)
    return _as_input(picture.transpose(order), spec)


def _axes(spec: TensorSpec, metadata: ModelMetadata) -> tuple[int, int, int] | None:
    """Returns the axes as `TensorSpec.image_axes` does, but by the layout in `metadata` if it has one."""
    if metadata.layout is None or spec.image_axes is None:
        return spec.image_axes
    axes = (1, 2, 3) if metadata.layout is Layout.NHWC else (2, 3, 1)
    return axes if spec.shape[axes[2]] in (1, 3) else None


def _open(data: bytes, source: _Source) -> ImageFile:
    """Returns the picture with its header read. None of its pixels are decoded yet.

    The plug-ins are called by name: `Image.open` tries every format it knows and only warns of a large picture.
    """
    format = format_of(data)
    if format is None:
        raise UnsupportedFormat(
            "the data is not a picture in a supported format", hint="convert it to JPEG, PNG, WebP, BMP or GIF"
        )
    scans = data.count(_START_OF_SCAN) if format is PictureFormat.JPEG else 1
    if scans > MAX_SCANS:
        raise InvalidInput(f"the picture has more than {MAX_SCANS} progressive scans")
    if format is PictureFormat.WEBP:  # the plug-in allocates memory for the pixels when it reads the header
        _check_size(*_size_of_webp(data), MAX_WEBP_PIXELS, "scale it down, or send it as JPEG or PNG")
    if format is PictureFormat.BMP and data[30:34] in _BMP_RUN_LENGTHS and len(data) > MAX_RUN_LENGTH_BYTES:
        raise TooLarge(
            f"the compressed BMP has {len(data)} bytes; the limit is {MAX_RUN_LENGTH_BYTES}",
            hint="send it uncompressed, or as PNG",
        )
    image = _PLUGINS[format](source)
    _check_size(image.width, image.height)
    if image.width * image.height * scans > MAX_SCANNED_PIXELS:
        raise TooLarge(
            f"the picture has {image.width} x {image.height} pixels in {scans} scans",
            hint="scale it down, or save it as a JPEG with fewer scans",
        )
    return image


def _check_size(
    width: int, height: int, limit: int = MAX_PIXELS, hint: str = "scale it down before sending it"
) -> None:
    if width * height > limit:
        raise TooLarge(f"the picture has {width} x {height} pixels; the limit is {limit}", hint=hint)


def _size_of_webp(data: bytes) -> tuple[int, int]:
    """Returns the width and height of a WebP (RFC 9649); 0 if the header is damaged, which the decoder then reports."""

    def number(start: int, end: int) -> int:
        return int.from_bytes(data[start:end], "little")

    match data[12:16]:
        case b"VP8X":
            return number(24, 27) + 1, number(27, 30) + 1
        case b"VP8L":
            sides = number(21, 25)
            return (sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return number(26, 28) & 0x3FFF, number(28, 30) & 0x3FFF
    return 0, 0


def _pixels(picture: ImageFile, source: _Source, height: int, width: int, mode: str, metadata: ModelMetadata) -> Array:
    """Returns the decoded picture, uint8 `[height, width]` or `[height, width, 3]`."""
    picture.decodermaxblock = _PIECE_BYTES
    picture.load()
    source.check()
    ImageOps.exif_transpose(picture, in_place=True)
    image: Image.Image = picture
    if image.mode.startswith("I"):  # 16-bit gray; Pillow's own conversion clips instead of scaling
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    source.check()
    if image.has_transparency_data:
        image = _resize(_convert(image, "RGBA"), (width, height), metadata)
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert(mode)
    else:
        image = _resize(_convert(image, mode), (width, height), metadata)
    return np.asarray(image)


def _convert(image: Image.Image, mode: str) -> Image.Image:
    """Converts the picture to `mode`. Pillow's `convert` alone would copy a picture that already has this mode."""
    return image if image.mode == mode else image.convert(mode)


def _resize(image: Image.Image, size: tuple[int, int], metadata: ModelMetadata) -> Image.Image:
    """Returns the picture in `size`, its width and height."""
    method = _FILTERS[metadata.resample or Resample.BILINEAR]
    if metadata.resize_to:
        return _crop(image.resize(_size_before_crop(image.size, metadata.resize_to), method), size)
    if metadata.resize is Resize.CROP:
        return ImageOps.fit(image, size, method)
    return image.resize(size, method)


def visible_part(
    size: tuple[int, int], input_size: tuple[int, int], metadata: ModelMetadata
) -> tuple[float, float, float, float]:
    """Returns the left, top, right and bottom edges of the part of a picture that a model sees, in pixels of the
    upright picture. The part is larger than the picture where the input has borders.

    Args:
        size: the width and height of the picture.
        input_size: the width and height of the model's input.
    """
    (width, height), (input_width, input_height) = size, input_size
    if metadata.resize_to:
        resized = _size_before_crop(size, metadata.resize_to)
    elif metadata.resize is Resize.CROP:
        scale = max(input_width / width, input_height / height)
        half_width, half_height = input_width / scale / 2, input_height / scale / 2
        return width / 2 - half_width, height / 2 - half_height, width / 2 + half_width, height / 2 + half_height
    else:
        return 0.0, 0.0, float(width), float(height)
    left, top = ((have - want) // 2 for have, want in zip(resized, input_size, strict=True))
    across, down = width / resized[0], height / resized[1]
    return left * across, top * down, (left + input_width) * across, (top + input_height) * down


def _size_before_crop(size: tuple[int, int], resize_to: tuple[int, ...]) -> tuple[int, int]:
    """Returns the width and height to which a picture of `size` is resized. If the shorter edge is given, the longer
    one keeps the aspect ratio, rounded down as in torchvision.

    Raises:
        TooLarge: the longer edge would have more than `MAX_SIDE` pixels.
    """
    if len(resize_to) == 2:
        return resize_to[1], resize_to[0]
    (edge,) = resize_to
    width, height = size
    shorter, longer = sorted(size)
    if edge * longer > MAX_SIDE * shorter:
        raise TooLarge(f"the picture of {width} x {height} pixels is too long to be resized", hint="crop it first")
    length = edge * longer // shorter
    return (edge, length) if width <= height else (length, edge)


def _crop(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Returns the center of a picture, with black borders where the picture is smaller, as in torchvision."""
    if image.size == size:
        return image
    left, top = ((have - want) // 2 for have, want in zip(image.size, size, strict=True))
    return image.crop((left, top, left + size[0], top + size[1]))


def _as_input(pixels: Array, spec: TensorSpec) -> Array:
    tensor = aligned_empty(spec.shape, spec.dtype)
    match spec.datatype:
        case "UINT8":
            tensor[...] = pixels
        case "INT8":
            np.bitwise_xor(pixels, 0x80, out=tensor.view(np.uint8))  # pixel - 128 in two's complement
        case _:
            np.divide(pixels, np.float32(255), out=tensor)
    return tensor


def _normalize(picture: Array, metadata: ModelMetadata, spec: TensorSpec, order: Sequence[int]) -> Array:
    """Returns the normalized `[1, H, W, C]` pixels in the data type of `spec` and its `order` of axes."""
    channels = picture.shape[3]
    mean, std = (np.array(values, np.float32) for values in (metadata.mean or (0.0,), metadata.std or (1.0,)))
    if not {mean.size, std.size} <= {1, channels}:
        raise InvalidTensor(
            f"input {spec.name!r} has {channels} channels, but the model's metadata has {max(mean.size, std.size)}",
            tensor=spec.name,
            hint="set its mean and std again, of one number each",
        )
    real = ((picture / np.float32(255) - mean) / std).transpose(order)
    tensor = aligned_empty(spec.shape, spec.dtype)
    if spec.datatype == "FP32":
        tensor[...] = real
        return tensor
    if spec.quantization is None:
        raise InvalidTensor(
            f"input {spec.name!r} has no scale to convert normalized pixels to {spec.datatype}",
            tensor=spec.name,
            hint="send it as a tensor",
        )
    limits = np.iinfo(spec.dtype)
    stored = np.rint(real / spec.quantization.scale) + spec.quantization.zero_point
    tensor[...] = np.clip(stored, limits.min, limits.max)
    return tensor
