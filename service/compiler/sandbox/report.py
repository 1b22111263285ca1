"""The protocol from a child to its parent: one JSON object per line, on a separate pipe.

{"locked": true}                         the sandbox is closed; once, first
{"at": {"stage", "op", "tensor"}}        the current position, which is added to the error if the child crashes
{"stage": "codegen", "fraction": 0.5}    progress
{"make": "model.onnx"}                   a file in the scratch directory that the parent shall build
{"discard": 3}                           the result of the third such request is no longer needed
{"log": "text"}
{"result": {…}} or {"error": {…}}        once, last
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from service.core.builds.build import Stage
from service.core.errors import BuildFailed, OctetError

MAX_MESSAGE_BYTES = 4 << 20

# A role that has no function in `child.ROLES`: the child executes another program.
EXECUTE = "execute"


class Report:
    """The child's end of the protocol. Several threads may use it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def at(self, *, stage: Stage | None = None, op: str | None = None, tensor: str | None = None) -> None:
        """Sets the current position. This position is added to a later error or crash that has no position."""
        members = {"stage": stage, "op": op, "tensor": tensor}
        self._send({"at": {name: value for name, value in members.items() if value is not None}})

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        """Reports which fraction of `stage` (0 to 1) the child has completed."""
        self._send({"stage": stage, "fraction": fraction})

    def make(self, name: str) -> None:
        """Requests a build of the file `name` in the scratch directory.

        How the result of the build comes back is up to the role and its caller. Callers that do not support such
        requests ignore them.
        """
        self._send({"make": name})

    def discard(self, number: int) -> None:
        """Reports that the result of the request with this number, counted from 1, is no longer needed."""
        self._send({"discard": number})

    def log(self, line: str) -> None:
        self._send({"log": line})

    def locked(self) -> None:
        self._send({"locked": True})

    def result(self, result: Mapping[str, Any]) -> None:
        """Sends the result as the last message.

        Raises:
            BuildFailed: the result is too large for a message. Large data must be written to files.
        """
        self._send({"result": dict(result)})

    def error(self, error: OctetError) -> None:
        """Sends the error as the last message."""
        self._send({"error": error.to_json()})

    def _send(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        if len(line) > MAX_MESSAGE_BYTES:
            raise BuildFailed(f"a message of {len(line)} bytes is larger than {MAX_MESSAGE_BYTES}")
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]
