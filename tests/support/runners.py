"""A servable model that is a Python function: the twin of `service.runtime.Model`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from service.core.errors import InvalidTensor
from service.core.sequence import SequenceState
from service.core.signature import ModelSignature, Quantization, State, TensorSpec
from service.native import Runner, as_runner

Array = npt.NDArray[Any]
Function = Callable[..., Sequence[Array]]


class FunctionRunner:
    """Runs `function`, which takes states after inputs, and gives the next ones after outputs.

    Like the real one it checks its inputs, and refuses to be entered twice at a time.
    """

    def __init__(self, signature: ModelSignature, function: Function) -> None:
        self.signature = signature
        self.calls = 0
        self._function = function
        self._running = threading.Lock()

    def run(self, inputs: Sequence[Array], state: SequenceState | None = None) -> list[Array]:
        if not self._running.acquire(blocking=False):
            raise AssertionError("two threads run one instance")
        try:
            for spec, array in zip(self.signature.inputs, inputs, strict=True):
                if array.shape != spec.shape or array.dtype != spec.dtype:
                    raise InvalidTensor(f"input {spec.name!r} does not fit", tensor=spec.name)
            self.calls += 1
            if not self.signature.states:
                return list(self._function(*inputs))
            state = state or SequenceState(self.signature)
            results = self._function(*inputs, *state.tensors)
            state.advance(results[len(self.signature.outputs) :])
            return list(results[: len(self.signature.outputs)])
        finally:
            self._running.release()

    @property
    def runner(self) -> Runner:
        return as_runner(self._run_with_state)

    def _run_with_state(self, tensors: Sequence[Array]) -> list[Array]:
        count = len(self.signature.inputs)
        if not self.signature.states:
            return self.run(tensors)
        state = SequenceState(self.signature)
        state.advance(tensors[count:])
        outputs = self.run(tensors[:count], state)
        return [*outputs, *state.tensors]

    def clone(self) -> FunctionRunner:
        return FunctionRunner(self.signature, self._function)


def tensor(name: str, datatype: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, datatype, shape)


def digits(bias: int = 0) -> FunctionRunner:
    """An 8x8 picture in; its sum of pixels by column, and its brightest pixel plus `bias`, out."""
    signature = ModelSignature(
        (tensor("image", "UINT8", 1, 8, 8, 1),), (tensor("columns", "INT32", 1, 8), tensor("top", "UINT8", 1))
    )
    return FunctionRunner(
        signature,
        lambda image: (image.sum(axis=(1, 3), dtype=np.int32), (image.max(axis=(1, 2, 3)) + np.uint8(bias))),
    )


def affine() -> FunctionRunner:
    """y = a * x + b over three vectors of different types: a model with several inputs."""
    signature = ModelSignature(
        (tensor("x", "FP32", 1, 4), tensor("a", "INT8", 1, 4), tensor("b", "INT64", 1, 4)),
        (tensor("y", "FP32", 1, 4),),
    )
    return FunctionRunner(signature, lambda x, a, b: ((x * a + b).astype(np.float32),))


def tally() -> FunctionRunner:
    """The sum of all inputs of a sequence, which begins at 100."""
    total = State(tensor("total", "INT32", 1), np.array([100], "<i4").tobytes())
    signature = ModelSignature((tensor("x", "INT32", 1),), (tensor("y", "INT32", 1),), (total,))
    return FunctionRunner(signature, lambda x, total: (x + total, x + total))


def identity(datatype: str, *shape: int) -> FunctionRunner:
    """Gives its one input back."""
    return FunctionRunner(
        ModelSignature((tensor("x", datatype, *shape),), (tensor("y", datatype, *shape),)), lambda x: (x.copy(),)
    )


def quantized() -> FunctionRunner:
    """Gives its one input back twice: with a scale of 0.5 and a zero point of -3, and as FP32."""
    stored = TensorSpec("y", "INT8", (1, 4), Quantization(0.5, -3))
    signature = ModelSignature((tensor("x", "INT8", 1, 4),), (stored, tensor("z", "FP32", 1, 4)))
    return FunctionRunner(signature, lambda x: (x.copy(), x.astype(np.float32)))
