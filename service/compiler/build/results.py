"""A cache of the results of children, keyed by the content of their inputs.

Only the parent writes to it. A key contains everything that determines the result: the digest of the upload, the
versions of Octet's code, and the numerics mode. A hostile upload can therefore affect only the cached results for that
same upload. A cached result is not trusted more than a new result, because only sandboxed children read it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.cache.durable import storage_errors
from service.core.digest import digest_of_json

_ANSWER = "answer.json"
_PARTIAL = ".partial-"
_LEFT_BEHIND_S = 3600.0


class Results:
    """A store of the results of children, and of their files. If it becomes too large, the least recently used results
    are deleted.

    Args:
        directory: created if it does not exist. Several processes may share it.
        max_bytes: the size above which results are deleted.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory, self._max_bytes = directory, max_bytes

    def take(self, question: Mapping[str, Any], into: Path) -> dict[str, Any] | None:
        """Returns the cached result for `question` and copies its files to `into`. Returns None if none is cached."""
        entry = self._entry(question)
        try:
            os.utime(entry)  # the modification time records the last use
            answer: dict[str, Any] = json.loads((entry / _ANSWER).read_text())
            for file in answer["files"]:
                shutil.copyfile(entry / file, into / file)
        except FileNotFoundError:  # not in the cache, or deleted while it was read
            return None
        return dict(answer["answer"])

    def keep(self, question: Mapping[str, Any], answer: Mapping[str, Any], files: Sequence[Path]) -> None:
        """Stores a result, so that `take` returns it later.

        Raises:
            StorageFull: the disk is full.
        """
        entry = self._entry(question)
        partial = self._directory / f"{_PARTIAL}{uuid.uuid4().hex}"
        with storage_errors():
            partial.mkdir(parents=True)
            try:
                for file in files:
                    shutil.copyfile(file, partial / file.name)
                written = json.dumps({"answer": answer, "files": [file.name for file in files]})
                (partial / _ANSWER).write_text(written)
                for path in partial.iterdir():
                    _sync(path)
                with suppress(OSError):  # another build stored the result in the meantime
                    partial.rename(entry)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        self._trim()

    def _entry(self, question: Mapping[str, Any]) -> Path:
        return self._directory / digest_of_json(question).removeprefix("sha256:")

    def _trim(self) -> None:
        entries = []
        for entry in self._directory.iterdir():
            with suppress(FileNotFoundError):
                if entry.name.startswith(_PARTIAL) and time.time() - entry.stat().st_mtime < _LEFT_BEHIND_S:
                    continue  # another process may still be writing the entry
                size = sum(path.stat().st_size for path in entry.iterdir())
                entries.append((entry.stat().st_mtime, size, entry))
        left = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if left <= self._max_bytes:
                return
            # Renaming an entry before its deletion prevents other processes from reading an entry that is only partly
            # deleted.
            dropped = self._directory / f"{_PARTIAL}{uuid.uuid4().hex}"
            with suppress(OSError):
                entry.rename(dropped)
            shutil.rmtree(dropped, ignore_errors=True)
            left -= size


def sweep(directory: Path) -> None:
    """Deletes incomplete entries left by killed processes."""
    for left in directory.glob(f"{_PARTIAL}*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _LEFT_BEHIND_S:
                shutil.rmtree(left, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
