"""Decides what is a finding, and makes the input of a finding small."""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from service.compiler.importers.auto import IMPORTERS
from service.compiler.importers.facts import facts_of
from service.core.errors import OctetError
from tests.fuzz.mutations import Reducer

_SLOWEST_S = 5.0  # CPU time of the process
_REDUCE_S = 20.0

# Audit events of actions that reading a file never needs (docs.python.org/3/library/audit_events.html).
_FORBIDDEN = ("open", "os.", "subprocess.", "socket.", "pickle.", "shutil.", "ctypes.dlopen")
# An exception is loading Python's own library late, for example a codec at its first use.
_LIBRARY = str(Path(zipfile.__file__).parent)


class _TooSlow(BaseException):
    """An import took longer than `_SLOWEST_S`."""


class _Forbidden(BaseException):
    """An import did something that reading a file never needs."""


class Judge:
    """Reads an input with an importer and says what is wrong, if anything is.

    Args:
        file_format: the format whose importer reads the input.
        shapes: as for `auto.import_model`.
    """

    def __init__(self, file_format: str, shapes: Mapping[str, Sequence[int]]) -> None:
        self._importer, self._shapes = IMPORTERS[file_format], shapes
        self._watching: int | None = None  # the thread that imports, because a test process has other threads
        signal.signal(signal.SIGVTALRM, _stop)
        sys.addaudithook(self._audit)

    def __call__(self, data: bytes) -> str | None:
        """Returns None, or the finding's name: the exception and the project's last line in its traceback."""
        try:
            with self._watched():
                facts_of(self._importer(data, lambda op, tensor: None, self._shapes)).to_json()
        except OctetError as exc:
            return None if exc.stage else f"NoStage {_place(exc)}"
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            return f"{type(exc).__name__} {_place(exc)}"
        return None

    @contextmanager
    def _watched(self) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_VIRTUAL, _SLOWEST_S)
        self._watching = threading.get_ident()
        try:
            yield
        finally:
            self._watching = None
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        own = event == "open" and str(arguments[0]).startswith(_LIBRARY)
        if self._watching == threading.get_ident() and event.startswith(_FORBIDDEN) and not own:
            raise _Forbidden(event, arguments)


def minimized(data: bytes, is_same: Callable[[bytes], bool], reduced: Reducer) -> bytes:
    """Returns the smallest input found within `_REDUCE_S` for which `is_same` returns true."""
    end = time.monotonic() + _REDUCE_S
    while True:
        for candidate in reduced(data):
            if time.monotonic() > end:
                return data
            if len(candidate) < len(data) and is_same(candidate):
                data = candidate
                break
        else:
            return data


def _place(exc: BaseException) -> str:
    ours = [frame for frame in traceback.extract_tb(exc.__traceback__) if "/service/" in frame.filename]
    return f"{ours[-1].filename.rpartition('/service/')[2]}:{ours[-1].lineno}" if ours else "outside"


def _stop(number: int, frame: FrameType | None) -> None:
    raise _TooSlow
