"""Files in JSON: pictures and sounds in base64, or in a `data:` URL (RFC 2397)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from service.core.errors import InvalidInput, UnsupportedFormat
from service.core.models.picture import PictureFormat, format_of
from service.core.models.sound import is_wav

_FORMATS = {"image": ", ".join(PictureFormat), "sound": "WAV"}
_SPACE = re.compile(rb"[ \t\r\n]+")  # `base64 FILE` writes lines
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_SHOWN = 60  # the longest part of a value that a message contains
_WEB = re.compile(r"https?://", re.IGNORECASE)


def decode_file(member: str, value: Any, where: str = "") -> bytes:
    """Returns the bytes of the file in `value`.

    Args:
        member: `image` or `sound`, which defines the formats that the file may have.
        where: the position of the value, with which messages begin; by default `member`.

    Raises:
        InvalidInput: the value is not base64.
        UnsupportedFormat: the file has none of the formats.
    """
    where = where or member
    data = decode_bytes(value, where)
    if not (is_wav(data) if member == "sound" else format_of(data) is not None):
        raise UnsupportedFormat(
            f"{where} is base64 of {len(data)} bytes that do not begin as a file of a known format does",
            hint=f"send one of {_FORMATS[member]}",
        )
    return data


def decode_bytes(value: Any, where: str) -> bytes:
    """Returns the bytes of a file in any format. Raises `InvalidInput` as `decode_file` does."""
    if not isinstance(value, str):
        raise InvalidInput(f"{where} is not a string with a file in base64")
    hint = "send the file's bytes in base64, as the command base64 writes them, or data:image/png;base64,…"
    if _WEB.match(value):
        raise InvalidInput(f"{where} is the URL {_begin(value)}, but this server loads no URLs", hint=hint)
    text = value
    if value[:5].lower() == "data:":
        head, _, text = value.partition(",")
        if not head.lower().endswith(";base64"):
            raise InvalidInput(f"{where} is a data: URL that is not in base64: {_begin(head)}", hint=hint)
    try:
        content = _SPACE.sub(b"", text.encode("ascii")).translate(_URL_SAFE)
        # Encoders of URLs leave out the padding.
        return base64.b64decode(content + b"=" * (-len(content) % 4), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise InvalidInput(f"{where} is not base64: {error}", hint=hint) from error


def _begin(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
