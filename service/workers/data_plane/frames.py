"""Frames between the control plane and the data plane: a JSON object, followed by bytes.

Each frame begins with the lengths of the object and of the bytes, as little-endian uint32.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

PROTOCOL = 3
_HEAD = struct.Struct("<II")
_LONGEST_BYTES = 256 << 20


def frame(message: Mapping[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    return _HEAD.pack(len(text), len(data)) + text + data


class Frames:
    """Splits a stream of bytes into frames as the bytes arrive."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Appends `data` and returns the frames that are now complete. Raises `ValueError` if the data is not a
        frame.
        """
        self._received += data
        found = []
        while len(self._received) >= _HEAD.size:
            length, rest = _HEAD.unpack_from(self._received)
            if length + rest > _LONGEST_BYTES:
                raise ValueError(f"a frame of {length + rest} bytes exceeds the limit of {_LONGEST_BYTES}")
            end = _HEAD.size + length + rest
            if len(self._received) < end:
                break
            text = bytes(self._received[_HEAD.size : _HEAD.size + length])
            found.append((json.loads(text), bytes(self._received[_HEAD.size + length : end])))
            del self._received[:end]
        return found
