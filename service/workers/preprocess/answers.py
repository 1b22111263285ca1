"""Answers the questions of a data plane: each contains a picture or texts, and its answer the elements of tensors."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from service.core.errors import InternalError, MemoryFull, OctetError
from service.core.models.metadata import ModelMetadata
from service.core.models.picture import MAX_PIXELS
from service.core.models.signature import TensorSpec
from service.core.models.text import TextProcessing
from service.workers.data_plane.link import Link
from service.workers.preprocess.pictures import SMALL_PIXELS, Endless, PictureQueue, Progress
from service.workers.preprocess.text_processes import TextProcesses
from service.workers.preprocess.tokenizer_files import TokenizerFiles, read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_logger = logging.getLogger(__name__)

Members = dict[str, Any]
_WITHDRAWN = {"problem": {"code": "deadline_passed"}}
_PIXELS_OF_ROW_BYTE = 32  # a byte of a table takes about as long as so many pixels
_PIXELS_OF_SOUND_BYTE = 4
_TABLE_S = 10.0  # the processor time for a table
_PICTURE_S = 30.0  # the processor time for a picture; the largest ones need about two seconds
_PARTING_S = 0.02  # in which failed questions are answered before the connection is closed
# Texts are not limited to a thread for each core, so that the kernel shares the cores among texts of all sizes.
_SPARE_THREADS = 4
_LARGEST_TEXTS = 2  # how many texts of the largest size are tokenized at the same time; each may take 450 MB
_LOAD_S = 60.0  # the processor time for loading a tokenizer


class Question(TypedDict, total=False):
    """A question of the data plane. `native/plane/control/preprocessor.cc` writes it.

    Attributes:
        question: the number of the question, which its answer repeats.
        kind: `picture`, `text`, `sound` or `table`.
        peer: the address of the client.
        pixels: the size of the picture according to its header; -1 if the header is damaged.
        input: the input for which the tensor is, as in `TensorSpec.to_json`.
        preprocessing: the metadata of the model that applies to pictures, as in `ModelMetadata.to_json`.
        inputs: the inputs for which the tensors are, as in `TokenSpec`, `SoundInput` or `TableInput`.
        batches: for texts and tables: the number of texts or rows that a model without buckets takes in one call.
        pairs: for texts: true if the second half of the texts are the second texts of pairs.
        offsets: for texts: true if the answer contains the positions of the tokens in the texts.
        pads: for texts: true if the data plane pads tensors, without a change of the result.
        text: for texts: the processing, as `orders.describe` writes it. The open file of its tokenizer comes with the
            question.
        tokenizer_bytes: for texts: the size of the tokenizer's file, if its content precedes the texts.
    """

    question: int
    kind: str
    peer: str
    pixels: int
    input: Members
    preprocessing: Members
    inputs: list[Members]
    batches: int
    pairs: bool
    offsets: bool
    pads: bool
    text: Members
    tokenizer_bytes: int


class Answers:
    """Answers the questions that come over one connection. For one event loop.

    Attributes:
        has_left: true if another process has to continue the work.
    """

    def __init__(
        self,
        connection: socket.socket,
        lost: Callable[[], None],
        text_processes: Sequence[socket.socket] = (),
        began: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            connection: a non-blocking socket to the data plane. This object owns it from now on.
            lost: called when the data plane has closed the connection, or a text process has ended.
            text_processes: the sockets of the text processes. If empty, this process tokenizes texts itself.
            began: called when a question arrives and no other is being answered.
        """
        self._lost, self._began = lost, began
        self.has_left = False
        self._texts = TextProcesses(text_processes, self._lose_texts) if text_processes else None
        self._pictures = PictureQueue()
        self._pieces = PictureQueue(len(os.sched_getaffinity(0)) + _SPARE_THREADS, _LARGEST_TEXTS)
        self._tokenizers = TokenizerFiles()
        self._tasks: dict[int, asyncio.Task[tuple[Members, bytes]]] = {}
        self._link = Link(connection, self._handle, self._lose)

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    async def leave_if_overdue(self) -> bool:
        """If work has exceeded a time limit, answers its question and closes the connection. The other questions are
        repeated by the next process. Returns true in that case: the thread that does the work cannot be stopped, so the
        process has to end.
        """
        is_late = self._pictures.fail_overdue() | self._pieces.fail_overdue()
        if self._texts is not None and self._texts.fail_overdue():
            is_late = True
        if is_late:
            await asyncio.sleep(_PARTING_S)
            self._leave([])
        return is_late

    def _lose_texts(self, suspects: list[int]) -> None:
        asyncio.get_running_loop().call_later(_PARTING_S, self._leave, suspects)

    def _leave(self, suspects: list[int]) -> None:
        """Ends the work, because another process has to continue it.

        Args:
            suspects: the questions that may have ended a text process.
        """
        self.has_left = True
        self._link.send({"type": "leaving", "suspects": suspects})
        self._lose()

    def close(self) -> None:
        self._link.close()
        if self._texts is not None:
            self._texts.close()
        for task in self._tasks.values():
            task.cancel()

    def _lose(self) -> None:
        self.close()
        self._lost()

    def _handle(self, message: Members, data: bytes, descriptor: int) -> None:
        number = message["question"]
        match message["type"]:
            case "question":
                if not self._tasks:
                    self._began()
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
                case "sound":
                    return await self._converted(question, data)
                case "table":
                    return await self._table(question, data)
                case "text":
                    if self._texts is not None:
                        return await self._texts.tokenize(question, data, descriptor)
                    return await self._tokenized(question, data, descriptor)
            raise NotImplementedError(question["kind"])
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as exception:  # a panic of Rust code is not an `Exception`
            return {"problem": _problem(exception)}, b""

    async def _decoded(self, question: Members, data: bytes) -> bytes:
        pixels = question["pixels"] if question["pixels"] >= 0 else None
        spec = TensorSpec.from_json(question["input"])
        metadata = ModelMetadata.from_json(question.get("preprocessing", {}))
        return await self._pictures.run(question["peer"], pixels, partial(_decode, data, spec, metadata, pixels))

    async def _converted(self, question: Members, data: bytes) -> tuple[Members, bytes]:
        from service.runtime import sound  # imported by a process that is already locked in

        spec = sound.SoundInput.from_json(question["inputs"][0])
        metadata = ModelMetadata.from_json(question.get("preprocessing", {}))
        found: list[sound.Waveform] = []

        def work(progress: Progress) -> bytes:
            progress.begin_piece(_PICTURE_S)
            found.append(sound.decode(data, spec, metadata, is_withdrawn=progress))
            return found[0].tensor.tobytes()

        tensor = await self._pictures.run(question["peer"], _PIXELS_OF_SOUND_BYTE * len(data), work)
        waveform = found[0]
        members = {"sound_samples": waveform.samples, "truncated": int(waveform.is_truncated)}
        return {"shape": list(waveform.tensor.shape), **members}, tensor

    async def _table(self, question: Members, data: bytes) -> tuple[Members, bytes]:
        from service.runtime import table

        inputs = list(map(table.TableInput.from_json, question["inputs"]))
        metadata = ModelMetadata.from_json(question.get("preprocessing", {}))
        result: list[tuple[list[list[int]], int]] = []

        def work(progress: Progress) -> bytes:
            progress.begin_piece(_TABLE_S)
            tensors, rows = table.read_table(data, inputs, metadata.columns, question["batches"])
            result.append(([list(tensor.shape) for tensor in tensors.values()], rows))
            return b"".join(tensor.tobytes() for tensor in tensors.values())

        bytes_of_all = await self._pictures.run(question["peer"], _PIXELS_OF_ROW_BYTE * len(data), work)
        shapes, rows = result[0]
        return {"shapes": shapes, "rows": rows}, bytes_of_all

    async def _tokenized(self, question: Members, data: bytes, descriptor: int) -> tuple[Members, bytes]:
        # it loads NumPy, so it is imported when the process is locked in
        from service.workers.preprocess.tokenizing import Tokenizing

        digest = TextProcessing.from_json(question["text"]).tokenizer
        assert digest is not None  # otherwise the data plane does not accept texts
        file_bytes = question.get("tokenizer_bytes", 0)
        file, data = data[:file_bytes], data[file_bytes:]
        work = Tokenizing(question, data)
        tokenizer = self._tokenizers.find(digest)
        if tokenizer is None:
            if not file and descriptor < 0:
                return {"missing": True}, b""
            found: list[Tokenizer] = []

            def load(progress: Progress) -> bytes:
                progress.begin_piece(_LOAD_S)
                found.append(self._tokenizers.add(digest, file or read_tokenizer(descriptor)))
                return b""

            # not among the small questions, for which threads stay free
            await self._work_on(question, SMALL_PIXELS + 1, load)
            tokenizer = found[0]
            if file:
                self._link.send({"type": "loaded", "question": question["question"]})
        tensors = b""
        while not work.is_done:
            tensors = await self._work_on(question, work.cost, partial(work.advance, tokenizer))
        return work.members(), tensors

    async def _work_on(self, question: Members, cost: int, piece: Callable[[Progress], bytes]) -> bytes:
        """Does a piece of the work on texts. Reports its beginning and its end to the process that passed the question,
        which then knows the reason if this process dies.
        """

        def report(what: str) -> None:
            if question.get("passes") is False:
                self._link.send({"type": what, "question": question["question"]})

        try:
            return await self._pieces.run(question["peer"], cost, piece, began=partial(report, "began"))
        finally:
            report("rested")


def _decode(
    picture: bytes,
    spec: TensorSpec,
    metadata: ModelMetadata,
    pixels: int | None,
    progress: Progress,
) -> bytes:
    from service.runtime.image import decode  # imported by a process that is already locked in

    progress.begin_piece(_PICTURE_S)
    most = MAX_PIXELS if pixels is None else pixels
    return decode(picture, spec, metadata, is_withdrawn=progress, most_pixels=most).tobytes()


def _problem(exception: BaseException) -> Members:
    """Returns the members of a problem document (RFC 9457) that the data plane does not know."""
    match exception:
        case Endless():
            return {**_problem(exception.error), "is_endless": True}
        case OctetError():
            error: OctetError = exception
        case MemoryError():
            error = MemoryFull(hint="try again later, or send smaller requests")
        case _:
            _logger.error("cannot answer a question of the data plane", exc_info=exception)
            return {"code": InternalError.code, "detail": "the server failed unexpectedly", "hint": "see its log"}
    return {"code": error.code, "detail": error.message, "hint": error.hint or "", "tensor": error.tensor or ""}
