"""The log of a process: lines of text, or one JSON object per line. Secrets are removed from both."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from time import monotonic

from service.core.printable import json_text, printable, printable_text

# A function that describes the request which a log line is about: `request_id`, `trace_id` and `model`. The server sets
# it.
about: ContextVar[Callable[[], Mapping[str, str]]] = ContextVar("about", default=dict)

# API keys without their id, the credentials of an `Authorization` header, and the user and password of a URL.
_SECRETS = re.compile(
    r"(?P<key>octet_[a-z0-9]{4,16}_)[A-Za-z0-9]{32,128}"
    r"|(?P<scheme>\b(?:bearer|basic) +)[\w.~+/=-]{8,}"
    r"|(?P<url>://)[^/\s:@]*:[^/\s@]+(?=@)",
    re.IGNORECASE,
)
_SELDOM_S = 1.0


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class _TextFormatter(logging.Formatter):
    """Formats each message on one line. A traceback follows on separate lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message.rstrip("\n"))
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(printable_text(super().format(record)))


class _JsonFormatter(logging.Formatter):
    """Formats each record as an object: `time` (RFC 3339, UTC), `level`, `logger`, `pid`, `message`, the members that
    `about` returns, and `exception`, a traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
            **about.get()(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return without_secrets(json_text(line))


class Seldom(logging.Filter):
    """Passes each message below the level of errors at most once per second. The next message that passes contains the
    number of messages that were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, tuple[float, int]] = {}  # message -> (time of logging, times left out since)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        now_s = monotonic()
        passed_s, left_out = self._passed.get(record.msg, (-math.inf, 0))
        if now_s - passed_s < _SELDOM_S:
            self._passed[record.msg] = passed_s, left_out + 1
            return False
        self._passed[record.msg] = now_s, 0
        if left_out:
            record.msg = f"{record.msg} ({left_out} more such in the {now_s - passed_s:.0f} s before)"
        return True


def configure(form: LogFormat, level: int) -> None:
    """Makes this process, and processes forked from it, log to the standard error."""
    handler = logging.StreamHandler()
    text = _TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if form is LogFormat.JSON else text)
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)


def without_secrets(text: str) -> str:
    """Returns `text` with API keys, credentials and passwords replaced by "…"."""
    return _SECRETS.sub(lambda found: "".join(filter(None, found.groups())) + "…", text)
