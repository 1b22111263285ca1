"""The folder of artifacts that were pulled from registries to be served, in the data directory.

pulled/<reference>/<digest>        the artifacts that a tag referred to
pulled/<reference>/<digest>.lock   locked by each process that serves or pulls this folder
pulled/<reference>/<model>         a link to the folder that is served now
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from service.cli.registry import pull_to
from service.core.digest import digest_of
from service.core.errors import RegistryFailed
from service.core.settings import Settings
from service.core.target import detect_host
from service.registry import Registry, parse_reference

_logger = logging.getLogger(__name__)
_FOLDER = re.compile(r"[0-9a-f]{64}(\.partial)?")


def served_folder(text: str, settings: Settings, target: str | None = None) -> Path:
    """Returns the folder in the data directory that contains the artifacts to which a reference refers now. The folder
    is named after the model. Pulls the artifacts if the folder is missing. If the registry does not respond, returns
    the folder of the last pull.

    The folder exists as long as this process lives. A folder that no process serves is deleted when a newer folder has
    replaced it; if the remaining folders exceed `store_cache_bytes`, the least recently served are deleted first.

    Args:
        target: chooses the artifacts of an index by target; by default the best target that runs here.

    Raises:
        OctetError: as `pull_to`.
    """
    reference = parse_reference(text)
    named = hashlib.sha256(f"{reference}\0{target}".encode()).hexdigest()[:16]
    root = settings.data_dir / "pulled"
    position = root / named
    position.mkdir(parents=True, exist_ok=True)
    current = position / reference.model
    try:
        with Registry(reference, settings) as registry:
            wanted = digest_of(registry.manifest(reference.name)[1])
    except RegistryFailed as error:
        if not current.exists():
            raise
        _logger.warning("%s; serving what was pulled before", error)
        _lock_for_life(current.resolve())
        return current
    folder = position / wanted.removeprefix("sha256:")
    _lock_for_life(folder)
    if not folder.exists():
        pull_to(replace(reference, digest=wanted), folder, settings, lambda targets: target or _best(targets))
    _set_link(current, folder)
    collect(root, settings.store_cache_bytes)
    return current


def collect(root: Path, max_bytes: int) -> None:
    """Deletes folders that no process serves: first all that a newer folder has replaced; then, while the remaining
    folders exceed `max_bytes`, the least recently served. A folder that cannot be deleted is logged and left.
    """
    kept = []
    for folder in [each for each in root.glob("*/*") if _FOLDER.fullmatch(each.name)]:
        with suppress(FileNotFoundError):  # another process may delete it at the same time
            if _links_to(folder):
                kept.append((_used_s(folder), folder, _size_bytes(folder)))
            else:
                _delete(folder)
    total_bytes = sum(size_bytes for _, _, size_bytes in kept)
    for _, folder, size_bytes in sorted(kept):
        if total_bytes > max_bytes and _delete(folder):
            total_bytes -= size_bytes


_locks: list[int] = []  # file descriptors, each with a shared lock on a folder that this process serves; never closed


def _lock_for_life(folder: Path) -> None:
    """Locks the folder for the rest of this process's life, so that no process deletes it."""
    descriptor = _lock(folder, fcntl.LOCK_SH)
    os.utime(descriptor)
    _locks.append(descriptor)


def _lock(folder: Path, how: int) -> int:
    """Returns a locked file descriptor. Raises `BlockingIOError` if `how` includes LOCK_NB and the lock is taken."""
    lock = _lock_of(folder)
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            if os.fstat(descriptor).st_nlink:  # the lock file was not deleted in the meantime
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock_of(folder: Path) -> Path:
    """Returns the lock file of a folder; the folder's `.partial` folder uses the same lock file."""
    return folder.with_name(f"{folder.name.removesuffix('.partial')}.lock")


def _used_s(folder: Path) -> float:
    lock = _lock_of(folder)
    return (lock if lock.exists() else folder).stat().st_mtime


def _delete(folder: Path) -> bool:
    """Deletes the folder and the links to it, unless a process has locked it. Returns true if it was deleted."""
    try:
        descriptor = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        for link in _links_to(folder):
            link.unlink()
        shutil.rmtree(folder)
        _lock_of(folder).unlink()
        with suppress(OSError):  # the parent still contains other files
            folder.parent.rmdir()
    except OSError as error:
        _logger.warning("cannot delete %s, which no process serves: %s", folder, error)
        return False
    finally:
        os.close(descriptor)
    _logger.info("deleted %s, which no process serves", folder)
    return True


def _links_to(folder: Path) -> list[Path]:
    return [each for each in folder.parent.iterdir() if each.is_symlink() and each.resolve() == folder.resolve()]


def _size_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _best(targets: Sequence[str]) -> str:
    """Returns the most capable of the targets that run on this machine; the first of `targets` if none does."""
    here = [target.name for target in detect_host().targets if target.name in targets]
    return (here or list(targets))[0]


def _set_link(link: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=link.parent) as beside:
        made = Path(beside, "link")
        made.symlink_to(folder.name)
        made.rename(link)
