"""Zip archives of the folders of published models, as people pack them and as the server packs the files of a form.

An archive may be hostile. `importers.archive` refuses names outside of the folder, duplicates, links, encryption and
impossible sizes. Files are unpacked one by one, when they are needed, and never beyond their declared size.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from service.compiler.importers.archive import Archive
from service.compiler.importers.published.files import MAX_DEPTH, MAX_FILES, Folder
from service.compiler.importers.published.reading import MARKS
from service.compiler.importers.published.variants import FOLDERS, is_model
from service.compiler.importers.zip_names import names_of
from service.core.errors import InvalidInput
from service.core.printable import printable

_ZIP_MAGIC = b"PK\x03\x04"
_CHUNK_BYTES = 1 << 20


class ArchivedFolder(Folder):
    """A folder in a zip archive. If all files are in one folder, names are relative to it.

    Args:
        archive: the archive.
        scratch: an existing folder, into which files are unpacked.
        most_bytes: the limit for all compressed files together, after unpacking.

    Raises:
        InvalidInput: the archive contains too many files.
        MalformedModel: the archive is damaged, or is not one that an archiver writes.
    """

    def __init__(self, archive: Path, scratch: Path, most_bytes: int) -> None:
        self._archive = Archive(
            archive, with_folders=True, largest_deflated_bytes=most_bytes, most_deflated_bytes=most_bytes
        )
        self.root = scratch
        self._records = {name: record for record, name in _relative(self._archive)}
        if len(self._records) > MAX_FILES:
            raise InvalidInput(f"the archive contains more than {MAX_FILES} files", hint="send the files of one model")
        self.names = sorted(self._records)

    def path(self, name: str) -> Path:
        """Unpacks a file, and the files in its folder that are not models, because a model's weights may be in them.
        Returns the path of the file.
        """
        self._record_of(name)
        beside = [each for each in self.names if PurePosixPath(each).parent == PurePosixPath(name).parent]
        for each in (name, *(each for each in beside if not is_model(each))):
            target = self.root / each
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                self._archive.unpack(self._records[each], target)
        return self.root / name

    def size_bytes(self, name: str) -> int:
        return self._archive.size_of(self._record_of(name))

    def read(self, name: str, most_bytes: int) -> bytes:
        if self.size_bytes(name) > most_bytes:
            raise InvalidInput(f"{printable(name)} has more than {most_bytes} bytes")
        return self._archive.read(self._records[name])

    def _record_of(self, name: str) -> str:
        if name not in self._records:
            raise InvalidInput(f"the folder does not contain {printable(name)}")
        return self._records[name]


def is_folder_archive(file: Path) -> bool:
    """Returns true if a file is a zip archive with the folder of a published model. Reads only its directory."""
    with file.open("rb") as opened:
        if opened.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:
            return False
        records = names_of(opened) or ()  # a damaged archive is reported by the reader of its format
    names = [name for _, name in _relative(records)]
    models = [name for name in names if is_model(name)]
    return any(name in MARKS for name in names) or (len(models) > 1 and all(name.endswith(".onnx") for name in models))


def pack_folder(folder: Folder, names: Iterable[str], archive: Path, replaced: Mapping[str, bytes]) -> None:
    """Writes files of a folder to a zip archive, which depends only on their names and bytes.

    Args:
        replaced: files to write in addition to `names`, or in their place.
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for name, data in sorted(replaced.items()):
            packed.writestr(zipfile.ZipInfo(name), data)
        for name in sorted({*names} - replaced.keys()):
            path = folder.path(name)
            info = zipfile.ZipInfo(name)  # with a fixed time and no owner
            info.file_size = path.stat().st_size
            with packed.open(info, "w") as record, path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    record.write(chunk)


def _relative(records: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the records of files with their names in the folder. Hidden files, and the folder that macOS adds, are
    left out.
    """
    shown = [
        (record, PurePosixPath(record).parts)
        for record in records
        if not record.endswith("/") and not any(_is_hidden(part) for part in record.split("/"))
    ]
    tops = {parts[0] for _, parts in shown}
    is_nested = len(tops) == 1 and all(len(parts) > 1 for _, parts in shown) and not tops & {*FOLDERS}
    for record, parts in shown:
        inside = parts[1:] if is_nested else parts
        if len(inside) <= MAX_DEPTH + 1:
            yield record, "/".join(inside)


def _is_hidden(part: str) -> bool:
    return part == "__MACOSX" or (part.startswith(".") and part != "..")
