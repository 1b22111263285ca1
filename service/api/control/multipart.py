"""Extracts the file from a `multipart/form-data` body as it arrives, without storing it elsewhere first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.core.errors import InvalidInput

if TYPE_CHECKING:  # exists only for type checkers
    from python_multipart.multipart import MultipartCallbacks

_HINT = "send one file, as curl -F file=@FILE does; name, target and numerics are query parameters"


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def only_file(chunks: AsyncIterator[bytes], content_type: str) -> AsyncIterator[bytes]:
    """Yields the bytes of the only file part.

    Raises:
        InvalidInput: the body is malformed or incomplete, or contains anything but one file.
    """
    _, options = parse_options_header(content_type)
    if not options.get(b"boundary"):
        raise InvalidInput("the multipart body has no boundary", hint=_HINT)
    part = _OnlyFile()
    try:
        parser = MultipartParser(options[b"boundary"], part.callbacks())
        async for chunk in chunks:
            parser.write(chunk)
            if data := part.take():
                yield data
    except FormParserError as error:
        raise InvalidInput(f"the multipart body is malformed: {error}", hint=_HINT) from error
    if not part.ended:
        raise InvalidInput("the multipart body is cut short", hint=_HINT)
    if not part.files:
        raise InvalidInput("the multipart body contains no file", hint=_HINT)


class _OnlyFile:
    """Receives the parser's callbacks. Refuses fields and a second file, and buffers the file's bytes for `take`."""

    def __init__(self) -> None:
        self.files, self.ended = 0, False
        self._name, self._value, self._has_filename = bytearray(), bytearray(), False
        self._data = bytearray()

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": lambda data, start, end: self._data.extend(data[start:end]),
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._has_filename = False

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._has_filename = b"filename" in parse_options_header(bytes(self._value))[1]
        self._name.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        if not self._has_filename:
            raise InvalidInput("a field of the multipart body is not a file", hint=_HINT)
        self.files += 1
        if self.files > 1:
            raise InvalidInput("the multipart body contains more than one file", hint=_HINT)

    def _end(self) -> None:
        self.ended = True
