"""A loaded artifact: the memory that one call computes in, and the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from service.core.artifacts.artifact import ArtifactConfig
from service.core.artifacts.buffers import aligned_empty, as_aligned, is_aligned
from service.core.artifacts.sequence import SequenceState
from service.core.errors import InvalidTensor
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.runtime.octet_library import NativeModel
from service.runtime.threads import Threads


class Model:
    """One instance of a model. It runs one call at a time, from any thread.

    `clone` creates another instance, which shares the constants.
    """

    def __init__(
        self,
        config: ArtifactConfig,
        native: NativeModel,
        digest: str = "",
        threads: Threads | None = None,
    ) -> None:
        """
        Args:
            native: the loaded library and constants.
            threads: the threads that share a call; by default one for each core that this process may use.
        """
        self.config, self.digest = config, digest
        self.threads = threads or Threads()
        self.native = native
        self.instance = native.instance(self.threads.team, self.threads.count)
        self._longest = native.longest
        self._bound: tuple[Sequence[Array], ...] | None = None  # keeps the arrays alive while they are bound
        self._keeps_state = bool(self.signature.states)

    @property
    def signature(self) -> ModelSignature:
        return self.config.signature

    def clone(self) -> Model:
        """Returns a new instance of the same model, with memory of its own."""
        return Model(self.config, self.native, self.digest, self.threads)

    def __call__(self, *inputs: Array) -> Any:
        """Returns the output for `inputs` (in the signature's order), or a tuple if there are several outputs.

        Without inputs: computes with the bound tensors (`bind`), and returns nothing.

        Raises:
            InvalidTensor: an input does not fit the signature.
        """
        if not inputs and self._bound is not None:
            return self.instance.run()
        outputs = self.run(inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run_padded(self, inputs: Sequence[Array], length: int) -> list[Array]:
        """Does the same as `run` for inputs that were padded to the signature's shapes. The first `length` positions of
        the outputs are the results.
        """
        if not self._longest:  # the build has found that the values of the padding have no effect
            return self.run(inputs)
        self.instance.set_length(length)
        try:
            return self.run(inputs)
        finally:
            self.instance.set_length(self._longest)

    def run(self, inputs: Sequence[Array], state: SequenceState | None = None) -> list[Array]:
        """Returns the outputs for `inputs`, both in the signature's order. Releases the GIL while it computes.

        Waits while calls in other threads compute on the cores that this call needs. Removes the binding of `bind`.

        Args:
            state: the state of the sequence that the call belongs to, if the model keeps state. The state advances only
                if the call succeeds. Without a state, the call is a sequence by itself.

        Raises:
            InvalidTensor: an input does not fit the signature.
        """
        self._bound = None
        if not self._keeps_state:
            return self._outputs(inputs)
        state = state or SequenceState(self.signature)
        after = [aligned_empty(tensor.shape, tensor.dtype) for tensor in state.tensors]
        self.instance.bind_states(_addresses(state.tensors), _addresses(after))
        outputs = self._outputs(inputs)
        state.advance(after)
        return outputs

    def _outputs(self, inputs: Sequence[Array]) -> list[Array]:
        outputs = self.instance.call(*inputs)
        if outputs is None:  # the inputs have to be converted, or do not fit
            outputs = self.instance.call(*self._check_and_align(inputs))
            assert outputs is not None, "checked arrays must fit"
        return outputs

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """From now on `model()` reads `inputs` and writes `outputs`, without checks or copies.

        The instance keeps the state, and begins a new sequence.

        Args:
            inputs, outputs: in the signature's order; C-ordered, 64-byte aligned (`buffers.aligned_empty`).

        Raises:
            InvalidTensor: a tensor does not fit the signature, or its memory is not C-ordered, aligned and writeable.
        """
        signature = self.signature
        for role, specs, arrays in (("input", signature.inputs, inputs), ("output", signature.outputs, outputs)):
            if len(arrays) != len(specs):
                raise InvalidTensor(f"the model has {len(specs)} {role}s, not {len(arrays)}")
            for spec, array in zip(specs, arrays, strict=True):
                _check(spec, array, role)
                if not is_aligned(array) or not array.flags.writeable:
                    raise InvalidTensor(
                        f"{role} {spec.name!r} cannot be bound: it is not C-ordered, aligned to 64 bytes and writeable",
                        tensor=spec.name,
                        hint="allocate it with service.core.artifacts.buffers.aligned_empty",
                    )
        self._bind(inputs, outputs)
        self._bound = inputs, outputs

    def time_calls(self, inputs: Sequence[Array]) -> Array:
        """Runs the model once, and returns the time of each of its kernel calls in seconds: `[calls] float64`."""
        aligned = self._check_and_align(inputs)
        outputs = [aligned_empty(spec.shape, spec.dtype) for spec in self.signature.outputs]
        self._bound = None
        self._bind(aligned, outputs)
        return np.array(self.instance.run_timed())

    def _bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Binds the arrays, and starts a new sequence, whose state the instance keeps."""
        self.instance.bind(_addresses(inputs), _addresses(outputs))
        if self.signature.states:
            self.instance.bind_states(None, None)

    def _check_and_align(self, inputs: Sequence[Array]) -> list[Array]:
        """Returns `inputs` after a check, copied if they are not aligned."""
        return [as_aligned(array) for array in checked(self.signature, inputs)]


def checked(signature: ModelSignature, inputs: Sequence[Array]) -> list[Array]:
    """Returns `inputs` as arrays. Raises `InvalidTensor` if they do not fit the signature."""
    specs = signature.inputs
    if len(inputs) != len(specs):
        raise InvalidTensor(f"the model takes {len(specs)} inputs, not {len(inputs)}")
    return [_check(spec, np.asarray(array)) for spec, array in zip(specs, inputs, strict=True)]


def _addresses(arrays: Sequence[Array]) -> list[int]:
    return [array.ctypes.data for array in arrays]


def _check(spec: TensorSpec, array: Array, role: str = "input") -> Array:
    """Returns `array`. Raises `InvalidTensor` if its dtype or shape differ from `spec`'s."""
    verb = "takes" if role == "input" else "gives"
    if array.dtype != spec.dtype:
        raise InvalidTensor(
            f"{role} {spec.name!r} is {array.dtype}, but the model {verb} {spec.datatype}", tensor=spec.name
        )
    if array.shape != spec.shape:
        raise InvalidTensor(
            f"{role} {spec.name!r} has shape {list(array.shape)}, but the model {verb} {list(spec.shape)}",
            tensor=spec.name,
        )
    return array
