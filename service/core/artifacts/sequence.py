"""The state that a stateful model keeps from one call of a sequence to the next."""

from __future__ import annotations

from collections.abc import Iterable

from service.core.artifacts.buffers import aligned_copy
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature


class SequenceState:
    """The state tensors of one sequence. Any instance of the model may run its calls, but only one call at a time."""

    def __init__(self, signature: ModelSignature) -> None:
        """Creates the state before the first call."""
        self.tensors = [aligned_copy(state.first()) for state in signature.states]

    @property
    def size_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def advance(self, tensors: Iterable[Array]) -> None:
        """Replaces the state by copies of the `tensors` that a call returned, in the signature's order.

        The `tensors` may share memory with the current state.
        """
        self.tensors = [aligned_copy(tensor) for tensor in tensors]
