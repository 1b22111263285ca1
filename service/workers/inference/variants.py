"""One model in several batch sizes, and how the samples of requests are brought to them and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import monotonic

import numpy as np

from service.core.buffers import aligned_empty
from service.core.errors import InvalidTensor
from service.core.sequence import SequenceState
from service.core.signature import ModelSignature, TensorSpec
from service.workers.inference.batch_plan import BatchPlan
from service.workers.inference.runner import Array, Runner

_WARM_UPS = 4  # the first call faults pages in; the least of the others is what a call takes


class Variants:
    """One instance of a model: of each built size a runner. They take turns on one thread.

    Attributes:
        signature: of one sample.
        plan: which sizes compute how many samples; by the measurements of `warm`, once it was called.
        run_s: how long the runners took in the last `run`.
    """

    def __init__(self, one: Runner, others: Mapping[int, Runner] | None = None) -> None:
        """
        Args:
            one: the runner for one sample; it says what the model is.
            others: by size, of which each is that of all its inputs' and outputs' first dimension.
        """
        self._runners = {1: one, **(others or {})}
        self.signature: ModelSignature = one.signature
        self._one = [(spec.dtype, spec.shape) for spec in one.signature.inputs]
        self._buffers: dict[int, list[Array]] = {}
        self.plan = BatchPlan({size: float(size) for size in self._runners})
        self.run_s = 0.0

    def clone(self) -> Variants:
        """Another instance, which may run at the same time as this one, and goes by the same plan."""
        one, *others = ((size, runner.clone()) for size, runner in self._runners.items())
        twin = Variants(one[1], dict(others))
        twin.plan = self.plan
        return twin

    def warm(self) -> None:
        """Calls every size on zeros, on the thread that is to call it, and makes the plan by what that took."""
        call_s = dict.fromkeys(self._runners, float("inf"))
        for _ in range(_WARM_UPS if len(self._runners) > 1 else 1):  # in turns: what disturbs one disturbs all
            for size, runner in self._runners.items():
                self.run_s = 0.0
                self._call(runner, [np.zeros(spec.shape, spec.dtype) for spec in runner.signature.inputs])
                call_s[size] = min(call_s[size], self.run_s)
        self.plan = BatchPlan(call_s)

    def samples_of(self, inputs: Sequence[Array]) -> int:
        """How many samples a request asks for.

        Raises:
            InvalidTensor: an input does not fit the signature, or its inputs differ in it.
        """
        if [(each.dtype, each.shape) for each in inputs] == self._one:
            return 1
        specs = self.signature.inputs
        if len(inputs) != len(specs):
            raise InvalidTensor(f"the model takes {len(specs)} inputs, not {len(inputs)}")
        if len(self._runners) == 1:  # its first dimension need not be one of samples
            samples, shapes = 1, [spec.shape for spec in specs]
        else:
            samples = len(inputs[0]) if inputs and inputs[0].ndim else 0
            shapes = [(samples, *spec.shape[1:]) for spec in specs]
        for spec, shape, array in zip(specs, shapes, inputs, strict=True):
            if array.dtype != spec.dtype or array.shape != shape or not 1 <= samples <= self.plan.most:
                raise _misfit(spec, array, self.plan.most)
        return samples

    def run(self, requests: Sequence[Sequence[Array]], state: SequenceState | None = None) -> list[Sequence[Array]]:
        """The outputs of each of some requests that fit (`samples_of`), computed together by as many calls as planned.

        The outputs of a request are views of those of the calls.

        Args:
            state: of a model that keeps one, which has one size and takes one request at a time.
        """
        self.run_s = 0.0
        if len(requests) == 1:  # straight through
            runner = self._runners.get(len(requests[0][0]) if len(self._runners) > 1 else 1)
            if runner is not None:
                return [self._call(runner, requests[0], state)]
        counts = [len(request[0]) for request in requests]
        answers = [self._call(self._runners[size], batch) for size, batch in self._batches(requests, counts)]
        whole = [_joined(parts, sum(counts)) for parts in zip(*answers, strict=True)]
        return list(_split(whole, counts))

    def _call(self, runner: Runner, inputs: Sequence[Array], state: SequenceState | None = None) -> Sequence[Array]:
        begun_s = monotonic()
        try:
            return runner.run(inputs, state)
        finally:
            self.run_s += monotonic() - begun_s

    def _batches(self, requests: Sequence[Sequence[Array]], counts: Sequence[int]) -> Iterator[tuple[int, list[Array]]]:
        """The size and the inputs of each call. A buffer is filled again for the next call of its size."""
        begin = 0
        for size in self.plan.calls(sum(counts)):
            buffers = self._buffers.get(size)
            if buffers is None:
                specs = self._runners[size].signature.inputs
                buffers = self._buffers[size] = [aligned_empty(spec.shape, spec.dtype) for spec in specs]
                for buffer in buffers:
                    buffer[...] = 0
            for index, buffer in enumerate(buffers):
                _fill(buffer, [request[index] for request in requests], begin)
            yield size, buffers
            begin += size


def _fill(buffer: Array, arrays: Sequence[Array], begin: int) -> None:
    """Copies rows `begin` and following of all `arrays`, as if they were one, to `buffer`, until it or they end."""
    filled = 0
    for array in arrays:
        rows = array[begin : begin + len(buffer) - filled]
        buffer[filled : filled + len(rows)] = rows
        filled += len(rows)
        begin = max(0, begin - len(array))


def _joined(parts: Sequence[Array], samples: int) -> Array:
    return (parts[0] if len(parts) == 1 else np.concatenate(parts))[:samples]


def _split(outputs: Sequence[Array], counts: Sequence[int]) -> Iterator[list[Array]]:
    begin = 0
    for count in counts:
        yield [output[begin : begin + count] for output in outputs]
        begin += count


def _misfit(spec: TensorSpec, array: Array, most: int) -> InvalidTensor:
    sizes = "" if most == 1 else f", and batches of up to {most}"
    return InvalidTensor(
        f"input {spec.name!r} is {array.dtype} {list(array.shape)}, but the model takes {spec.datatype}"
        f" {list(spec.shape)}{sizes}",
        tensor=spec.name,
    )
