"""The state that a stateful model keeps from one call of a sequence to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from service.core.buffers import aligned_copy
from service.core.signature import ModelSignature


class SequenceState:
    """The tensors of one sequence. Any instance of the model may run any of its calls, one at a time."""

    def __init__(self, signature: ModelSignature) -> None:
        """Before the first call."""
        self.tensors = [aligned_copy(state.first()) for state in signature.states]

    @property
    def size_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def advance(self, tensors: Iterable[NDArray[Any]]) -> None:
        """Takes over what a call left, in the signature's order. (It may lie in the tensors that there are.)"""
        self.tensors = [aligned_copy(tensor) for tensor in tensors]
