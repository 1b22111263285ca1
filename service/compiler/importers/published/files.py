"""The files of a published model: which exist, and their bytes. Sizes are checked before anything is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.core.errors import InvalidInput
from service.core.printable import printable

MAX_JSON_BYTES = 16 << 20
MAX_FILES = 10_000
MAX_DEPTH = 4  # published models have their files at most two folders deep


class Folder:
    """A folder of files. Hidden files are left out.

    Attributes:
        root: the folder.
        names: the names of the files, relative to the folder and with `/`, in alphabetical order.
    """

    def __init__(self, root: Path) -> None:
        """
        Raises:
            InvalidInput: the folder contains too many files, or a symbolic link that leaves it.
        """
        self.root = root
        self._boundary = boundary_of(root)
        self.names = sorted(self._walk())

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def path(self, name: str) -> Path:
        """Returns the path of a file. Raises `InvalidInput` if the folder does not contain the file."""
        if name not in self.names:
            raise InvalidInput(f"{printable(str(self.root))} does not contain {printable(name)}")
        return self.root / name

    def size_bytes(self, name: str) -> int:
        return self.path(name).stat().st_size

    def read(self, name: str, most_bytes: int) -> bytes:
        """Returns the bytes of a file. Raises `InvalidInput` if there are more than `most_bytes`."""
        with self.path(name).open("rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise InvalidInput(f"{printable(name)} has more than {most_bytes} bytes")
        return data

    def json(self, name: str) -> Mapping[str, Any]:
        """Returns the members of a file with a JSON object; empty if the file does not exist.

        Raises:
            InvalidInput: the file is too large, too deeply nested, or not a JSON object.
        """
        found = self.json_value(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise InvalidInput(f"{printable(name)} is not a JSON object")
        return found

    def json_value(self, name: str) -> Any:
        """Returns the value in a JSON file, or None if the file does not exist. Raises the errors of `json`."""
        if name not in self:
            return None
        return parse_json(self.read(name, MAX_JSON_BYTES), name)

    def _walk(self) -> list[str]:
        found: list[str] = []
        for folder, subfolders, files in os.walk(self.root):
            relative = Path(folder).relative_to(self.root)
            subfolders[:] = [each for each in subfolders if not each.startswith(".")]
            if len(relative.parts) >= MAX_DEPTH:
                subfolders.clear()
            for name in (*subfolders, *files):
                if (path := Path(folder, name)).is_symlink():
                    self._check_link(path)
            found += [(relative / name).as_posix() for name in files if not name.startswith(".")]
            if len(found) > MAX_FILES:
                raise InvalidInput(
                    f"{printable(str(self.root))} contains more than {MAX_FILES} files",
                    hint="name the folder of one model",
                )
        return [name for name in found if (self.root / name).is_file()]

    def _check_link(self, path: Path) -> None:
        if not path.resolve().is_relative_to(self._boundary):
            raise InvalidInput(
                f"{printable(str(path))} is a symbolic link that leaves the folder", hint="copy the file instead"
            )


class SingleFile(Folder):
    """A folder that consists of one model file.

    Args:
        file: the file, which may have any name.
        name: the name that the file gets in the folder.
    """

    def __init__(self, file: Path, name: str) -> None:
        self.root, self._file, self.names = file.parent, file, [name]

    def path(self, name: str) -> Path:
        if name not in self.names:
            raise InvalidInput(f"the file is not called {printable(name)}")
        return self._file


def parse_json(data: bytes, name: str) -> Any:
    """Parses the JSON in a file. Raises `InvalidInput` if it is too deeply nested or not well formed."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise InvalidInput(f"{printable(name)} is not well-formed JSON: {error}") from error


def boundary_of(root: Path) -> Path:
    """Returns the folder that symbolic links may not leave: `root`, or the whole model in the cache of huggingface_hub,
    where `snapshots/REVISION` consists of links to the files in `blobs`.
    """
    resolved = root.resolve()
    is_snapshot = resolved.parent.name == "snapshots" and (resolved.parent.parent / "blobs").is_dir()
    return resolved.parent.parent if is_snapshot else resolved
