"""A loaded artifact: one virtual machine, its constants, and the buffers of one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from service.core.artifact import ArtifactConfig, Slot
from service.core.buffers import aligned_empty, as_aligned
from service.core.errors import InvalidTensor
from service.core.running import Place
from service.core.sequence import SequenceState
from service.core.signature import ModelSignature, TensorSpec
from service.native import Runner, compiled_runner
from service.runtime.machine import Machine
from service.runtime.threads import Threads

Array = NDArray[Any]


class Model:
    """One instance: one call at a time, from any thread. `clone` makes another, which shares the constants.

    Attributes:
        runner: the same without Python; a state's tensors, where there is one, follow its inputs and outputs.
    """

    def __init__(
        self,
        config: ArtifactConfig,
        module: Any,
        constants: Sequence[Array],
        digest: str = "",
        threads: Threads | None = None,
        place: Place | None = None,
    ) -> None:
        """
        Args:
            module: the loaded library.
            constants: in the config's order, each 64-byte aligned.
            threads: that share a call; by default one for each core that this process may use.
            place: marked while the library computes, for whoever watches over this process.
        """
        self._place = place
        self.config, self.digest = config, digest
        self.threads = threads or Threads()
        self._module, self._constants = module, constants
        # Taken once: an instance computes in the same memory for as long as it lives.
        arena = aligned_empty([config.arena_bytes], np.uint8)
        self._tensors = [tvm_ffi.from_dlpack(tensor) for tensor in (*constants, *views(arena, config.activations))]
        self._machine = Machine(module)
        self._entry: tvm_ffi.Function = self._machine[config.entry]
        self.runner: Runner = compiled_runner(
            self._entry,
            self._tensors,
            self.threads.team,
            self.threads.count,
            memoryview(bytearray(1)) if place is None else place.mark,
            [module],
        )

    @property
    def signature(self) -> ModelSignature:
        return self.config.signature

    def clone(self) -> Model:
        """Another instance, with buffers of its own."""
        place = self._place.another() if self._place else None
        return Model(self.config, self._module, self._constants, self.digest, self.threads, place)

    def __call__(self, *inputs: Array) -> Array | tuple[Array, ...]:
        """The output for `inputs` (in the signature's order), or a tuple of outputs where there are several.

        Raises:
            InvalidTensor: an input does not fit the signature.
        """
        outputs = self.run(inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, inputs: Sequence[Array], state: SequenceState | None = None) -> list[Array]:
        """The outputs for `inputs`, both in the signature's order. The GIL is released while it computes.

        Waits while models that are called in other threads compute on the cores that it needs.

        Args:
            state: of the sequence that the call belongs to, of a model that keeps one; it advances only where the call
                succeeds. Without it, the call is a sequence by itself.

        Raises:
            InvalidTensor: an input does not fit the signature.
        """
        specs = self.signature.inputs
        if len(inputs) != len(specs):
            raise InvalidTensor(f"the model takes {len(specs)} inputs, not {len(inputs)}")
        tensors = [tvm_ffi.from_dlpack(_fitting(spec, array)) for spec, array in zip(specs, inputs, strict=True)]
        if self.signature.states:
            state = state or SequenceState(self.signature)
            tensors += [tvm_ffi.from_dlpack(tensor) for tensor in state.tensors]
        results = [np.from_dlpack(each) for each in self.runner(tensors)]
        count = len(self.signature.outputs)
        if state is not None:
            state.advance(results[count:])
        return results[:count]

    def function(self, symbol: str) -> Callable[..., Any] | None:
        """A function of the library, if it has one of that name."""
        if not self._module.implements_function(symbol, query_imports=True):
            return None
        function: Callable[..., Any] = self._module.get_function(symbol, query_imports=True)
        return function

    def instrument(self, note: Callable[..., None]) -> None:
        """From now on `note(function, name, before, result, *operands)` is called around every call of a kernel."""

        def hook(*args: Any) -> int:
            note(*args)
            return 0  # go on

        self._machine.instrument(hook)


def views(memory: Array, slots: Sequence[Slot]) -> list[Array]:
    """The tensors that lie in `memory`, `[bytes]` uint8."""
    return [memory[slot.offset_bytes : slot.end_bytes].view(np.dtype(slot.dtype)).reshape(slot.shape) for slot in slots]


def _fitting(spec: TensorSpec, array: Array) -> Array:
    """`array` as the kernels want it: the declared dtype and shape, contiguous, 64-byte aligned; copied if need be."""
    array = np.asarray(array)
    if array.dtype != spec.dtype:
        raise InvalidTensor(
            f"input {spec.name!r} is {array.dtype}, but the model takes {spec.datatype}", tensor=spec.name
        )
    if array.shape != spec.shape:
        raise InvalidTensor(
            f"input {spec.name!r} has shape {list(array.shape)}, but the model takes {list(spec.shape)}",
            tensor=spec.name,
        )
    return as_aligned(array)
