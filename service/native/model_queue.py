"""The queue of a loaded model and the threads of its instances: `src/model_queue.h` for Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from service.core.buffers import as_aligned
from service.native.library import Runner, function

Array = npt.NDArray[Any]


class Outcome(IntEnum):
    """Of a job; as in `src/job.h`."""

    PENDING, ANSWERED, FAILED, LATE = range(4)


@tvm_ffi.register_object("octet.Mailbox")
class Mailbox(tvm_ffi.Object):
    """Finished jobs: `take()` gives them to the event loop, which is told by `descriptor()` that there are some."""

    if TYPE_CHECKING:

        def descriptor(self) -> int: ...
        def take(self) -> Sequence[Job]: ...

    @staticmethod
    def empty() -> Mailbox:
        mailbox: Mailbox = function("mailbox")()
        return mailbox


@tvm_ffi.register_object("octet.Job")
class Job(tvm_ffi.Object):
    """One request to a model: see `src/job.h`."""

    if TYPE_CHECKING:
        key: int

        def outcome(self) -> int: ...
        def error(self) -> Any: ...
        def outputs(self) -> Sequence[Any]: ...
        def stages(self) -> Sequence[float]:
            """When it was submitted and taken, by `time.monotonic`, how long its call took, and when it ended."""

        def batch(self) -> Sequence[int]:
            """Which call it was computed in, and the requests and samples of that."""

    @staticmethod
    def of(
        key: int, inputs: Sequence[Array], mailbox: Mailbox, *, level: int, samples: int, deadline_s: float | None
    ) -> Job:
        """
        Args:
            key: whatever the caller knows it by.
            inputs: in the signature's order; copied where they do not lie as kernels want them.
            mailbox: where the outcome goes.
            level: 1 is served first.
            deadline_s: until when its call has to begin, by `time.monotonic`.
        """
        tensors = [_tensor(each) for each in inputs]
        until_s = float("inf") if deadline_s is None else deadline_s
        job: Job = function("job")(key, tensors, level, samples, until_s, mailbox)
        return job

    def failure(self) -> BaseException:
        """Why it failed, where it did."""
        failure: BaseException = self.error().py_error()
        return failure

    def arrays(self) -> list[Array]:
        """The outputs, once it was answered."""
        return [np.from_dlpack(tensor) for tensor in self.outputs()]


@tvm_ffi.register_object("octet.ModelQueue")
class ModelQueue(tvm_ffi.Object):
    """See `src/model_queue.h`, whose methods it has. From any thread."""

    if TYPE_CHECKING:

        def admit(self) -> bool: ...
        def release(self, has_place: bool) -> None: ...
        def lend(self) -> None: ...
        def claim(self) -> bool: ...
        def submit(self, job: Job) -> None: ...
        def withdraw(self, job: Job) -> bool: ...
        def post(self, instance: int, task: Callable[[], None]) -> None: ...
        def plan(self, calls: Sequence[Sequence[int]]) -> None: ...
        def close(self) -> None: ...
        def join(self) -> None: ...
        def waiting(self) -> int: ...
        def queued(self) -> int: ...
        def admitted(self) -> int: ...
        def has_to_wait(self) -> bool: ...
        def used_s(self) -> float: ...
        def retry_after_s(self) -> float: ...
        def drain(self) -> Sequence[Any]: ...

    @staticmethod
    def start(
        name: str,
        instances: Sequence[Mapping[int, Runner]],
        *,
        queue_size: int,
        levels: int,
        max_batch: int,
        max_delay_s: float,
        max_wait_s: float | None = None,
    ) -> ModelQueue:
        """
        Args:
            name: for the threads.
            instances: of each its runners, by the number of samples of a call.
            queue_size, levels, max_batch, max_delay_s, max_wait_s: see `Scheduling`.
        """
        runners = [dict(each) for each in instances]
        wait_s = float("inf") if max_wait_s is None else max_wait_s
        queue: ModelQueue = function("model_queue")(name, queue_size, levels, max_batch, max_delay_s, wait_s, runners)
        return queue

    def happened(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Since it was last asked: `[n]`, the seconds that each request waited; `[m, 3]`, of each call its requests,
        samples and seconds.
        """
        waits_s, calls = self.drain()
        return np.asarray(np.from_dlpack(waits_s), np.float64), np.asarray(np.from_dlpack(calls), np.float64)


def as_runner(run: Callable[[list[Array]], Sequence[Array]]) -> Runner:
    """A runner that calls Python."""

    def call(tensors: Sequence[Any]) -> list[Any]:
        return [_tensor(np.array(output)) for output in run([np.from_dlpack(tensor) for tensor in tensors])]

    runner: Runner = tvm_ffi.convert(call)
    return runner


def serialized(runner: Runner, lock: threading.Lock) -> Runner:
    """`runner`, called while `lock` is held."""

    def call(tensors: Sequence[Any]) -> Any:
        with lock:
            return runner(tensors)

    waiting: Runner = tvm_ffi.convert(call)
    return waiting


def _tensor(array: Array) -> Any:
    return tvm_ffi.from_dlpack(as_aligned(array))
