"""Answers the questions of a data plane: each contains a picture or texts, and its answer the elements of tensors."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from service.core.errors import InternalError, MemoryFull, NotReady, OctetError
from service.core.models.metadata import ModelMetadata
from service.core.models.picture import MAX_PIXELS
from service.core.models.signature import TensorSpec
from service.core.models.text import TextProcessing
from service.workers.data_plane.link import Link
from service.workers.preprocess.pictures import PictureQueue
from service.workers.preprocess.tokenizer_files import TokenizerFiles

if TYPE_CHECKING:
    from service.workers.preprocess.texts import Tokenized

_logger = logging.getLogger(__name__)

Members = dict[str, Any]
_WITHDRAWN = {"problem": {"code": "deadline_passed"}}
_PIXELS_OF_BYTE = 32  # a byte of text takes about as long as so many pixels
_TEXT_LIMIT_S = 20.0  # a tokenizer that works longer on one request has a regular expression that takes forever


class Question(TypedDict, total=False):
    """A question of the data plane. `native/plane/control/preprocessor.cc` writes it.

    Attributes:
        question: the number of the question, which its answer repeats.
        kind: `picture` or `text`.
        peer: the address of the client.
        pixels: the size of the picture according to its header; -1 if the header is damaged.
        input: the input for which the tensor is, as in `TensorSpec.to_json`.
        preprocessing: the metadata of the model that applies to pictures, as in `ModelMetadata.to_json`.
        inputs: for texts: the inputs for which the tensors are, as in `TokenSpec`.
        batches: for texts: the number of texts that a model without buckets takes in one call.
        pads: for texts: true if the data plane pads tensors, without a change of the result.
        text: for texts: the processing, as `orders.describe` writes it. The open file of its tokenizer comes with the
            question.
    """

    question: int
    kind: str
    peer: str
    pixels: int
    input: Members
    preprocessing: Members
    inputs: list[Members]
    batches: int
    pads: bool
    text: Members


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
        self._tokenizers = TokenizerFiles()
        self._tasks: dict[int, asyncio.Task[tuple[Members, bytes]]] = {}
        self._link = Link(connection, self._handle, self._lose)

    @property
    def overdue(self) -> str:
        """Returns the type of a question on which a thread has worked for too long, or an empty string."""
        return self._pictures.overdue

    def close(self) -> None:
        self._link.close()
        for task in self._tasks.values():
            task.cancel()

    def _lose(self) -> None:
        self.close()
        self._lost()

    def _handle(self, message: Members, data: bytes, descriptor: int) -> None:
        number = message["question"]
        match message["type"]:
            case "question":
                task = asyncio.get_running_loop().create_task(self._answer(message, data, descriptor))
                self._tasks[number] = task
                if descriptor >= 0:
                    task.add_done_callback(lambda _: os.close(descriptor))
                task.add_done_callback(partial(self._finish, number))
            case "withdraw" if number in self._tasks:
                self._tasks[number].cancel()

    def _finish(self, number: int, task: asyncio.Task[tuple[Members, bytes]]) -> None:
        del self._tasks[number]
        # a withdrawn question is answered too: the data plane then releases the memory that it reserved
        members, data = (_WITHDRAWN, b"") if task.cancelled() else task.result()
        self._link.send({"type": "answer", "question": number, **members}, data)

    async def _answer(self, question: Members, data: bytes, descriptor: int) -> tuple[Members, bytes]:
        try:
            match question["kind"]:
                case "picture":
                    return {}, await self._decoded(question, data)
                case "text":
                    return await self._tokenized(question, data, descriptor)
            raise NotImplementedError(question["kind"])
        except Exception as exception:
            return {"problem": _problem(exception)}, b""

    async def _decoded(self, question: Members, data: bytes) -> bytes:
        pixels = question["pixels"] if question["pixels"] >= 0 else None
        spec = TensorSpec.from_json(question["input"])
        metadata = ModelMetadata.from_json(question.get("preprocessing", {}))
        return await self._pictures.run(question["peer"], pixels, partial(_decode, data, spec, metadata, pixels))

    async def _tokenized(self, question: Members, data: bytes, descriptor: int) -> tuple[Members, bytes]:
        from service.workers.preprocess import texts  # loads NumPy, so it is imported when the process is locked in

        processing = TextProcessing.from_json(question["text"])
        inputs = list(map(texts.TokenSpec.from_json, question["inputs"]))
        digest = processing.tokenizer
        assert digest is not None  # otherwise the data plane does not accept texts
        result: list[Tokenized] = []

        if descriptor < 0:
            raise NotReady("the file of the model's tokenizer cannot be read", hint="upload it again")

        def work(is_withdrawn: Callable[[], bool]) -> bytes:
            split = texts.split_texts(data)
            lengths = texts.lengths_of(processing, inputs, len(split), question["batches"])
            tokenizer = self._tokenizers.load(digest, texts.most_tokens(lengths, processing), descriptor)
            flags = {"pads": question["pads"], "is_partial": question["text"].get("is_partial", False)}
            result.append(texts.tokenize(tokenizer, split, processing, inputs, lengths, **flags))
            return texts.bytes_of(result[0].tensors)

        tensors = await self._pictures.run(question["peer"], _PIXELS_OF_BYTE * len(data), work, _TEXT_LIMIT_S)
        shapes = [list(tensor.shape) for tensor in result[0].tensors]
        return {"shapes": shapes, "tokens": result[0].tokens, "truncated": result[0].truncated}, tensors


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
