"""`octet serve --models`: files and folders whose models are served for as long as they are there.

The files are scanned every two seconds. A new file is pushed, a changed one is a new version, and with a file go
the versions that came of it. Which those are is written down, so that it is known after a restart too, and what people
pushed under the same name stays. A file that cannot be served is reported as broken, and the others are served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from service.api.control import submission
from service.api.control.deletion import delete
from service.api.services import Services
from service.cache.durable import locked, replace_file
from service.compiler.artifact_archive import archive_of, received
from service.compiler.importers.detect import format_of
from service.compiler.importers.mxnet.package import PARAMS_SUFFIX, SYMBOL_SUFFIX, is_symbol
from service.compiler.importers.uploads import upload_of
from service.core.artifact import ARCHIVE_FORMAT
from service.core.digest import Digest
from service.core.errors import Conflict, DatabaseBusy, DatabaseLost, NotFound, OctetError, StorageFull
from service.core.model import name_of
from service.core.outage import log_trouble

_logger = logging.getLogger(__name__)
_EVERY_S = 2.0
_SETTLED_S = 2.0  # a file that was written to a moment ago may still be on its way
_LOOK_S = 0.2
_CHUNK_BYTES = 1 << 20
_EXTERNAL_DATA = re.compile(r"\.onnx[._]")  # of an ONNX model, as exporters name it: model.onnx.data

Fingerprint = tuple[tuple[str, int, int, int], ...]  # of each file: its name, inode, size in bytes, time in ns


@dataclass(frozen=True)
class Origin:
    """The file or artifact folder that versions of a model were made from."""

    path: Path
    versions: tuple[int, ...]


class ModelFiles:
    """Keeps the models of one server in step with files.

    Args:
        paths: model files, artifact folders, and folders of them.
    """

    def __init__(self, services: Services, paths: Sequence[Path]) -> None:
        self._services, self._paths = services, [path.absolute() for path in paths]
        self._record = services.settings.model_files_file
        self._origins = _read(self._record)  # by the model's name
        self._seen: dict[Path, Fingerprint] = {}
        self._taken: dict[Path, Fingerprint] = {}
        self._builds: list[str] = []  # that were asked for, and may be under way

    async def run(self) -> None:
        """Runs until it is canceled. The server is ready when all files found at its start are loaded, or broken."""
        with self._services.registry.starting("its models are being built"):
            while not await self._followed():
                await asyncio.sleep(_LOOK_S)
            await self._built()
            await self._loaded()
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._followed()

    async def follow(self) -> bool:
        """Does what has to be done since the last time; whether nothing has to be waited for."""
        look = await asyncio.to_thread(_scan, self._paths)
        found = look.files
        due = [path for path, fingerprint in found.items() if self._taken.get(path) != fingerprint]
        settled = [path for path in due if self._seen.get(path) == found[path] or _is_settled(found[path])]
        self._seen = found
        for path in settled:
            await asyncio.to_thread(self._take, path, found[path])
        for path in [path for path in self._taken if path not in found]:
            del self._taken[path]
            self._services.broken_files.pop(path.name, None)
        for name, origin in list(self._origins.items()):
            if origin.path not in found and look.would_show(origin.path):
                await self._remove(name, origin)
        return len(settled) == len(due)

    async def _followed(self) -> bool:
        try:
            return await self.follow()
        except Exception as error:  # the database is locked or the disk is full: that may pass
            log_trouble(_logger, error, "the model files could not be looked at")
            return False

    def _take(self, path: Path, fingerprint: Fingerprint) -> None:
        self._taken[path] = fingerprint
        try:
            self._push(path, name_of(path))
        except (DatabaseBusy, DatabaseLost, StorageFull):
            del self._taken[path]  # nothing is wrong with the file
            raise
        except (OctetError, OSError) as error:
            self._say(path, error.message if isinstance(error, OctetError) else str(error))
        else:
            self._services.broken_files.pop(path.name, None)

    def _say(self, path: Path, reason: str) -> None:
        if self._services.broken_files.get(path.name) != reason:
            _logger.error("%s is not served: %s", path, reason)
        self._services.broken_files[path.name] = reason

    def _push(self, path: Path, name: str) -> None:
        services, origin = self._services, self._origins.get(name)
        if origin is not None and origin.path != path and origin.path in self._seen:
            raise Conflict(f"its model would be called {name!r}, as that of {origin.path.name}")
        with _uploaded(path) as file:
            source, size_bytes = _store(services, file), file.stat().st_size
            format = ARCHIVE_FORMAT if path.is_dir() else _format(file)
            target = received(file).target if path.is_dir() else services.host.target
        known = _numbers(services, name)
        version = submission.add_version(services, name, source, format, size_bytes)
        if version.number not in known:
            versions = (*(origin.versions if origin else ()), version.number)
            self._change(name, Origin(path, versions))
            services.audit.note("push", model=name, version=version.number, source=source, file=str(path))
            _logger.info("%s is version %d of %s", path, version.number, name)
        elif origin is not None and version.number in origin.versions:
            self._change(name, Origin(path, origin.versions))
        self._builds += [build.id for build in submission.request_builds(services, version, [target], None)]

    async def _remove(self, name: str, origin: Origin) -> None:
        """The file is gone: so are its versions, but for one that an alias points at."""
        for number in origin.versions:
            try:
                await delete(self._services, name, number)
            except NotFound:
                pass
            except Conflict as error:
                self._say(origin.path, f"the file is gone, and its model stays: {error.message}")
                return
        self._services.broken_files.pop(origin.path.name, None)
        self._change(name, None)
        _logger.info("%s is gone, and with it what it was of %s", origin.path, name)

    def _change(self, name: str, origin: Origin | None) -> None:
        if origin is None:
            self._origins.pop(name, None)
        else:
            self._origins[name] = origin
        document = {
            each: {"path": str(origin.path), "versions": list(origin.versions)}
            for each, origin in self._origins.items()
        }
        with locked(self._record.parent):
            replace_file(self._record, json.dumps(document, indent=1).encode())

    async def _built(self) -> None:
        def all_over() -> bool:
            return all(_is_over(self._services, id) for id in self._builds)

        while not await asyncio.to_thread(all_over):
            await asyncio.sleep(_LOOK_S)

    async def _loaded(self) -> None:
        for name in self._origins:
            try:
                await self._services.registry.load(name)
            except OctetError as error:
                _logger.error("%s is not served: %s", name, error.message)


@dataclass(frozen=True)
class _Look:
    """The result of one scan of the configured paths.

    Attributes:
        files: model files and artifact folders.
        folders: that were looked through.
    """

    files: dict[Path, Fingerprint]
    folders: frozenset[Path]

    def would_show(self, path: Path) -> bool:
        """Whether `path` would have been seen in its folder, if it were there. A volume that is not mounted deletes no
        models, and neither does a server that is started with other paths.
        """
        return path.parent in self.folders


def _scan(paths: Sequence[Path]) -> _Look:
    found: dict[Path, Fingerprint] = {}
    folders: set[Path] = set()
    for path in paths:
        try:
            if path.is_dir() and not _is_artifact(path):
                candidates = sorted(each for each in path.iterdir() if _is_candidate(each))
                folders.add(path)
            else:
                candidates = [path]
        except OSError as error:
            _logger.warning("%s cannot be looked at: %s", path, error)
            continue
        for candidate in candidates:
            with suppress(FileNotFoundError):  # it went while we looked
                found[candidate] = _fingerprint(candidate)
    return _Look(found, frozenset(folders))


def _is_candidate(path: Path) -> bool:
    if path.name.startswith(".") or path.name.endswith(PARAMS_SUFFIX) or _EXTERNAL_DATA.search(path.name):
        return False
    return path.is_file() or _is_artifact(path)


def _is_artifact(path: Path) -> bool:
    return (path / "oci-layout").is_file()


def _fingerprint(path: Path) -> Fingerprint:
    files = [path]
    if path.is_dir():
        files = [path / "index.json"]
    elif is_symbol(path):
        files += _beside(path, f"{path.name.removesuffix(SYMBOL_SUFFIX)}-")
    elif path.suffix == ".onnx":
        files += _beside(path, f"{path.name}.", f"{path.name}_")
    statuses = [(file.name, file.stat()) for file in files]
    return tuple((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in statuses)


def _beside(path: Path, *beginnings: str) -> list[Path]:
    return sorted(each for each in path.parent.iterdir() if each.name.startswith(beginnings) and each != path)


def _is_settled(fingerprint: Fingerprint) -> bool:
    return all(time.time() - time_ns / 1e9 > _SETTLED_S for *_, time_ns in fingerprint)


@contextmanager
def _uploaded(path: Path) -> Iterator[Path]:
    with archive_of(path) if path.is_dir() else upload_of(path) as file:
        yield file


def _store(services: Services, path: Path) -> Digest:
    with path.open("rb") as file, services.layout.blobs.writer() as writer:
        while chunk := file.read(_CHUNK_BYTES):
            writer.write(chunk)
        return writer.commit()


def _format(path: Path) -> str:
    with path.open("rb") as file:
        return format_of(file)


def _numbers(services: Services, name: str) -> set[int]:
    try:
        return {each.number for each in services.models.versions(name)}
    except NotFound:
        return set()


def _is_over(services: Services, id: str) -> bool:
    try:
        return services.builds.get(id).state.is_final
    except NotFound:  # its model was deleted
        return True


def _read(path: Path) -> dict[str, Origin]:
    """A record that cannot be read is as good as none: nothing is deleted then that came from a file before."""
    try:
        document: Mapping[str, Mapping[str, object]] = json.loads(path.read_bytes())
        return {name: _origin(said) for name, said in document.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        _logger.exception("%s, the record of model files, cannot be read", path)
        return {}


def _origin(said: Mapping[str, object]) -> Origin:
    versions = said["versions"]
    if not isinstance(versions, list):
        raise ValueError("the versions are not a list")
    return Origin(Path(str(said["path"])), tuple(map(int, versions)))
