"""Tests of pictures as model inputs: the value that each type of pixel becomes, and that no file can harm the
process.
"""

from __future__ import annotations

import random
import struct
import zlib
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.core.artifacts.buffers import is_aligned
from service.core.errors import InvalidInput, InvalidTensor, OctetError, TooLarge, UnsupportedFormat
from service.core.models.metadata import Layout, ModelMetadata, Resample, Resize
from service.core.models.picture import MAX_PIXELS, format_of
from service.core.models.signature import Quantization, TensorSpec
from service.runtime import image

COLOR = TensorSpec("image", "UINT8", (1, 6, 8, 3))
GRAY = TensorSpec("image", "UINT8", (1, 6, 8, 1))


def encode(picture: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def noise(mode: str = "RGB", size: tuple[int, int] = (8, 6)) -> Image.Image:
    channels = len(mode)
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], channels), np.uint8)
    return Image.fromarray(pixels if channels > 1 else pixels[..., 0], mode)


def png_of(width: int, height: int) -> bytes:
    """Returns a well-formed PNG of a few hundred bytes whose header claims any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_uint8_has_the_pixels_unchanged() -> None:
    np.testing.assert_array_equal(image.decode(encode(noise()), COLOR)[0], np.asarray(noise()))


def test_int8_has_the_pixels_minus_128() -> None:
    spec = TensorSpec("image", "INT8", COLOR.shape)
    expected = (np.asarray(noise()).astype(np.int16) - 128).astype(np.int8)
    np.testing.assert_array_equal(image.decode(encode(noise()), spec)[0], expected)


def test_float_has_the_pixels_divided_by_255() -> None:
    spec = TensorSpec("image", "FP32", COLOR.shape)
    tensor = image.decode(encode(noise()), spec)
    np.testing.assert_array_equal(tensor[0], np.asarray(noise()).astype(np.float32) / np.float32(255))


@pytest.mark.parametrize("datatype", ["UINT8", "INT8", "FP32"])
def test_channels_may_come_first(datatype: str) -> None:
    last = TensorSpec("image", datatype, COLOR.shape)
    n, height, width, channels = COLOR.shape
    first = TensorSpec("image", datatype, (n, channels, height, width))
    picture = encode(noise())
    np.testing.assert_array_equal(image.decode(picture, first), image.decode(picture, last).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("datatype", ["UINT8", "INT8", "FP32"])
def test_the_tensor_is_aligned_and_fits_the_signature(datatype: str) -> None:
    spec = TensorSpec("image", datatype, COLOR.shape)
    tensor = image.decode(encode(noise()), spec)
    assert is_aligned(tensor)
    assert (tensor.shape, tensor.dtype) == (spec.shape, spec.dtype)


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_resizing_is_bilinear(format: str) -> None:
    data = encode(noise(size=(31, 17)), format)
    expected = Image.open(BytesIO(data)).resize((8, 6), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(image.decode(data, COLOR)[0], np.asarray(expected))


def test_a_one_channel_input_is_gray() -> None:
    np.testing.assert_array_equal(image.decode(encode(noise()), GRAY)[0, ..., 0], np.asarray(noise().convert("L")))


def test_a_gray_picture_fills_three_channels() -> None:
    tensor = image.decode(encode(noise("L")), COLOR)
    for channel in range(3):
        np.testing.assert_array_equal(tensor[0, ..., channel], np.asarray(noise("L")))


def test_transparent_parts_become_white() -> None:
    picture = Image.new("RGBA", (8, 6), (255, 0, 0, 0))
    picture.putpixel((0, 0), (255, 0, 0, 255))
    tensor = image.decode(encode(picture), COLOR)
    assert tensor[0, 0, 0].tolist() == [255, 0, 0]
    assert (tensor.reshape(-1, 3)[1:] == 255).all()


def test_a_transparent_color_of_a_palette_becomes_white() -> None:
    picture = Image.new("P", (8, 6), 1)
    picture.putpalette([0, 0, 255, 255, 0, 0])
    assert (image.decode(encode(picture, transparency=1), COLOR) == 255).all()


def test_sixteen_bit_gray_keeps_the_high_byte() -> None:
    pixels = np.arange(48, dtype=np.uint16).reshape(6, 8) * 1365
    tensor = image.decode(encode(Image.fromarray(pixels)), GRAY)
    np.testing.assert_array_equal(tensor[0, ..., 0], pixels >> 8)


def test_cmyk_becomes_rgb() -> None:
    data = encode(noise().convert("CMYK"), "JPEG")
    np.testing.assert_array_equal(image.decode(data, COLOR)[0], np.asarray(Image.open(BytesIO(data)).convert("RGB")))


def test_a_picture_is_turned_upright() -> None:
    picture = noise(size=(6, 8))
    exif = picture.getexif()
    exif[0x0112] = 6  # the camera was turned to the right, so the picture must be rotated by 270 degrees
    expected = picture.transpose(Image.Transpose.ROTATE_270)
    np.testing.assert_array_equal(image.decode(encode(picture, exif=exif), COLOR)[0], np.asarray(expected))


@pytest.mark.parametrize("format", ["TIFF", "PPM", "ICO", "TGA"])
def test_other_formats_are_rejected(format: str) -> None:
    with pytest.raises(UnsupportedFormat, match="not a picture in a supported format"):
        image.decode(encode(noise(), format), COLOR)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"picture"])
def test_data_that_is_not_a_picture_is_rejected(data: bytes) -> None:
    assert format_of(data) is None
    with pytest.raises(UnsupportedFormat):
        image.decode(data, COLOR)


@pytest.mark.parametrize("options", [{"format": "JPEG"}, {"format": "JPEG", "progressive": True}, {"format": "PNG"}])
def test_a_truncated_file_is_an_error_unless_it_has_all_pixels(options: dict[str, Any]) -> None:
    data = encode(noise(), **options)
    whole, failed = image.decode(data, COLOR), 0
    for length in range(len(data)):
        try:
            np.testing.assert_array_equal(image.decode(data[:length], COLOR), whole)
        except (InvalidInput, UnsupportedFormat):
            failed += 1
    assert failed > len(data) - 40  # only the end marker, a checksum, or the padding of the last byte may be missing


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns of damaged EXIF, which does not matter to the pixels
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_a_damaged_file_gives_a_tensor_or_an_octet_error(format: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data, generator = encode(noise(), format, exif=exif), random.Random(0)
    for _ in range(500):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[generator.randrange(len(data))] = generator.randrange(256)
        with suppress(OctetError):
            assert image.decode(bytes(damaged), COLOR).shape == COLOR.shape


@pytest.mark.parametrize(("width", "height"), [(1 << 16, 1 << 16), (MAX_PIXELS + 1, 1), ((1 << 31) - 1, 1)])
def test_a_picture_with_too_many_pixels_is_rejected_before_it_is_decoded(width: int, height: int) -> None:
    with pytest.raises(TooLarge, match=f"{width} x {height} pixels"):
        image.decode(png_of(width, height), COLOR)


def test_a_jpeg_with_too_many_scans_is_rejected() -> None:
    data = encode(noise(), "JPEG", progressive=True)
    first, last = data.index(b"\xff\xda"), data.rindex(b"\xff\xda")
    repeated = data[:first] + data[first:last] * 30 + data[last:]
    with pytest.raises(InvalidInput, match="progressive scans"):
        image.decode(repeated, COLOR)


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("x", "INT8", (1, 490)),
        TensorSpec("x", "INT32", (1, 6, 8, 3)),
        TensorSpec("x", "UINT8", (1, 6, 8, 4)),
        TensorSpec("x", "UINT8", (2, 6, 8, 3)),
    ],
)
def test_the_error_names_an_input_that_is_not_an_image(spec: TensorSpec) -> None:
    with pytest.raises(InvalidTensor, match="does not take a picture") as caught:
        image.decode(encode(noise()), spec)
    assert caught.value.tensor == "x"


IMAGENET = ModelMetadata(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def normalized(metadata: ModelMetadata = IMAGENET) -> Any:
    """Returns the normalized picture, `[H, W, C]` float64."""
    return (np.asarray(noise()) / 255 - np.array(metadata.mean)) / np.array(metadata.std)


def test_floats_are_normalized_like_in_torchvision() -> None:
    spec = TensorSpec("image", "FP32", (1, 3, 6, 8))
    tensor = image.decode(encode(noise()), spec, IMAGENET)
    # the tolerance of float32
    np.testing.assert_allclose(tensor[0], normalized().transpose(2, 0, 1), rtol=1e-5, atol=1e-6)
    assert is_aligned(tensor)


def test_a_single_mean_applies_to_every_channel() -> None:
    metadata = ModelMetadata(mean=(0.5,), std=(0.5,))
    tensor = image.decode(encode(noise()), TensorSpec("image", "FP32", COLOR.shape), metadata)
    np.testing.assert_allclose(tensor[0], normalized(metadata), rtol=1e-5, atol=1e-6)


def test_integers_are_normalized_and_then_quantized() -> None:
    spec = TensorSpec("image", "INT8", COLOR.shape, Quantization(0.01, 14))
    stored = image.decode(encode(noise()), spec, IMAGENET)[0]
    exact = np.clip(normalized() / 0.01 + 14, -128, 127)
    assert np.abs(stored - exact).max() <= 0.5 + 1e-4  # the nearest integer; float32 may round a half differently
    assert {stored.min(), stored.max()} == {-128, 127}


def test_a_scale_of_one_255th_keeps_the_pixels() -> None:
    spec = TensorSpec("image", "UINT8", COLOR.shape, Quantization(1 / 255, 0))
    stored = image.decode(encode(noise()), spec, ModelMetadata(mean=(0.0,), std=(1.0,)))
    np.testing.assert_array_equal(stored[0], np.asarray(noise()))


def test_integers_without_a_scale_are_not_normalized() -> None:
    with pytest.raises(InvalidTensor, match="no scale"):
        image.decode(encode(noise()), COLOR, IMAGENET)


def test_a_mean_with_another_number_of_channels_is_rejected() -> None:
    with pytest.raises(InvalidTensor, match="has 1 channels"):
        image.decode(encode(noise()), TensorSpec("image", "FP32", GRAY.shape), IMAGENET)


def test_a_crop_keeps_the_aspect_ratio_and_the_center() -> None:
    pixels = np.zeros((6, 24), np.uint8)
    pixels[:, 8:16] = 200  # the middle third, which has the input's shape
    png = encode(Image.fromarray(pixels))
    assert (image.decode(png, GRAY, ModelMetadata(resize=Resize.CROP)) == 200).all()
    assert not (image.decode(png, GRAY, ModelMetadata(resize=Resize.STRETCH)) == 200).all()
    np.testing.assert_array_equal(
        image.decode(png, GRAY), image.decode(png, GRAY, ModelMetadata(resize=Resize.STRETCH))
    )


@pytest.mark.parametrize("size", [(50, 40), (40, 50)])
def test_a_picture_can_be_resized_by_its_shorter_edge_before_its_center_is_cropped(size: tuple[int, int]) -> None:
    picture = noise("RGB", size)
    longer = 10 * 50 // 40
    resized = picture.resize((longer, 10) if size[0] > size[1] else (10, longer), Image.Resampling.BICUBIC)
    left, top = (resized.width - 6) // 2, (resized.height - 8) // 2
    expected = np.asarray(resized.crop((left, top, left + 6, top + 8)))
    metadata = ModelMetadata(resample=Resample.BICUBIC, resize_to=(10,))
    assert np.array_equal(image.decode(encode(picture), TensorSpec("x", "UINT8", (1, 8, 6, 3)), metadata)[0], expected)


def test_a_picture_can_be_resized_to_a_height_and_a_width() -> None:
    picture = noise("RGB", (50, 40))
    metadata = ModelMetadata(resample=Resample.LANCZOS, resize_to=(8, 6))
    expected = np.asarray(picture.resize((6, 8), Image.Resampling.LANCZOS))
    assert np.array_equal(image.decode(encode(picture), TensorSpec("x", "UINT8", (1, 8, 6, 3)), metadata)[0], expected)


def test_a_picture_that_would_become_too_long_is_refused() -> None:
    metadata = ModelMetadata(resize_to=(256,))
    with pytest.raises(TooLarge, match="too long to be resized"):
        image.decode(encode(noise("RGB", (8000, 2))), TensorSpec("x", "UINT8", (1, 8, 6, 3)), metadata)


def test_the_layout_decides_if_the_shape_is_ambiguous() -> None:
    spec = TensorSpec("image", "UINT8", (1, 3, 3, 3))
    first = image.decode(encode(noise(size=(3, 3))), spec, ModelMetadata(layout=Layout.NCHW))
    last = image.decode(encode(noise(size=(3, 3))), spec, ModelMetadata(layout=Layout.NHWC))
    np.testing.assert_array_equal(first[0].transpose(1, 2, 0), last[0])
    with pytest.raises(InvalidTensor):
        image.decode(encode(noise()), COLOR, ModelMetadata(layout=Layout.NCHW))


def test_decoding_stops_if_the_picture_is_withdrawn() -> None:
    data = encode(noise(size=(600, 400)))
    looks = 0

    def is_withdrawn() -> bool:
        nonlocal looks
        looks += 1
        return looks > 20

    with pytest.raises(image.DecodingStopped):
        image.decode(data, COLOR, is_withdrawn=is_withdrawn)
    assert looks == 21
    assert len(data) > 20 * (8 << 10)


@pytest.mark.parametrize(
    ("format", "options"),
    [("WEBP", {"lossless": True}), ("BMP", {}), ("GIF", {}), ("PNG", {})],
)
def test_a_format_without_loss_has_the_pixels_unchanged(format: str, options: dict[str, Any]) -> None:
    gray = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8) * 5)
    picture = gray if format == "GIF" else noise()
    expected = np.asarray(picture.convert("RGB"))
    np.testing.assert_array_equal(image.decode(encode(picture, format, **options), COLOR)[0], expected)


@pytest.mark.parametrize("format", ["GIF", "WEBP"])
def test_the_first_frame_of_an_animation_is_used(format: str) -> None:
    frames = [Image.new("RGB", (8, 6), color) for color in ("white", "black")]
    options = {"save_all": True, "append_images": frames[1:], **({"lossless": True} if format == "WEBP" else {})}
    assert image.decode(encode(frames[0], format, **options), COLOR).min() == 255


@pytest.mark.parametrize("format", ["GIF", "WEBP"])
def test_transparent_pixels_become_white(format: str) -> None:
    clear = Image.new("RGBA", (8, 6), (0, 0, 0, 0))
    assert image.decode(encode(clear, format), COLOR).min() == 255


@pytest.mark.parametrize("format", ["WEBP", "JPEG", "PNG"])
def test_pictures_are_turned_upright(format: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    picture = Image.new("RGB", (8, 6))
    picture.paste((255, 255, 255), (0, 0, 8, 3))
    turned = image.decode(encode(picture, format, exif=exif), COLOR)[0]
    assert turned[:2].max() < 30
    assert turned[-2:].min() > 225


def test_a_webp_with_too_many_pixels_is_rejected_before_memory_is_allocated() -> None:
    data = bytearray(encode(noise(), "WEBP", lossless=False, exif=Image.Exif()))
    canvas = b"VP8X" + struct.pack("<I", 10) + bytes(4) + (16382).to_bytes(3, "little") * 2
    body = b"WEBP" + canvas + bytes(data[12:])
    with pytest.raises(TooLarge, match="16383 x 16383"):
        image.decode(b"RIFF" + struct.pack("<I", len(body)) + body, COLOR)


@pytest.mark.parametrize("format", ["WEBP", "BMP", "GIF"])
def test_no_damaged_file_raises_another_error(format: str) -> None:
    rng, data = random.Random(0), encode(noise() if format != "GIF" else noise("L"), format)
    for _ in range(200):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with suppress(OctetError):
            image.decode(bytes(damaged[: rng.randrange(1, len(damaged) + 1)]), COLOR)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0" + bytes(4) + struct.pack("<I", 4000)[:3] * 2, "the limit is 8388608"),
        (b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 9, 9, 1, 8, 1) + bytes(1 << 20), "the compressed BMP has"),
        (
            encode(noise(), "JPEG").replace(struct.pack(">HH", 6, 8), struct.pack(">HH", 5000, 5000))
            + b"\xff\xda" * 19,
            "5000 x 5000 pixels in 20 scans",
        ),
    ],
)
def test_a_picture_that_cannot_be_decoded_in_pieces_has_lower_limits(data: bytes, error: str) -> None:
    with pytest.raises(TooLarge, match=error):
        image.decode(data, COLOR)
