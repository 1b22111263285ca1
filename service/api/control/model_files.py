"""`octet serve --models`: serves the models in files and folders for as long as the files exist.

The files are scanned every two seconds. A new file is pushed, a changed file becomes a new version, and when a file is
removed, its versions are deleted. The versions of each file are recorded on disk, so that this also works after a
restart. Versions that a user pushed under the same name are kept. A file that cannot be served is reported as broken,
and the others are served. The server is not ready until each configured path could be read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.api.control import submission
from service.api.control.folder_uploads import Unpacked, store_file, unpack
from service.api.control.model_folders import Fingerprint, scan
from service.api.control.routes.deletion import delete
from service.api.services import Services
from service.cache.durable import locked, replace_file
from service.compiler.build.artifact_archive import archive_of, received
from service.compiler.importers.detect import format_of
from service.compiler.importers.published.reading import looks_published, name_of
from service.compiler.importers.published.tflite_texts import is_text_model
from service.compiler.importers.uploads import upload_of
from service.core.artifacts.artifact import ARCHIVE_FORMAT
from service.core.builds.options import parse_open_shapes
from service.core.errors import Conflict, DatabaseBusy, DatabaseLost, NotFound, OctetError, QueueFull, StorageFull
from service.core.models.metadata import NOTHING
from service.core.models.model import model_name_of
from service.core.printable import printable
from service.core.system.outage import log_trouble
from service.core.target import Target

_logger = logging.getLogger(__name__)
_EVERY_S = 2.0
_SETTLED_S = 2.0  # a file that was written more recently than this may be incomplete
_LOOK_S = 0.2
_RETRY_S = 60.0  # if a file could not be read, or did not fit on the disk, it is read again after this time


@dataclass(frozen=True)
class Origin:
    """The file or folder that versions of a model were created from."""

    path: Path
    versions: tuple[int, ...]


class ModelFiles:
    """Keeps the models of one server in sync with files.

    Args:
        paths: model files, artifact folders, folders of published models, and folders that contain such files and
            folders.
    """

    def __init__(self, services: Services, paths: Sequence[Path]) -> None:
        self._services, self._paths = services, [path.absolute() for path in paths]
        self._record = services.settings.model_files_file
        self._origins = _read(self._record)  # keys are the models' names
        self._seen: dict[Path, Fingerprint] = {}
        self._taken: dict[Path, Fingerprint] = {}
        self._builds: list[str] = []  # requested builds, some of which may be running
        self._unusable: dict[Path, str] = {}  # paths that the last scan could not read -> reason
        self._unread: dict[Path, str] = {}  # the paths in `_unusable` that were configured -> reason
        self._retry_at_s: dict[Path, float] = {}
        self._trouble = ""  # the failure of the last attempt, which is kept so that it is logged only once

    async def run(self) -> None:
        """Runs until canceled. The server becomes ready when all files that existed at its start are loaded or reported
        as broken.
        """
        is_done = False
        while not is_done:
            with self._services.registry.starting(self._unready):
                is_done = await self._try_follow() and not self._unread
                if not is_done:
                    await asyncio.sleep(_LOOK_S)
        with self._services.registry.starting("its models are being built"):
            await self._wait_for_builds()
            await self._load_models()
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._try_follow()

    async def follow(self) -> bool:
        """Handles all changes since the last call. Returns true if no file needs another look."""
        look = await asyncio.to_thread(scan, self._paths)
        found = look.files
        is_sure = self._report({**look.broken, **look.unread})
        self._unread = look.unread
        now_s = time.monotonic()
        due = [
            path
            for path, fingerprint in found.items()
            if self._taken.get(path) != fingerprint and self._retry_at_s.get(path, 0) <= now_s
        ]
        settled = [path for path in due if self._seen.get(path) == found[path] or _is_settled(found[path])]
        self._seen = found
        for path in settled:
            await asyncio.to_thread(self._take, path, found[path])
        for path in [path for path in self._taken if path not in found]:
            del self._taken[path]
            self._retry_at_s.pop(path, None)
            self._forget(path)
        for name, origin in list(self._origins.items()):
            if origin.path not in found and look.would_show(origin.path):
                await self._remove(name, origin)
        return is_sure and len(settled) == len(due)

    @property
    def _unready(self) -> str:
        for path, reason in self._unread.items():
            return f"{self._name_of(path)} of --models is not served: {reason}"
        return "its models are being built"

    def _report(self, unusable: dict[Path, str]) -> bool:
        """Reports paths that two scans in a row could not read. After one scan, a folder may only be incomplete because
        files are being written to it.

        Returns:
            True if the previous scan found the same paths unreadable.
        """
        for path, reason in unusable.items():
            if self._unusable.get(path) == reason:
                self._report_broken(path, reason)
        for path in self._unusable.keys() - unusable.keys():
            self._forget(path)
        is_sure = self._unusable == unusable
        self._unusable = unusable
        return is_sure

    async def _try_follow(self) -> bool:
        try:
            return await self.follow()
        except Exception as error:  # the database is locked or the disk is full, perhaps only for a while
            if self._trouble != str(error):
                log_trouble(_logger, error, "cannot update the models from the model files")
            self._trouble = str(error)
            return False

    def _take(self, path: Path, fingerprint: Fingerprint) -> None:
        self._taken[path] = fingerprint
        try:
            self._push(path, _model_name(path))
        except (DatabaseBusy, DatabaseLost):
            del self._taken[path]  # the failure was not the file's fault, so the file is tried again
            raise
        except (StorageFull, QueueFull) as error:
            self._retry(path, error.message)
        except OctetError as error:
            self._report_broken(path, error.message)
        except OSError as error:
            self._retry(
                path, f"it cannot be read: {error.strerror}", 0 if isinstance(error, PermissionError) else _RETRY_S
            )
        except Exception:  # a problem with one file must not affect the others
            if self._name_of(path) not in self._services.broken_files:
                _logger.exception("cannot push %s", printable(str(path)))
            self._report_broken(path, "the server failed to read it; see its log")
        else:
            self._forget(path)

    def _retry(self, path: Path, reason: str, after_s: float = _RETRY_S) -> None:
        """Reports a problem that may pass without a change of the file."""
        del self._taken[path]
        self._retry_at_s[path] = time.monotonic() + after_s
        self._report_broken(path, reason)

    def _report_broken(self, path: Path, reason: str) -> None:
        name = self._name_of(path)
        if self._services.broken_files.get(name) != reason:
            _logger.error("%s is not served: %s", printable(str(path)), reason)
        self._services.broken_files[name] = reason

    def _forget(self, path: Path) -> None:
        self._services.broken_files.pop(self._name_of(path), None)

    def _name_of(self, path: Path) -> str:
        """Returns the name under which a path is reported: the file name if one folder is served, otherwise the path,
        which is unique.
        """
        is_clear = len(self._paths) == 1 and path not in self._paths
        return printable(path.name if is_clear else str(path))

    def _push(self, path: Path, name: str) -> None:
        services, origin = self._services, self._origins.get(name)
        if origin is not None and origin.path != path and origin.path in self._seen:
            raise Conflict(f"its model would have the name {name!r}, like that of {origin.path.name}")
        upload, target = self._stored(path)
        known, source = _numbers(services, name), upload.source
        version = submission.add_version(services, name, source, upload.format, upload.size_bytes)
        if upload.metadata:
            submission.describe(services, name, version.number, upload.metadata)
        if version.number not in known:
            versions = (*(origin.versions if origin else ()), version.number)
            self._change(name, Origin(path, versions))
            services.audit.note("push", model=name, version=version.number, source=source, file=str(path))
            _logger.info("%s is version %d of %s", path, version.number, name)
        elif origin is not None and version.number in origin.versions:
            self._change(name, Origin(path, origin.versions))
        shapes = parse_open_shapes(upload.found.input_shape if upload.found else "")
        builds = submission.request_builds(services, version, [target], None, shapes=shapes)
        self._builds += [build.id for build in builds]

    def _stored(self, path: Path) -> tuple[Unpacked, Target]:
        """Stores a model file, an artifact folder or the folder of a published model. Returns its parts and the target
        to build it for.
        """
        services = self._services
        if looks_published(path) or (path.is_file() and is_text_model(path)):
            return unpack(services, path, "", services.host.target, "", None), services.host.target
        with _uploaded(path) as file:
            source, size_bytes = store_file(services.layout.blobs, file), file.stat().st_size
            format = ARCHIVE_FORMAT if path.is_dir() else _format(file)
            target = received(file).target if path.is_dir() else services.host.target
        return Unpacked(source, size_bytes, format, NOTHING, None), target

    async def _remove(self, name: str, origin: Origin) -> None:
        """Deletes the versions of a file that was removed, except those that an alias refers to."""
        for number in origin.versions:
            try:
                await delete(self._services, name, number)
            except NotFound:
                pass
            except Conflict as error:
                self._report_broken(origin.path, f"the file is gone, but its model cannot be deleted: {error.message}")
                return
        self._forget(origin.path)
        self._change(name, None)
        for path in [path for path in self._taken if _model_name(path) == name]:  # another file may now use the name
            del self._taken[path]
        _logger.info("%s is gone; deleted its versions of %s", origin.path, name)

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

    async def _wait_for_builds(self) -> None:
        def all_over() -> bool:
            return all(_is_over(self._services, id) for id in self._builds)

        while not await asyncio.to_thread(all_over):
            await asyncio.sleep(_LOOK_S)

    async def _load_models(self) -> None:
        for name in self._origins:
            try:
                await self._services.registry.load(name)
            except OctetError as error:
                _logger.error("%s is not served: %s", name, error.message)


def _model_name(path: Path) -> str:
    return name_of(path) if looks_published(path) else model_name_of(path)


def _is_settled(fingerprint: Fingerprint) -> bool:
    return all(time.time() - time_ns / 1e9 > _SETTLED_S for *_, time_ns in fingerprint)


@contextmanager
def _uploaded(path: Path) -> Iterator[Path]:
    with archive_of(path) if path.is_dir() else upload_of(path) as file:
        yield file


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
    except NotFound:  # the build's model was deleted
        return True


def _read(path: Path) -> dict[str, Origin]:
    """Reads the record of origins. A record that cannot be read counts as empty, so that no version is deleted."""
    try:
        document: Mapping[str, Mapping[str, object]] = json.loads(path.read_bytes())
        return {name: _origin(entry) for name, entry in document.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        _logger.exception("cannot read %s, the record of model files", path)
        return {}


def _origin(entry: Mapping[str, object]) -> Origin:
    versions = entry["versions"]
    if not isinstance(versions, list):
        raise ValueError("the versions are not a list")
    return Origin(Path(str(entry["path"])), tuple(map(int, versions)))
