"""Scans the paths of `octet serve --models` once: finds the models, and the entries that cannot be read, with reasons.

An entry that cannot be read does not affect the others. A configured path that cannot be read is reported separately,
because the server does not know which models it should have until the folder is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from service.compiler.importers.mxnet.package import PARAMS_SUFFIX, SYMBOL_SUFFIX, is_symbol
from service.compiler.importers.openvino.file.package import GRAPH_SUFFIX, WEIGHTS_SUFFIX, is_graph
from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.reading import looks_published
from service.compiler.importers.published.variants import choose
from service.core.errors import InvalidInput
from service.core.printable import printable

_EXTERNAL_DATA = (".onnx.", ".onnx_")  # file names for an ONNX model's external data, such as model.onnx.data
_SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}

Fingerprint = tuple[tuple[str, int, int, int], ...]  # the name, inode, size in bytes and time in ns of each file


class _Unusable(Exception):
    """An entry cannot be served; the message is the reason."""


@dataclass(frozen=True)
class Scan:
    """The result of one scan.

    Attributes:
        files: model files, artifact folders, and folders of published models.
        folders: the configured folders that were read.
        broken: entries of these folders that cannot be served -> reason.
        unread: configured paths that could not be read -> reason.
    """

    files: dict[Path, Fingerprint] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    broken: dict[Path, str] = field(default_factory=dict)
    unread: dict[Path, str] = field(default_factory=dict)

    def would_show(self, path: Path) -> bool:
        """Returns true if the scan would have found `path` if it existed. If the scan would not have found it, the
        absence of `path` does not mean that the file was removed: its volume may not be mounted, or the server may have
        been started with other paths.
        """
        return path.parent in self.folders


def scan(paths: Sequence[Path]) -> Scan:
    """Reads the folders among `paths`, and examines each entry. Raises nothing."""
    result = Scan()
    for path in paths:
        try:
            if not stat.S_ISDIR(path.stat().st_mode) or _is_artifact(path) or looks_published(path):
                _add(result, path)
                continue
            entries = sorted(path.iterdir())
            result.folders.add(path)
        except OSError as error:
            result.unread[path] = _reason(path, error)
            continue
        for entry in entries:
            if not _is_beside(entry):
                _add(result, entry)
    return result


def _add(result: Scan, path: Path) -> None:
    try:
        fingerprint = _fingerprint(path)
    except _Unusable as reason:
        result.broken[path] = str(reason)
    except OSError as error:
        with suppress(FileNotFoundError):  # the entry has been removed
            path.lstat()
            result.broken[path] = _reason(path, error)
    else:
        if fingerprint is not None:
            result.files[path] = fingerprint


def _is_beside(path: Path) -> bool:
    """Returns true if an entry is hidden, or contains the weights of a model file in the same folder."""
    name = path.name
    if path.suffix == WEIGHTS_SUFFIX and path.with_suffix(GRAPH_SUFFIX).exists():
        return True
    return name.startswith(".") or name.endswith(PARAMS_SUFFIX) or any(each in name for each in _EXTERNAL_DATA)


def _is_artifact(path: Path) -> bool:
    try:
        mode = (path / "oci-layout").stat().st_mode
    except FileNotFoundError:
        if (path / "oci-layout").is_symlink():
            raise
        return False
    return stat.S_ISREG(mode)


def _fingerprint(path: Path) -> Fingerprint | None:
    """Returns a model's fingerprint, or None for a folder that is neither an artifact nor a published model. Raises
    `_Unusable` and `OSError`.
    """
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise _Unusable("its name is not UTF-8; rename it") from None
    mode = path.stat().st_mode
    files = [path]
    if stat.S_ISDIR(mode):
        if looks_published(path):
            files = _files_of(path)
        elif _is_artifact(path):
            files = [path / "index.json"]
        else:
            return None
    elif not stat.S_ISREG(mode):
        raise _Unusable(f"it is {_SPECIAL.get(stat.S_IFMT(mode), 'a special file')}, not a model file")
    elif is_symbol(path):
        files += _beside(path, f"{path.name.removesuffix(SYMBOL_SUFFIX)}-")
    elif is_graph(path):
        files += [path.with_suffix(WEIGHTS_SUFFIX)]
    elif path.suffix == ".onnx":
        files += _beside(path, f"{path.name}.", f"{path.name}_")
    statuses = [(str(file.relative_to(path.parent)), file.stat()) for file in files]
    return tuple((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in statuses)


def _files_of(path: Path) -> list[Path]:
    """Returns the files of a published model. Raises `_Unusable` if it has no variant that Octet reads."""
    try:
        folder = Folder(path)
        choose(folder, None, None)
    except InvalidInput as error:
        raise _Unusable(f"{error.message}; {error.hint}") from None
    return [path / name for name in folder.names]


def _beside(path: Path, *beginnings: str) -> list[Path]:
    return sorted(each for each in path.parent.iterdir() if each.name.startswith(beginnings) and each != path)


def _reason(path: Path, error: OSError) -> str:
    """Returns why `path` cannot be served. `error` is the exception that reading `path`, or a file in it, raised."""
    failed = Path(os.fsdecode(error.filename)) if error.filename is not None else path
    is_folder = error.errno == errno.EACCES and failed.parent == path  # the folder itself is not readable
    what = "it" if failed == path or is_folder else f"its file {printable(failed.name)}"
    if error.errno == errno.ELOOP:
        return f"{what} is a symbolic link that leads back to itself"
    if error.errno == errno.ENOENT:
        if failed.is_symlink():
            return f"{what} is a symbolic link to {printable(str(failed.readlink()))}, which does not exist"
        return f"{what} does not exist" if failed == path else f"{what} is missing"
    return f"{what} cannot be read: {error.strerror}"
