"""A cache of children's answers, keyed by the content of their inputs.

Only the parent writes here, and a key names everything that decides the answer: the digest of the upload, the versions
of our code, the mode. What a hostile upload makes its child answer is therefore found by builds of that upload alone.
Kept or new, an answer is a child's word: what reads it is a sandboxed child again.
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
    """Answers and the files that came with them. The least recently used are deleted when they take too much space.

    Args:
        directory: made where it does not exist; several processes may share it.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory, self._max_bytes = directory, max_bytes

    def take(self, question: Mapping[str, Any], into: Path) -> dict[str, Any] | None:
        """The answer to `question`, its files copied to `into`; None where none is kept."""
        entry = self._entry(question)
        try:
            os.utime(entry)  # this is what counts as use
            answer: dict[str, Any] = json.loads((entry / _ANSWER).read_text())
            for file in answer["files"]:
                shutil.copyfile(entry / file, into / file)
        except FileNotFoundError:  # never kept, or dropped while we read
            return None
        return dict(answer["answer"])

    def keep(self, question: Mapping[str, Any], answer: Mapping[str, Any], files: Sequence[Path]) -> None:
        """Keeps what `take` gives from now on.

        Raises:
            StorageFull: there is no room on the disk.
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
                with suppress(OSError):  # another build kept it meanwhile
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
                    continue  # another process writes it
                size = sum(path.stat().st_size for path in entry.iterdir())
                entries.append((entry.stat().st_mtime, size, entry))
        left = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if left <= self._max_bytes:
                return
            # Renamed first, so that no process finds half of it.
            dropped = self._directory / f"{_PARTIAL}{uuid.uuid4().hex}"
            with suppress(OSError):
                entry.rename(dropped)
            shutil.rmtree(dropped, ignore_errors=True)
            left -= size


def sweep(directory: Path) -> None:
    """Deletes what processes that were killed have left half written, or half deleted."""
    for left in directory.glob(f"{_PARTIAL}*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _LEFT_BEHIND_S:
                shutil.rmtree(left, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
