"""Files in JSON, as programs write base64."""

from __future__ import annotations

import base64

import pytest

from service.api.control.predictions.base64_files import decode_file
from service.core.errors import InvalidInput, UnsupportedFormat

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(240, 256)) * 8  # its base64 has "/" and "+"


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(PNG).decode(),
        base64.encodebytes(PNG).decode(),  # in lines, as the command base64 writes them
        base64.urlsafe_b64encode(PNG).decode().rstrip("="),
        "data:image/png;base64," + base64.b64encode(PNG).decode(),
        "DATA:;BASE64," + base64.b64encode(PNG).decode(),  # what counts is the file's content
    ],
)
def test_every_form_of_base64_is_decoded(text: str) -> None:
    assert decode_file("image", text) == PNG


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, r"image\[2\] is not a string"),
        ("", r"image\[2\] is base64 of 0 bytes"),
        ("cat.jpg", r"image\[2\] is not base64"),
        ("é", r"image\[2\] is not base64"),
        ("https://cats.example/cat.jpg", "'https://cats.example/cat.jpg', but this server loads no URLs"),
        ("data:image/svg+xml,<svg>", "is not in base64: 'data:image/svg"),
        ("data:" + "x" * 1000, "'data:x{55}…'"),
        (base64.b64encode(b"<svg></svg>").decode(), r"image\[2\] is base64 of 11 bytes"),
        (base64.b64encode(b"RIFF\0\0\0\0WAVE").decode(), "do not begin as a file of a known format does"),
    ],
)
def test_an_error_names_the_value(value: object, reason: str) -> None:
    with pytest.raises((InvalidInput, UnsupportedFormat), match=reason) as raised:
        decode_file("image", value, "image[2]")
    assert raised.value.hint is None or "send" in raised.value.hint
