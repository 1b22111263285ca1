"""The protocol from a child to its parent: one JSON object a line, on a pipe of its own.

{"locked": true}                         the sandbox is closed; once, first
{"at": {"stage", "op", "tensor"}}        what it works on from now on, so that a crash can be placed
{"stage": "codegen", "fraction": 0.5}    progress
{"make": "model.onnx"}                   a file of its scratch that it asks the parent to build
{"discard": 3}                           the third of what was built so is not needed any more
{"log": "text"}
{"result": {…}} or {"error": {…}}        once, last
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from service.core.build import Stage
from service.core.errors import BuildFailed, OctetError

MAX_MESSAGE_BYTES = 4 << 20

# The role that has no function: the child becomes another program.
EXECUTE = "execute"


class Report:
    """The child's end. Any thread may call it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def at(self, *, stage: Stage | None = None, op: str | None = None, tensor: str | None = None) -> None:
        """Sets the current position. An error or crash that names no place of its own is reported there."""
        members = {"stage": stage, "op": op, "tensor": tensor}
        self._send({"at": {name: value for name, value in members.items() if value is not None}})

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        """The child is `fraction` (0 to 1) through `stage`."""
        self._send({"stage": stage, "fraction": fraction})

    def make(self, name: str) -> None:
        """Asks for the file `name` of the scratch directory to be built. What comes of it is between the role and its
        caller; who knows of no such requests ignores them."""
        self._send({"make": name})

    def discard(self, number: int) -> None:
        """Says that what came of the request with this number, from 1 on, is not needed any more."""
        self._send({"discard": number})

    def log(self, line: str) -> None:
        self._send({"log": line})

    def locked(self) -> None:
        self._send({"locked": True})

    def result(self, result: Mapping[str, Any]) -> None:
        """The last word.

        Raises:
            BuildFailed: the result is too large to be sent; large things go into files.
        """
        self._send({"result": dict(result)})

    def error(self, error: OctetError) -> None:
        """The last word."""
        self._send({"error": error.to_json()})

    def _send(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        if len(line) > MAX_MESSAGE_BYTES:
            raise BuildFailed(f"a message of {len(line)} bytes is larger than {MAX_MESSAGE_BYTES}")
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]
