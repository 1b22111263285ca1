"""Decides which results of an import are findings, and reduces the input of a finding."""

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

_SLOWEST_S = 5.0  # limit of the processor time of the process
_REDUCE_S = 20.0

# Audit events of actions that are never needed to read a file (docs.python.org/3/library/audit_events.html).
_FORBIDDEN = ("open", "os.", "subprocess.", "socket.", "pickle.", "shutil.", "ctypes.dlopen")
# Reading modules of Python's own library is allowed, because some are loaded late, for example a codec when it is first
# used.
_LIBRARY = str(Path(zipfile.__file__).parent)


class _TooSlow(BaseException):
    """An import took longer than `_SLOWEST_S`."""


class _Forbidden(BaseException):
    """An import did something that is never needed to read a file."""


class Judge:
    """Imports an input, and decides whether the result is a finding.

    Args:
        file_format: the format of the importer that reads the input.
        shapes: the shapes of inputs, as for `auto.import_model`.
    """

    def __init__(self, file_format: str, shapes: Mapping[str, Sequence[int]]) -> None:
        self._importer, self._shapes = IMPORTERS[file_format], shapes
        self._watching: int | None = None  # the thread that imports; a test process has other threads
        signal.signal(signal.SIGVTALRM, _stop)
        sys.addaudithook(self._audit)

    def __call__(self, data: bytes) -> str | None:
        """Returns the name of the finding (the exception, and the project's last line in its traceback), or None."""
        try:
            with self._watched():
                facts_of(self._importer(data, lambda op, tensor: None, self._shapes, {})).to_json()
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
    """Returns the smallest input for which `is_same` is true. Searches for `_REDUCE_S`."""
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
