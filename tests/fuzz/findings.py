"""What counts as a finding, and how an input that shows one is made small."""

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

_SLOWEST_S = 5.0  # of the process's own time
_REDUCE_S = 20.0

# What reading a file never does, as CPython calls it (docs.python.org/3/library/audit_events.html).
_FORBIDDEN = ("open", "os.", "subprocess.", "socket.", "pickle.", "shutil.", "ctypes.dlopen")
# But Python's own library may be loaded late: a codec, when a name first needs it.
_LIBRARY = str(Path(zipfile.__file__).parent)


class _TooSlow(BaseException):
    """An import took longer than `_SLOWEST_S`."""


class _Forbidden(BaseException):
    """An import did what reading never does."""


class Judge:
    """Says of an input what is wrong with how it is taken, if anything is.

    Args:
        file_format: by whose importer it is read.
        shapes: as `auto.import_model`.
    """

    def __init__(self, file_format: str, shapes: Mapping[str, Sequence[int]]) -> None:
        self._importer, self._shapes = IMPORTERS[file_format], shapes
        self._watching: int | None = None  # the thread that imports; a process of tests has others
        signal.signal(signal.SIGVTALRM, _stop)
        sys.addaudithook(self._audit)

    def __call__(self, data: bytes) -> str | None:
        """The finding's name: the exception, and the line of ours that it left last; None for a model or a refusal."""
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
    """The smallest input found in `_REDUCE_S` of which `is_same` holds."""
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
