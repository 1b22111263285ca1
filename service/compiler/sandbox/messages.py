"""Reads the messages of a child from a pipe. Once a child has read the upload, the upload may control its messages.

Every message is checked for structure, type and size. Texts are truncated, and control characters that a terminal
would interpret are removed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from service.compiler.sandbox.report import MAX_MESSAGE_BYTES
from service.core import errors
from service.core.builds.build import Stage
from service.core.errors import BuildFailed, OctetError

MAX_MESSAGES = 100_000
MAX_TOTAL_BYTES = 64 << 20
_NAME_CHARACTERS = 200
_REPORT_DEPTH, _REPORT_BYTES = 6, 64 << 10
_TEXT_CHARACTERS = 2000

# The errors that a child may report. Such errors are about the file, the request or the child. Errors about the server,
# such as "not_ready", are not allowed.
_CHILD_ERRORS = (errors.InvalidInput, errors.Unsupported, errors.UnsupportedFormat, errors.TooLarge, BuildFailed)


class Conversation:
    """The messages that one child has sent so far.

    Args:
        also: error classes that the child may report in addition to those in `_CHILD_ERRORS`.

    Attributes:
        position: the stage, op and tensor that were reported last.
        locked: true after the child has reported that its sandbox is closed.
        result, error: the child's last message, if it has been received.
    """

    def __init__(self, also: tuple[type[OctetError], ...] = ()) -> None:
        self._errors: tuple[type[OctetError], ...] = (*_CHILD_ERRORS, *also)
        self.position: dict[str, str] = {}
        self.locked = False
        self.result: dict[str, Any] | None = None
        self.error: OctetError | None = None
        self._pending = bytearray()
        self._messages = 0
        self._bytes = 0

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.error is not None

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Parses data from the pipe. Yields the messages that concern the caller: at, stage, make, discard and log.

        Raises:
            BuildFailed: the child violated the protocol.
        """
        self._bytes += len(data)
        if self._bytes > MAX_TOTAL_BYTES:
            raise self._violation(f"sent more than {MAX_TOTAL_BYTES} bytes")
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._pending += line
            complete = bytes(self._pending)
            self._pending.clear()
            news = self._message(complete)
            if news is not None:
                yield news
        self._pending += rest
        if len(self._pending) > MAX_MESSAGE_BYTES:
            raise self._violation(f"sent a message of more than {MAX_MESSAGE_BYTES} bytes")

    def place(self, error: OctetError) -> OctetError:
        """Adds the stage, operator and tensor that were reported last to `error`, unless `error` already has them.
        Returns `error`.
        """
        error.stage = error.stage or self.position.get("stage")
        if error.op is None and error.tensor is None:
            error.op, error.tensor = self.position.get("op"), self.position.get("tensor")
        return error

    def _message(self, line: bytes) -> dict[str, Any] | None:
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            raise self._violation(f"sent more than {MAX_MESSAGES} messages")
        if self.is_over:
            raise self._violation("sent a message after its last one")
        try:
            message = json.loads(line, parse_constant=_no_constant)
            # lone surrogates are rejected here as well, because they can be neither stored nor sent
            json.dumps(message, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise self._violation("sent something that is not JSON") from None
        match message:
            case {"at": dict(where), **none} if not none:
                self.position = self._where(where)
                return {"at": dict(self.position)}
            case {"stage": str(stage), "fraction": int() | float() as fraction, **none} if not none:
                return self._progress(stage, fraction)
            case {"make": str(name), **none} if not none:
                return {"make": clean(name, _NAME_CHARACTERS)}
            case {"discard": int(number), **none} if not none:
                return {"discard": int(number)}
            case {"log": str(text), **none} if not none:
                return {"log": clean(text, _TEXT_CHARACTERS)}
            case {"locked": True, **none} if not none and not self.locked:
                self.locked = True
            case {"result": dict(result), **none} if not none:
                self.result = result
            case {"error": dict(members), **none} if not none:
                self.error = self._error(members)
            case _:
                raise self._violation("sent a message with an unknown structure")
        return None

    def _where(self, members: Mapping[str, Any]) -> dict[str, str]:
        if not members.keys() <= {"stage", "op", "tensor"} or not all(isinstance(v, str) for v in members.values()):
            raise self._violation("reported an invalid position")
        where = {name: clean(text, _NAME_CHARACTERS) for name, text in members.items()}
        if "stage" in where:
            self._stage(where["stage"])
        elif "stage" in self.position:
            where["stage"] = self.position["stage"]
        return where

    def _progress(self, stage: str, fraction: float) -> dict[str, Any]:
        self._stage(stage)
        if isinstance(fraction, bool) or not math.isfinite(fraction) or not 0 <= fraction <= 1:
            raise self._violation("reported a fraction outside 0 to 1")
        if stage != self.position.get("stage"):
            self.position = {"stage": stage}
        return {"stage": stage, "fraction": float(fraction)}

    def _stage(self, name: str) -> None:
        if name not in {stage.value for stage in Stage}:
            raise self._violation("reported a stage that does not exist")

    def _error(self, members: Mapping[str, Any]) -> OctetError:
        texts = {name: clean(text, _TEXT_CHARACTERS) for name, text in members.items() if isinstance(text, str)}
        allowed = self._errors if self.locked else (*self._errors, errors.SandboxUnavailable)
        error = errors.from_json(texts)
        if not isinstance(error, allowed):
            error = errors.from_json({**texts, "code": BuildFailed.code})
        if isinstance(error, errors.InternalError):
            error.report = _report(members.get("report"))
        if error.stage is not None and error.stage not in {stage.value for stage in Stage}:
            error.stage = None
        return self.place(error)

    def _violation(self, what: str) -> OctetError:
        return self.place(
            BuildFailed(
                f"the compiler process {what}",
                hint="it was taken over by the model file or is defective; please report the file",
            )
        )


def _report(value: object) -> dict[str, Any]:
    """Returns those parts of an internal error's report that are texts, numbers, lists or objects of moderate size."""
    cleaned = _cleaned(value, _REPORT_DEPTH)
    if not isinstance(cleaned, dict) or len(json.dumps(cleaned)) > _REPORT_BYTES:
        return {}
    return cleaned


def _cleaned(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value, _TEXT_CHARACTERS)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, list) and depth:
        return [_cleaned(each, depth - 1) for each in value]
    if isinstance(value, dict) and depth:
        return {clean(str(name), _NAME_CHARACTERS): _cleaned(each, depth - 1) for name, each in value.items()}
    return None


def clean(text: str, limit: int) -> str:
    """Returns `text` as one line of at most `limit` characters, without control, format and surrogate characters."""
    # The text is truncated first, because a hostile child could send a very long one.
    printable = "".join(c if c.isprintable() else " " for c in text[: limit * 2])
    short = " ".join(printable.split())
    return short if len(short) <= limit else short[: limit - 1] + "…"


def _no_constant(name: str) -> Callable[[], None]:
    raise ValueError(f"{name} is not JSON")
