"""Answers the questions of a data plane: each contains a picture, and its answer the elements of a tensor."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, TypedDict

from service.core.errors import InternalError, MemoryFull, OctetError
from service.core.models.metadata import ModelMetadata
from service.core.models.picture import MAX_PIXELS
from service.core.models.signature import TensorSpec
from service.workers.data_plane.link import Link
from service.workers.preprocess.pictures import PictureQueue

_logger = logging.getLogger(__name__)

Members = dict[str, Any]
_WITHDRAWN = {"problem": {"code": "deadline_passed"}}


class Question(TypedDict, total=False):
    """A question of the data plane. `native/plane/control/preprocessor.cc` writes it.

    Attributes:
        question: the number of the question, which its answer repeats.
        kind: `picture`.
        peer: the address of the client.
        pixels: the size of the picture according to its header; -1 if the header is damaged.
        input: the input for which the tensor is, as in `TensorSpec.to_json`.
        preprocessing: the metadata of the model that applies to pictures, as in `ModelMetadata.to_json`.
    """

    question: int
    kind: str
    peer: str
    pixels: int
    input: Members
    preprocessing: Members


class Answers:
    """Answers the questions that come over one connection. For one event loop."""

    def __init__(self, connection: socket.socket, lost: Callable[[], None]) -> None:
        """
        Args:
            connection: a non-blocking socket to the data plane. This object owns it from now on.
            lost: called when the data plane has closed the connection.
        """
        self._lost = lost
        self._pictures = PictureQueue()
        self._tasks: dict[int, asyncio.Task[tuple[Members, bytes]]] = {}
        self._link = Link(connection, self._handle, self._lose)

    @property
    def longest_s(self) -> float:
        """Returns how long the picture that was started first has been decoded; 0 if none is being decoded."""
        return self._pictures.longest_s

    def close(self) -> None:
        self._link.close()
        for task in self._tasks.values():
            task.cancel()

    def _lose(self) -> None:
        self.close()
        self._lost()

    def _handle(self, message: Members, data: bytes, _: int) -> None:
        number = message["question"]
        match message["type"]:
            case "question":
                task = asyncio.get_running_loop().create_task(self._answer(message, data))
                self._tasks[number] = task
                task.add_done_callback(partial(self._finish, number))
            case "withdraw" if number in self._tasks:
                self._tasks[number].cancel()

    def _finish(self, number: int, task: asyncio.Task[tuple[Members, bytes]]) -> None:
        del self._tasks[number]
        # a withdrawn question is answered too: the data plane then releases the memory that it reserved
        members, data = (_WITHDRAWN, b"") if task.cancelled() else task.result()
        self._link.send({"type": "answer", "question": number, **members}, data)

    async def _answer(self, question: Members, data: bytes) -> tuple[Members, bytes]:
        try:
            match question["kind"]:
                case "picture":
                    return {}, await self._decoded(question, data)
            raise NotImplementedError(question["kind"])
        except Exception as exception:
            return {"problem": _problem(exception)}, b""

    async def _decoded(self, question: Members, data: bytes) -> bytes:
        pixels = question["pixels"] if question["pixels"] >= 0 else None
        spec = TensorSpec.from_json(question["input"])
        metadata = ModelMetadata.from_json(question.get("preprocessing", {}))
        return await self._pictures.run(question["peer"], pixels, partial(_decode, data, spec, metadata, pixels))


def _decode(
    picture: bytes,
    spec: TensorSpec,
    metadata: ModelMetadata,
    pixels: int | None,
    is_withdrawn: Callable[[], bool],
) -> bytes:
    from service.runtime.image import decode  # imported by a process that is already locked in

    most = MAX_PIXELS if pixels is None else pixels
    return decode(picture, spec, metadata, is_withdrawn=is_withdrawn, most_pixels=most).tobytes()


def _problem(exception: Exception) -> Members:
    """Returns the members of a problem document (RFC 9457) that the data plane does not know."""
    match exception:
        case OctetError():
            error: OctetError = exception
        case MemoryError():
            error = MemoryFull(hint="try again later, or send smaller requests")
        case _:
            _logger.error("cannot answer a question of the data plane", exc_info=exception)
            return {"code": InternalError.code, "detail": "the server failed unexpectedly", "hint": "see its log"}
    return {"code": error.code, "detail": error.message, "hint": error.hint or "", "tensor": error.tensor or ""}
