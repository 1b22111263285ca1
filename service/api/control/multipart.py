"""Extracts the file from a `multipart/form-data` body as it arrives, without storing it elsewhere first. The fields
`files` are the files of a folder, which are packed into a zip archive.
"""

from __future__ import annotations

import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.core.errors import InvalidInput
from service.core.printable import printable

if TYPE_CHECKING:  # exists only for type checkers
    from python_multipart.multipart import MultipartCallbacks

_HINT = "send one file, as curl -F file=@FILE does; name, target and numerics are query parameters"
_FOLDER_FIELD = b"files"
_TYPES = {".csv": "text/csv", ".txt": "text/plain", ".json": "application/json"}
_MOST_FILES, _LONGEST_NAME = 10_000, 1 << 10


@dataclass(frozen=True)
class FormFile:
    """The only file of a form.

    Attributes:
        media_type: the type of the file; empty if it is not known.
    """

    content: bytes
    media_type: str


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def only_file(chunks: AsyncIterator[bytes], content_type: str) -> AsyncIterator[bytes]:
    """Yields the bytes of the only file part. The files of a folder are yielded as a zip archive: the fields `files`,
    whose file names are relative to the folder.

    Raises:
        InvalidInput: the body is malformed or incomplete, or contains anything but one file or the files of a folder.
    """
    part = _OnlyFile()
    with _parsing(part, content_type) as parser:
        async for chunk in chunks:
            parser.write(chunk)
            if data := part.take():
                yield data
    if data := part.take():
        yield data


def file_in(body: bytes, content_type: str) -> FormFile:
    """Returns the only file of a whole body. Raises the same errors as `only_file`."""
    part = _OnlyFile()
    with _parsing(part, content_type) as parser:
        parser.write(body)
    return FormFile(part.take(), part.media_type)


@contextmanager
def _parsing(part: _OnlyFile, content_type: str) -> Iterator[MultipartParser]:
    """Yields the parser that calls `part`. At the end, checks that the body is complete."""
    _, options = parse_options_header(content_type)
    if not options.get(b"boundary"):
        raise InvalidInput("the multipart body has no boundary", hint=_HINT)
    try:
        yield MultipartParser(options[b"boundary"], part.callbacks())
    except FormParserError as error:
        raise InvalidInput(f"the multipart body is malformed: {error}", hint=_HINT) from error
    finally:
        part.close()
    if not part.ended:
        raise InvalidInput("the multipart body is cut short", hint=_HINT)
    if not part.files:
        raise InvalidInput("the multipart body contains no file", hint=_HINT)


class _OnlyFile:
    """Receives the parser's callbacks. Refuses fields and a second file that is not in a folder, and buffers the bytes
    for `take`.
    """

    def __init__(self) -> None:
        self.files, self.ended = 0, False
        self._name, self._value = bytearray(), bytearray()
        self._field, self._file_name, self._type = b"", b"", b""
        self._data = bytearray()
        self._archive: _Packer | None = None

    @property
    def media_type(self) -> str:
        """The type of the file: as its part declares it, or, if that is not specific, by the ending of its name."""
        declared = self._type.decode("latin-1")
        if declared.partition(";")[0].strip().lower() not in ("", "application/octet-stream"):
            return declared
        return _TYPES.get(PurePosixPath(self._file_name.decode("utf-8", "replace")).suffix.lower(), "")

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
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def close(self) -> None:
        """Completes the archive, if there is one, also after an error."""
        if self._archive is not None:
            self._archive.end_file()
            self._data += self._archive.finish()

    def _begin(self) -> None:
        self._field, self._file_name, self._type = b"", b"", b""

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._archive is None:
            self._data += data[start:end]
        else:
            self._archive.write(data[start:end])
            self._data += self._archive.take()

    def _end_part(self) -> None:
        if self._archive is not None:
            self._archive.end_file()

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            options = parse_options_header(bytes(self._value))[1]
            self._field, self._file_name = options.get(b"name", b""), options.get(b"filename", b"")
        elif self._name.lower() == b"content-type":
            self._type = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        if not self._file_name:
            raise InvalidInput("a field of the multipart body is not a file", hint=_HINT)
        self.files += 1
        if self._field == _FOLDER_FIELD and (self.files == 1 or self._archive is not None):
            self._archive = self._archive or _Packer()
            self._archive.begin_file(self._file_name)
        elif self.files > 1:
            raise InvalidInput(
                "the multipart body contains more than one file",
                hint="send the files of a folder as fields called files, with names like onnx/model.onnx",
            )

    def _end(self) -> None:
        self.ended = True


class _Packer:
    """Packs files into a zip archive whose bytes are taken while it is written."""

    def __init__(self) -> None:
        self._written, self._names = bytearray(), set[str]()
        self._archive = zipfile.ZipFile(cast(IO[bytes], _Appender(self._written)), "w", zipfile.ZIP_STORED)
        self._file: IO[bytes] | None = None

    def begin_file(self, raw: bytes) -> None:
        """Begins a file. Raises `InvalidInput` if its name is not one of a file in a folder, or occurs twice."""
        name = raw.decode("utf-8", "replace").removeprefix("./")
        if name in self._names or len(self._names) >= _MOST_FILES:
            raise InvalidInput(f"the multipart body contains {printable(name)} twice, or more than {_MOST_FILES} files")
        if len(name) > _LONGEST_NAME or not name.isprintable() or {"", ".", ".."} & {*name.split("/")}:
            raise InvalidInput(f"{printable(name[:_LONGEST_NAME])!r} is not the name of a file in a folder", hint=_HINT)
        self._names.add(name)
        self._file = self._archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)

    def write(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)

    def end_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def take(self) -> bytes:
        data = bytes(self._written)
        self._written.clear()
        return data

    def finish(self) -> bytes:
        self._archive.close()
        return self.take()


class _Appender:
    """The two methods of a file that `zipfile` needs to write without seeking."""

    def __init__(self, target: bytearray) -> None:
        self._target = target

    def write(self, data: bytes, /) -> int:
        self._target += data
        return len(data)

    def flush(self) -> None:
        """Does nothing, because nothing is buffered."""
