"""What was pulled from registries to be served, in the data directory.

pulled/<reference>/<digest>        what a tag stood for
pulled/<reference>/<digest>.lock   locked by each process that serves it, or pulls it
pulled/<reference>/<model>         a link to what is served
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
    """What a reference stands for now, as a folder in the data directory with the name of the model; pulled, if it is
    not there. Where the registry does not answer, what it stood for when it was last asked.

    It is there as long as this process lives. What no process serves is deleted when something else has taken its
    place, and beyond `store_cache_bytes`, what was served longest ago first.

    Args:
        target: of the artifacts of an index, those to take; by default the best of those that run here.

    Raises:
        OctetError: as `pull_to`.
    """
    reference = parse_reference(text)
    named = hashlib.sha256(f"{reference}\0{target}".encode()).hexdigest()[:16]
    root = settings.data_dir / "pulled"
    place = root / named
    place.mkdir(parents=True, exist_ok=True)
    current = place / reference.model
    try:
        with Registry(reference, settings) as registry:
            wanted = digest_of(registry.manifest(reference.name)[1])
    except RegistryFailed as error:
        if not current.exists():
            raise
        _logger.warning("%s; what was pulled before is served", error)
        _hold(current.resolve())
        return current
    folder = place / wanted.removeprefix("sha256:")
    _hold(folder)
    if not folder.exists():
        pull_to(replace(reference, digest=wanted), folder, settings, lambda targets: target or _best(targets))
    _point(current, folder)
    collect(root, settings.store_cache_bytes)
    return current


def collect(root: Path, max_bytes: int) -> None:
    """Deletes what no process serves: all that something else has taken the place of, and the rest beyond `max_bytes`,
    what was served longest ago first. What cannot be deleted stays, and the log says so.
    """
    kept = []
    for folder in [each for each in root.glob("*/*") if _FOLDER.fullmatch(each.name)]:
        with suppress(FileNotFoundError):  # another process collects, too
            if _links_to(folder):
                kept.append((_used_s(folder), folder, _size_bytes(folder)))
            else:
                _delete(folder)
    total_bytes = sum(size_bytes for _, _, size_bytes in kept)
    for _, folder, size_bytes in sorted(kept):
        if total_bytes > max_bytes and _delete(folder):
            total_bytes -= size_bytes


_held: list[int] = []  # descriptors of what this process serves, each with a shared lock; it has few, and they stay


def _hold(folder: Path) -> None:
    """From now on, no process deletes it."""
    descriptor = _locked(folder, fcntl.LOCK_SH)
    os.utime(descriptor)
    _held.append(descriptor)


def _locked(folder: Path, how: int) -> int:
    """A descriptor. Raises `BlockingIOError`, where `how` is not to wait."""
    lock = _lock_of(folder)
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            if os.fstat(descriptor).st_nlink:  # nobody has deleted it in the meantime
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock_of(folder: Path) -> Path:
    """One for what is pulled and for what has been."""
    return folder.with_name(f"{folder.name.removesuffix('.partial')}.lock")


def _used_s(folder: Path) -> float:
    lock = _lock_of(folder)
    return (lock if lock.exists() else folder).stat().st_mtime


def _delete(folder: Path) -> bool:
    """Unless a process holds it; with the links to it."""
    try:
        descriptor = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        for link in _links_to(folder):
            link.unlink()
        shutil.rmtree(folder)
        _lock_of(folder).unlink()
        with suppress(OSError):  # something else is there
            folder.parent.rmdir()
    except OSError as error:
        _logger.warning("%s, which nobody serves, cannot be deleted: %s", folder, error)
        return False
    finally:
        os.close(descriptor)
    _logger.info("deleted %s, which nobody serves", folder)
    return True


def _links_to(folder: Path) -> list[Path]:
    return [each for each in folder.parent.iterdir() if each.is_symlink() and each.resolve() == folder.resolve()]


def _size_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _best(targets: Sequence[str]) -> str:
    """Of the targets, the one that does most of what this machine can; the first where none runs here."""
    here = [target.name for target in detect_host().targets if target.name in targets]
    return (here or list(targets))[0]


def _point(link: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=link.parent) as beside:
        made = Path(beside, "link")
        made.symlink_to(folder.name)
        made.rename(link)
